"""The first door: what a plain forward pass of a batch gives, from the tokens that are needed only, each read once.

:func:`packs` says whether a model's batch may be read so; where it says no, read plainly.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from minirlhf.engine import attention
from minirlhf.engine.packing import Packed, packs, shares
from minirlhf.engine.proof import outputs_match

__all__ = ["logits_at", "outputs_match", "packs", "states"]


def logits_at(
    model: nn.Module,
    input_ids: Tensor,
    attention_mask: Tensor,
    width: int,
    rows: Tensor,
    columns: Tensor,
) -> Tensor:
    """The logits of a causal LM at ``M`` places of a batch; no token behind a row's last place is read.

    Args:
        input_ids, attention_mask: ``(B, S)``, padded on either side.
        width: what stands before the last so many columns may be read once for rows that agree there.
        rows, columns: ``(M,)``.

    Returns:
        ``(M, V)``, differentiable.
    """
    needed = torch.zeros_like(attention_mask, dtype=torch.bool)
    needed[rows, columns] = True
    prefix = attention_mask[:, :-width].sum(1) if shares(model) else None
    packed = Packed(input_ids, attention_mask, prefix=prefix, needed=needed)
    with attention.use_project_attention(model):
        keep = packed.place[rows, columns]
        return attention.read(model, packed.input_ids, packed.position_ids, packed, keep=keep)


def states(
    backbone: nn.Module, input_ids: Tensor, attention_mask: Tensor, prefix: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The last hidden states of a transformer without output layer.

    Args:
        input_ids, attention_mask: ``(B, S)``, padded on either side.
        prefix: ``(B,)``, so many tokens at a row's start may be read once for rows that agree there; None: none.

    Returns:
        The states of the distinct tokens, ``(N, D)``, differentiable; and which of them each token has, ``(B, S)`` in ``0 .. N − 1``,
        any of them at padding.
    """
    packed = Packed(input_ids, attention_mask, prefix=prefix if shares(backbone) else None)
    with attention.use_project_attention(backbone):
        hidden = attention.read(backbone, packed.input_ids, packed.position_ids, packed)  # (N, D)
    return hidden, packed.place.clamp(0, len(hidden) - 1)
