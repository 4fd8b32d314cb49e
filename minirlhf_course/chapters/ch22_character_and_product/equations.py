"""The equations that only chapter 22 needs: persona traits, filters, tests for rare failures, and a canary.

A *harmful* request is a request that the model should not answer. A filter scores every request (or completion) and
blocks scores above a threshold. Scores have variance 1, and the mean score of harmful requests is larger by d′, the
filter's separation. The *miss rate* is the fraction of harmful requests that pass the filter. The *false refusals* are
the fraction of harmless requests that it blocks.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import POSITIVE, at_least, finite, number, takes

_CHANCE = finite("...", "[0, 1]")


_INSIDE = finite("...", "(0, 1)")


_SPLIT = number("(0, 1)")


# -- persona traits by self-training -------------------------------------------------------------------------------


@takes(prompted_logps="...", logps="...")
@equation(
    "eq:trait-score",
    source="Bayes' rule; as a ranking of a model's own answers by an instruction that it can read, Bai et al. "
    '(2022), "Constitutional AI", ask the model in words.',
)
def trait_score(prompted_logps: Tensor, logps: Tensor) -> Tensor:
    """Evidence of a completion for a trait, by the model itself: log π(y | trait, x) − log π(y | x), ``(...)``.

    The score is the log Bayes factor, in nats, that the completion was sampled with the trait's system prompt, not
    without it.

    Args:
        prompted_logps, logps: log-probabilities of completions, with and without the trait in the system prompt.
    """
    return prompted_logps - logps


@takes(prompted_logps="... N", logps="... N", beta=POSITIVE)
@equation(
    "eq:trait-policy",
    source='eq:tilt for this reward; at β = 1 it is context distillation, Askell et al. (2021), "A general '
    'language assistant as a laboratory for alignment".',
)
def trait_policy(prompted_logps: Tensor, logps: Tensor, *, beta: float) -> Tensor:
    """The optimum for the reward :func:`trait_score`: π(y) ∝ π(y | x)^(1 − 1/β) π(y | trait, x)^(1/β).

    The result is ``(..., N)`` log-probabilities. At β = 1 it is the model with its system prompt. A smaller β
    extrapolates beyond it.

    Args:
        prompted_logps, logps: log-probabilities of all completions.
    """
    return torch.log_softmax(logps + (prompted_logps - logps) / beta, -1)


# -- tests for rare failures ---------------------------------------------------------------------------------------


@takes(rate=_SPLIT, alpha=_SPLIT)
@equation(
    "eq:clean-replies",
    source='Hanley and Lippman-Hand (1983), "If nothing goes wrong, is everything all right?".',
)
def clean_completions(rate: float, *, alpha: float = 0.05) -> float:
    """Number of completions without a failure that show a failure rate below p, ``rate``: log α / log(1 − p). Round up.

    If the failure rate were p or more, this many completions without a failure would have a probability of at most α.
    """
    return math.log(alpha) / math.log1p(-rate)


# -- filters -------------------------------------------------------------------------------------------------------


@takes(missed=_INSIDE, separation=finite("..."))
@equation(
    "eq:over-refusal",
    source='Green and Swets (1966), "Signal detection theory and psychophysics", for normal scores of equal variance.',
)
def false_refusals(missed: Tensor, separation: Tensor) -> Tensor:
    """Fraction of harmless requests that a filter with miss rate m blocks: Φ(−d′ − Φ⁻¹(m)). ``(...)``

    Args:
        missed: m, the miss rate on harmful requests.
        separation: d′.
    """
    return torch.special.ndtr(-separation - torch.special.ndtri(missed))


@takes(separation=finite("...", "(0, inf)"), harmful=_INSIDE, ratio=finite("...", "(0, inf)"))
@equation(
    "eq:filter-threshold",
    source='Neyman and Pearson (1933), "On the problem of the most efficient tests of statistical hypotheses"; '
    "Green and Swets (1966).",
)
def filter_threshold(separation: Tensor, harmful: Tensor, ratio: Tensor) -> Tensor:
    """The threshold with minimum expected cost: t = d′/2 + log((1 − h)/(h c))/d′. ``(...)``

    The scale is the one on which harmless scores have mean 0. At t the likelihood ratio of harmful to harmless is
    (1 − h)/(h c).

    Args:
        separation: d′.
        harmful: h, the fraction of requests that are harmful.
        ratio: c, the cost of a harmful completion divided by the cost of a false refusal.
    """
    return separation / 2 + torch.log((1 - harmful) / (harmful * ratio)) / separation


@takes(first=_CHANCE, second=_CHANCE, correlation=finite("...", "[-1, 1]"))
@equation("eq:both-miss", source="the covariance of two events.")
def both_filters_miss(first: Tensor, second: Tensor, correlation: Tensor) -> Tensor:
    """Probability that two filters miss the same harmful request: m₁m₂ + ρ√(m₁(1 − m₁)m₂(1 − m₂)). ``(...)``

    Args:
        first, second: the miss rates m₁ and m₂.
        correlation: ρ of the two misses as 0/1 variables. Not every ρ is possible for every m₁ and m₂.
    Raises:
        ValueError: a correlation that is impossible for these miss rates.
    """
    joint = first * second + correlation * (first * (1 - first) * second * (1 - second)).sqrt()
    tolerance = 1e-9  # for rounding
    low, high = (first + second - 1).clamp(min=0), torch.minimum(first, second)
    if not bool(((joint >= low - tolerance) & (joint <= high + tolerance)).all()):
        raise ArgumentError(
            f"correlation of shape {tuple(correlation.shape)}: impossible at these miss rates; expected a joint chance "
            "between max(0, first + second − 1) and min(first, second)",
            argument="correlation",
            problem="out of range",
        )
    return joint


# -- a canary ------------------------------------------------------------------------------------------------------


@takes(new=_INSIDE, old=_INSIDE, rollback=at_least(1), ship=at_least(1))
@equation(
    "eq:rollback-chance",
    source='Wald (1947), "Sequential analysis", section 6 (double dichotomies); the ruin of a gambler.',
)
def rollback_probability(new: Tensor, old: Tensor, *, rollback: int, ship: int) -> Tensor:
    """Probability that a canary ends with a rollback: (1 − w^(−b))/(1 − w^(−(a + b))), b/(a + b) for w = 1. ``(...)``

    w is the odds ratio of complaints. The test compares pairs of users, one with the new and one with the old model. A
    pair with exactly one complaint counts +1 if the complaint is about the new model, −1 if it is about the old one. At
    +a the new model is rolled back, at −b it is shipped.

    Args:
        new, old: the probability that a user of the new model, of the old model complains.
        rollback, ship: a and b.
    """
    drift = torch.logit(new) - torch.logit(old)  # log w
    is_equal = drift.abs() < 1e-9
    safe = torch.where(is_equal, 1.0, drift)
    limit = ship / (rollback + ship) * (1 + rollback * drift / 2)  # to first order, for the gradient
    return torch.where(is_equal, limit, torch.expm1(-ship * safe) / torch.expm1(-(rollback + ship) * safe))


@takes(new=_INSIDE, old=_INSIDE, rollback=at_least(1), ship=at_least(1))
@equation("eq:canary-pairs", source='Wald (1944), "On cumulative sums of random variables".')
def canary_pairs(new: Tensor, old: Tensor, *, rollback: int, ship: int) -> Tensor:
    """Expected number of pairs of users in a canary: (P(a + b) − b)/(p₁ − p₀). ``(...)``

    P is :func:`rollback_probability`. For p₁ = p₀ = p the number is ab/(2p(1 − p)).

    Args:
        new, old, rollback, ship: p₁, p₀, a and b, as in :func:`rollback_probability`.
    """
    is_equal = (torch.logit(new) - torch.logit(old)).abs() < 1e-6
    difference = torch.where(is_equal, 1.0, new - old)
    expected_end = rollback_probability(new, old, rollback=rollback, ship=ship) * (rollback + ship) - ship
    mean, drift = (new + old) / 2, torch.logit(new) - torch.logit(old)
    limit = rollback * ship / (2 * mean * (1 - mean)) * (1 + (rollback - ship) * drift / 6)  # to first order
    return torch.where(is_equal, limit, expected_end / difference)
