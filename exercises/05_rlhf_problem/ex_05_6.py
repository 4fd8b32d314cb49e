# ---
# title: A frontier of your own policies
# kind: implement
# minutes: 35
# uses: 02.6
# seconds: 30
# ---

# %% [statement]
# In 05.1 you found the best policy on paper. Here you find it as in practice, where a sum over all completions is impossible. There are eight completions, and
# the policy is a vector of logits `(8,)`. Your `sample` (02.6) samples completions from it, a grader scores them, and you take a gradient step.
#
# 1. (five minutes) `point(probs, ref, rewards)`: the coordinates of a policy on the plane of KL and reward, the pair $(\mathrm{KL}(\pi\|\pi_\text{ref}),\ \mathbb{E}_\pi[r])$ in nats and
#    in units of reward. `probs`, `ref` and `rewards` are `(8,)`. A completion may have probability 0.
# 2. `step(logits, ref_logits, drawn, rewards, beta, lr)`: one step towards the maximum of $\mathbb{E}[r] - \beta\,\mathrm{KL}(\pi\|\pi_\text{ref})$. `drawn` holds the indices of the `N` sampled
#    completions, `rewards` their scores, `(N,)`. Return the new logits. You may estimate the gradient in any way. Our reference solution takes a plain step of size `lr`.
#
# **How it is graded.** For each of three coefficients, $\beta = 0.2$, 0.5 and 1, your step runs 60 times on 64 completions, with `lr = 0.5`. This gives three policies. The checker computes the exact
# optimum of $\mathbb{E}[r] - \beta\,\mathrm{KL}$ for each β, and how far your policy is below it. Your score is minus the mean of the three distances. It is computed for five
# seeds, each paired with our run. You pass if the lower end of the 95 % interval of (your score − ours) is above −0.1.
# Then one step is compared with the exact gradient of $\mathbb{E}[r] - \beta\,\mathrm{KL}$, at other β and `lr`, where each completion is sampled exactly as often as the policy says. The step
# must have the direction of the gradient and, within a quarter, `lr` times its length. `lr = 0` changes nothing, and twice the `lr` moves twice as far.

# %% [given]
import torch


# %% [stub]
def point(probs, ref, rewards):
    """probs, ref, rewards: (8,). Returns (KL, mean reward), two numbers."""
    raise NotImplementedError


def step(logits, ref_logits, drawn, rewards, beta, lr):
    """logits, ref_logits: (8,). drawn: (N,) integers. rewards: (N,). Returns new logits, (8,)."""
    raise NotImplementedError


# %% [solution]
def point(probs, ref, rewards):
    kl = torch.where(probs > 0, probs * (probs / ref).log(), 0.0).sum()
    return kl, (probs * rewards).sum()


def step(logits, ref_logits, drawn, rewards, beta, lr):
    logits = logits.clone().requires_grad_()
    logps = logits.log_softmax(-1)
    held = rewards - beta * (logps - ref_logits.log_softmax(-1)).detach()[drawn]
    ((held - held.mean()) * logps[drawn]).mean().backward()
    return (logits + lr * logits.grad).detach()


# %% [tests]
import math

import torch
from minirlhf.core import exact
from minirlhf_course.classroom.testing import expect, fail, test, tidy, tidy_distribution
from minirlhf_course.classroom.training import moved, points_along, steps_by, trains, weights_of

BETAS = (0.2, 0.5, 1.0)


