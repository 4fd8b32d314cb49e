"""Argument checks of the equation layer: one clear ``ValueError`` that names the argument and its shape."""

from __future__ import annotations

import torch
from torch import Tensor


def require_shapes(**named: tuple[Tensor, str]) -> dict[str, int]:
    """Hold every tensor against its named axes, e.g. ``require_shapes(logps=(logps, "B T"), rewards=(rewards, "B"))``.

    The same letter means the same size everywhere; a digit is that exact size. There is no broadcasting: ``(B,)``
    against ``(B, T)`` is an error.

    Returns:
        The size of each axis letter.

    Raises:
        ValueError: naming the argument, its shape and the axes expected of it.
    """
    sizes: dict[str, int] = {}
    owner: dict[str, str] = {}
    for name, (tensor, axes) in named.items():
        want = axes.split()
        shape = tuple(tensor.shape)
        if len(want) != len(shape):
            raise ValueError(f"{name} has shape {shape}; expected ({', '.join(want)})")
        for axis, size in zip(want, shape, strict=True):
            if axis.isdigit():
                expected, source = int(axis), "fixed"
            else:
                expected = sizes.setdefault(axis, size)
                source = f"as in {owner.setdefault(axis, name)}"
            if size != expected:
                raise ValueError(
                    f"{name} has shape {shape}; expected ({', '.join(want)}) with {axis} = {expected} ({source})"
                )
    return sizes


def require_finite(**tensors: Tensor) -> None:
    """Raise ``ValueError`` if a tensor holds NaN or an infinity."""
    for name, tensor in tensors.items():
        bad = int((~torch.isfinite(tensor)).sum())
        if bad:
            raise ValueError(f"{name} of shape {tuple(tensor.shape)} holds {bad} non-finite value(s)")


def require_finite_where(mask: Tensor, **tensors: Tensor) -> None:
    """As :func:`require_finite`, looking only where ``mask`` is set: padding may hold anything."""
    for name, tensor in tensors.items():
        bad = int((~torch.isfinite(tensor) & mask.bool()).sum())
        if bad:
            raise ValueError(f"{name} of shape {tuple(tensor.shape)} holds {bad} non-finite value(s) under the mask")


def require_mask(mask: Tensor, name: str = "mask") -> None:
    """A mask is ``(B, T)``, holds zeros and ones only, and no row of it is empty."""
    if mask.dim() != 2:
        raise ValueError(f"{name} has shape {tuple(mask.shape)}; expected (B, T)")
    if mask.dtype != torch.bool and not bool(((mask == 0) | (mask == 1)).all()):
        raise ValueError(f"{name} of shape {tuple(mask.shape)} holds values other than 0 and 1")
    empty = (~mask.bool().any(dim=-1)).nonzero().flatten().tolist()
    if empty:
        raise ValueError(f"{name} of shape {tuple(mask.shape)} has no sampled token in row(s) {empty[:5]}")


def require_positive(**numbers: float) -> None:
    """Raise ``ValueError`` unless every number is finite and > 0."""
    for name, value in numbers.items():
        if not 0.0 < float(value) < float("inf"):
            raise ValueError(f"{name} = {value!r}; expected a finite number > 0")


def require_range(low: float, high: float, **numbers: float) -> None:
    """Raise ``ValueError`` unless every number lies in ``[low, high]``."""
    for name, value in numbers.items():
        if not low <= float(value) <= high:
            raise ValueError(f"{name} = {value!r}; expected a number in [{low}, {high}]")
