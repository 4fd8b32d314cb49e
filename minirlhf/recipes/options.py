"""Options of a recipe by name: fields of its parts, and numbers of the functions in them.

Each kind of recipe lists in ``PLACES`` where every option acts. ``with_`` sets options there and does no more: a field
as ``dataclasses.replace`` does, a number as ``functools.partial`` does, the outermost first. So a number that is set
beside a function goes to this function. A function of your own takes its own numbers by ``functools.partial``.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

from minirlhf.core.errors import UserError, unknown

#: The names of options by the part or function that takes them: a dotted path of fields, outer parts first.
Places: TypeAlias = Mapping[str, tuple[str, ...]]
#: Fields of a recipe that only describe it.
WORDS = ("name", "source", "deviations", "row")


class Option(NamedTuple):
    """One option: its name, its current value, its type as text, the part or function that takes it, and whether it is set."""

    name: str
    value: Any
    kind: str
    owner: Any
    is_set: bool

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
        PLACES: where every option acts.
        name: the name on the command line.
        deviations: differences between this implementation and the paper.
        row: the row of a table that this is a variant of; None if it is a row itself.
    """

    PLACES: ClassVar[Places] = {}

    name: str
    _: KW_ONLY
    deviations: tuple[Deviation, ...] = ()
    row: Any = field(default=None, repr=False, compare=False)

    def with_(self, **changes: Any) -> Self:
        """Return this recipe with other options.

        The name of a variant is made from its row and the differences, unless ``name`` is set. With a ``name`` and a
        ``source`` the result is a new row.

        Raises:
            UserError: no part or function takes one of the names, a name is set beside the part that has it, a function
                rejects a number, or a new row has no name.
        """
        variant, used = self, set[str]()
        for place, names in self.PLACES.items():
            here = {name: changes[name] for name in names if name in changes}
            for step in _steps(place):
                if here and _is_part(changes.get(step)):
                    message = f"{_listed(here)} is set by name, beside {step}={name_of(changes[step])}; expected one of the two"
                    raise UserError(message, argument=next(iter(here)), problem="duplicate")
            variant = _placed(variant, _steps(place), here, used)
        for name in sorted(changes.keys() - used):
            problem = unknown(f"option of recipe {self.name!r}", name, variant.options())
            raise UserError.about(f"{problem} (what takes it is set before it, or in the same call)", problem)
        row = self.row or self
        if "source" in changes:
            if "name" not in changes:
                message = f"{_title(row)} with source={changes['source']!r}: a row of its own needs a name too"
                raise UserError(message, argument="name", problem="missing")
            variant = replace(variant, row=None, deviations=changes.get("deviations", ()))
        else:
            variant = replace(variant, row=row)
            changed = variant.differences()
            name = f"{_title(row)} with {_listed(changed)}" if changed else row.name
            variant = replace(variant, name=changes.get("name", name))
        variant._refuse_numbers(changes, self)
        return variant

    def _try(self) -> None:
        """Compute the loss of made-up completions. A kind of recipe without numbers has nothing to compute."""

    def _refuse_numbers(self, changes: Mapping[str, Any], before: Self) -> None:
        """Raise the error of a function that rejects one of the numbers; what else is missing may still be set."""
        numbers = {name for name, value in changes.items() if isinstance(value, int | float)}
        if not numbers:
            return
        try:
            self._try()
        except UserError as problem:
            if problem.argument in numbers:
                raise
            if numbers == changes.keys() - {"name"}:  # the function may call its argument otherwise: is it the number?
                try:
                    before._try()
                except UserError:
                    return
                raise

    def differences(self) -> dict[str, Any]:
        """Return the options, outermost first, whose values differ from those of the row; empty for a row itself."""
        return {} if self.row is None else dict(_differences(self.row, self))

    def changed_options(self, deviation: Deviation) -> dict[str, Any]:
        """Return the options of a deviation whose values differ from those of the row, with their current values."""
        current, original = self.options(), (self.row or self).options()
        return {o: current.get(o) for o in deviation.options if o not in current or _differ(original[o], current[o])}

    def known_deviations(self) -> list[str]:
        """Return the deviations, one line each. A variant marks deviations of its row whose options it has changed."""
        lines = []
        for sentence in self.deviations:
            changed = self.changed_options(sentence)
            lines.append(
                f"deviates: {sentence}" if not changed else f"its row deviates: {sentence} (here {_listed(changed)})"
            )
        return lines

    def choices(self) -> dict[str, Option]:
        """Return every name that :meth:`with_` takes; if several options share a name, the outermost."""
        options: dict[str, Option] = {}
        for place, names in self.PLACES.items():
            for owner in _owners(self, _steps(place)):
                for option in _options_of(owner):
                    if option.name in names:
                        options.setdefault(option.name, option)
        return options

    def options(self) -> dict[str, Any]:
        """Return the current values of all choices."""
        return {name: option.value for name, option in self.choices().items()}

    def numbers(self) -> dict[str, Option]:
        """Return the choices that the command line can set."""
        return {name: option for name, option in self.choices().items() if option.is_number}

    def heading(self, source: str) -> list[str]:
        """Return the first lines of the header: the paper of a row; the row and the differences of a variant."""
        changed = self.differences()
        if not changed:
            return [f"{self.name}: {source}"]
        lines = [f"{self.name}: as {_title(self.row)} ({source}), except {_listed(changed)}"]
        current, original = self.numbers(), self.row.numbers()
        moved = {n: o for n, o in original.items() if n not in changed and (n in current or o.is_set)}
        now = {n: current[n].value if n in current else None for n in moved}
        texts = [
            f"{_listed({n: now[n]})} ({_title(self.row)}: {name_of(o.value)})"
            for n, o in sorted(moved.items())
            if _differ(o.value, now[n])
        ]
        return lines + [f"  with             {', '.join(texts)}"] * bool(texts)


