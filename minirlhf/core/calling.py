"""What every call of a causal LM needs: positions under padding, the options it knows, its mode and its context."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn


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
