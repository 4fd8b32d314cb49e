"""Helpers for calling a causal LM: positions under padding, supported options, eval mode and context length."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn


def position_ids(attention_mask: Tensor) -> Tensor:
    """Position ids that count real tokens only, so that left padding does not shift them: ``(B, S) -> (B, S)``.

    Padding gets position 0 before the first token and repeats the last position after it; it is never attended to.
    """
    return (attention_mask.long().cumsum(-1) - 1).clamp(min=0)


@functools.cache
def _parameters_of(model_class: Any) -> frozenset[str]:
    return frozenset(inspect.signature(model_class.forward).parameters)


def supported(model: nn.Module, **options: Any) -> dict[str, Any]:
    """Return the options that are parameters of this model's ``forward``, also through a ``peft`` wrapper.

    Not every causal LM has ``position_ids`` or ``logits_to_keep``, and a model with ``**kwargs`` ignores them silently.
    """
    unwrap: Callable[[], nn.Module] | None = getattr(model, "get_base_model", None)  # peft's
    model_class: Any = type(unwrap() if unwrap else model)
    names = _parameters_of(model_class)
    return {name: value for name, value in options.items() if name in names}


def context_length(model: nn.Module) -> int | None:
    """Return the maximum number of positions in the model's configuration, or None if it states none."""
    config = getattr(model, "config", None)
    return None if config is None else getattr(config.get_text_config(), "max_position_embeddings", None)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Run the block in ``eval`` mode (no dropout) and then restore the previous mode."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
