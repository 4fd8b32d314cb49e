"""What a recipe becomes in another engine."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from minirlhf.core.errors import UserError


@dataclass(frozen=True)
class Mapped:
    """A recipe in the words of an engine.

    Attributes:
        trainer: class of the trainer, as a dotted name.
        options: of the engine, without those of the optimizer and of sampling.
        differs: what the engine computes otherwise, a sentence each; none if the optimizer's steps are the same.
    """

    trainer: str
    options: Mapping[str, Any]
    differs: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())


class NoCounterpartError(UserError):
    """The engine has nothing that does what a part of the recipe does."""

    def __init__(self, engine: str, recipe: str, part: str) -> None:
        super().__init__(f"{recipe}: {engine} has no counterpart of {part}")


def head(function: Any) -> Callable[..., Any]:
    """A function without the numbers that are bound to it."""
    while isinstance(function, functools.partial):
        function = function.func
    return function  # type: ignore[no-any-return]


def number(function: Any, name: str) -> Any:
    """The present value of a hyperparameter of a function: bound, or its default."""
    import inspect

    return inspect.signature(function).parameters[name].default
