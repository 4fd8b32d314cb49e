"""All that a recipe or a plan says, spelled out: what it does, but for the words about it, so that two can be compared."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from minirlhf.recipes.binding import ConfigurableRecipe

#: The value of what is not there.
NONE_VALUE = "none"

#: Fields of a recipe that are words about it.
WORDS = {f.name for f in dataclasses.fields(ConfigurableRecipe)} | {"source"}


def dotted(thing: Any) -> str:
    """Where a class or function is defined, and under which name."""
    return f"{thing.__module__}.{thing.__qualname__}"


def to_config(recipe: Any) -> dict[str, float | str]:
    """Every number and function of a recipe by its path, for a run's record; of a value that is neither its type."""
    return {
        ".".join(("recipe", *path)): value for path, value in flatten(recipe, other=lambda value: dotted(type(value)))
    }


def _refuse(value: Any) -> str:
    raise TypeError(f"{value!r} of type {type(value).__name__} is no setting")


def flatten(
    value: Any, called: Callable[[Any], str] = dotted, other: Callable[[Any], str] = _refuse
) -> Iterator[tuple[tuple[str, ...], float | str]]:
    """What is said below, each with its path: numbers, texts, names of functions and classes, and what these take or hold.

    Args:
        called: what a class or a function is called.
        other: what a value of another kind is said to be.
    """
    inner: Iterable[tuple[str, Any]] = ()
    if value is None or value == ():
        yield (), NONE_VALUE
    elif isinstance(value, int | float | str):
        yield (), value
    elif isinstance(value, tuple):
        inner = ((str(place), item) for place, item in enumerate(value))
    elif dataclasses.is_dataclass(value):
        yield (), called(type(value))
        words = WORDS if isinstance(value, ConfigurableRecipe) else ()
        inner = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value) if f.name not in words)
    elif callable(value):
        yield (), called(inspect.unwrap(getattr(value, "func", value)))
        given = {p.name: p.default for p in inspect.signature(value).parameters.values() if p.default is not p.empty}
        needed = [p.name for p in inspect.signature(value).parameters.values() if p.kind is p.KEYWORD_ONLY]
        inner = (
            dict.fromkeys(needed) | given | _held(value)
        ).items()  # what it needs and was not given, the run decides
    else:
        yield (), other(value)
    for name, part in inner:
        yield from (((name, *path), leaf) for path, leaf in flatten(part, called, other))


def _held(function: Any) -> dict[str, Any]:
    """What a function has beside its arguments' defaults: values given by position, what it closes over, the part whose method it is."""
    found = {str(place): value for place, value in enumerate(getattr(function, "args", ()))}
    plain = inspect.unwrap(getattr(function, "func", function))
    if inspect.ismethod(plain):
        found["self"] = plain.__self__
    names = getattr(getattr(plain, "__code__", None), "co_freevars", ())
    return (
        found | {name: cell.cell_contents for name, cell in zip(names, plain.__closure__ or (), strict=True)}
        if names
        else found
    )
