"""What stands between a trained model and its users: a character, filters before and after the model, tests that nothing fails, and a canary.

A *harmful* request is one that should not be answered. A filter gives every request (or answer) a score and blocks what is above a bar; scores
have variance 1, and the mean of the harmful ones is larger by d′, the filter's separation. The *miss rate* is the share of harmful ones
that it lets through, the *false refusals* are the share of harmless ones that it blocks.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import POSITIVE, at_least, finite, number, takes

_CHANCE = finite("...", "[0, 1]")
_INSIDE = finite("...", "(0, 1)")
_SPLIT = number("(0, 1)")

# -- a character that a model gives itself -------------------------------------------------------------------------


@takes(prompted_logps="...", logps="...")
def trait_score(prompted_logps: Tensor, logps: Tensor) -> Tensor:
    """How much an answer speaks for a trait, in the model's own opinion: log π(y | trait, x) − log π(y | x), ``(...)``.

    By so many nats an answer raises the odds that it was written under the trait's system prompt and not without it.

    Label: eq:trait-score
    Source: Bayes' rule; as a ranking of a model's own answers by an instruction that it can read, Bai et al. (2022), "Constitutional AI",
        ask the model in words.
    Args:
        prompted_logps, logps: log-probabilities of whole answers, with the trait in the system prompt and without it.
    """
    return prompted_logps - logps


@takes(prompted_logps="... N", logps="... N", beta=POSITIVE)
def trait_policy(prompted_logps: Tensor, logps: Tensor, *, beta: float) -> Tensor:
    """What a KL-regularised training towards :func:`trait_score` ends at: π(y) ∝ π(y | x)^(1 − 1/β) π(y | trait, x)^(1/β), ``(..., N)`` log-probabilities.

    At β = 1 it is the model under its system prompt; a smaller β goes beyond it.

    Label: eq:trait-policy
    Source: eq:tilt for this reward; at β = 1 it is context distillation, Askell et al. (2021), "A general language assistant as a
        laboratory for alignment".
    Args:
        prompted_logps, logps: of all answers.
    """
    return torch.log_softmax(logps + (prompted_logps - logps) / beta, -1)


# -- a rule that must hold -----------------------------------------------------------------------------------------


@takes(rate=_SPLIT, alpha=_SPLIT)
def clean_replies(rate: float, *, alpha: float = 0.05) -> float:
    """How many replies without a single failure show that fewer than this share fail: log α / log(1 − p). Round up.

    Were the share p or more, so many clean replies in a row would have a probability of α at most.

    Label: eq:clean-replies
    Source: Hanley and Lippman-Hand (1983), "If nothing goes wrong, is everything all right?".
    """
    return math.log(alpha) / math.log1p(-rate)


# -- filters -------------------------------------------------------------------------------------------------------


@takes(missed=_INSIDE, separation=finite("..."))
def false_refusals(missed: Tensor, separation: Tensor) -> Tensor:
    """The share of harmless requests that a filter blocks whose bar lets this share of the harmful ones through: Φ(−d′ − Φ⁻¹(m)). ``(...)``

    Label: eq:over-refusal
    Source: Green and Swets (1966), "Signal detection theory and psychophysics", for normal scores of equal variance.
    Args:
        missed: m, of harmful requests.
        separation: d′.
    """
    return torch.special.ndtr(-separation - torch.special.ndtri(missed))


@takes(separation=finite("...", "(0, inf)"), harmful=_INSIDE, ratio=finite("...", "(0, inf)"))
def filter_threshold(separation: Tensor, harmful: Tensor, ratio: Tensor) -> Tensor:
    """The bar at which a filter costs least: t = d′/2 + log((1 − h)/(h c))/d′, on a scale where the harmless scores have mean 0. ``(...)``

    There the likelihood ratio of harmful to harmless is (1 − h)/(h c).

    Label: eq:filter-threshold
    Source: Neyman and Pearson (1933), "On the problem of the most efficient tests of statistical hypotheses"; Green and Swets (1966).
    Args:
        separation: d′.
        harmful: h, the share of requests that are harmful.
        ratio: c, the cost of a harmful answer over that of a false refusal.
    """
    return separation / 2 + torch.log((1 - harmful) / (harmful * ratio)) / separation


@takes(first=_CHANCE, second=_CHANCE, correlation=finite("...", "[-1, 1]"))
def both_filters_miss(first: Tensor, second: Tensor, correlation: Tensor) -> Tensor:
    """The chance that two filters miss the same harmful request: m₁m₂ + ρ√(m₁(1 − m₁)m₂(1 − m₂)). ``(...)``

    Label: eq:both-miss
    Source: the covariance of two events.
    Args:
        first, second: m₁ and m₂, what each misses.
        correlation: ρ of the two misses, as numbers 0 and 1. Not every ρ is possible for every m₁ and m₂.
    Raises:
        ValueError: a correlation that no two such events have.
    """
    together = first * second + correlation * (first * (1 - first) * second * (1 - second)).sqrt()
    slack = 1e-9  # of rounding
    least, most = (first + second - 1).clamp(min=0), torch.minimum(first, second)
    if not bool(((together >= least - slack) & (together <= most + slack)).all()):
        raise ArgumentError(
            f"correlation of shape {tuple(correlation.shape)}: two events with these chances cannot correlate so; expected a joint chance "
            "between max(0, first + second − 1) and min(first, second)",
            argument="correlation",
            problem="out of range",
        )
    return together


# -- a canary ------------------------------------------------------------------------------------------------------


@takes(new=_INSIDE, old=_INSIDE, rollback=at_least(1), ship=at_least(1))
def rollback_chance(new: Tensor, old: Tensor, *, rollback: int, ship: int) -> Tensor:
    """How likely a canary ends with a rollback: (1 − w^(−b))/(1 − w^(−(a + b))) with the odds ratio w of complaints, b/(a + b) for w = 1. ``(...)``

    Users are compared in pairs, one with the new model, one with the old. Pairs in which one complains count: +1 if it is the new model's,
    −1 if it is the old one's. At +a the new model is rolled back, at −b it is shipped.

    Label: eq:rollback-chance
    Source: Wald (1947), "Sequential analysis", section 6 (double dichotomies); the ruin of a gambler.
    Args:
        new, old: how likely a user of the new, of the old model complains.
        rollback, ship: a and b.
    """
    drift = torch.logit(new) - torch.logit(old)  # log w
    level = drift.abs() < 1e-9
    safe = torch.where(level, 1.0, drift)
    near = ship / (rollback + ship) * (1 + rollback * drift / 2)  # to first order, for the gradient
    return torch.where(level, near, torch.expm1(-ship * safe) / torch.expm1(-(rollback + ship) * safe))


@takes(new=_INSIDE, old=_INSIDE, rollback=at_least(1), ship=at_least(1))
def canary_pairs(new: Tensor, old: Tensor, *, rollback: int, ship: int) -> Tensor:
    """Expected pairs of users until :func:`rollback_chance`'s canary ends: (P(a + b) − b)/(p₁ − p₀), ab/(2p(1 − p)) if they are equal. ``(...)``

    Label: eq:canary-pairs
    Source: Wald (1944), "On cumulative sums of random variables".
    Args:
        new, old, rollback, ship: as there; p₁ and p₀, a and b.
    """
    level = (torch.logit(new) - torch.logit(old)).abs() < 1e-6
    apart = torch.where(level, 1.0, new - old)
    ends = rollback_chance(new, old, rollback=rollback, ship=ship) * (rollback + ship) - ship
    mean, drift = (new + old) / 2, torch.logit(new) - torch.logit(old)
    near = rollback * ship / (2 * mean * (1 - mean)) * (1 + (rollback - ship) * drift / 6)  # to first order
    return torch.where(level, near, ends / apart)
