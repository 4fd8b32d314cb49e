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


#: Steps of the grid on which :func:`sign_flips` adds: means of up to eight numbers that are 0 or 1 lie on it.
GRID = 840


def sign_flips(differences: Sequence[float]) -> float:
    """Two-sided p-value of the sum of these numbers, from −1 to 1, if the sign of each were a coin toss; of −1, 0 and 1 it is :func:`sign_test`.

    Where the sign test counts, this adds: many small losses may be made up for by a few large gains. It is exact if swapping the two models
    would change nothing, and for many items also where only their means are alike.

    Source: Fisher (1935), "The design of experiments", section 21.
    """
    signed = [round(GRID * x) for x in differences]
    unit = math.gcd(*signed) or 1
    steps = [abs(x) // unit for x in signed]
    chance = torch.zeros(2 * sum(steps) + 1, dtype=torch.float64)
    chance[sum(steps)] = 1.0
    for step in steps:
        chance = (chance.roll(step) + chance.roll(-step)) / 2
    seen = abs(sum(signed)) // unit
    places = torch.arange(-sum(steps), sum(steps) + 1)
    return min(1.0, float(chance[places.abs() >= seen].sum()))
