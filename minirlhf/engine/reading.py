"""Forward passes of a batch that process only the tokens that are needed, each of them once.

:func:`packs` returns whether this is allowed for a model and a batch; otherwise use a plain forward pass.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from minirlhf.engine import attention
from minirlhf.engine.packing import Packed, can_share_prefixes, packs
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
    """The logits of a causal LM at ``M`` positions of a batch; tokens after a row's last such position are not read.

    Args:
        input_ids, attention_mask: ``(B, S)``, padded on either side.
        width: number of columns at the end. Tokens before them may be read once for all rows that share them.
        rows, columns: ``(M,)``.

    Returns:
        ``(M, V)``, differentiable.
    """
    needed = torch.zeros_like(attention_mask, dtype=torch.bool)
    needed[rows, columns] = True
    prefix = attention_mask[:, :-width].sum(1) if can_share_prefixes(model) else None
    packed = Packed(input_ids, attention_mask, prefix=prefix, needed=needed)
    with attention.use_project_attention(model):
        indices = packed.place[rows, columns]
        return attention.read(model, packed.input_ids, packed.position_ids, packed, keep=indices)


def states(
    backbone: nn.Module, input_ids: Tensor, attention_mask: Tensor, prefix: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The last hidden states of a transformer without output layer.

    Args:
        input_ids, attention_mask: ``(B, S)``, padded on either side.
        prefix: ``(B,)``, number of tokens at a row's start that may be read once for all rows that share them; None: 0.

    Returns:
        The states of the distinct tokens, ``(N, D)``, differentiable; and for each token the index of its state,
        ``(B, S)`` in ``0 .. N − 1``, arbitrary at padding.
    """
    packed = Packed(input_ids, attention_mask, prefix=prefix if can_share_prefixes(backbone) else None)
    with attention.use_project_attention(backbone):
        hidden = attention.read(backbone, packed.input_ids, packed.position_ids, packed)  # (N, D)
    return hidden, packed.place.clamp(0, len(hidden) - 1)
