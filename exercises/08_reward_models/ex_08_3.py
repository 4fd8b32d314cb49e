# ---
# title: How sure should it be?
# kind: derive
# minutes: 20
# ---

# %% [statement]
# A fraction $p$ of many annotators prefers completion $a$ to completion $b$, with $0 < p < 1$. A reward model learns from their votes with label smoothing: the loss assumes that each vote is
# wrong with probability $\varepsilon < \frac12$. So a vote for $a$ costs $-(1-\varepsilon)\log\sigma(\Delta) - \varepsilon\log\sigma(-\Delta)$, with $\Delta = r(a) - r(b)$. A vote for $b$ costs the same with
# $\Delta$ negated.
#
# Derive on paper, then write as formulas (of numbers or tensors, elementwise):
#
# 1. `best_difference(p, eps)`: the $\Delta$ that minimises the mean cost of all votes.
# 2. `pull(p, eps, delta)`: the derivative of the mean cost with respect to $\Delta$, at any $\Delta$.
# 3. `recovered_share(delta, eps)`: you receive a model that was trained to the optimum, with a known $\varepsilon$. Which fraction $p$ of the annotators prefers $a$? (`delta` is the model's $\Delta$.)
#
# The first two are checked against numerical minimisation and finite differences, to $10^{-5}$.

# %% [given]
import torch


# %% [stub]
def best_difference(p, eps):
    """p: (n,), fractions of the votes; eps: a number. Returns (n,)."""
    raise NotImplementedError


def pull(p, eps, delta):
    """p, delta: (n,); eps: a number. Returns (n,)."""
    raise NotImplementedError


def recovered_share(delta, eps):
    """delta: (n,); eps: a number. Returns (n,)."""
    raise NotImplementedError


# %% [solution]
def best_difference(p, eps):
    seen = p * (1 - eps) + (1 - p) * eps
    return torch.log(seen / (1 - seen))


def pull(p, eps, delta):
    return torch.sigmoid(delta) - (p * (1 - eps) + (1 - p) * eps)


def recovered_share(delta, eps):
    return (torch.sigmoid(delta) - eps) / (1 - 2 * eps)


# %% [tests]
import math

import torch
from minirlhf_course.classroom.testing import expect, test


def cost(p, eps, delta):
    """The mean cost of all votes, from logarithms."""
    right, wrong = math.log1p(math.exp(-delta)), math.log1p(math.exp(delta))
    return p * ((1 - eps) * right + eps * wrong) + (1 - p) * ((1 - eps) * wrong + eps * right)


def lowest(p, eps):
    """By trisection: the cost is convex."""
    low, high = -20.0, 20.0
    for _ in range(200):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, b) if cost(p, eps, a) < cost(p, eps, b) else (a, high)
    return (low + high) / 2


def problem(draw):
    p = draw.away_from([0.5], 3, low=0.1, high=0.9, margin=0.1)
    eps = float(draw.uniform(low=0.05, high=0.2))
    return p, eps


@test(
    points=2,
    against="numerical minimisation of the mean cost",
    hints=(
        "Collect the factors of log σ(Δ) and of log σ(−Δ). The two factors add up to one.",
        "This is the plain loss again, for votes that are recorded with errors. With which probability is a vote recorded for a?",
    ),
)
def minimiser(sub, draw):
    "`best_difference` has the lowest mean cost."
    p, eps = problem(draw)
    logit = lambda x: torch.log(x / (1 - x))
    expect(
        sub.best_difference(p, eps),
        torch.tensor([lowest(x, eps) for x in p.tolist()], dtype=torch.float64),
        what="`best_difference`",
        given={"p": p, "eps": eps},
        tolerance=1e-5,
        mistakes={
            "smoothing is omitted": logit(p),
            "the votes are unanimous": torch.full_like(p, math.log((1 - eps) / eps)),
            "the log-odds are shrunk by 1 − 2ε": (1 - 2 * eps) * logit(p),
            "all annotators are taken to vote with the majority": (p - 0.5).sign() * math.log((1 - eps) / eps),
            "a vote is wrong with probability ε/2": logit(p + eps / 2 * (1 - 2 * p)),
            "a vote is wrong with probability 2ε": logit(p + 2 * eps * (1 - 2 * p)),
        },
    )
    p, eps = torch.stack([p[0] / 1e4, p[1], 1 - p[2] / 1e4]), eps / 1e5  # nearly all agree, with hardly an error
    expect(
        sub.aside.best_difference(p, eps),
        torch.tensor([lowest(x, eps) for x in p.tolist()], dtype=torch.float64),
        what="`best_difference` where nearly all annotators agree",
        given={"p": p, "eps": eps},
        tolerance=1e-5,
    )


