"""Tests of a sampler: an exact binomial test of its samples against a distribution, with a known false-positive rate.

The count of each value is binomial. The tail probabilities are exact sums, with a Bonferroni correction over all
values and both tails. So a correct sampler fails at most one test in a million, for every distribution.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from minirlhf_course.classroom.testing import Failure, named

LEVEL = 1e-6  # significance level: the probability that a correct sampler fails


def tails(count: int, trials: int, p: float) -> tuple[float, float]:
    """Return P(X ≤ count) and P(X ≥ count) of a binomial variable, summed term by term."""
    if p <= 0 or p >= 1:
        constant = trials if p >= 1 else 0
        return float(constant <= count), float(constant >= count)
    x = torch.arange(trials + 1, dtype=torch.float64)
    pmf = (_log_choose(trials) + x * math.log(p) + (trials - x) * math.log1p(-p)).exp()
    return float(pmf[: count + 1].sum()), float(pmf[count:].sum())


@functools.cache
def _log_choose(n: int) -> Tensor:
    """Return log C(n, k) for k = 0 … n, ``(n+1,)``."""
    log_factorial = torch.tensor([math.lgamma(k + 1) for k in range(n + 1)], dtype=torch.float64)
    return log_factorial[n] - log_factorial - log_factorial.flip(0)


def expect_draws(got: object, probs: Tensor, trials: int, what: str, mistakes: dict[str, Tensor] | None = None) -> None:
    """Test ``trials`` independent samples against their distribution.

    Args:
        got: the student's answer; integers ``(trials,)`` between 0 and ``len(probs) − 1``.
        probs: the distribution ``(K,)``.
        what: the name of the samples in the message.
        mistakes: the distributions that result from well-known mistakes; the message names those that fit the samples.

    Raises:
        Failure: the samples are not such integers, or a count differs significantly from its expectation.
    """
    if not isinstance(got, Tensor) or got.shape != (trials,) or got.is_floating_point() or got.is_complex():
        shape = tuple(got.shape) if isinstance(got, Tensor) else type(got).__name__
        message = f"{what}: expected {trials} integers of shape ({trials},), one token per row; got {shape}"
        raise Failure(message, value=shape, expected=(trials,), problem="shape")
    if int(got.min()) < 0 or int(got.max()) >= len(probs):
        message = f"{what}: a token is outside of 0 … {len(probs) - 1}"
        raise Failure(message, expected=len(probs) - 1, problem="range")
    counts = torch.bincount(got.long(), minlength=len(probs))
    outlier = _worst(counts, probs)
    if outlier is None:
        return
    matches = tuple(mistake for mistake, other in (mistakes or {}).items() if _worst(counts, other) is None)
    summary = f"{what}: token {outlier} was drawn {int(counts[outlier])} times in {trials}; {trials * float(probs[outlier]):.1f} times are expected"
    if matches:
        summary += f", which {named(matches)}"
    shown = min(len(probs), 8)
    lines = (
        f"yours:    {[round(float(c) / trials, 3) for c in counts[:shown]]}",
        f"expected: {[round(float(p), 3) for p in probs[:shown]]}",
    )
    raise Failure(summary, lines, matches, value=outlier, problem="distribution")


def expect_independent(got: Tensor, other: Tensor, agree: float, what: str) -> None:
    """Test whether two samples are independent: independent samples are equal in a row with probability ``agree``.

    Raises:
        Failure: the samples are equal in too many or too few rows.
    """
    same = int((got == other).sum())
    if min(tails(same, len(got), agree)) < LEVEL / 2:
        message = (
            f"{what}: {same} of {len(got)} rows are equal; {agree * len(got):.0f} are expected of independent draws"
        )
        raise Failure(message, value=same, problem="dependent")


def expect_independent_rows(got: Tensor, agree: float, what: str) -> None:
    """Test whether all entries of a sample are independent, at every distance from each other.

    At each distance the entries form disjoint pairs, so that the number of equal pairs is binomial. The significance
    level is shared by all distances (Bonferroni).

    Args:
        got: the sample ``(N,)``.
        agree: the probability that two independent entries are equal.
        what: the name of the entries in the message.

    Raises:
        Failure: at some distance too many or too few pairs are equal; ``value`` is the distance.
    """
    distances = range(1, len(got) // 2 + 1)
    for distance in distances:
        blocks = got[: len(got) // (2 * distance) * 2 * distance].reshape(-1, 2, distance)
        pairs = blocks.shape[0] * distance
        same = int((blocks[:, 0] == blocks[:, 1]).sum())
        if min(tails(same, pairs, agree)) < LEVEL / (2 * len(distances)):
            message = f"{what}: of {pairs} pairs that are {distance} apart, {same} are equal; {agree * pairs:.0f} are expected of independent draws"
            raise Failure(message, value=distance, problem="dependent")


def _worst(counts: Tensor, probs: Tensor) -> int | None:
    """Return the value with the least probable count if that count is significant, else None."""
    trials = int(counts.sum())
    probabilities = [min(tails(int(c), trials, float(p))) for c, p in zip(counts, probs, strict=True)]
    smallest = min(range(len(probabilities)), key=lambda i: probabilities[i])
    return smallest if probabilities[smallest] < LEVEL / (2 * len(probabilities)) else None
