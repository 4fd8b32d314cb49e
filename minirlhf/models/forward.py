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
    """Return the logits at the last ``width + 1`` positions; the first ``width`` predict the last ``width`` tokens.

    Where the model supports ``logits_to_keep``, the model itself omits the other positions. Its own transformations of
    the logits (soft-caps, scales) therefore still apply.

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
    """Return the log-probabilities of the last ``width`` tokens of each row, differentiable; ``S − 1`` gives all.

    Where the model allows it, padding is skipped and a prompt that several rows share is processed only once
    (:mod:`minirlhf.engine.reading`). The result equals that of one plain forward pass.

    Args:
        model: a causal LM; put it in ``eval`` mode if dropout would make it random.
        input_ids, attention_mask: ``(B, S)``, padded on either side; a :class:`~minirlhf.data.types.Rollout` has both.
        width: ``T``, the number of completion columns.
        temperature: the sampling temperature, > 0.
        return_entropy: also return the entropies of the distributions that the tokens were sampled from, in nats.
        wanted: ``(B, T)`` bool, the tokens whose log-probabilities are needed; None: all tokens except padding.

    Returns:
        ``(B, T)``, float32 or wider; with ``return_entropy`` a pair of such tensors. The entries at padding and at
        tokens that ``wanted`` excludes are finite but meaningless: apply the mask.
    """
    _require_width(input_ids, attention_mask, width)
    not_padding = attention_mask.bool()
    wanted = not_padding[:, -width:] if wanted is None else wanted & not_padding[:, -width:]
    # A token is predicted at the previous token: one column to the left, or further where padding lies between them.
    columns = torch.arange(not_padding.shape[1], device=not_padding.device)
    predictor = (
        torch.where(not_padding, columns, -1).cummax(1).values[:, -width - 1 : -1]
    )  # (B, T), columns; −1 before a row's first token
    wanted = wanted & (predictor >= 0)
    rows, positions = wanted.nonzero(as_tuple=True)
    compute_logits = reading.logits_at if reading.packs(model, input_ids) and len(rows) else _plain
    logits = compute_logits(model, input_ids, attention_mask, width, rows, predictor[rows, positions])  # (M, V)
    logps = next_token_logps(logits, input_ids[:, -width:][wanted], temperature)
    if not return_entropy:
        return _spread(logps, wanted)
    return _spread(logps, wanted), _spread(token_entropies(logits, temperature), wanted)


def _plain(model: nn.Module, ids: Tensor, mask: Tensor, width: int, rows: Tensor, columns: Tensor) -> Tensor:
    """Return the same logits as ``reading.logits_at``, from one forward pass over the whole batch."""
    first = int(columns.min()) if len(columns) else ids.shape[1] - 2
    return completion_logits(model, ids, mask, ids.shape[1] - 1 - first)[rows, columns - first]


def _spread(values: Tensor, mask: Tensor) -> Tensor:
    """Scatter the values ``(M,)`` to the ``M`` True positions of the mask ``(B, T)``, with zeros elsewhere."""
    return values.new_zeros(mask.shape).masked_scatter(mask, values)


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
