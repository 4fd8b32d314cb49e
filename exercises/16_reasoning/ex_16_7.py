# ---
# title: A credit for pass@k
# kind: implement
# minutes: 35
# seconds: 30
# ---

# %% [statement]
# There are twelve strategies, and 60 problems, each solved by some of the strategies. The policy is one softmax over the strategies. In training, groups of eight tries are sampled, and the logits move by
# `lr` · mean over groups of $\sum_i A_i\,\nabla\log\pi(y_i)$ with the credit $A$ that you give. With $A_i = r_i - \bar r$ the policy converges to one strategy, the best one or nearly the best.
#
# We want a high probability that **one of eight tries** solves the problem. So the objective is $\mathbb E[\max_i r_i]$ over groups of the given size, and the tries stay independent samples of one policy.
#
# Write `credit(rewards)`: rewards `(P, G)` of 0 and 1, one row per group; returns `(P, G)`. The mean of $\sum_i A_i\nabla\log\pi(y_i)$ must be the gradient of that objective **exactly**, for any $G \ge 2$, and every try without which the maximum would be the same must get 0.
#
# The last test trains: 150 steps of 16 groups at `lr = 6`, on six seeds, each paired with our run. The curve is the exact pass@8. You pass if the lower end of the 95 % interval of (your pass@8 − ours) at the end is at least −0.05.

# %% [given]
import torch


# %% [stub]
def credit(rewards):
    """rewards: (P, G) of 0.0 and 1.0. Returns (P, G)."""
    raise NotImplementedError


# %% [solution]
def credit(rewards):
    # the maximum of all minus the maximum of the other tries: this baseline does not depend on the try itself
    alone = rewards.sum(-1, keepdim=True) == 1
    return rewards * alone


# %% [tests]
import itertools

import torch
from minirlhf_course.classroom.testing import expect, fail, test
from minirlhf_course.classroom.training import trains

WAYS, PROBLEMS = 12, 60


def asked(sub, rewards):
    got = sub.credit(rewards)
    if not isinstance(got, torch.Tensor) or got.shape != rewards.shape:
        fail("the result of `credit` is not a tensor of the shape of `rewards`")
    return got.double()


@test(
    points=2,
    hints=(
        "Three tries of a group solve the problem. What is the maximum of the rewards without the first of them?",
        "A try changes the maximum only if it is the only success of its group.",
    ),
)
def made_no_difference(sub, draw):
    "`credit` is 0 for tries that do not change the maximum."
    group = draw.integer(3, 6)
    rewards = torch.zeros(4, group, dtype=torch.float64)
    rewards[1, draw.integer(0, group - 1)] = 1.0
    rewards[2, draw.permutation(group)[:2]] = 1.0
    rewards[3] = 1.0
    got = asked(sub, rewards)
    centred = rewards - rewards.mean(-1, keepdim=True)
    others = (rewards.sum(-1, keepdim=True) - rewards) / (group - 1)
    known = {
        "that is the reward minus the group's mean": centred, "that is the reward minus the leave-one-out baseline": rewards - others,
        "the right tries share the credit; without any one of them the maximum is the same": rewards / rewards.sum(-1, keepdim=True).clamp(min=1),
        "the group's mean is subtracted, so tries that do not change the maximum have credit": (rewards * (rewards.sum(-1, keepdim=True) == 1)) - (rewards * (rewards.sum(-1, keepdim=True) == 1)).mean(-1, keepdim=True),
    }  # fmt: skip
    want = rewards * (rewards.sum(-1, keepdim=True) == 1)
    expect(
        torch.where(want == 0, got, 0.0), torch.zeros_like(got), what="`credit` of tries that do not change the maximum", given={"rewards": rewards},
        mistakes={say: torch.where(want == 0, value, 0.0) for say, value in known.items()},
    )  # fmt: skip


