"""Forward passes: logits and log-probabilities of the completion tokens."""

from __future__ import annotations

from typing import Literal, overload

from torch import Tensor, nn

from minirlhf.models.calling import position_ids, supported
from minirlhf.models.packing import make_plan, packed_logps


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
) -> tuple[Tensor, Tensor]: ...
def completion_logps(
    model: nn.Module,
    input_ids: Tensor,
    attention_mask: Tensor,
    width: int,
    temperature: float = 1.0,
    return_entropy: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Log-probabilities of the last ``width`` tokens of every row, differentiable; ``width = S − 1`` gives all of them.

    Prompts that several rows share are read once and rows of like length go together (:mod:`minirlhf.models.packing`); the
    result is that of one plain forward pass. What stands at padding is finite and means nothing: apply the mask.

    Args:
        model: a causal LM; put it in ``eval`` mode if dropout would make it random.
        input_ids, attention_mask: ``(B, S)``, padded on either side; a :class:`~minirlhf.data.types.Rollout` has both.
        width: ``T``, columns of completion.
        temperature: the sampling temperature, > 0.
        return_entropy: also the entropies of the distributions that the tokens came from, in nats.

    Returns:
        ``(B, T)``, float32 or wider; with ``return_entropy`` a pair of such tensors.
    """
    _require_width(input_ids, attention_mask, width)
    plan = make_plan(model, input_ids, attention_mask, width)
    logps, entropies = packed_logps(
        model, input_ids, attention_mask, width, temperature=temperature, return_entropy=return_entropy, plan=plan
    )
    return logps if entropies is None else (logps, entropies)


def _require_width(input_ids: Tensor, attention_mask: Tensor, width: int) -> None:
    if input_ids.dim() != 2 or input_ids.shape != attention_mask.shape:
        raise ValueError(
            f"input_ids has shape {tuple(input_ids.shape)} and attention_mask {tuple(attention_mask.shape)}; expected (B, S)"
        )
    if not 1 <= width < input_ids.shape[1]:
        raise ValueError(
            f"{width=}; expected 1 .. {input_ids.shape[1] - 1} for input_ids of shape {tuple(input_ids.shape)}"
        )
