"""Bind choices by name: a name is a field of a recipe's part, or a keyword-only hyperparameter of a function in it.

A recipe stores its changes beside the row that it was made from. Each call of ``with_`` binds all changes to the row
again, from the outside in. So the order within a call never matters. Several calls have the effect of one call with all
of their changes, or are an error (a number was set before the function that takes it; the message says so). The rules:

* A number set by name goes to every function that takes it, also to a function that replaces another one. A number that
  no function takes is an error.
* A part (:class:`~minirlhf.recipes.parts.KLInLoss`, …) determines all of its numbers, its defaults included. Setting
  one of them by name to another value is an error.
* A number that a *row* had bound to a replaced function goes to the new function if the new function takes it. The
  header names the numbers of the row that no longer exist, or to which a replacing part or function gives another
  value.
* Setting a name to the row's own value changes nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
import re
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, NamedTuple, Self

from minirlhf.core.errors import UserError, unknown

#: Keyword-only arguments that are data, not hyperparameters.
DATA = frozenset({"valid", "keep", "bootstrap", "num_generations"})


class Option(NamedTuple):
    """One choice: its name, its current value, its type as text, and the part or function that takes it."""

    name: str
    value: Any
    kind: str
    owner: Any

    @property
    def is_number(self) -> bool:
        """Whether the command line can set it: a number, a bool, or None where a number or a bool is allowed."""
        number = re.fullmatch(r"(bool|int|float)( \| None)?", self.kind) is not None
        return isinstance(self.value, int | float) or (self.value is None and number)


class Deviation(str):
    """A sentence about a difference between an implementation and its paper.

    Attributes:
        options: the options that the sentence is about. If a variant changes one of them, the sentence holds for the
            row only.
    """

    options: tuple[str, ...]

    def __new__(cls, sentence: str, *options: str) -> Self:
        deviation = super().__new__(cls, sentence)
        deviation.options = options
        return deviation


@dataclass(frozen=True)
class ConfigurableRecipe:
    """A frozen dataclass of functions and parts.

    Attributes:
        name: the name on the command line.
        deviations: differences between this implementation and the paper.
        row: the row of a table that this is a variant of; None if it is a row itself.
        changes: all values that were set on that row by name, also those equal to the row's own.
    """

    name: str
    _: KW_ONLY
    deviations: tuple[Deviation, ...] = ()
    row: Any = dataclasses.field(default=None, repr=False, compare=False)
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False, compare=False)

    def with_(self, **changes: Any) -> Self:
        """Return this recipe with other choices: fields, or hyperparameters of its functions, by name.

        The name of a variant is made from its row and its changes, unless ``name`` is set. With a ``name`` and a
        ``source`` the result is a new row.

        Raises:
            UserError: no part or function takes one of the names, a name has two values, or a new row has no name.
        """
        base: Self = self.row or self
        merged = {**self.changes, **changes}
        used: set[str] = set()
        variant: Self = _bound(base, merged, used)
        for name in sorted(merged.keys() - used):
            if name in base.options():
                other = _listed({k: v for k, v in merged.items() if k != name})
                raise UserError(
                    f"{_title(base)} with {other}: no function takes {_listed({name: merged[name]})} any more",
                    argument=name,
                    value=merged[name],
                    problem="not taken",
                )
            problem = unknown(f"option of recipe {base.name!r}", name, variant.options())
            raise UserError.about(
                f"{problem} (set a number together with the function that takes it, or later)", problem
            )
        if "source" in merged:
            if "name" not in merged:
                message = f"{_title(base)} with source={merged['source']!r}: a row of its own needs a name too"
                raise UserError(message, argument="name", problem="missing")
            return replace(variant, row=None, changes={}, deviations=merged.get("deviations", ()))
        variant = replace(variant, row=base, changes=merged)
        diff = variant.differences()
        return replace(variant, name=merged.get("name", f"{_title(base)} with {_listed(diff)}")) if diff else variant

    def differences(self) -> dict[str, Any]:
        """Return the changes to values that differ from those of the row; empty for a row itself."""
        changed = {k: v for k, v in self.changes.items() if k != "name"}  # the name is not a difference
        for name, value in list(changed.items()):
            others = {k: v for k, v in changed.items() if k != name}
            if _alike(self.row.options().get(name, self), value) and _alike(
                _bound(self.row, others, set()), _bound(self.row, self.changes, set())
            ):
                changed = others
        return changed

    def changed_options(self, deviation: Deviation) -> dict[str, Any]:
        """Return the options of a deviation whose values differ from those of the row, with their current values."""
        current, original = self.options(), (self.row or self).options()
        return {o: current.get(o) for o in deviation.options if o not in current or not _alike(original[o], current[o])}

    def known_deviations(self) -> list[str]:
        """Return the deviations, one line each. A variant marks deviations of its row whose options it has changed."""
        lines = []
        for sentence in self.deviations:
            changed = self.changed_options(sentence)
            lines.append(
                f"deviates: {sentence}" if not changed else f"its row deviates: {sentence} (here {_listed(changed)})"
            )
        return lines

    def resolved(self, **values: Any) -> Self:
        """Return this recipe, not a variant, with the run's values for functions that take them and have none bound."""
        recipe: Self = _bound(self, values, set(), keep=True)
        return recipe

    def choices(self) -> dict[str, Option]:
        """Return every name that :meth:`with_` takes; if several options share a name, the outermost."""
        return {option.name: option for option in reversed(list(_leaves(self)))}

    def options(self) -> dict[str, Any]:
        """Return the current values of all choices."""
        return {name: option.value for name, option in self.choices().items()}

    def numbers(self) -> dict[str, Option]:
        """Return the choices that the command line can set."""
        return {name: option for name, option in self.choices().items() if option.is_number}

    def heading(self, source: str) -> list[str]:
        """Return the first lines of the header: the paper of a row; the row and the changes of a variant."""
        changed = self.differences()
        if not changed:
            return [f"{self.name}: {source}"]
        lines = [f"{self.name}: as {_title(self.row)} ({source}), except {_listed(changed)}"]
        current, original = self.choices(), self.row.choices()
        dropped = {name: value for name, value in _set_by(self.row).items() if name not in current}
        moved = [
            f"{_listed({name: current[name].value})} ({_title(self.row)}: {name_of(option.value)})"
            for name, option in sorted(original.items())
            if name in current and name not in self.changes and (option.is_number or current[name].is_number)
            if not _alike(option.value, current[name].value)
        ]
        lines += [f"  with             {', '.join(moved)}"] * bool(moved)
        return lines + [f"  without          {_listed(dropped)}: nothing takes them any more"] * bool(dropped)


