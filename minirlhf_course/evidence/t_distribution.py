"""Student's t distribution, for differences over a few seeds: tails, quantiles and the power of a test.

Sources: Abramowitz & Stegun (1964), "Handbook of mathematical functions", 26.7.3 and 26.7.4; Student (1908), "The probable error of a
mean".
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from minirlhf.core.errors import ArgumentError


def two_sided(t: float, degrees: int) -> float:
    """Return P(|T| > t) of a variable T with ``degrees`` degrees of freedom, to about 1e-15."""
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
    """Return the t that |T| exceeds with probability ``alpha``, half of it on each side."""
    if not 0 < alpha < 1:
        raise ArgumentError(
            f"alpha = {alpha}; expected a number between 0 and 1", argument="alpha", value=alpha, expected="(0, 1)"
        )
    return _where(lambda t: two_sided(t, degrees) < alpha)


@functools.cache
def detectable(alpha: float, degrees: int, power: float = 0.8) -> float:
    """Return the smallest true mean, in standard errors, that a two-sided test at ``alpha`` detects with this
    ``power``.

    Detection means rejection on the side of the true mean. The result is the shift of a noncentral t.
    """
    critical, steps = quantile(alpha, degrees), 2000
    log_scale = math.log(2) + degrees / 2 * math.log(degrees / 2) - math.lgamma(degrees / 2)
    scales = [(k + 0.5) * 6 / steps for k in range(steps)]  # sample standard deviations, in units of the true one
    weights = [math.exp(log_scale + (degrees - 1) * math.log(s) - degrees * s * s / 2) * 6 / steps for s in scales]

    def detects(shift: float) -> bool:
        tails = (math.erfc((critical * s - shift) / math.sqrt(2)) / 2 for s in scales)
        return sum(weight * tail for weight, tail in zip(weights, tails, strict=True)) > power

    return _where(detects)


def _where(holds: Callable[[float], bool]) -> float:
    """Return the smallest number at which a monotone condition holds, by bisection."""
    low, high = 0.0, 1.0
    while not holds(high):
        low, high = high, 2 * high
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
