"""Awkward numbers in place of those of a call: equal, nearly equal, large, small, and shifted ones.

Distributions stay distributions, and a matrix whose one half follows from the other, such as chances to win, stays as
it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from minirlhf_course.classroom.nested import finite, leaves

Change = Callable[[Tensor], Tensor]


def replaced(value: Any, change: Change) -> Any:
    """Apply ``change`` to every float64 tensor of several entries, and to every list of floats, in ``value``."""
    if isinstance(value, Tensor):
        is_usable = value.dtype == torch.float64 and value.dim() and value.numel() > 1 and finite(value)
        return change(value) if is_usable and not _is_mirrored(value) else value
    if isinstance(value, list) and len(value) > 1 and all(isinstance(v, float) for v in value):
        return replaced(torch.tensor(value, dtype=torch.float64), change).tolist()
    if isinstance(value, list | tuple):
        return type(value)(replaced(v, change) for v in value)
    return {k: replaced(v, change) for k, v in value.items()} if isinstance(value, dict) else value


def equal(x: Tensor, all_rows: bool = True, gap: float = 0.0) -> Tensor:
    """Return ``x`` with equal entries, or with entries that differ by up to ten times ``gap``.

    The value is near the median: 0.1 or an integer more, or -0.1 or an integer less. The sum of 3, 6 or 7 such numbers is
    often rounded, so their computed standard deviation is not exactly 0.

    Args:
        all_rows: whether all rows are replaced, or the first one only.
    """
    sign = -1.0 if float(x.max()) <= 0 else 1.0
    value = sign * (0.1 + math.floor(float((sign * x).median())))
    out = _normalised(value + gap * _steps(x), like=x)
    return out if all_rows or x.dim() == 1 else torch.cat([out[:1], x[1:]])


def near(x: Tensor, gap: float) -> Tensor:
    """Return ``x`` with up to ten times ``gap`` added to its entries."""
    return _normalised(x + gap * _steps(x), like=x)


def are_of_a_kind(x: Any, y: Any) -> bool:
    """Whether both are tensors of one shape, and both distributions, or numbers of one sign, or numbers in [0, 1]."""
    if not (isinstance(x, Tensor) and isinstance(y, Tensor) and x.shape == y.shape and x.numel() and x.dim()):
        return False
    return x.dtype == y.dtype == torch.float64 and finite([x, y]) and _kind(x) == _kind(y)


def _kind(x: Tensor) -> tuple[bool, ...]:
    is_positive = bool((x >= 0).all())
    sums = bool((x.logsumexp(-1).abs() < 1e-6).all()), bool(((x.sum(-1) - 1).abs() < 1e-6).all())
    return is_positive, is_positive and bool((x <= 1).all()), bool((x <= 0).all()), *sums


def bumped(x: Tensor, index: int, by: float) -> Tensor:
    """Return ``x`` with ``by`` added to one entry of every row."""
    out = x.clone()
    out[..., index] += by
    return _normalised(out, like=x)


def reaching(x: Tensor, size: float) -> Tensor:
    """Return a multiple of ``x`` whose largest number is of this size, or distributions of such log-probabilities."""
    largest = float(x.abs().max())
    return _normalised(x * (size / largest), like=x) if largest > 0 else x


def sharpened(x: Tensor, smallest: float, order: int = 1) -> Tensor:
    """Return distributions as powers of those in ``x``, so that the least positive probability is near ``smallest``.

    Args:
        order: −1 turns the order of the entries around.
    """
    if not _sums_to_one(x):
        return x
    x = x if order > 0 else x.flip(-1)
    ratio = float((x.amax(-1, keepdim=True) / torch.where(x > 0, x, 1.0)).max())
    return _normalised(x ** (-math.log(smallest) / math.log(ratio)), like=x) if ratio > 1.001 else x


def near_one(x: Tensor, distance: float) -> Tensor:
    """Return numbers in [0, 1] with their distances from 1 shrunk to ``distance`` at most."""
    farthest = float((1 - x).max())
    return x if _sums_to_one(x) or farthest <= distance else 1 - (1 - x) * (distance / farthest)


def noisy(x: Tensor, by: float) -> Tensor:
    """Return ``x`` with every entry multiplied by another number within ``by`` of 1."""
    return x * (1 + by * torch.cos(torch.arange(x.numel(), dtype=torch.float64)).reshape(x.shape))


def shifted(x: Tensor, by: float) -> Tensor:
    """Return ``x`` with a number added to all entries, of the sign that they have; distributions stay as they are."""
    is_distribution = _sums_to_one(x) or bool((x.logsumexp(-1).abs() < 1e-6).all())
    return x if is_distribution else x + (-by if float(x.max()) <= 0 else by)


def in_unit_interval(value: Any) -> bool:
    """Whether all tensors and lists of numbers in ``value`` lie in [0, 1]."""
    numbers = [torch.as_tensor(v, dtype=torch.float64) for v in leaves(value) if isinstance(v, Tensor | float)]
    return all(bool(((x >= 0) & (x <= 1)).all()) for x in numbers)


def _sums_to_one(x: Tensor) -> bool:
    return bool((x >= 0).all()) and bool(((x.sum(-1) - 1).abs() < 1e-6).all())


def _steps(x: Tensor) -> Tensor:
    return (torch.arange(x.numel(), dtype=torch.float64) * 7 % 11).reshape(x.shape)


def _normalised(x: Tensor, like: Tensor) -> Tensor:
    """Return ``x``, or the distributions that it is proportional to if ``like`` holds distributions."""
    if bool((like.logsumexp(-1).abs() < 1e-6).all()):
        return x.log_softmax(-1)
    if _sums_to_one(like):
        return x / x.sum(-1, keepdim=True)
    return x / x.sum() if bool((like >= 0).all()) and abs(float(like.sum()) - 1) < 1e-6 else x


def _is_mirrored(x: Tensor) -> bool:
    if x.dim() < 2 or x.shape[-1] != x.shape[-2]:
        return False
    return any(bool((sums.abs() < 1e-6).all()) for sums in (x + x.mT - 1, x + x.mT, x - x.mT))