@test(
    points=1,
    against="central differences of the mean cost",
    hints=(
        "The derivative of log σ(Δ) is σ(−Δ), and the derivative of log σ(−Δ) is −σ(Δ).",
        "After collecting terms, one σ(Δ) and one probability remain.",
    ),
)
def derivative(sub, draw):
    "`pull` is the derivative of the mean cost."
    p, eps = problem(draw)
    delta = draw.normal(3)
    step = 1e-5
    slopes = [
        (cost(x, eps, d + step) - cost(x, eps, d - step)) / (2 * step) for x, d in zip(p.tolist(), delta.tolist())
    ]
    want = torch.tensor(slopes, dtype=torch.float64)
    expect(
        sub.pull(p, eps, delta),
        want,
        what="`pull`",
        given={"p": p, "eps": eps, "delta": delta},
        tolerance=1e-5,
        mistakes={
            "the sign is reversed": -want,
            "smoothing is omitted": torch.sigmoid(delta) - p,
            "it is the derivative of a squared error: the derivative of the logarithm has no factor σ′": want
            * torch.sigmoid(delta)
            * torch.sigmoid(-delta),
        },
    )
    far = torch.tensor([-800.0, 30.0, 800.0], dtype=torch.float64)
    expect(
        sub.aside.pull(p, eps, far),
        torch.where(far > 0, 1.0, 0.0) - eps - (1 - 2 * eps) * p,
        what="`pull` far out, where the costs are straight lines,",
        given={"p": p, "eps": eps, "delta": far},
        tolerance=1e-5,
    )


@test(
    points=1,
    against="the numerical minimiser of a known fraction",
    hints=(
        "Invert your first answer: from Δ to the probability that a vote is recorded for a, and from there to p.",
        "The recorded fraction is linear in p. Solve for p.",
    ),
)
def inverse(sub, draw):
    "`recovered_share` undoes the noise."
    p, eps = problem(draw)
    delta = torch.tensor([lowest(x, eps) for x in p.tolist()], dtype=torch.float64)
    expect(
        sub.recovered_share(delta, eps),
        p,
        what="`recovered_share`",
        given={"delta": delta, "eps": eps},
        tolerance=1e-5,
        mistakes={
            "the smoothing is not undone": torch.sigmoid(delta),
            "it is divided by 1 − ε": (torch.sigmoid(delta) - eps) / (1 - eps),
            "it is not divided by 1 − 2ε": torch.sigmoid(delta) - eps,
            "the noise is added once more instead of being removed": eps + (1 - 2 * eps) * torch.sigmoid(delta),
            "Δ is scaled instead of the fraction": torch.sigmoid(delta / (1 - 2 * eps)),
        },
    )
    little = eps / 100
    delta = torch.tensor([lowest(x, little) for x in p.tolist()], dtype=torch.float64)
    given = {"delta": delta, "eps": little}
    expect(sub.aside.recovered_share(delta, little), p, what="`recovered_share` with little noise", given=given)


# %% [edges]
# derivative: at any $\Delta$


# %% [probes]
# no gradient: formulas are asked for
# no values of recovered_share.delta: σ(Δ) lies between ε and 1 − ε, beyond which nothing is promised


# %% [mutant] smoothing omitted
# caught by: minimiser
# says: smoothing is omitted
def best_difference(p, eps):
    return torch.log(p / (1 - p))


# %% [mutant] log-odds shrunk
# caught by: minimiser
# says: shrunk
def best_difference(p, eps):
    return (1 - 2 * eps) * torch.log(p / (1 - p))


# %% [mutant] gradient ascent
# caught by: derivative
# says: sign
def pull(p, eps, delta):
    return p * (1 - eps) + (1 - p) * eps - torch.sigmoid(delta)


# %% [mutant] the recorded fraction for the true one
# caught by: inverse
# says: not undone
def recovered_share(delta, eps):
    return torch.sigmoid(delta)


# %% [partial] 3: the inverse is missing
def recovered_share(delta, eps):
    raise NotImplementedError
