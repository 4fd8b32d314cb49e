"""Nested plain data: iterate over its tensors and sizes, compare it, and resize it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from minirlhf.sandbox import wire

LARGEST_AXIS = 64  # a longer axis is data, not a size that a solution could hard-code


def copied(value: Any) -> Any:
    """Return a copy of plain data, encoded and decoded as for another process."""
    return wire.decode(wire.encode(value))


def mapped(value: Any, f: Callable[[Tensor], Tensor]) -> Any:
    """Apply ``f`` to every tensor in ``value``."""
    if isinstance(value, Tensor):
        return f(value)
    if isinstance(value, list | tuple):
        return type(value)(mapped(v, f) for v in value)
    if isinstance(value, dict):
        return {k: mapped(v, f) for k, v in value.items()}
    return value


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for v in value:
            yield from leaves(v)
    elif isinstance(value, dict):
        for v in value.values():
            yield from leaves(v)
    else:
        yield value


def tensors(value: Any) -> Iterator[Tensor]:
    return (x for x in leaves(value) if isinstance(x, Tensor))


def finite(value: Any) -> bool:
    """Whether no number in ``value`` is NaN or infinite."""
    return all(
        bool(torch.isfinite(torch.as_tensor(x)).all()) for x in leaves(value) if isinstance(x, Tensor | int | float)
    )


def is_whole(x: Any) -> bool:
    return not x.is_floating_point() if isinstance(x, Tensor) else isinstance(x, int)


def _is_bool(x: Any) -> bool:
    return x.dtype == torch.bool if isinstance(x, Tensor) else isinstance(x, bool)


def holds_whole_floats(x: Tensor) -> bool:
    integers_only = x.is_floating_point() and bool(torch.isfinite(x).all()) and bool((x == x.round()).all())
    return integers_only and x.numel() > 1 and bool((x != x.flatten()[0]).any())


def _is_coded(x: Tensor) -> bool:
    """Whether the entries are codes, such as 0 for wrong and 1 for correct: integers, some of them equal."""
    return holds_whole_floats(x) and len(x.unique()) < x.numel()


def has_whole_floats(value: Any) -> bool:
    return any(map(holds_whole_floats, tensors(value)))


def axes(value: Any) -> Iterator[int]:
    """Yield the sizes of all tensor axes and the lengths of all lists in ``value``, from 2 to ``LARGEST_AXIS``."""
    if isinstance(value, Tensor):
        yield from (n for n in value.shape if 2 <= n <= LARGEST_AXIS)
    elif isinstance(value, list | tuple):
        if isinstance(value, list) and 2 <= len(value) <= LARGEST_AXIS:
            yield len(value)
        for v in value:
            yield from axes(v)
    elif isinstance(value, dict):
        for v in value.values():
            yield from axes(v)


def sizes(value: Any, *path: object) -> Iterator[tuple[tuple[object, ...], int]]:
    """Yield the size of every axis of the tensors, and the length of every list, with the path to it."""
    if isinstance(value, Tensor):
        yield from (((*path, f"axis {axis} of {value.dim()}"), n) for axis, n in enumerate(value.shape))
    elif isinstance(value, list):
        yield (*path, "length"), len(value)
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from sizes(entry, *path, key)


def stretch(value: Any, n: int, m: int, end: str = "") -> Any:
    """Return ``value`` with every axis of size ``n`` resized to a larger ``m``.

    New entries are interpolated between neighbours, or one entry is added at the end that extrapolates the last two
    entries (``end="on"``) or extrapolates from the last entry back beyond the one before it (``end="back"``).

    Bools, integers, NaN and codes such as 0 and 1 are copied. Distributions along the last axis still sum to one. Signs
    are kept, and values in [0, 1] stay in [0, 1].
    """
    if m == n + 1 and end:
        extra = (n - 2, n - 1, 1.7) if end == "on" else (n - 1, n - 2, 1.7)
        sources = [*((i, i, 0.0) for i in range(n)), extra]
    elif m == n + 1:
        sources = [(0, 0, 0.0), (0, 1, 0.63), *((i, i, 0.0) for i in range(1, n))]
    elif m > 2 * n:
        places = [divmod(k * (n - 1), m - 1) for k in range(m)]
        sources = [(i, min(i + 1, n - 1), rest / (m - 1)) for i, rest in places]
    else:
        sources = [p for i in range(n) for p in ((i, i, 0.0), (i, i + 1, 0.63) if i + 1 < n else (i, i - 1, 0.37))]
    return _stretch(value, n, sources)


def select(value: Any, n: int, places: Sequence[int], first_axis: bool = False) -> Any:
    """Return ``value`` with the entries ``places`` of every axis, and of every list, of size ``n``.

    Distributions along the last axis, over a whole tensor or in a list, still sum to one.

    Args:
        first_axis: whether only the first axes of tensors, and the outermost lists, are cut.
    """
    if isinstance(value, Tensor):
        return _select_tensor(value, n, places, first_axis)
    if isinstance(value, dict):
        return {k: select(v, n, places, first_axis) for k, v in value.items()}
    if isinstance(value, tuple):
        return tuple(select(v, n, places, first_axis) for v in value)
    if not isinstance(value, list):
        return value
    if len(value) != n:
        return value if first_axis else [select(v, n, places) for v in value]
    items = [copied(value[i]) if first_axis else select(value[i], n, places) for i in places]
    is_distribution = all(isinstance(v, float) and v >= 0 for v in value) and abs(sum(value) - 1) < 1e-6
    return [v / sum(items) for v in items] if is_distribution and sum(items) > 0 else items


def _select_tensor(x: Tensor, n: int, places: Sequence[int], first_axis: bool) -> Tensor:
    smooth = x.is_floating_point() and finite(x) and x.numel() > 0 and x.dim() > 0
    sums = smooth and bool((x >= 0).all()) and bool(((x.sum(-1) - 1).abs() < 1e-6).all())
    total = smooth and bool((x >= 0).all()) and abs(float(x.sum()) - 1) < 1e-6
    log_sums = smooth and bool((x.logsumexp(-1).abs() < 1e-6).all())
    for dim in range(min(x.dim(), 1) if first_axis else x.dim()):
        if x.shape[dim] == n:
            x = x.index_select(dim, torch.tensor(places))
    if sums or total:
        return x / (x.sum(-1, keepdim=True) if sums else x.sum())
    return x.log_softmax(-1) if log_sums else x


def resize(value: Any, n: int, m: int, start: int = 0) -> Any:
    """Return ``value`` with every axis of size ``n`` resized to ``m``.

    A smaller one holds the first entry and those behind ``start``; in a larger one some entries stand there several
    times. Tables of identifiers, such as tokens, then hold none above ``m - 1``, since they may point into this axis.
    """
    larger, smaller = [k * (n - 1) // max(m - 1, 1) for k in range(m)], [0, *range(start + 1, start + m)]
    resized = select(value, n, larger if m > n else smaller)
    return mapped(resized, lambda x: x.clamp(max=m - 1) if _holds_identifiers(x) else x) if m < n else resized


def _holds_identifiers(x: Tensor) -> bool:
    """Whether these are integers in rows, none of which lists each of its numbers once, as an order does."""
    if x.is_floating_point() or x.dtype == torch.bool or x.dim() < 2 or not x.numel():
        return False
    return not bool((x.sort(-1).values == torch.arange(x.shape[-1])).all())


def first_sizes(value: Any) -> Iterator[int]:
    """Yield the sizes, at least 2, of first axes and of outermost lists."""
    if isinstance(value, Tensor | list):
        yield from (n for n in (value.shape[:1] if isinstance(value, Tensor) else [len(value)]) if n >= 2)
    elif isinstance(value, tuple | dict):
        for v in value.values() if isinstance(value, dict) else value:
            yield from first_sizes(v)


def shapes(value: Any) -> list[tuple[int, ...]]:
    """Return the shapes of all tensors in ``value``."""
    return [tuple(x.shape) for x in tensors(value)]


def integers(value: Any) -> set[int]:
    """Return the integers in ``value``, each of which may be an index or a length; bools are none."""
    numbers = (x for x in leaves(value) if is_whole(x) and not _is_bool(x))
    return {int(v) for x in numbers for v in (x.flatten().tolist() if isinstance(x, Tensor) else [x])}


def has_empty_row(value: Any) -> bool:
    """Whether a mask has a row without True, such as a completion without a token."""
    masks = (x for x in tensors(value) if x.dtype == torch.bool and x.dim())
    return any(not bool(x.any(-1).all()) for x in masks)


def _stretch(value: Any, n: int, sources: list[tuple[int, int, float]]) -> Any:
    if isinstance(value, Tensor):
        return _stretch_tensor(value, n, sources)
    if isinstance(value, dict):
        return {k: _stretch(v, n, sources) for k, v in value.items()}
    if isinstance(value, tuple):
        return tuple(_stretch(v, n, sources) for v in value)
    if not isinstance(value, list):
        return value
    items = [_stretch(v, n, sources) for v in value]
    if len(value) != n:
        return items
    return [_between(items[i], items[j], weight, items[_copied_from(i, j, weight)]) for i, j, weight in sources]


def _copied_from(i: int, j: int, weight: float) -> int:
    """Return the index to copy if interpolation is impossible: beyond the end the last, so that padding stays last."""
    return max(i, j) if weight > 1 else i


def _between(a: Any, b: Any, weight: float, copy: Any) -> Any:
    if weight == 0:
        return copied(a)
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return {k: _between(v, b[k], weight, copy[k]) for k, v in a.items()}
    compatible = isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape and a.is_floating_point()
    if compatible and not _is_coded(a) and finite([a, b]):
        return torch.lerp(a, b.to(a.dtype), min(weight, 0.63))
    return _held(a + weight * (b - a), a, b) if isinstance(a, float) and isinstance(b, float) else copied(copy)


def _held(x: float, a: float, b: float) -> float:
    """Return ``x``, or ``b`` if the sign of ``x`` differs from that of both ``a`` and ``b``."""
    return b if (x <= 0 < min(a, b)) or (x >= 0 > max(a, b)) else x


def _stretch_tensor(x: Tensor, n: int, sources: list[tuple[int, int, float]]) -> Tensor:
    smooth = x.is_floating_point() and not _is_coded(x) and finite(x)
    sums = log_sums = False
    if smooth and x.dim() and x.shape[-1] == n:
        sums = bool((x >= 0).all()) and bool(((x.sum(-1) - 1).abs() < 1e-6).all())
        log_sums = bool((x.logsumexp(-1).abs() < 1e-6).all())
    first, second = (torch.tensor([source[k] for source in sources]) for k in (0, 1))
    copy = torch.tensor([_copied_from(*source) for source in sources])
    weight = torch.tensor([source[2] for source in sources], dtype=x.dtype if smooth else torch.float64)
    if sums or log_sums:
        weight = weight.clamp(max=0.63)
    low, high = _bounds(x) if smooth and x.numel() else (None, None)
    for dim in range(x.dim()):
        if x.shape[dim] == n:
            a = x.index_select(dim, first if smooth else copy)
            if smooth:
                shape = [-1 if d == dim else 1 for d in range(x.dim())]
                a = (a + weight.reshape(shape) * (x.index_select(dim, second) - a)).clamp(low, high)
            x = a
    if sums:
        return x / x.sum(-1, keepdim=True)
    return x.log_softmax(-1) if log_sums else x


def _bounds(x: Tensor) -> tuple[float, float]:
    """Return the bounds of new entries, which keep the sign and the unit interval."""
    least, most = float(x.min()), float(x.max())
    low = 0.5 * least if least > 0 else 0.0 if least == 0 else -math.inf
    high = 0.5 * (1 + most) if least >= 0 and most <= 1 else 0.5 * most if most < 0 else math.inf
    return low, high


def same(a: Any, b: Any, tolerance: float = 0.0, floor: float = 1.0) -> bool:
    """Whether plain data is equal; NaN equals NaN, and a list equals a tuple with the same entries.

    ``tolerance``: the largest error, relative to the entry of ``b``, or to ``floor`` if it is larger.
    """
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(same(x, y, tolerance, floor) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(v, b[k], tolerance, floor) for k, v in a.items())
    if isinstance(a, Tensor | int | float) and isinstance(b, Tensor | int | float):
        x, y = torch.as_tensor(a), torch.as_tensor(b)
        if x.shape != y.shape or (tolerance == 0 and isinstance(a, Tensor) and x.dtype != y.dtype):
            return False
        x, y = x.double(), y.double()
        near = ((x - y).abs() <= tolerance * y.abs().clamp(min=floor)) | (x == y) | (x.isnan() & y.isnan())
        return bool(near.all())
    return type(a) is type(b) and bool(a == b)