def _title(recipe: ConfigurableRecipe) -> str:
    return recipe.name.upper()


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={name_of(value)}" for name, value in sorted(values.items()))


def _parts(node: Any) -> dict[str, Any]:
    """Return the fields of a part, by name."""
    if isinstance(node, type) or not dataclasses.is_dataclass(node):
        return {}
    return {f.name: getattr(node, f.name) for f in dataclasses.fields(node) if f.name not in ("row", "changes")}


def _hyperparameters(function: Any) -> dict[str, inspect.Parameter]:
    """Return the keyword-only arguments of a function, with the values bound so far as their defaults."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in DATA}


def _bound(node: Any, values: Mapping[str, Any], used: set[str], keep: bool = False) -> Any:
    """Return ``node`` with these fields and hyperparameters set, from the outside in; add their names to ``used``.

    With ``keep``, set only hyperparameters of functions, and only those that are not bound yet.
    """
    if isinstance(node, tuple):
        return tuple(_bound(item, values, used, keep) for item in node)
    if parts := _parts(node):
        changes = {}
        for name, old in parts.items():
            new = old
            if name in values and not keep:
                used.add(name)
                new = values[name]
                for repeated, stated in _stated(new).items():
                    if not _alike(values.get(repeated, stated), stated):
                        by_name, in_part = name_of(values[repeated]), name_of(stated)
                        message = f"{repeated} is given twice: {by_name} by name, and {in_part} in {name}"
                        raise UserError(message, argument=repeated, value=(by_name, in_part), problem="duplicate")
                new = _bound(new, _keywords(old), set(), keep=True)
            changes[name] = _bound(new, values, used, keep)
        return replace(node, **changes)
    if callable(node):
        bound = getattr(node, "keywords", {}) if keep else {}
        # A tuple is a choice of functions, so it is the value of a field, not of a hyperparameter.
        numbers = {k: v for k, v in values.items() if k not in bound and not isinstance(v, tuple)}
        accepted = {k: numbers[k] for k in _hyperparameters(node) if k in numbers}
        used.update(accepted)
        return functools.partial(node, **accepted) if accepted else node
    return node


def _keywords(node: Any) -> dict[str, Any]:
    """Return the hyperparameters bound to the functions in ``node``."""
    keywords = dict(node.keywords) if isinstance(node, functools.partial) else {}
    nested = (_keywords(item) for item in (node if isinstance(node, tuple) else _parts(node).values()))
    return functools.reduce(operator.or_, nested, keywords)


def _stated(node: Any) -> dict[str, Any]:
    """Return what a part determines: its fields and the numbers bound to its functions, also in nested parts."""
    nested = (_stated(item) for item in (node if isinstance(node, tuple) else _parts(node).values()))
    return functools.reduce(operator.or_, nested, _keywords(node) | _parts(node))


def _set_by(node: Any) -> dict[str, Any]:
    """Return the numbers bound to functions in ``node``, and the number fields that differ from their defaults."""
    numbers, parts = _keywords(node), _parts(node)
    defaults = {f.name: f.default for f in dataclasses.fields(node)} if parts else {}
    numbers |= {k: v for k, v in parts.items() if isinstance(v, int | float) and v != defaults[k]}
    return functools.reduce(operator.or_, map(_set_by, parts.values()), numbers)


def _alike(a: Any, b: Any) -> bool:
    """Return whether two choices are equal: functions with equal numbers, bound or default; parts with equal fields."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_alike, a, b))
    if callable(a) and callable(b) and not _parts(a):
        functions = [x.func if isinstance(x, functools.partial) else x for x in (a, b)]
        return functions[0] is functions[1] and _defaults(a) == _defaults(b)
    if _parts(a) and type(a) is type(b):
        return all(_alike(x, y) for x, y in zip(_parts(a).values(), _parts(b).values(), strict=True))
    return bool(a == b)


