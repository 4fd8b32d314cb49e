# ---
# title: A frontier of your own policies
# kind: implement
# minutes: 35
# uses: 02.6
# seconds: 30
# ---

# %% [statement]
# 05.1 found the best policy on paper. Here you find it as one does in practice, where nobody can sum over all replies: by sampling, grading and stepping. There are
# eight replies, and the policy is a row of logits `(8,)`. Your `sample` (02.6) draws replies from it, a grader grades them, and you take a step.
#
# 1. (five minutes) `point(probs, ref, rewards)`: where a policy stands in the plane of KL and reward, the pair $(\mathrm{KL}(\pi\|\pi_\text{ref}),\ \mathbb{E}_\pi[r])$ in nats and
#    in units of reward. `probs`, `ref` and `rewards` are `(8,)`; a reply may have probability 0.
# 2. `step(logits, ref_logits, drawn, rewards, beta, lr)`: one step towards the largest $\mathbb{E}[r] - \beta\,\mathrm{KL}(\pi\|\pi_\text{ref})$. `drawn` holds the numbers of the `N` replies that were
#    drawn from the policy, `rewards` their grades, `(N,)`. Return the new logits. How you estimate the gradient is up to you; a plain step of size `lr` is what we do.
#
# How it is judged: for each of three weights of the KL term, $\beta = 0.2$, 0.5 and 1, your step is run 60 times on 64 replies, with `lr = 0.5`. Three points come out, and the frontier is
# known: nothing lies above it. The score is how far your points are below the best value of $\mathbb{E}[r] - \beta\,\mathrm{KL}$ there is for their β, exactly, averaged, with a minus; over five
# seeds, each beside our run. Its mean may lie 0.1 below ours, with the whole of its 95 % interval.

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

from minirlhf_course.classroom.testing import expect, fail, test, tidy, tidy_distribution
from minirlhf_course.classroom.training import trains, weights_of
from minirlhf.core import exact

BETAS = (0.2, 0.5, 1.0)


@test(
    points=1,
    hints=(
        "Two sums over the eight replies. With which probabilities are both weighted?",
        "Σ π log(π/π_ref) and Σ π r. Where π is 0 the term of the first sum is 0, not NaN.",
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
        "the KL runs the other way, from the reference": back,
        "0 · log 0 is NaN": nan,
        "it is in bits": kl / math.log(2),
        "the two stand in the other order, the reward first": reward,
    }
    expect(got[0], kl, what="the KL", given=given, mistakes=mistakes)
    reference = sum(q * r for _, q, r in rows)
    expect(
        got[1],
        reward,
        what="the mean reward",
        given=given,
        mistakes={"it is the reference's": reference, "replies count alike": sum(r for *_, r in rows) / 8},
    )


@trains(
    points=4,
    hints=(
        "Two things are in the step: the grades, and what the KL term costs each reply. Which way does each of them pull?",
        "Charge each reply β (log π − log π_ref), cut off from the gradient; take the mean of what is left as a baseline; multiply by log π of the reply, and go up.",
    ),
    seeds=5,
    bar=0.1,
    what="minus the distance from the frontier",
)
def frontier(sub, draw):
    "The points of your three policies lie on the frontier: five runs, each beside ours."
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


# %% [probes]
# no gradient: numbers are asked for, and nobody differentiates a step
# no keywords, size, values, float32 of step: any step that arrives is right


# %% [mutant] the KL runs the other way
# caught by: stands
# says: from the reference
def point(probs, ref, rewards):
    kl = (ref * (ref / probs.clamp(min=1e-300)).log()).sum()
    return kl, (probs * rewards).sum()


# %% [mutant] NaN where a reply is impossible
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


# %% [mutant] the KL term pushes away
# caught by: frontier
# says: below ours
def step(logits, ref_logits, drawn, rewards, beta, lr):
    logits = logits.clone().requires_grad_()
    logps = logits.log_softmax(-1)
    held = rewards + beta * (logps - ref_logits.log_softmax(-1)).detach()[drawn]
    ((held - held.mean()) * logps[drawn]).mean().backward()
    return (logits + lr * logits.grad).detach()


# %% [mutant] downhill
# caught by: frontier
# says: it gets worse as it trains
def step(logits, ref_logits, drawn, rewards, beta, lr):
    logits = logits.clone().requires_grad_()
    logps = logits.log_softmax(-1)
    held = rewards - beta * (logps - ref_logits.log_softmax(-1)).detach()[drawn]
    ((held - held.mean()) * logps[drawn]).mean().backward()
    return (logits - lr * logits.grad).detach()


# %% [mutant] the KL term is not charged to the reply that was drawn
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
