"""Choices bound by name: a name is a field of a dataclass or a keyword-only hyperparameter of a function inside it."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self

from minirlhf.core.errors import unknown

#: Keyword-only arguments that are data, not choices.
DATA = frozenset({"valid", "keep", "bootstrap"})


class Bindable:
    """A frozen dataclass of functions, with a ``name``."""

    name: str

    def options(self) -> dict[str, Any]:
        """Every name that :meth:`with_` takes, with its present value."""
        return {name: value for name, value, _ in reversed(list(_leaves(self)))}

    def numbers(self) -> dict[str, Any]:
        """Those of the options that are numbers or truth values, or may be: what the command line can set."""
        return {
            name: value
            for name, value, kind in reversed(list(_leaves(self)))
            if isinstance(value, int | float) or (value is None and re.search(r"\b(int|float)\b", kind))
        }

    def with_(self, **changes: Any) -> Self:
        """This recipe with other choices: fields, or hyperparameters of its functions, by name.

        Raises:
            UserError: no field and no function of the recipe has that name.
        """
        recipe = self
        # Functions first, so that a hyperparameter binds to the function given beside it.
        for name, value in sorted(changes.items(), key=lambda item: not _holds_functions(item[1])):
            recipe, hits = _bind(recipe, name, value)
            if not hits:
                raise unknown(f"option of recipe {self.name!r}", name, self.options())
        return recipe


def _holds_functions(value: Any) -> bool:
    return callable(value) or isinstance(value, tuple) or dataclasses.is_dataclass(value)


def _parameters(function: Any) -> dict[str, inspect.Parameter]:
    """Keyword-only hyperparameters of a function, with the values bound so far as their defaults."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in DATA}


def _leaves(node: Any) -> Iterator[tuple[str, Any, str]]:
    """Name, value and annotation of every choice below."""
    if isinstance(node, tuple):
        for item in node:
            yield from _leaves(item)
    elif dataclasses.is_dataclass(node):
        for f in dataclasses.fields(node):
            value = getattr(node, f.name)
            yield f.name, value, str(f.type)
            yield from _leaves(value)
    elif callable(node):
        for name, p in _parameters(node).items():
            yield name, None if p.default is p.empty else p.default, str(p.annotation)


def _bind(node: Any, name: str, value: Any) -> tuple[Any, int]:
    """``node`` with every field or hyperparameter called ``name`` set; and how many there were."""
    if isinstance(node, tuple):
        bound = [_bind(item, name, value) for item in node]
        return tuple(item for item, _ in bound), sum(hits for _, hits in bound)
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        total, changes = 0, {}
        for f in dataclasses.fields(node):
            if f.name == name:
                changes[name], total = value, total + 1
            else:
                changed, hits = _bind(getattr(node, f.name), name, value)
                if hits:
                    changes[f.name], total = changed, total + hits
        return (replace(node, **changes) if changes else node), total
    if callable(node) and name in _parameters(node):
        return functools.partial(node, **{name: value}), 1
    return node, 0


def name_of(node: Any) -> str:
    """A function with the hyperparameters bound to it, or a choice made of functions, as text."""
    if node is None or node == ():
        return "none"
    if isinstance(node, tuple):
        return ", ".join(name_of(item) for item in node)
    if dataclasses.is_dataclass(node):
        inner = ", ".join(
            name_of(v) if callable(v) or v == () else f"{name}={v}"
            for name, v in ((f.name, getattr(node, f.name)) for f in dataclasses.fields(node))
            if not dataclasses.is_dataclass(v)
        )
        words = "".join(f" {c.lower()}" if c.isupper() else c for c in type(node).__name__).split()
        return f"{' '.join(words)}: {inner}"
    if isinstance(node, functools.partial):
        bound = ", ".join(f"{k}={v}" for k, v in node.keywords.items())
        return f"{name_of(node.func)}({bound})"
    return str(node.__name__)
