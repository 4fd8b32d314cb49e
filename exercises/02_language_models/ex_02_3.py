# ---
# title: What a truncated sampler hides
# kind: derive
# minutes: 25
# ---

# %% [statement]
# Top-k, top-p and min-p sampling have one thing in common: they keep a set $K$ of tokens, give all other tokens probability zero, and
# renormalise. The samples then do not come from the model's $\pi$ but from
#
# $$q(y) = \frac{\pi(y)\,[y \in K]}{m}, \qquad m = \sum_{y \in K} \pi(y), \text{ the kept mass.}$$
#
# Training code often treats the samples as if they came from $\pi$. How large is the error? The usual correction is the importance weight
# $\pi(y)/q(y)$, whose mean under $q$ "is one, as for any importance weight". Is it one here?
#
# **Derive three closed forms** in terms of the kept mass, and write them as functions:
#
# 1. `expected_weight(probs, keep)`: $\mathbb{E}_{y\sim q}[\pi(y)/q(y)]$.
# 2. `truncation_kl(probs, keep)`: $\mathrm{KL}(q\,\|\,\pi)$ in nats.
# 3. `sequence_weight(kept_masses)`: the expectation of 1. for a whole completion, whose tokens are sampled one after another. Here
#    every prefix of step $t$ keeps the same mass $m_t$. How does this expectation change as completions grow longer?
#
# `probs` is $\pi$, shape `(V,)`. `keep` is a mask, True on the tokens in $K$. Each answer is one line. The checker adds up all tokens,
# and all completions, one by one.

# %% [given]
import torch


# %% [stub]
def expected_weight(probs, keep):
    """Return E_q[π/q] for q = π renormalised on the kept tokens. probs: (V,). keep: (V,) bool. Returns one number."""
    raise NotImplementedError


def truncation_kl(probs, keep):
    """Return KL(q‖π) in nats, one number."""
    raise NotImplementedError


def sequence_weight(kept_masses):
    """Return E_q[π(y)/q(y)] for a completion of T tokens. kept_masses: (T,). Returns one number."""
    raise NotImplementedError


# %% [solution]
def expected_weight(probs, keep):
    return probs[keep].sum()


def truncation_kl(probs, keep):
    return -torch.log(probs[keep].sum())


def sequence_weight(kept_masses):
    return kept_masses.prod()


# %% [tests]
import itertools
import math

import torch
from minirlhf_course.classroom.testing import expect, test, tidy_distribution


def problem(draw):
    """Return a distribution over four tokens, and a mask of the two or three that are kept."""
    while True:
        probs = tidy_distribution(draw, 4)
        keep = torch.ones(4, dtype=torch.bool)
        keep[draw.permutation(4)[: draw.integer(1, 2)]] = False
        if abs(float(probs[keep].sum()) - 0.5) > 0.04:  # the kept mass and the removed mass are never equal
            return probs, keep


def truncated(probs, keep):
    kept = [p if k else 0.0 for p, k in zip(probs.tolist(), keep.tolist())]
    return [p / sum(kept) for p in kept]


@test(
    points=2,
    against="a sum over all tokens that can be sampled",
    hints=(
        "Write the expectation under q as a sum. Over which tokens does it run, and where does q cancel?",
        "Each term is q(y)·π(y)/q(y) = π(y), and only tokens with q(y) > 0 are sampled. Importance weights average to one only if q can "
        "produce every token that π can produce.",
    ),
)
def weight(sub, draw):
    "`expected_weight` is the mean importance weight of the sampled tokens."
    probs, keep = problem(draw)
    q = truncated(probs, keep)
    want = sum(b * (a / b) for a, b in zip(probs.tolist(), q) if b > 0)
    expect(
        sub.expected_weight(probs, keep),
        want,
        what="the expected weight",
        given={"probs": probs, "keep": keep, "q": torch.tensor(q)},
        mistakes={
            "q is assumed to reach every token that π can produce": 1.0,
            "the kept probabilities are averaged, not added": probs[keep].mean(),
            "the ratio is upside down": 1 / want,
            "the mass that was cut is used": 1 - want,
            "tokens are counted instead of their probability": keep.double().mean(),
        },
    )


@test(
    points=2,
    against="a sum over all tokens that can be sampled",
    hints=(
        "On the kept tokens, the ratio of q and π is constant. What is its logarithm?",
        "log q(y)/π(y) = −log m for every token that q can produce, and the mean of a constant is that constant.",
    ),
)
def divergence(sub, draw):
    "`truncation_kl` is the KL divergence of the sampler from the model."
    probs, keep = problem(draw)
    q = truncated(probs, keep)
    want = sum(b * math.log(b / a) for a, b in zip(probs.tolist(), q) if b > 0)
    expect(
        sub.truncation_kl(probs, keep),
        want,
        what="the KL",
        given={"probs": probs, "keep": keep, "q": torch.tensor(q)},
        mistakes={
            "the sign is reversed (a KL is never negative)": -want,
            "the sum is weighted by π instead of q, and its sign is reversed": -want * float(probs[keep].sum()),
            "the KL is measured in bits": want / math.log(2),
            "the sum is weighted by π instead of q": want * float(probs[keep].sum()),
        },
    )


@test(
    points=1,
    against="a sum over all completions that can be sampled",
    hints=(
        "The weight of a completion is the product of the weights of its tokens. Each step multiplies by its own mean.",
        "With the same kept mass after every prefix, the means of the steps multiply: one factor per token. Try m = 0.9 and 100 tokens.",
    ),
)
def whole_reply(sub, draw):
    "`sequence_weight` is the mean importance weight of whole completions."
    steps = [problem(draw) for _ in range(draw.integer(2, 3))]
    masses = torch.stack([p[k].sum() for p, k in steps])
    total = 0.0
    for reply in itertools.product(range(4), repeat=len(steps)):
        under_pi = math.prod(float(p[y]) for (p, _), y in zip(steps, reply))
        under_q = math.prod(truncated(p, k)[y] for (p, k), y in zip(steps, reply))
        if under_q > 0:
            total += under_q * (under_pi / under_q)
    expect(
        sub.sequence_weight(masses),
        total,
        what="the expected weight of a completion",
        given={"kept_masses": masses},
        mistakes={
            "the geometric mean of the steps is taken": masses.log().mean().exp(),
            "only the first two steps are counted": masses[:2].prod(),
            "the steps are averaged": masses.mean(),
            "the steps are added": masses.sum(),
            "q is assumed to reach every completion": 1.0,
        },
    )


# %% [probes]
# no gradient: the exercise asks for a formula, in any library


# %% [mutant] "importance weights average to one"
# caught by: weight
# says: every token that π can produce
def expected_weight(probs, keep):
    return torch.ones(())


# %% [mutant] the cut mass instead of the kept
# caught by: weight
# says: that was cut
def expected_weight(probs, keep):
    return probs[~keep].sum()


# %% [mutant] a negative KL
# caught by: divergence
# says: never negative
def truncation_kl(probs, keep):
    return torch.log(probs[keep].sum())


# %% [mutant] the KL weighted by the wrong distribution
# caught by: divergence
# says: weighted by π
def truncation_kl(probs, keep):
    m = probs[keep].sum()
    return -m * m.log()


# %% [mutant] steps averaged
# caught by: whole_reply
# says: averaged
def sequence_weight(kept_masses):
    return kept_masses.mean()


# %% [partial] 4: one token is right, a completion is not
def sequence_weight(kept_masses):
    return torch.ones(())


# %% [partial] 3: both weights are right, the KL has the wrong sign
def truncation_kl(probs, keep):
    return torch.log(probs[keep].sum())
