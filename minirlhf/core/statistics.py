"""Small statistics that several floors need."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch


def holm(chances: Sequence[float]) -> list[float]:
    """p-values corrected for being looked at together: the k-th smallest of m times m − k + 1, and no smaller than the one before.

    Source: Holm (1979), "A simple sequentially rejective multiple test procedure".
    """
    corrected, largest = [0.0] * len(chances), 0.0
    for place, at in enumerate(sorted(range(len(chances)), key=lambda i: chances[i])):
        largest = max(largest, min(1.0, chances[at] * (len(chances) - place)))
        corrected[at] = largest
    return corrected


def sign_test(more: int, less: int) -> float:
    """Two-sided p-value of so many pluses and minuses if each were a coin toss, exactly; 1 where there are none.

    Of two models on the same items, with the items that only one of them got right, it is McNemar's test without approximation.

    Label: eq:sign-test
    Source: Arbuthnot (1710), "An argument for divine providence"; McNemar (1947), "Note on the sampling error of the difference
        between correlated proportions or percentages".
    """
    total = more + less
    log_all = total * math.log(2.0)
    tail = range(min(more, less) + 1)
    logs = [math.lgamma(total + 1) - math.lgamma(k + 1) - math.lgamma(total - k + 1) - log_all for k in tail]
    return min(1.0, 2 * math.fsum(math.exp(x) for x in logs))


#: The finest grid on which :func:`sign_flips` adds exactly; fractions that lie on none are rounded to it.
GRID = 840


def sign_flips(differences: Sequence[float]) -> float:
    """Two-sided p-value of the sum of these numbers, from −1 to 1, if the sign of each were a coin toss; of −1, 0 and 1 it is :func:`sign_test`.

    Where the sign test counts, this adds: many small losses may be made up for by a few large gains. It is exact if swapping the two models
    would change nothing, and for many items also where only their means are alike. It takes fractions with one denominator
    of at most 840, as means of equally many replies have; others are rounded, and the p-value is an upper bound.

    Source: Fisher (1935), "The design of experiments", section 21.
    """
    sizes = torch.tensor(differences, dtype=torch.float64)
    grids = (grid for grid in range(1, GRID + 1) if bool(((grid * sizes).round() - grid * sizes).abs().max() < 1e-6))
    grid = next(grids, GRID) if len(sizes) else 1
    signed = (grid * sizes).round().long()
    rounded = float((grid * sizes - signed).abs().sum())
    lost = int(2 * rounded + 1e-9)  # by so many steps rounding may part two sums that are alike
    width = 2 * int(signed.abs().sum()) + 1
    wave = torch.ones(width, dtype=torch.float64)  # the characteristic function of the sum: a product of cosines
    places = torch.arange(width)
    for size, times in zip(*signed.abs().unique(return_counts=True), strict=True):
        wave *= torch.cos(2 * math.pi / width * (places * size % width).double()) ** times
    chance = torch.fft.ifft(wave).real  # of the sum, modulo the width
    seen = abs(int(signed.sum())) - lost
    return min(1.0, max(0.0, float(chance[torch.minimum(places, width - places) >= seen].sum())))
