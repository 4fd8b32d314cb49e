"""Chapter 22: the trait score, filters, and a canary, against enumeration, quadrature and absorbing chains."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf_course.chapters.ch22_character_and_product import equations
from minirlhf_course.ledger.registry import Comparison, Draw, check

# -- a character ---------------------------------------------------------------------------------------------------


@check(
    "eq:trait-score",
    "value",
    "The change of the log-odds of the system prompt given the answer, for every prior.",
    of=equations.trait_score,
    against="posterior odds over all answers",
    wrong={
        "the other way round": lambda prompted, plain: plain - prompted,
        "the log-probability under the trait": lambda prompted, plain: prompted,
        "a ratio of probabilities": lambda prompted, plain: (prompted - plain).exp(),
    },
)
def _(trait_score, draw: Draw) -> Comparison:
    prompted, plain = draw.distribution(6), draw.distribution(6)
    prior = draw.uniform(low=0.1, high=0.9)
    posterior = prior * prompted / (prior * prompted + (1 - prior) * plain)
    change = (posterior / (1 - posterior)).log() - (prior / (1 - prior)).log()
    return trait_score(prompted.log(), plain.log()), change


def _less_divergence(probs: Tensor, plain: Tensor, scores: Tensor, beta: float) -> Tensor:
    return exact.regularised_value(probs, plain, scores, beta)


@check(
    "eq:trait-policy",
    "value",
    "No policy has a larger mean score minus β times the KL to the model without a system prompt; at β = 1 it is "
    "the prompted model.",
    of=equations.trait_policy,
    against="a numerical search for the best policy",
    tolerance=1e-5,
    wrong={
        "multiplied by beta": lambda prompted, plain, *, beta: equations.trait_policy(prompted, plain, beta=1 / beta),
        "the prompted log-probability as a reward": lambda prompted, plain, *, beta: torch.log_softmax(
            plain + prompted / beta, -1
        ),
        "started from the prompted model": lambda prompted, plain, *, beta: torch.log_softmax(
            prompted + (prompted - plain) / beta, -1
        ),
    },
)
def _(trait_policy, draw: Draw) -> Iterator[Comparison]:
    prompted, plain = draw.distribution(5), draw.distribution(5)
    scores = prompted.log() - plain.log()
    for beta in (0.6, 1.7):
        best = exact.maximise(partial(_less_divergence, plain=plain, scores=scores, beta=beta), 5)
        yield trait_policy(prompted.log(), plain.log(), beta=beta).exp(), best
    yield trait_policy(prompted.log(), plain.log(), beta=1.0).exp(), prompted


# -- a rule that must hold -----------------------------------------------------------------------------------------


@check(
    "eq:clean-replies",
    "value",
    "The smallest number of completions that all pass with a probability of at most α if a fraction p fails; at n "
    "itself this probability is α.",
    of=equations.clean_completions,
    against="counting the completions one by one",
    wrong={
        "the rule of three for every level": lambda rate, *, alpha: 3 / rate,
        "the level split in two": lambda rate, *, alpha: equations.clean_completions(rate, alpha=alpha / 2),
        "level and rate swapped": lambda rate, *, alpha: equations.clean_completions(alpha, alpha=rate),
    },
)
def _(clean_completions, draw: Draw) -> Iterator[Comparison]:
    for alpha in (0.01, 0.2):
        rate = float(draw.uniform(low=0.02, high=0.08))
        count, chance = 0, 1.0
        while chance > alpha:
            count, chance = count + 1, chance * (1 - rate)
        yield float(math.ceil(clean_completions(rate, alpha=alpha))), float(count)
        yield (1 - rate) ** clean_completions(rate, alpha=alpha) / alpha, 1.0


# -- filters -------------------------------------------------------------------------------------------------------


def density(x: Tensor, mean: float) -> Tensor:
    """Return the density of a normal score with variance 1."""
    return (-((x - mean) ** 2) / 2).exp() / math.sqrt(2 * math.pi)


def between(low: float, high: float, mean: float) -> Tensor:
    """Return the fraction of such scores in an interval, by quadrature."""
    return exact.integrate(lambda x: density(x, mean), low, high)


@check(
    "eq:over-refusal",
    "value",
    "The fraction of harmless scores above the threshold below which the fraction m of harmful scores lies.",
    of=equations.false_refusals,
    against="both densities integrated on their sides of the threshold",
    wrong={
        "harmless requests that pass": lambda missed, separation: 1 - equations.false_refusals(missed, separation),
        "misses and hits swapped": lambda missed, separation: equations.false_refusals(1 - missed, separation),
        "separation halved": lambda missed, separation: equations.false_refusals(missed, separation / 2),
    },
)
def _(false_refusals, draw: Draw) -> Comparison:
    separation, bar = draw.uniform(4, low=0.5, high=3.0), draw.uniform(4, low=-0.5, high=1.5)
    both = list(zip(separation.tolist(), bar.tolist(), strict=True))
    missed = torch.stack([between(t - 16, t, d) for d, t in both])
    return false_refusals(missed, separation), torch.stack([between(t, t + 16, 0.0) for _, t in both])


def bisected(separation: float, harmful: float, ratio: float) -> float:
    """Return the score at which blocking and passing cost the same, by bisection."""
    low, high = -40.0, 40.0
    for _ in range(100):
        middle = (low + high) / 2
        blocked = math.log(1 - harmful) - middle**2 / 2
        passed = math.log(harmful) + math.log(ratio) - (middle - separation) ** 2 / 2
        low, high = (middle, high) if blocked > passed else (low, middle)
    return low


@check(
    "eq:filter-threshold",
    "value",
    "The score at which both decisions cost the same; there the mean cost per request has slope 0.",
    of=equations.filter_threshold,
    against="bisection of the costs, and the slope of the mean cost by quadrature",
    wrong={
        "costs ignored": lambda separation, harmful, ratio: equations.filter_threshold(
            separation, harmful, torch.ones_like(ratio)
        ),
        "base rate ignored": lambda separation, harmful, ratio: equations.filter_threshold(
            separation, torch.full_like(harmful, 0.5), ratio
        ),
        "log-odds not divided by the separation": lambda separation, harmful, ratio: (
            separation / 2 + torch.log((1 - harmful) / (harmful * ratio))
        ),
        "the cost of a false refusal over that of harm": lambda separation, harmful, ratio: equations.filter_threshold(
            separation, harmful, 1 / ratio
        ),
    },
)
def _(filter_threshold, draw: Draw) -> Iterator[Comparison]:
    separation = draw.uniform(3, low=1.5, high=3.0)
    harmful, ratio = draw.uniform(3, low=0.02, high=0.3), draw.uniform(3, low=2.0, high=6.0)
    bar = filter_threshold(separation, harmful, ratio)
    inputs = list(zip(separation.tolist(), harmful.tolist(), ratio.tolist(), strict=True))
    yield bar, torch.tensor([bisected(*x) for x in inputs], dtype=torch.float64)
    for t, (d, h, c) in zip(bar.tolist(), inputs, strict=True):
        cost = lambda at, d=d, h=h, c=c: (
            h * c * between(float(at) - 16, float(at), d) + (1 - h) * between(float(at), float(at) + 16, 0.0)
        )
        yield exact.finite_difference(cost, torch.tensor(t, dtype=torch.float64)), torch.tensor(0.0)


@check(
    "eq:both-miss",
    "value",
    "The probability that both miss, from each filter's miss rate and Pearson's correlation of the two misses.",
    of=equations.both_filters_miss,
    against="a table of four cells",
    wrong={
        "independent misses": lambda first, second, correlation: first * second,
        "covariance not scaled": lambda first, second, correlation: first * second + correlation,
        "one miss is enough": lambda first, second, correlation: (
            first + second - equations.both_filters_miss(first, second, correlation)
        ),
    },
)
def _(both_filters_miss, draw: Draw) -> Comparison:
    cells = draw.distribution(5, 4)  # both, first only, second only, neither
    ours, theirs = (torch.tensor(x, dtype=torch.float64) for x in ((1, 1, 0, 0), (1, 0, 1, 0)))
    first, second = cells @ ours, cells @ theirs
    apart = lambda x, mean: x - mean[:, None]
    mean = lambda values: (cells * values).sum(-1)
    covariance = mean(apart(ours, first) * apart(theirs, second))
    spread = (mean(apart(ours, first) ** 2) * mean(apart(theirs, second) ** 2)).sqrt()
    return both_filters_miss(first, second, covariance / spread), cells[:, 0]


# -- a canary ------------------------------------------------------------------------------------------------------


def absorbed(new: float, old: float, rollback: int, ship: int) -> tuple[Tensor, Tensor]:
    """Return the probability of a rollback and the expected number of pairs, from the linear equations of the count."""
    up, down, size = new * (1 - old), old * (1 - new), rollback + ship - 1
    moves = torch.zeros(size, size, dtype=torch.float64)
    for at in range(size):
        moves[at, at] = 1 - up - down
        if at + 1 < size:
            moves[at, at + 1] = up
        if at:
            moves[at, at - 1] = down
    left = torch.eye(size, dtype=torch.float64) - moves
    ends = torch.zeros(size, dtype=torch.float64)
    ends[-1] = up
    start = ship - 1
    return torch.linalg.solve(left, ends)[start], torch.linalg.solve(left, torch.ones_like(ends))[start]


def rates(draw: Draw) -> tuple[Tensor, Tensor]:
    """Return complaint rates of a worse, a better and an equal model."""
    some = draw.uniform(3, low=0.05, high=0.3)
    return torch.stack([some[0] * 1.5, some[1] / 1.5, some[2]]), some


@check(
    "eq:rollback-chance",
    "value",
    "The probability of a rollback, for a worse, a better and an equal model.",
    of=equations.rollback_probability,
    against="an absorbing chain, solved",
    wrong={
        "rollback and ship swapped": lambda new, old, *, rollback, ship: equations.rollback_probability(
            new, old, rollback=ship, ship=rollback
        ),
        "the probability of shipping": lambda new, old, *, rollback, ship: (
            1 - equations.rollback_probability(new, old, rollback=rollback, ship=ship)
        ),
        "a ratio of rates instead of odds": lambda new, old, *, rollback, ship: equations.rollback_probability(
            torch.sigmoid(new.log()), torch.sigmoid(old.log()), rollback=rollback, ship=ship
        ),
    },
)
def _(rollback_probability, draw: Draw) -> Iterator[Comparison]:
    new, old = rates(draw)
    for rollback, ship in ((5, 8), (7, 3)):
        solved = [absorbed(*x, rollback, ship)[0] for x in zip(new.tolist(), old.tolist(), strict=True)]
        yield rollback_probability(new, old, rollback=rollback, ship=ship), torch.stack(solved)


@check(
    "eq:canary-pairs",
    "value",
    "The expected number of pairs, for a worse, a better and an equal model.",
    of=equations.canary_pairs,
    against="an absorbing chain, solved",
    wrong={
        "rollback and ship swapped": lambda new, old, *, rollback, ship: equations.canary_pairs(
            new, old, rollback=ship, ship=rollback
        ),
        "only the pairs that count": lambda new, old, *, rollback, ship: (
            equations.canary_pairs(new, old, rollback=rollback, ship=ship) * (new * (1 - old) + old * (1 - new))
        ),
        "users instead of pairs": lambda new, old, *, rollback, ship: (
            2 * equations.canary_pairs(new, old, rollback=rollback, ship=ship)
        ),
    },
)
def _(canary_pairs, draw: Draw) -> Iterator[Comparison]:
    new, old = rates(draw)
    for rollback, ship in ((5, 8), (7, 3)):
        solved = [absorbed(*x, rollback, ship)[1] for x in zip(new.tolist(), old.tolist(), strict=True)]
        yield canary_pairs(new, old, rollback=rollback, ship=ship), torch.stack(solved)