@test(
    points=2,
    hints=(
        "Subtract from the maximum a baseline that does not depend on the try itself.",
        "Maximum over all minus maximum over the other tries: with rewards of 0 and 1 this is 1 for a sole success and 0 otherwise. Nothing is divided.",
    ),
    against="all groups, the gradient by autograd",
)
def unbiased(sub, draw):
    "The mean over all groups is the gradient of the probability that one of the tries is right."
    group = draw.integer(2, 5)
    q = [0.15, 0.3, 0.45, 0.6][draw.integer(0, 3)]
    z = torch.tensor(q, dtype=torch.float64).logit().requires_grad_()
    solved = 1 - (1 - z.sigmoid()) ** group
    want = torch.autograd.grad(solved, z)[0]
    every = torch.tensor(list(itertools.product((0.0, 1.0), repeat=group)), dtype=torch.float64)
    chance = (every * q + (1 - every) * (1 - q)).prod(-1)
    slope = every - q  # of log π of each try in the logit
    total = lambda credits: (chance * (credits * slope).sum(-1)).sum()
    sole = every * (every.sum(-1, keepdim=True) == 1)
    expect(
        total(asked(sub, every)), want, what="the mean step", given={"G": group, "probability of one try": q}, tolerance=1e-9,
        mistakes={
            "it is divided by the size of the group": total(sole) / group,
            "a sole success gets 1 minus the group's mean": total(sole * (1 - 1 / group)),
            "that is the gradient of the fraction of right tries": group * q * (1 - q),
        },
    )  # fmt: skip


@trains(
    points=3,
    hints=(
        "Look at your curve: does pass@8 fall while the entropy of the policy falls?",
        "Reward only the sole success of a group: then strategies that solve what others do not keep their probability.",
    ),
    seeds=6,
    bar=0.05,
    what="pass@8",
    fixed=("credit",),
)
def learns(sub, draw):
    "In 150 steps pass@8 rises: six runs, each paired with ours."
    world = torch.Generator().manual_seed(16)  # one world for all runs: they differ by their tries
    share = 0.8 * torch.rand(WAYS, generator=world, dtype=torch.float64) ** 3
    table = (torch.rand(PROBLEMS, WAYS, generator=world, dtype=torch.float64) < share).double()
    logits = torch.zeros(WAYS, dtype=torch.float64)
    rng = torch.Generator().manual_seed(draw.integer(0, 2**28))
    solved = lambda: float((1 - (1 - table @ logits.softmax(-1)) ** 8).mean())
    curve = [solved()]
    for number in range(1, 151):
        pi = logits.softmax(-1)
        problems = torch.randint(PROBLEMS, (16,), generator=rng)
        tried = torch.multinomial(pi.expand(16, -1), 8, True, generator=rng)
        rewards = table[problems].gather(1, tried)
        given = asked(sub, rewards)
        push = torch.zeros(WAYS, dtype=torch.float64).index_add(0, tried.flatten(), given.flatten()) - given.sum() * pi
        logits = logits + 6.0 * push / 16
        if number % 25 == 0:
            curve.append(solved())
    return curve


# %% [probes]
# no values, integers, float32, size, gradient, nan, keywords: rewards are 0 or 1, and no gradient flows through them


# %% [mutant] the usual advantage
# caught by: made_no_difference
# says: minus the group's mean
def credit(rewards):
    return rewards - rewards.mean(-1, keepdim=True)


# %% [mutant] shared
# caught by: made_no_difference
# says: share the credit
def credit(rewards):
    return rewards / rewards.sum(-1, keepdim=True).clamp(min=1)


# %% [mutant] divided by the group
# caught by: unbiased
# says: size of the group
def credit(rewards):
    return rewards * (rewards.sum(-1, keepdim=True) == 1) / rewards.shape[-1]


# %% [mutant] the best reply of the group alone
# caught by: made_no_difference
def credit(rewards):
    best = torch.zeros_like(rewards)
    return best.scatter(-1, rewards.argmax(-1, keepdim=True), 1.0) * rewards


# %% [mutant] the wrong way
# caught by: unbiased
def credit(rewards):
    return -rewards * (rewards.sum(-1, keepdim=True) == 1)


# %% [partial] 2: nothing to anybody
def credit(rewards):
    return torch.zeros_like(rewards)
