# ---
# title: Bug hunt: padding pays at equal length
# kind: bughunt
# minutes: 25
# ---

# %% [statement]
# A judge has a length bias, and the length-controlled win rate should be free of it. `padded` adds more and more empty words to our completions and prints the report of the three functions below. The judge's log-odds are exactly an intercept plus a multiple of the chapter's term,
# so every line should print the same number, $\sigma(.2) = .5498$ (the raw rate of the first line, .5524, is only near it). Instead **every line says 0**, and so does a file in which **every comparison is a tie**. After you correct one function, the report is **the raw win rate, to the last digit**, and **grows with the padding**.
#
# **There are three bugs, one in each function. Find and fix them.**
#
# * `terms(ours, theirs)`: tanh of the differences of length `(N,)` in units of their standard deviation (divisor $N - 1$), so that 0 means equal length.
# * `fit(scores, t)`: intercept and slope `(2,)` of the logistic regression of the scores on the term. A score is 1, 0, ½ for a tie, or the mean of several verdicts.
# * `report(weights, t)`: the length-controlled win rate.

# %% [given]
import torch


def padded(words=(0, 5, 10, 20), skill=0.2, liking=1.5):
    """What is reported for answers with more and more words that say nothing."""
    rng = torch.Generator().manual_seed(0)
    theirs = 40 + 8 * torch.randn(300, generator=rng, dtype=torch.float64)
    ours = 40 + 8 * torch.randn(300, generator=rng, dtype=torch.float64)
    for more in words:
        gap = ours + more - theirs
        scores = torch.sigmoid(skill + liking * torch.tanh(gap / gap.std()))  # the mean of very many verdicts
        t = terms(ours + more, theirs)
        print(f"{more:3} words more: raw {float(scores.mean()):.4f}, at equal length {report(fit(scores, t), t):.4f}")


# %% [stub]
def terms(ours, theirs):
    """ours, theirs: (N,) lengths. Returns (N,)."""
    gap = ours - theirs
    return torch.tanh((gap - gap.mean()) / gap.std())


def fit(scores, t):
    """scores, t: (N,). Returns (2,): intercept and slope."""
    x = torch.stack([torch.ones_like(t), t], -1)
    weights = torch.zeros(2, dtype=t.dtype)
    for _ in range(25):
        p = torch.sigmoid(x @ weights)
        weights = weights + torch.linalg.solve((x * (p * (1 - p))[:, None]).T @ x, x.T @ (scores.floor() - p))
    return weights


def report(weights, t):
    """weights: (2,). t: (N,). Returns one number."""
    return float(torch.sigmoid(weights[0] + weights[1] * t).mean())


# %% [solution]
def terms(ours, theirs):
    gap = ours - theirs
    return torch.tanh(gap / gap.std())


def fit(scores, t):
    x = torch.stack([torch.ones_like(t), t], -1)
    weights = torch.zeros(2, dtype=t.dtype)
    for _ in range(25):
        p = torch.sigmoid(x @ weights)
        weights = weights + torch.linalg.solve((x * (p * (1 - p))[:, None]).T @ x, x.T @ (scores - p))
    return weights


def report(weights, t):
    return float(torch.sigmoid(weights[0]))


# %% [tests]
import math
import statistics

import torch
from minirlhf_course.classroom.testing import Panel, Picture, expect, test, tidy


@test(
    points=2,
    hints=(
        "Our completions are all longer than theirs by about ten words. What are the terms, and what should they be?",
        "A term of 0 must mean two completions of equal length. What is subtracted before the division?",
    ),
)
def zero_is_equal(sub, draw):
    "`terms` are 0 at equal length."
    for count in (6, 11):
        theirs = tidy(draw.uniform(count, low=20, high=40), 0)
        _zero_is_equal(sub, tidy(theirs + 8 + draw.normal(count, scale=5.0), 0), theirs)


def _zero_is_equal(sub, ours, theirs):
    ours[0] = theirs[0]
    gap = (ours - theirs).tolist()
    deviation = statistics.stdev(gap)
    squashed = lambda values: torch.tensor([math.tanh(v) for v in values], dtype=torch.float64)
    mean = statistics.fmean(gap)
    expect(
        sub.terms(ours, theirs), squashed([g / deviation for g in gap]), what="`terms`", given={"ours": ours, "theirs": theirs},
        mistakes={
            "the differences are centred, so that 0 means the mean difference": squashed([(g - mean) / deviation for g in gap]),
            "the tanh is missing": torch.tensor([g / deviation for g in gap], dtype=torch.float64),
            "it is in units of the standard deviation of one length, not of the difference": squashed([g / statistics.stdev(ours.tolist()) for g in gap]),
            "it is theirs minus ours": squashed([-g / deviation for g in gap]),
            "the divisor is N": squashed([g / statistics.pstdev(gap) for g in gap]),
        },
    )  # fmt: skip


