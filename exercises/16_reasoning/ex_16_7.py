# ---
# title: Pay for what the group did not have
# kind: implement
# minutes: 35
# seconds: 30
# ---

# %% [statement]
# There are twelve ways to attack a problem, and 60 problems, each solved by some of the ways. The policy is one softmax over the ways. In training, groups of eight tries are sampled, and the logits move by
# `lr` · mean over groups of $\sum_i A_i\,\nabla\log\pi(y_i)$ with the credit $A$ that you give. With $A_i = r_i - \bar r$ the policy ends in one way, one of those that solve most problems.
#
# We want something else: that **one of eight tries** solves the problem, as often as possible. So the objective is $\mathbb E[\max_i r_i]$ over groups of the given size, and the tries stay independent draws of one policy.
#
# Write `credit(rewards)`: rewards `(P, G)` of 0 and 1, a row for each group; returns `(P, G)`. The mean of $\sum_i A_i\nabla\log\pi(y_i)$ must be the gradient of that objective **exactly**, for any $G \ge 2$, and every try whose presence made no difference must get 0.
#
# The last test trains: 150 steps of 16 groups at `lr = 6`, on six seeds, each beside our run. The curve is pass@8, exactly. Its mean may lie 0.05 below ours in the end, with the whole of its 95 % interval.

# %% [given]
import torch


# %% [stub]
def credit(rewards):
    """rewards: (P, G) of 0.0 and 1.0. Returns (P, G)."""
    raise NotImplementedError


# %% [solution]
def credit(rewards):
    # the best of all less the best of the others: a baseline that does not depend on the try itself
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
        "A try has made a difference only if it is the one success of its group.",
    ),
)
def made_no_difference(sub, draw):
    "`credit` is 0 for tries that made no difference."
    group = draw.integer(3, 6)
    rewards = torch.zeros(4, group, dtype=torch.float64)
    rewards[1, draw.integer(0, group - 1)] = 1.0
    rewards[2, draw.permutation(group)[:2]] = 1.0
    rewards[3] = 1.0
    got = asked(sub, rewards)
    centred = rewards - rewards.mean(-1, keepdim=True)
    others = (rewards.sum(-1, keepdim=True) - rewards) / (group - 1)
    known = {
        "that is the reward less the group's mean": centred, "that is the reward less the mean of the others": rewards - others,
        "those that solve it share the credit; without any one of them the maximum is the same": rewards / rewards.sum(-1, keepdim=True).clamp(min=1),
        "a group's mean was taken off, so tries that made no difference have credit": (rewards * (rewards.sum(-1, keepdim=True) == 1)) - (rewards * (rewards.sum(-1, keepdim=True) == 1)).mean(-1, keepdim=True),
    }  # fmt: skip
    want = rewards * (rewards.sum(-1, keepdim=True) == 1)
    expect(
        torch.where(want == 0, got, 0.0), torch.zeros_like(got), what="`credit` of tries that made no difference", given={"rewards": rewards},
        mistakes={say: torch.where(want == 0, value, 0.0) for say, value in known.items()},
    )  # fmt: skip


@test(
    points=2,
    hints=(
        "Take a baseline off the maximum that does not depend on the try itself.",
        "max over all less max over the others: with rewards of 0 and 1 that is 1 for a sole success and 0 otherwise. Nothing is divided.",
    ),
    against="all groups, the gradient by autograd",
)
def unbiased(sub, draw):
    "The mean over all groups is the gradient of the chance that one of the tries solves it."
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
        total(asked(sub, every)), want, what="the mean step", given={"G": group, "chance of one try": q}, tolerance=1e-9,
        mistakes={
            "it is divided by the size of the group": total(sole) / group,
            "a sole success is paid 1 less the group's mean": total(sole * (1 - 1 / group)),
            "it is that of the share of right tries": group * q * (1 - q),
        },
    )  # fmt: skip


@trains(
    points=3,
    hints=(
        "Look at your curve: does pass@8 fall while the policy becomes surer?",
        "Pay only the one success of a group: ways that solve what others do not then keep their weight.",
    ),
    seeds=6,
    bar=0.05,
    what="pass@8",
)
def learns(sub, draw):
    "In 150 steps pass@8 rises: six runs, each beside ours."
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
# no values, integers, float32, size, gradient, nan, inputs, keywords: rewards are 0 or 1, and no gradient flows through them


# %% [mutant] the usual advantage
# caught by: made_no_difference
# says: less the group's mean
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
