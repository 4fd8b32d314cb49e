"""Inputs for divergences, and wrong variants of them; shared by the checks of chapter 09."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from minirlhf_course.ledger.registry import Draw

Divergence = Callable[..., Tensor]


def two(draw: Draw, rows: int = 3, size: int = 4) -> tuple[Tensor, Tensor]:
    """Return two batches of distributions, far enough from each other."""
    return draw.distribution(rows, size), draw.distribution(rows, size)


def zigzag(draw: Draw) -> Tensor:
    """Return a direction ``(4,)`` whose components alternate in sign."""
    return draw.uniform(4, low=0.5, high=1.5) * torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)


def swapped(divergence: Divergence) -> Divergence:
    """Return the same divergence with its two arguments exchanged."""
    return lambda logits, ref_logits, **kwargs: divergence(ref_logits, logits, **kwargs)
