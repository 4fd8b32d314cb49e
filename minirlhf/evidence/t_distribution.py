"""Student's t distribution, for differences of a handful of seeds: tails, quantiles and the power of a test.

Sources: Abramowitz & Stegun (1964), "Handbook of mathematical functions", 26.7.3 and 26.7.4; Student (1908), "The probable error of a
mean".
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from minirlhf.core.errors import ArgumentError


def two_sided(t: float, degrees: int) -> float:
    """P(|T| > t) of a variable T with so many degrees of freedom, to about 1e-15."""
    if degrees < 1:
        raise ArgumentError(f"degrees = {degrees}; expected at least 1", argument="degrees", value=degrees, expected=1)
    angle = math.atan2(abs(t), math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for k in range(degrees // 2):
        total += term
        term *= cosine**2 * (2 * k + 1 + odd) / (2 * k + 2 + odd)
    inside = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return max(0.0, 1.0 - inside)


@functools.cache
def quantile(alpha: float, degrees: int) -> float:
    """The t that |T| exceeds with probability ``alpha``, half of it on each side."""
    if not 0 < alpha < 1:
        raise ArgumentError(
            f"alpha = {alpha}; expected one between 0 and 1", argument="alpha", value=alpha, expected="(0, 1)"
        )
    return _where(lambda t: two_sided(t, degrees) < alpha)


@functools.cache
def detectable(alpha: float, degrees: int, power: float = 0.8) -> float:
    """How many standard errors a true mean must be away from 0 for a two-sided test at ``alpha`` to find it, on its side, with this
    probability: the shift of a noncentral t."""
    critical, steps = quantile(alpha, degrees), 2000
    log_scale = math.log(2) + degrees / 2 * math.log(degrees / 2) - math.lgamma(degrees / 2)
    found_at = [(k + 0.5) * 6 / steps for k in range(steps)]  # deviations that a sample shows, in units of the true one
    chances = [math.exp(log_scale + (degrees - 1) * math.log(s) - degrees * s * s / 2) * 6 / steps for s in found_at]

    def found(shift: float) -> bool:
        normal = (math.erfc((critical * s - shift) / math.sqrt(2)) / 2 for s in found_at)
        return sum(chance * above for chance, above in zip(chances, normal, strict=True)) > power

    return _where(found)


def _where(holds: Callable[[float], bool]) -> float:
    """The number from which on something holds."""
    low, high = 0.0, 1.0
    while not holds(high):
        low, high = high, 2 * high
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