@test(
    points=2,
    hints=(
        "What do the scores 1, ½ and four fifths become inside `fit`?",
        "`floor` turns every tie into a loss. The likelihood accepts any score between 0 and 1.",
    ),
)
def ties(sub, draw):
    "`fit` takes scores as they are."
    t = torch.tanh(tidy(draw.normal(9) + 0.6))
    skill, liking = (float(draw.uniform(low=a, high=b)) for a, b in ((-0.6, 0.6), (0.5, 1.5)))
    scores = torch.sigmoid(skill + liking * t)
    expect(
        sub.fit(scores, t), torch.tensor([skill, liking], dtype=torch.float64), what="`fit` of scores that are probabilities", given={"scores": scores, "t": t},
        mistakes={"the slope is first, but the intercept should be": torch.tensor([liking, skill], dtype=torch.float64)},
    )  # fmt: skip
    expect(
        sub.fit(torch.full_like(t, 0.5), t), torch.zeros(2, dtype=torch.float64), what="`fit` of ties only", given={"t": t},
    )  # fmt: skip
    # one or two verdicts in each of two places: the best fit has each place's share
    places = torch.tensor([-0.5] * 4 + [0.5] * 4, dtype=torch.float64)
    low, high = [0.0, 0.5, 1.0, 0.0], [1.0, 0.5, 1.0, 1.0]
    log_odds = [math.log(sum(part) / (4 - sum(part))) for part in (low, high)]
    up = [math.log(sum(s >= 0.5 for s in part) / max(4 - sum(s >= 0.5 for s in part), 1e-9)) for part in (low, high)]
    down = [math.log(sum(s > 0.5 for s in part) / (4 - sum(s > 0.5 for s in part))) for part in (low, high)]
    weights = lambda a, b: torch.tensor([(a + b) / 2, b - a], dtype=torch.float64)
    expect(
        sub.fit(torch.tensor(low + high, dtype=torch.float64), places), weights(*log_odds), what="`fit` with ties", given={"scores": low + high, "t": places},
        mistakes={"ties count as lost": weights(*down), "ties count as won": weights(*up)},
    )  # fmt: skip


@test(
    points=2,
    hints=(
        "What is the mean prediction of a logistic regression with an intercept, on its own data?",
        "It always equals the mean score. What does the regression predict where the term is 0?",
    ),
)
def at_zero(sub, draw):
    "`report` is what the regression predicts at equal length."
    weights = tidy(draw.normal(2)) + torch.tensor([0.05, 1.2], dtype=torch.float64)
    t = torch.tanh(tidy(draw.normal(draw.integer(3, 12)) + 0.8))
    skill, liking = weights.tolist()
    mean = lambda values: sum(values) / len(values)
    chance = lambda x: 1 / (1 + math.exp(-x))
    expect(
        sub.report(weights, t), chance(skill), what="`report`", given={"weights": weights, "t": t},
        mistakes={
            "this is the mean prediction, which is the raw win rate": mean([chance(skill + liking * x) for x in t.tolist()]),
            "this is the prediction at the mean difference": chance(skill + liking * mean(t.tolist())),
            "this is a log-odds, not a rate": skill,
            "the slope is used as the intercept": chance(liking),
        },
    )  # fmt: skip


# %% [picture]
import torch


def picture(sub):
    """The report against the padding."""
    rng = torch.Generator().manual_seed(0)
    theirs, ours = (40 + 8 * torch.randn(300, generator=rng, dtype=torch.float64) for _ in range(2))
    more, said = torch.arange(0.0, 21.0, 4.0, dtype=torch.float64), []
    for words in more.tolist():
        gap = ours + words - theirs
        scores = torch.sigmoid(0.2 + 1.5 * torch.tanh(gap / gap.std()))
        t = sub.terms(ours + words, theirs)
        said.append(float(sub.report(sub.fit(scores, t), t)))
    right = torch.full_like(more, float(torch.sigmoid(torch.tensor(0.2))))
    return Picture(
        "Empty words must not raise the length-controlled win rate.",
        (Panel("length-controlled win rate", more, torch.tensor(said, dtype=torch.float64), right, "words of padding", "win rate"),),
    )  # fmt: skip


# %% [shared]
# 1.5: an edge of the range that the liking is drawn from


# %% [probes]
# no gradient, integers, float32, values, size, keywords: lengths and verdicts, whose fit has to be finite


# %% [mutant] still centred
# caught by: zero_is_equal
# says: centred
def terms(ours, theirs):
    gap = ours - theirs
    return torch.tanh((gap - gap.mean()) / gap.std())


# %% [mutant] rounded to the nearest
# caught by: ties
def fit(scores, t):
    x, won = torch.stack([torch.ones_like(t), t], -1), scores.round()
    weights = torch.zeros(2, dtype=t.dtype)
    for _ in range(25):
        p = torch.sigmoid(x @ weights)
        bent = (x * (p * (1 - p))[:, None]).T @ x + 1e-9 * torch.eye(2, dtype=t.dtype)
        weights = weights + torch.linalg.inv(bent) @ x.T @ (won - p)
    return weights


# %% [mutant] the mean prediction
# caught by: at_zero
# says: raw win rate
def report(weights, t):
    return float(torch.sigmoid(weights[0] + weights[1] * t).mean())


# %% [mutant] at the usual difference
# caught by: at_zero
# says: mean difference
def report(weights, t):
    return float(torch.sigmoid(weights[0] + weights[1] * t.mean()))


# %% [partial] 2: the terms
def fit(scores, t):
    return torch.zeros(2, dtype=t.dtype)


def report(weights, t):
    return 0.5
