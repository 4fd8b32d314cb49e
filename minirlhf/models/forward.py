"""Forward passes: logits and log-probabilities of the completion tokens."""

from __future__ import annotations

from typing import Literal, overload

import torch
from torch import Tensor, nn

from minirlhf.core.calling import position_ids, supported
from minirlhf.core.errors import ArgumentError
from minirlhf.core.logprobs import next_token_logps, token_entropies
from minirlhf.engine import reading


def completion_logits(model: nn.Module, input_ids: Tensor, attention_mask: Tensor, width: int) -> Tensor:
    """The logits at the last ``width + 1`` positions, of which the first ``width`` predict the last ``width`` tokens.

    The model itself leaves out the other positions where it can (``logits_to_keep``), so that whatever it does to its
    logits (soft-caps, scales) survives.

    Args:
        model: a causal LM.
        input_ids, attention_mask: ``(B, S)``, padded on either side.
        width: ``1 .. S − 1``.

    Returns:
        ``(B, width + 1, V)``.
    """
    _require_width(input_ids, attention_mask, width)
    options = supported(model, position_ids=position_ids(attention_mask), logits_to_keep=width + 1, use_cache=False)
    logits = model(input_ids=input_ids, attention_mask=attention_mask, **options).logits
    return logits[:, -(width + 1) :]


@overload
def completion_logps(
    model: nn.Module,
    input_ids: Tensor,
    attention_mask: Tensor,
    width: int,
    temperature: float = ...,
    return_entropy: Literal[False] = ...,
    wanted: Tensor | None = ...,
) -> Tensor: ...
@overload
def completion_logps(
    model: nn.Module,
    input_ids: Tensor,
    attention_mask: Tensor,
    width: int,
    temperature: float = ...,
    *,
    return_entropy: Literal[True],
    wanted: Tensor | None = ...,
) -> tuple[Tensor, Tensor]: ...
def completion_logps(
    model: nn.Module,
    input_ids: Tensor,
    attention_mask: Tensor,
    width: int,
    temperature: float = 1.0,
    return_entropy: bool = False,
    wanted: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Log-probabilities of the last ``width`` tokens of every row, differentiable; ``width = S − 1`` gives all of them.

    Where the model allows it, the batch is read without padding and a prompt that several rows share once
    (:mod:`minirlhf.engine.reading`); the result is that of one plain forward pass.

    Args:
        model: a causal LM; put it in ``eval`` mode if dropout would make it random.
        input_ids, attention_mask: ``(B, S)``, padded on either side; a :class:`~minirlhf.data.types.Rollout` has both.
        width: ``T``, columns of completion.
        temperature: the sampling temperature, > 0.
        return_entropy: also the entropies of the distributions that the tokens came from, in nats.
        wanted: ``(B, T)`` bool, the tokens whose log-probabilities matter; None: all that are no padding.

    Returns:
        ``(B, T)``, float32 or wider; with ``return_entropy`` a pair of such tensors. What stands at padding and at tokens
        that are not wanted is finite and means nothing: apply the mask.
    """
    _require_width(input_ids, attention_mask, width)
    real = attention_mask.bool()
    wanted = real[:, -width:] if wanted is None else wanted & real[:, -width:]
    # What predicts a token is the one before it: a column to the left, or further where padding stands between.
    column = torch.arange(real.shape[1], device=real.device)
    before = (
        torch.where(real, column, -1).cummax(1).values[:, -width - 1 : -1]
    )  # (B, T), columns; −1 before a row's first token
    wanted = wanted & (before >= 0)
    rows, places = wanted.nonzero(as_tuple=True)
    read = reading.logits_at if reading.packs(model, input_ids) and len(rows) else _plain
    logits = read(model, input_ids, attention_mask, width, rows, before[rows, places])  # (M, V)
    logps = next_token_logps(logits, input_ids[:, -width:][wanted], temperature)
    if not return_entropy:
        return _spread(logps, wanted)
    return _spread(logps, wanted), _spread(token_entropies(logits, temperature), wanted)


def _plain(model: nn.Module, ids: Tensor, mask: Tensor, width: int, rows: Tensor, columns: Tensor) -> Tensor:
    """The same from one pass over the whole batch."""
    first = int(columns.min()) if len(columns) else ids.shape[1] - 2
    return completion_logits(model, ids, mask, ids.shape[1] - 1 - first)[rows, columns - first]


def _spread(values: Tensor, where: Tensor) -> Tensor:
    """``(M,)`` to the ``M`` places ``(B, T)``, zeros elsewhere."""
    return values.new_zeros(where.shape).masked_scatter(where, values)


def _require_width(input_ids: Tensor, attention_mask: Tensor, width: int) -> None:
    if input_ids.dim() != 2 or input_ids.shape != attention_mask.shape:
        raise ArgumentError(
            f"input_ids has shape {tuple(input_ids.shape)} and attention_mask {tuple(attention_mask.shape)}; expected (B, S)",
            argument="attention_mask",
            value=tuple(attention_mask.shape),
            expected=tuple(input_ids.shape),
            problem="shape",
        )
    if not 1 <= width < input_ids.shape[1]:
        raise ArgumentError(
            f"{width=}; expected 1 .. {input_ids.shape[1] - 1} for input_ids of shape {tuple(input_ids.shape)}",
            argument="width",
            value=width,
            expected=(1, input_ids.shape[1] - 1),
        )
