"""Forward passes: positions under padding, and the log-probabilities of the completion tokens."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn

from minirlhf.core.logprobs import token_entropies, token_logps


def position_ids(attention_mask: Tensor) -> Tensor:
    """Positions that count real tokens only, so that padding on the left does not move them: ``(B, S) -> (B, S)``.

    Padding gets position 0 before the first token and repeats the last position after it; it is never attended to.
    """
    return (attention_mask.long().cumsum(-1) - 1).clamp(min=0)


@functools.cache
def _parameters_of(kind: Any) -> frozenset[str]:
    return frozenset(inspect.signature(kind.forward).parameters)


def supported(model: nn.Module, **options: Any) -> dict[str, Any]:
    """Those of the options that this model's forward names; it is read through a ``peft`` wrapper.

    Not every causal LM has ``position_ids`` or ``logits_to_keep``, and one that takes ``**kwargs`` ignores them silently.
    """
    unwrap: Callable[[], nn.Module] | None = getattr(model, "get_base_model", None)  # peft's
    kind: Any = type(unwrap() if unwrap else model)
    names = _parameters_of(kind)
    return {name: value for name, value in options.items() if name in names}


def context_length(model: nn.Module) -> int | None:
    """Positions that the model has, or None if it does not say."""
    config = getattr(model, "config", None)
    return None if config is None else getattr(config.get_text_config(), "max_position_embeddings", None)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Run the block in ``eval`` mode (no dropout) and go back to the mode before."""
    before = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(before)


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
    if input_ids.dim() != 2 or input_ids.shape != attention_mask.shape:
        raise ValueError(
            f"input_ids has shape {tuple(input_ids.shape)} and attention_mask {tuple(attention_mask.shape)}; expected (B, S)"
        )
    if not 1 <= width < input_ids.shape[1]:
        raise ValueError(
            f"{width=}; expected 1 .. {input_ids.shape[1] - 1} for input_ids of shape {tuple(input_ids.shape)}"
        )
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

    What stands at padding is finite and means nothing: apply the mask.

    Args:
        model: a causal LM; put it in ``eval`` mode if dropout would make it random.
        input_ids, attention_mask: ``(B, S)``, padded on either side; a :class:`~minirlhf.data.types.Rollout` has both.
        width: ``T``, columns of completion.
        temperature: the sampling temperature, > 0.
        return_entropy: also the entropies of the distributions that the tokens came from, in nats.

    Returns:
        ``(B, T)``, float32 or wider; with ``return_entropy`` a pair of such tensors.
    """
    logits = completion_logits(model, input_ids, attention_mask, width)  # (B, T+1, V)
    targets = torch.where(attention_mask.bool(), input_ids, 0)  # a padding id may lie outside the vocabulary
    logps = token_logps(logits, targets[:, -(width + 1) :], temperature)  # (B, T)
    if return_entropy:
        return logps, token_entropies(logits[:, :-1], temperature)
    return logps
