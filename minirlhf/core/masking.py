"""Sums, means and whitening under a mask.

``mask`` is ``(B, T)`` with 1 where the policy sampled the token. This includes the end-of-sequence token and excludes
padding and tool output. Values where the mask is 0 never matter, not even NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor


def zero_where_masked(x: Tensor, mask: Tensor) -> Tensor:
    """``x`` with zeros where ``mask`` is 0. Shapes: both ``(..., T)``; the result has the shape of ``x``."""
    return torch.where(mask.bool(), x, torch.zeros((), dtype=x.dtype, device=x.device))


def masked_sum(x: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Sum of ``x`` over the tokens of the mask, along ``dim`` or over the whole tensor."""
    selected = zero_where_masked(x, mask)
    return selected.sum() if dim is None else selected.sum(dim)


def masked_mean(x: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Mean of ``x`` over the tokens of the mask; NaN for a row without such tokens."""
    count = mask.bool().sum() if dim is None else mask.bool().sum(dim)
    return masked_sum(x, mask, dim) / count


def masked_var(x: Tensor, mask: Tensor, ddof: int = 1) -> Tensor:
    """Variance over all tokens of the mask, with divisor ``n − ddof``. Returns a scalar."""
    x = zero_where_masked(x, mask)  # before the square: the gradient of a masked NaN would be NaN
    centred = x - masked_mean(x, mask)
    return masked_sum(centred**2, mask) / (mask.bool().sum() - ddof)


def masked_whiten(x: Tensor, mask: Tensor, shift_mean: bool = True, ddof: int = 1, eps: float = 1e-8) -> Tensor:
    """``x`` scaled to unit variance (and zero mean unless ``shift_mean`` is false) over the mask; 0 elsewhere."""
    x = zero_where_masked(x, mask)
    mean = masked_mean(x, mask)
    whitened = (x - mean) / torch.sqrt(masked_var(x, mask, ddof) + eps)
    return zero_where_masked(whitened if shift_mean else whitened + mean, mask)


def lengths(mask: Tensor) -> Tensor:
    """Number of sampled tokens per row: ``(B, T) -> (B,)``, integer."""
    return mask.bool().sum(-1)


def last_index(mask: Tensor) -> Tensor:
    """Index of the last token of each row: ``(B, T) -> (B,)``; correct for padding on either side."""
    positions = torch.arange(mask.shape[-1], device=mask.device)
    return (mask.bool() * positions).argmax(-1)
