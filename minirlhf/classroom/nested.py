"""Plain data, nested: its tensors, its sizes, whether two are the same, and the same data in another size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from minirlhf.sandbox import wire

LARGEST_AXIS = 64  # a longer one is data, not a size that somebody could have fixed


def copied(value: Any) -> Any:
    """Plain data as it arrives on the other side."""
    return wire.decode(wire.encode(value))


def mapped(value: Any, f: Callable[[Tensor], Tensor]) -> Any:
    """``f`` of every tensor in it."""
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
    """Whether no number in it is NaN or infinite."""
    return all(
        bool(torch.isfinite(torch.as_tensor(x)).all()) for x in leaves(value) if isinstance(x, Tensor | int | float)
    )


def is_whole(x: Any) -> bool:
    return not x.is_floating_point() if isinstance(x, Tensor) else isinstance(x, int)


def holds_whole_floats(x: Tensor) -> bool:
    whole = x.is_floating_point() and bool(torch.isfinite(x).all()) and bool((x == x.round()).all())
    return whole and x.numel() > 1 and bool((x != x.flatten()[0]).any())


def _is_coded(x: Tensor) -> bool:
    """Whether its numbers are a code, such as 0 for wrong and 1 for right: whole, and some alike."""
    return holds_whole_floats(x) and len(x.unique()) < x.numel()


def has_whole_floats(value: Any) -> bool:
    return any(map(holds_whole_floats, tensors(value)))


def axes(value: Any) -> Iterator[int]:
    """The sizes of all axes in it, those of lists too."""
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


def stretch(value: Any, n: int, m: int, end: str = "") -> Any:
    """``value`` with every axis of size ``n`` made one of ``m``: by entries between their neighbours, or one more that continues
    the last two (``end="on"``) or turns back beyond them (``end="back"``).

    Bools, integers, NaN and codes such as 0 and 1 are copied, what sums to one along its last axis does so afterwards, a
    sign is kept; what lies in [0, 1] stays there.
    """
    if m == n + 1 and end:
        last = (n - 2, n - 1, 1.7) if end == "on" else (n - 1, n - 2, 1.7)
        places = [*((i, i, 0.0) for i in range(n)), last]
    elif m == n + 1:
        places = [(0, 0, 0.0), (0, 1, 0.63), *((i, i, 0.0) for i in range(1, n))]
    else:
        places = [p for i in range(n) for p in ((i, i, 0.0), (i, i + 1, 0.63) if i + 1 < n else (i, i - 1, 0.37))]
    return _stretch(value, n, places)


def _stretch(value: Any, n: int, places: list[tuple[int, int, float]]) -> Any:
    if isinstance(value, Tensor):
        return _stretch_tensor(value, n, places)
    if isinstance(value, dict):
        return {k: _stretch(v, n, places) for k, v in value.items()}
    if isinstance(value, tuple):
        return tuple(_stretch(v, n, places) for v in value)
    if not isinstance(value, list):
        return value
    inner = [_stretch(v, n, places) for v in value]
    if len(value) != n:
        return inner
    return [_between(inner[i], inner[j], w, inner[_copied_from(i, j, w)]) for i, j, w in places]


def _copied_from(i: int, j: int, weight: float) -> int:
    """Which entry is copied where none can be made: beyond the end it is the last, so that padding stays at the end."""
    return max(i, j) if weight > 1 else i


def _between(a: Any, b: Any, weight: float, copy: Any) -> Any:
    if weight == 0:
        return copied(a)
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return {k: _between(v, b[k], weight, copy[k]) for k, v in a.items()}
    like = isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape and a.is_floating_point()
    if like and not _is_coded(a) and finite([a, b]):
        return torch.lerp(a, b.to(a.dtype), min(weight, 0.63))
    return _held(a + weight * (b - a), a, b) if isinstance(a, float) and isinstance(b, float) else copied(copy)


def _held(x: float, a: float, b: float) -> float:
    """``x``, or ``b`` where it has another sign than both."""
    return b if (x <= 0 < min(a, b)) or (x >= 0 > max(a, b)) else x


def _stretch_tensor(x: Tensor, n: int, places: list[tuple[int, int, float]]) -> Tensor:
    smooth = x.is_floating_point() and not _is_coded(x) and finite(x)
    sums = log_sums = False
    if smooth and x.dim() and x.shape[-1] == n:
        sums = bool((x >= 0).all()) and bool(((x.sum(-1) - 1).abs() < 1e-6).all())
        log_sums = bool((x.logsumexp(-1).abs() < 1e-6).all())
    first, second = (torch.tensor([p[k] for p in places]) for k in (0, 1))
    copy = torch.tensor([_copied_from(*p) for p in places])
    weight = torch.tensor([p[2] for p in places], dtype=x.dtype if smooth else torch.float64)
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
    """How far numbers of this kind may go: a sign is kept, and so is the unit interval."""
    least, most = float(x.min()), float(x.max())
    low = 0.5 * least if least > 0 else 0.0 if least == 0 else -math.inf
    high = 0.5 * (1 + most) if least >= 0 and most <= 1 else 0.5 * most if most < 0 else math.inf
    return low, high


def same(a: Any, b: Any, tolerance: float = 0.0) -> bool:
    """Whether plain data is equal, NaN included; lists and tuples are alike."""
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(same(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(v, b[k], tolerance) for k, v in a.items())
    if isinstance(a, Tensor | int | float) and isinstance(b, Tensor | int | float):
        x, y = torch.as_tensor(a), torch.as_tensor(b)
        if x.shape != y.shape or (tolerance == 0 and isinstance(a, Tensor) and x.dtype != y.dtype):
            return False
        x, y = x.double(), y.double()
        near = ((x - y).abs() <= tolerance * y.abs().clamp(min=1)) | (x == y) | (x.isnan() & y.isnan())
        return bool(near.all())
    return type(a) is type(b) and bool(a == b)
