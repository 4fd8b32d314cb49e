"""Small statistics that several floors need."""

from __future__ import annotations

import math
from collections.abc import Sequence


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
