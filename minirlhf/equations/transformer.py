"""Three formulas of a decoder-only transformer: attention of one head, rotary positions, root mean square norm.

The code is for reading and checking; models use the equivalent code of :mod:`transformers`. Positions count from 0.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import POSITIVE, shape, takes


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


@takes(x=shape("... S W"), base=POSITIVE)
@equation(
    "eq:rotary-position",
    source='Su et al. (2021), "RoFormer", section 3.2, with the two halves of a vector as pairs, as Llama has them.',
)
def rotary(x: Tensor, *, base: float = 10_000.0) -> Tensor:
    """Rotary position embedding: at position t the pair (x_i, x_{i+W/2}) rotates by the angle t / base^{2i/W}.

    The inputs are queries or keys. The product of a rotated query and a rotated key depends on their relative position
    only.

    Raises:
        ValueError: the width W is odd.
    """
    length, width = x.shape[-2:]
    if width % 2:
        raise ArgumentError(
            f"x has shape {tuple(x.shape)}; expected (..., S, W) with W even, because coordinates rotate in pairs",
            argument="x",
            value=tuple(x.shape),
            problem="odd",
        )
    frequencies = base ** -(torch.arange(0, width, 2, dtype=x.dtype, device=x.device) / width)  # (W/2,)
    angles = torch.arange(length, dtype=x.dtype, device=x.device)[:, None] * frequencies  # (S, W/2)
    first, second = x.chunk(2, -1)
    return torch.cat([first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1)


@takes(x=shape("... D"), scale=shape("D"), eps=POSITIVE)
@equation("eq:rms-norm", source='Zhang and Sennrich (2019), "Root mean square layer normalization", equation 4.')
def rms_norm(x: Tensor, scale: Tensor, *, eps: float = 1e-6) -> Tensor:
    """Root mean square norm of each vector: x_i · scale_i / √(mean_j x_j² + eps)."""
    return scale * x / (x.square().mean(-1, keepdim=True) + eps).sqrt()
