"""Attention of one head, a formula for reading and checking; models use the equivalent code of :mod:`transformers`."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.validate import shape, takes


@takes(queries=shape("... S W"), keys=shape("... S W"), values=shape("... S D"))
@equation(
    "eq:attention",
    source='Vaswani et al. (2017), "Attention is all you need", equation 1, with the causal mask of its decoder.',
)
def attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The output of one attention head at each position: o_t = Σ_{u≤t} a_{tu} v_u with a_{tu} ∝ exp(q_t · k_u / √W).

    The weights of a position sum to 1 over itself and all earlier positions. Later positions have weight 0.

    Args:
        queries, keys: (..., S, W).
        values: (..., S, D).
    Returns:
        (..., S, D).
    """
    length, width = queries.shape[-2:]
    scores = queries @ keys.transpose(-1, -2) / math.sqrt(width)  # (..., S, S)
    causal = torch.ones(length, length, dtype=torch.bool, device=scores.device).tril()
    return scores.masked_fill(~causal, -math.inf).softmax(-1) @ values
