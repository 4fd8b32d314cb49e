"""Judging a sampler: are these draws from that distribution? By an exact test, so that what may go wrong by chance is known beforehand.

How often a value is drawn is binomial. Its tails are summed, not approximated, and all of them share one level (Bonferroni): a right sampler is
refused in one of a million tests at most, whatever the distribution.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from minirlhf.classroom.testing import Failure, named

LEVEL = 1e-6  # how often a right sampler may be refused


def tails(count: int, trials: int, p: float) -> tuple[float, float]:
    """P(X ≤ count) and P(X ≥ count) of a binomial variable, summed term by term."""
    if p <= 0 or p >= 1:
        sure = trials if p >= 1 else 0
        return float(sure <= count), float(sure >= count)
    x = torch.arange(trials + 1, dtype=torch.float64)
    pmf = (_log_choose(trials) + x * math.log(p) + (trials - x) * math.log1p(-p)).exp()
    return float(pmf[: count + 1].sum()), float(pmf[count:].sum())


@functools.cache
def _log_choose(n: int) -> Tensor:
    """log of n over k, for k = 0 … n."""
    log_factorial = torch.tensor([math.lgamma(k + 1) for k in range(n + 1)], dtype=torch.float64)
    return log_factorial[n] - log_factorial - log_factorial.flip(0)


def expect_draws(got: object, probs: Tensor, trials: int, what: str, mistakes: dict[str, Tensor] | None = None) -> None:
    """Hold ``trials`` independent draws against their distribution.

    Args:
        got: what the student's side answered; integers ``(trials,)`` between 0 and ``len(probs) − 1``.
        probs: ``(K,)``.
        what: names the draws in the message.
        mistakes: the distributions that well-known mistakes would draw from; one that fits is named.

    Raises:
        Failure: they are no such integers, or their counts are too far from what they should be.
    """
    if not isinstance(got, Tensor) or got.shape != (trials,) or got.is_floating_point() or got.is_complex():
        shape = tuple(got.shape) if isinstance(got, Tensor) else type(got).__name__
        message = f"{what}: expected {trials} integers of shape ({trials},), one token per row; got {shape}"
        raise Failure(message, value=shape, expected=(trials,), problem="shape")
    if int(got.min()) < 0 or int(got.max()) >= len(probs):
        message = f"{what}: a token is outside of 0 … {len(probs) - 1}"
        raise Failure(message, expected=len(probs) - 1, problem="range")
    counts = torch.bincount(got.long(), minlength=len(probs))
    worst = _worst(counts, probs)
    if worst is None:
        return
    matches = tuple(m for m, other in (mistakes or {}).items() if _worst(counts, other) is None)
    said = f"{what}: token {worst} was drawn {int(counts[worst])} times in {trials}; {trials * float(probs[worst]):.1f} times are expected"
    if matches:
        said += f", which {named(matches)}"
    shown = min(len(probs), 8)
    lines = (
        f"yours:    {[round(float(c) / trials, 3) for c in counts[:shown]]}",
        f"expected: {[round(float(p), 3) for p in probs[:shown]]}",
    )
    raise Failure(said, lines, matches, value=worst, problem="distribution")


def expect_independent(got: Tensor, other: Tensor, agree: float, what: str) -> None:
    """Hold two samples against each other: independent ones agree in a row with the probability ``agree``.

    Raises:
        Failure: they agree too often or too seldom.
    """
    same = int((got == other).sum())
    if min(tails(same, len(got), agree)) < LEVEL / 2:
        message = (
            f"{what}: {same} of {len(got)} rows are equal; {agree * len(got):.0f} are expected of independent draws"
        )
        raise Failure(message, value=same, problem="dependent")


def _worst(counts: Tensor, probs: Tensor) -> int | None:
    """The value whose count is least likely, if some count is too unlikely."""
    trials = int(counts.sum())
    chance = [min(tails(int(c), trials, float(p))) for c, p in zip(counts, probs, strict=True)]
    least = min(range(len(chance)), key=lambda i: chance[i])
    return least if chance[least] < LEVEL / (2 * len(chance)) else None
