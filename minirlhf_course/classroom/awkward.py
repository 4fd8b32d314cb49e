"""Awkward numbers in place of those of a call: equal ones, nearly equal ones, larger and smaller ones.

Distributions stay distributions, and a matrix whose one half follows from the other, such as chances to win, stays as
it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from minirlhf_course.classroom.nested import finite

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


def scaled(x: Tensor, factor: float) -> Tensor:
    """Return ``factor`` times ``x``; numbers in [0, 1] become no larger."""
    out = x if factor > 1 and bool(((x >= 0) & (x <= 1)).all()) else factor * x
    return _normalised(out, like=x)


def _steps(x: Tensor) -> Tensor:
    return (torch.arange(x.numel(), dtype=torch.float64) * 7 % 11).reshape(x.shape)


def _normalised(x: Tensor, like: Tensor) -> Tensor:
    """Return ``x``, or the distributions that it is proportional to if ``like`` holds distributions."""
    if bool((like.logsumexp(-1).abs() < 1e-6).all()):
        return x.log_softmax(-1)
    if bool((like >= 0).all()) and bool(((like.sum(-1) - 1).abs() < 1e-6).all()):
        return x / x.sum(-1, keepdim=True)
    return x / x.sum() if bool((like >= 0).all()) and abs(float(like.sum()) - 1) < 1e-6 else x


def _is_mirrored(x: Tensor) -> bool:
    if x.dim() < 2 or x.shape[-1] != x.shape[-2]:
        return False
    return any(bool((sums.abs() < 1e-6).all()) for sums in (x + x.mT - 1, x + x.mT, x - x.mT))