@test(
    points=1,
    hints=(
        "Both are sums over the eight completions. Which probabilities are the weights?",
        "They are Σ π log(π/π_ref) and Σ π r. Where π is 0, the term of the first sum is 0, not NaN.",
    ),
)
def stands(sub, draw):
    "`point` is the KL from the reference and the mean reward."
    probs, ref = (tidy_distribution(draw, 8, parts=40) for _ in range(2))
    probs[0], probs[1] = 0.0, probs[0] + probs[1]
    rewards = tidy(draw.uniform(8, low=-1, high=2))
    rows = list(zip(probs.tolist(), ref.tolist(), rewards.tolist(), strict=True))
    kl = sum(p * math.log(p / q) for p, q, _ in rows if p)
    reward = sum(p * r for p, _, r in rows)
    got = sub.point(probs, ref, rewards)
    if not isinstance(got, tuple | list) or len(got) != 2:
        fail("expected a pair: the KL and the mean reward")
    given = {"probs": probs, "ref": ref, "rewards": rewards}
    back = sum(q * math.log(q / max(p, 1e-300)) for p, q, _ in rows)
    nan = torch.tensor(torch.nan, dtype=torch.float64)
    mistakes = {
        "the KL has the other direction, from the reference": back,
        "0 · log 0 is NaN": nan,
        "it is in bits": kl / math.log(2),
        "the two are in the wrong order, with the reward first": reward,
    }
    expect(got[0], kl, what="the KL", given=given, mistakes=mistakes)
    small = torch.tensor([9e-7, 1e-8, *[0.1] * 5], dtype=torch.float64)
    small = torch.cat([small, 1 - small.sum(0, keepdim=True)])
    turned = small[[1, 0, *range(2, 8)]]  # only the two smallest are exchanged
    right = (9e-7 - 1e-8) * math.log(90)
    what, given = "the KL of two policies that differ where they are below 10⁻⁶", {"probs": small, "ref": turned}
    both = sub.aside.point(small, turned, rewards)
    expect(both[0], right, what=what, given=given, tolerance=1e-4, floor=1e-6)
    reference = sum(q * r for _, q, r in rows)
    expect(
        got[1],
        reward,
        what="the mean reward",
        given=given,
        mistakes={
            "it is the mean under the reference": reference,
            "all completions have equal weight": sum(r for *_, r in rows) / 8,
        },
    )


def one_step(sub, draw):
    """Where each completion is drawn as often as the policy says, the step is `lr` times the exact gradient, whatever β."""
    for counts in ([24, 16, 8, 6, 4, 3, 2, 1], [10, 8, 6, 5, 4, 3, 2, 2]):
        exactly_sampled(sub, draw, torch.tensor(counts)[draw.permutation(8)])


def exactly_sampled(sub, draw, often):
    """Compare steps on completions of which each occurs ``often``, ``(8,)``, which is in proportion to its probability."""
    size = int(often.sum())
    logits = (often / size).double().log() + float(draw.uniform(1, low=-1, high=1))
    drawn = torch.arange(8).repeat_interleave(often)[draw.permutation(size)]
    ref, marks = draw.normal(8), draw.uniform(8, low=-1, high=1)

    def exact_step(beta, lr):
        rewards = marks * min(1.0, 10 * beta)
        leaf = logits.clone().requires_grad_()
        value = exact.regularised_value(leaf.softmax(-1), ref.softmax(-1), rewards, beta)
        return lr * torch.autograd.grad(value, leaf)[0]

    drawn_lr = float(draw.uniform(1, low=0.1, high=1.0))
    # also the numbers of the training, and ten times its learning rate
    for beta, lr in (
        (0.2, 0.5),
        (0.5, 0.5),
        (1.0, 5.0),
        (1e-4, 0.5),
        (float(draw.uniform(1, low=1.5, high=3.0)), drawn_lr),
    ):
        rewards = marks * min(1.0, 10 * beta)  # in units of a thousandth beside such a β
        step = lambda rate, beta=beta, rewards=rewards: sub.step(logits, ref, drawn, rewards[drawn], beta, rate)
        steps_by(step, logits, lr)
        slips = {f"the coefficient is {times:g} β, not β": exact_step(times * beta, lr) for times in (0, 0.5, 2)}
        points_along(moved(step(lr), logits), exact_step(beta, lr), times=(0.75, 1.25), mistakes=slips)