def _defaults(function: Any) -> dict[str, Any]:
    return {name: p.default for name, p in _hyperparameters(function).items()}


def _leaves(node: Any) -> Iterator[Option]:
    """Yield every choice in ``node``."""
    if isinstance(node, tuple):
        for item in node:
            yield from _leaves(item)
    elif parts := _parts(node):
        types = {f.name: str(f.type) for f in dataclasses.fields(node)}
        for name, value in parts.items():
            yield Option(name, value, types[name], node)
            yield from _leaves(value)
    elif callable(node):
        for name, p in _hyperparameters(node).items():
            yield Option(name, None if p.default is p.empty else p.default, str(p.annotation), node)


def name_of(node: Any) -> str:
    """Return a function with the hyperparameters bound to it, a part made of functions, or a value, as text."""
    if node is None or node == ():
        return "none"
    if isinstance(node, tuple):
        return ", ".join(name_of(item) for item in node)
    if isinstance(node, functools.partial):
        return f"{name_of(node.func)}({', '.join(f'{k}={name_of(v)}' for k, v in node.keywords.items())})"
    if parts := _parts(node):
        inner = (name_of(v) if callable(v) and not _parts(v) else f"{k}={name_of(v)}" for k, v in parts.items())
        return f"{type(node).__name__}({', '.join(inner)})"
    return str(getattr(node, "__name__", node))