def head(function: Any) -> Any:
    """Return the function in a ``functools.partial``; any other value as it is."""
    return function.func if isinstance(function, functools.partial) else function


def number(function: Any, name: str, otherwise: Any = None) -> Any:
    """Return a number of a function, bound or default; ``otherwise`` if the function does not take it."""
    parameter = inspect.signature(function).parameters.get(name)
    return otherwise if parameter is None else parameter.default


def filled(function: Any, **numbers: Any) -> Any:
    """Return the function with those of these numbers that it takes and that are not bound to it yet."""
    bound = getattr(function, "keywords", {})
    taken = {name: value for name, value in numbers.items() if name in _numbers(function) and name not in bound}
    return functools.partial(function, **taken) if taken else function


def _title(recipe: ConfigurableRecipe) -> str:
    return recipe.name.upper()


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={name_of(value)}" for name, value in sorted(values.items()))


def _steps(place: str) -> list[str]:
    return place.split(".") if place else []


def _is_part(node: Any) -> bool:
    return dataclasses.is_dataclass(node) and not isinstance(node, type)


def _numbers(function: Any) -> dict[str, inspect.Parameter]:
    """Return the keyword-only arguments of a function, with the values bound so far as their defaults."""
    return {p.name: p for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY}


def _owners(node: Any, steps: list[str]) -> list[Any]:
    """Return the parts and functions at a place: several if a field holds a tuple, none if the recipe lacks it."""
    if isinstance(node, tuple):
        return [owner for item in node for owner in _owners(item, steps)]
    if steps:
        return _owners(getattr(node, steps[0], None), steps[1:])
    return [node] if _is_part(node) or callable(node) else []


def _options_of(owner: Any) -> Iterator[Option]:
    if _is_part(owner):
        for f in fields(owner):
            value = getattr(owner, f.name)
            yield Option(f.name, value, str(f.type), owner, value != f.default)
    else:
        for name, p in _numbers(owner).items():
            value = None if p.default is p.empty else p.default
            yield Option(name, value, str(p.annotation), owner, name in getattr(owner, "keywords", {}))


def _placed(node: Any, steps: list[str], values: Mapping[str, Any], used: set[str]) -> Any:
    """Return ``node`` with these values at a place, and add the names that it takes to ``used``."""
    if isinstance(node, tuple):
        return tuple(_placed(item, steps, values, used) for item in node)
    if not values or not (_is_part(node) or callable(node)):
        return node
    if steps:
        inner = getattr(node, steps[0], None)
        return node if inner is None else replace(node, **{steps[0]: _placed(inner, steps[1:], values, used)})
    taken = {o.name: values[o.name] for o in _options_of(node) if o.name in values}
    for name, value in taken.items():
        if _is_part(part := getattr(node, name, None)) and not (value is None or _is_part(value)):
            message = f"{name} = {name_of(value)}; expected a part such as {type(part).__name__}(…)"
            raise UserError(message, argument=name, value=value, expected=type(part).__name__)
    used.update(taken)
    return node if not taken else (replace if _is_part(node) else functools.partial)(node, **taken)


def _differences(a: Any, b: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each option of ``b`` that differs from that of ``a``; a function or part of another kind as a whole."""
    pairs: Iterable[tuple[str, Any, Any]]
    if _is_part(a) and type(a) is type(b):
        pairs = ((f.name, getattr(a, f.name), getattr(b, f.name)) for f in fields(a) if f.name not in WORDS)
    elif isinstance(a, tuple) and isinstance(b, tuple) and [*map(head, a)] == [*map(head, b)]:
        pairs = ((name, one, other) for one, other in zip(a, b, strict=True))
    elif callable(a) and callable(b) and head(a) is head(b):
        before = _numbers(a)
        pairs = ((k, before[k].default, p.default) for k, p in _numbers(b).items())
    else:
        if a != b:
            yield name, b
        return
    for part, one, other in pairs:
        yield from _differences(one, other, part)


def _differ(a: Any, b: Any) -> bool:
    return any(True for _ in _differences(a, b))


def name_of(node: Any) -> str:
    """Return a function with the numbers bound to it, a part made of functions, or a value, as text."""
    if node is None or node == ():
        return "none"
    if isinstance(node, tuple):
        return ", ".join(name_of(item) for item in node)
    if isinstance(node, functools.partial):
        return f"{name_of(node.func)}({', '.join(f'{k}={name_of(v)}' for k, v in node.keywords.items())})"
    if _is_part(node):
        parts = {f.name: getattr(node, f.name) for f in fields(node)}
        inner = (name_of(v) if callable(v) and not _is_part(v) else f"{k}={name_of(v)}" for k, v in parts.items())
        return f"{type(node).__name__}({', '.join(inner)})"
    return str(getattr(node, "__name__", node))