@trains(
    points=4,
    hints=(
        "The step contains two things: the scores, and the KL penalty of each completion. In which direction does each of them change the policy?",
        "Subtract β (log π − log π_ref) from each score, detached from the gradient. Use the mean of the result as a baseline. Multiply by log π of the completion, and ascend.",
    ),
    seeds=5,
    bar=0.1,
    what="minus the distance from the frontier",
    also=(one_step,),
    alike=("step",),
)
def frontier(sub, draw):
    "Your three policies are close to the frontier: five runs, each paired with ours."
    ref, rewards = draw.normal(8), draw.uniform(8, low=-1, high=1)
    sample = sub.part("02.6").sample
    begun, ended = [], []
    for beta in BETAS:
        best = beta * (ref.log_softmax(-1) + rewards / beta).logsumexp(-1)
        value = lambda logits, beta=beta: exact.regularised_value(logits.softmax(-1), ref.softmax(-1), rewards, beta)
        logits = ref
        begun.append(value(logits) - best)
        for _ in range(60):
            drawn = sample(logits.repeat(64, 1), draw.integer(0, 2**28))
            logits = weights_of(sub.step(logits, ref, drawn, rewards[drawn], beta, 0.5), logits)
        ended.append(value(logits) - best)
    return [sum(begun) / 3, sum(ended) / 3]


# %% [edges]
# stands: may have probability 0
# frontier: at other β and `lr`
# frontier: of the `N` sampled


# %% [probes]
# no gradient: numbers are asked for, and nobody differentiates a step
# no keywords, size, values, float32 of step: any step that arrives is right


# %% [mutant] the KL has the other direction
# caught by: stands
# says: from the reference
def point(probs, ref, rewards):
    kl = (ref * (ref / probs.clamp(min=1e-300)).log()).sum()
    return kl, (probs * rewards).sum()


# %% [mutant] NaN where a completion has probability 0
# caught by: stands
# says: NaN
def point(probs, ref, rewards):
    return (probs * (probs / ref).log()).sum(), (probs * rewards).sum()


# %% [mutant] no KL term
# caught by: frontier
# says: below ours
def step(logits, ref_logits, drawn, rewards, beta, lr):
    logits = logits.clone().requires_grad_()
    held = rewards - rewards.mean()
    (held * logits.log_softmax(-1)[drawn]).mean().backward()
    return (logits + lr * logits.grad).detach()


# %% [mutant] the KL term rewards distance
# caught by: frontier
# says: below ours
def step(logits, ref_logits, drawn, rewards, beta, lr):
    logits = logits.clone().requires_grad_()
    logps = logits.log_softmax(-1)
    held = rewards + beta * (logps - ref_logits.log_softmax(-1)).detach()[drawn]
    ((held - held.mean()) * logps[drawn]).mean().backward()
    return (logits + lr * logits.grad).detach()


# %% [mutant] descent instead of ascent
# caught by: frontier
# says: it gets worse as it trains
def step(logits, ref_logits, drawn, rewards, beta, lr):
    logits = logits.clone().requires_grad_()
    logps = logits.log_softmax(-1)
    held = rewards - beta * (logps - ref_logits.log_softmax(-1)).detach()[drawn]
    ((held - held.mean()) * logps[drawn]).mean().backward()
    return (logits - lr * logits.grad).detach()


# %% [mutant] the KL penalty is not that of the sampled completion
# caught by: frontier
# says: below ours
def step(logits, ref_logits, drawn, rewards, beta, lr):
    logits = logits.clone().requires_grad_()
    logps = logits.log_softmax(-1)
    held = rewards - beta * (logps - ref_logits.log_softmax(-1)).mean().detach()
    ((held - held.mean()) * logps[drawn]).mean().backward()
    return (logits + lr * logits.grad).detach()


# %% [partial] 1: the points
def step(logits, ref_logits, drawn, rewards, beta, lr):
    raise NotImplementedError
