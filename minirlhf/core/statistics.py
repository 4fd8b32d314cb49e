"""Hypothesis tests that several layers need."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from minirlhf.core.equation import equation


def holm(chances: Sequence[float]) -> list[float]:
    """Return the p-values after Holm's correction for multiple comparisons.

    The k-th smallest of m p-values is multiplied by m − k + 1, capped at 1, and at least the corrected value before it.

    Source: Holm (1979), "A simple sequentially rejective multiple test procedure".
    """
    corrected, largest = [0.0] * len(chances), 0.0
    for rank, index in enumerate(sorted(range(len(chances)), key=lambda i: chances[i])):
        largest = max(largest, min(1.0, chances[index] * (len(chances) - rank)))
        corrected[index] = largest
    return corrected


@equation(
    "eq:sign-test",
    source='Arbuthnot (1710), "An argument for divine providence"; McNemar (1947), "Note on the sampling error of '
    'the difference between correlated proportions or percentages".',
)
def sign_test(more: int, less: int) -> float:
    """Exact two-sided p-value of ``more`` plus and ``less`` minus signs if each had probability ½; 1 without signs.

    With the items that only one of two models got right, this is the exact McNemar test of the two models.
    """
    total = more + less
    log_all = total * math.log(2.0)
    tail = range(min(more, less) + 1)
    logs = [math.lgamma(total + 1) - math.lgamma(k + 1) - math.lgamma(total - k + 1) - log_all for k in tail]
    return min(1.0, 2 * math.fsum(math.exp(x) for x in logs))


#: Denominator of the finest grid on which :func:`sign_flips` adds exactly; other numbers are rounded to this grid.
GRID = 840


def sign_flips(differences: Sequence[float]) -> float:
    """Two-sided p-value of the sum of these numbers, each from −1 to 1, if each sign had probability ½.

    For numbers that are −1, 0 or 1 it equals :func:`sign_test`. The sign test counts signs and this test adds values,
    so a few large gains can outweigh many small losses. It is exact if exchanging the two models does not change the
    distribution of the differences. For many items it also holds if only the models' means are equal. It accepts
    fractions with a common denominator of at most 840, such as means over equal numbers of completions. Other numbers
    are rounded, and the p-value is then an upper bound.

    Source: Fisher (1935), "The design of experiments", section 21.
    """
    sizes = torch.tensor(differences, dtype=torch.float64)
    grids = (grid for grid in range(1, GRID + 1) if bool(((grid * sizes).round() - grid * sizes).abs().max() < 1e-6))
    grid = next(grids, GRID) if len(sizes) else 1
    signed = (grid * sizes).round().long()
    rounded = float((grid * sizes - signed).abs().sum())
    tolerance = int(2 * rounded + 1e-9)  # grid steps by which rounding may separate two equal sums
    width = 2 * int(signed.abs().sum()) + 1
    transform = torch.ones(width, dtype=torch.float64)  # characteristic function of the sum: a product of cosines
    sums = torch.arange(width)
    for size, count in zip(*signed.abs().unique(return_counts=True), strict=True):
        transform *= torch.cos(2 * math.pi / width * (sums * size % width).double()) ** count
    probs = torch.fft.ifft(transform).real  # probability of each sum, modulo the width
    threshold = abs(int(signed.sum())) - tolerance
    return min(1.0, max(0.0, float(probs[torch.minimum(sums, width - sums) >= threshold].sum())))
