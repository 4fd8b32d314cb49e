"""Flatten recipes and plans to paths and values, without descriptive texts, so that two can be compared."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from minirlhf.recipes.options import WORDS, ConfigurableRecipe

#: The value that stands for None and the empty tuple.
NONE_VALUE = "none"


def dotted(thing: Any) -> str:
    """Return the module and qualified name of a class or function."""
    return f"{thing.__module__}.{thing.__qualname__}"


def to_config(recipe: Any) -> dict[str, float | str]:
    """Return every number and function of a recipe by its path, for a run's config; of other values the type."""
    return {
        ".".join(("recipe", *path)): value for path, value in flatten(recipe, other=lambda value: dotted(type(value)))
    }


def _refuse(value: Any) -> str:
    raise TypeError(f"{value!r} of type {type(value).__name__} is not a setting")


def flatten(
    value: Any, called: Callable[[Any], str] = dotted, other: Callable[[Any], str] = _refuse
) -> Iterator[tuple[tuple[str, ...], float | str]]:
    """Yield every leaf of ``value`` with its path: numbers, texts, names of functions and classes, and what these hold.

    Args:
        called: returns the name of a class or a function.
        other: returns the text for a value of any other kind.
    """
    children: Iterable[tuple[str, Any]] = ()
    if value is None or value == ():
        yield (), NONE_VALUE
    elif isinstance(value, int | float | str):
        yield (), value
    elif isinstance(value, tuple):
        children = ((str(index), item) for index, item in enumerate(value))
    elif dataclasses.is_dataclass(value):
        yield (), called(type(value))
        excluded = WORDS if isinstance(value, ConfigurableRecipe) else ()
        children = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value) if f.name not in excluded)
    elif callable(value):
        yield (), called(inspect.unwrap(getattr(value, "func", value)))
        defaults = {p.name: p.default for p in inspect.signature(value).parameters.values() if p.default is not p.empty}
        keyword_only = [p.name for p in inspect.signature(value).parameters.values() if p.kind is p.KEYWORD_ONLY]
        children = (
            dict.fromkeys(keyword_only) | defaults | _held(value)
        ).items()  # a required argument without a value is decided by the run: None
    else:
        yield (), other(value)
    for name, part in children:
        yield from (((name, *path), leaf) for path, leaf in flatten(part, called, other))


def _held(function: Any) -> dict[str, Any]:
    """Return the values a function holds beside its defaults: positional, in its closure, and ``self`` of a method."""
    held = {str(index): value for index, value in enumerate(getattr(function, "args", ()))}
    inner = inspect.unwrap(getattr(function, "func", function))
    if inspect.ismethod(inner):
        held["self"] = inner.__self__
    names = getattr(getattr(inner, "__code__", None), "co_freevars", ())
    return (
        held | {name: cell.cell_contents for name, cell in zip(names, inner.__closure__ or (), strict=True)}
        if names
        else held
    )
