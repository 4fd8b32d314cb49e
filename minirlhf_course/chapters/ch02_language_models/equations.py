"""The equations that only chapter 2 needs: likelihood, rotary positions, root mean square norm.

The components of a transformer are for reading and checking; models use the equivalent code of :mod:`transformers`.
Positions count from 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.logprobs import sequence_logps, token_logps
from minirlhf.core.validate import POSITIVE, require_mask, shape, takes

# -- sequences ----------------------------------------------------------------------------------------------------


@takes(logits=shape("B S V"), input_ids=shape("B S"), mask=shape("B S"))
@equation("eq:chain-rule", source='Bengio et al. (2003), "A neural probabilistic language model".')
def completion_logp(logits: Tensor, input_ids: Tensor, mask: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Log-probability ``(B,)`` of a completion, log π(y|x) = Σ_t log π(y_t|x, y_<t): the chain rule.

    One forward pass over prompt and completion gives every factor, because each position receives the true tokens
    before it. The mask is set on the tokens that count, and never on the first token, which no position predicts.
    """
    require_mask(mask)
    if bool(mask[:, 0].any()):
        raise ArgumentError(
            f"mask of shape {tuple(mask.shape)} is set on the first token, which no position predicts",
            argument="mask",
            problem="first token",
        )
    not_scored = torch.nn.functional.pad(
        ~mask[:, 1:].bool(), (0, 1), value=True
    )  # (B, S), True where the next token does not count
    logits = logits.masked_fill(not_scored[..., None], 0.0)  # so that NaN there cannot reach a gradient
    return sequence_logps(token_logps(logits, input_ids, temperature), mask[:, 1:])  # (B, S-1) -> (B,)


# -- components of a transformer ---------------------------------------------------------------------------------


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
