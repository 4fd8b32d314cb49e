"""Choices bound by name: a name is a field of a recipe's part, or a keyword-only hyperparameter of a function in it.

What a recipe was given stands beside the row that it was made from, and all of it is bound anew, from the outside in. So the
order never matters within a call of ``with_``, and several calls do what one would do, or are an error (a number before the function
that takes it; the message says so):

* a number given by name goes to every function that takes it, also to one that replaces another; one that nothing takes is an error;
* a part (:class:`~minirlhf.recipes.parts.KLInLoss`, …) says all of its numbers, its defaults included, so another value for one of them
  by name is an error;
* what a *row* had bound to a function that is replaced goes to the new one if that takes it. A number of the row that is gone, or
  that a replaced part or function has another value for, is named in the header;
* a value that is the row's own changes nothing.
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

#: Keyword-only arguments that are data, not choices.
DATA = frozenset({"valid", "keep", "bootstrap", "num_generations"})


class Option(NamedTuple):
    """One choice: its name, its present value, its type as text, and the part or function that takes it."""

    name: str
    value: Any
    kind: str
    owner: Any

    @property
    def is_number(self) -> bool:
        """A number or truth value, or nothing where there could be one: what the command line can set."""
        number = re.fullmatch(r"(bool|int|float)( \| None)?", self.kind) is not None
        return isinstance(self.value, int | float) or (self.value is None and number)


class Deviation(str):
    """A sentence about what an implementation does otherwise than its paper.

    Attributes:
        options: of which it speaks. Where a variant has another value for one of them, it speaks of the row only.
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
        name: as on the command line.
        deviations: in what this implementation differs from the paper.
        row: the row of a table that this is a variant of; None if it is one itself.
        changes: what that row was told to be, its own values included.
    """

    name: str
    _: KW_ONLY
    deviations: tuple[Deviation, ...] = ()
    row: Any = dataclasses.field(default=None, repr=False, compare=False)
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False, compare=False)

    def with_(self, **changes: Any) -> Self:
        """This recipe with other choices: fields, or hyperparameters of its functions, by name.

        A variant is called after its row and its changes, or by the ``name`` given. With a ``name`` and a ``source`` it is a row by itself, declared by whoever made it.

        Raises:
            UserError: nothing takes one of the names, two values are given for it, or a row of its own has no name.
        """
        base: Self = self.row or self
        wanted = {**self.changes, **changes}
        taken: set[str] = set()
        made: Self = _bound(base, wanted, taken)
        for name in sorted(wanted.keys() - taken):
            if name in base.options():
                others = _listed({k: v for k, v in wanted.items() if k != name})
                raise UserError(
                    f"{_title(base)} with {others}: nothing takes {_listed({name: wanted[name]})} any more",
                    argument=name,
                    value=wanted[name],
                    problem="not taken",
                )
            problem = unknown(f"option of recipe {base.name!r}", name, made.options())
            raise UserError.about(
                f"{problem} (a number comes together with the function that takes it, or after it)", problem
            )
        if "source" in wanted:
            if "name" not in wanted:
                message = f"{_title(base)} with source={wanted['source']!r}: a row of its own needs a name too"
                raise UserError(message, argument="name", problem="missing")
            return replace(made, row=None, changes={}, deviations=wanted.get("deviations", ()))
        made = replace(made, row=base, changes=wanted)
        shown = made.differences()
        return replace(made, name=wanted.get("name", f"{_title(base)} with {_listed(shown)}")) if shown else made

    def differences(self) -> dict[str, Any]:
        """In what this is another recipe than its row; nothing for a row, and for one that was told its own values."""
        shown = {k: v for k, v in self.changes.items() if k != "name"}  # a name is no difference
        for name, value in list(shown.items()):
            fewer = {k: v for k, v in shown.items() if k != name}
            if _alike(self.row.options().get(name, self), value) and _alike(
                _bound(self.row, fewer, set()), _bound(self.row, self.changes, set())
            ):
                shown = fewer
        return shown

    def moved(self, deviation: Deviation) -> dict[str, Any]:
        """The options that a deviation of the row speaks of and that are otherwise here, with their present values."""
        now, before = self.options(), (self.row or self).options()
        return {o: now.get(o) for o in deviation.options if o not in now or not _alike(before[o], now[o])}

    def known_deviations(self) -> list[str]:
        """The deviations, a line each; of a variant those of its row, marked where it has changed what they speak of."""
        lines = []
        for sentence in self.deviations:
            moved = self.moved(sentence)
            lines.append(
                f"deviates: {sentence}" if not moved else f"its row deviates: {sentence} (here {_listed(moved)})"
            )
        return lines

    def resolved(self, **values: Any) -> Self:
        """This recipe with what the run decides, where a function takes it and nobody has bound another value. It is no variant."""
        made: Self = _bound(self, values, set(), keep=True)
        return made

    def choices(self) -> dict[str, Option]:
        """Every name that :meth:`with_` takes; of several with one name the outermost."""
        return {option.name: option for option in reversed(list(_leaves(self)))}

    def options(self) -> dict[str, Any]:
        """Their present values."""
        return {name: option.value for name, option in self.choices().items()}

    def numbers(self) -> dict[str, Option]:
        """Those that the command line can set."""
        return {name: option for name, option in self.choices().items() if option.is_number}

    def heading(self, source: str) -> list[str]:
        """The first lines about this recipe: a row claims its paper, a variant says what it has changed."""
        shown = self.differences()
        if not shown:
            return [f"{self.name}: {source}"]
        lines = [f"{self.name}: as {_title(self.row)} ({source}), except {_listed(shown)}"]
        now, before = self.choices(), self.row.choices()
        gone = {name: value for name, value in _set_by(self.row).items() if name not in now}
        moved = [
            f"{_listed({name: now[name].value})} ({_title(self.row)}: {name_of(option.value)})"
            for name, option in sorted(before.items())
            if name in now and name not in self.changes and (option.is_number or now[name].is_number)
            if not _alike(option.value, now[name].value)
        ]
        lines += [f"  with             {', '.join(moved)}"] * bool(moved)
        return lines + [f"  without          {_listed(gone)}: nothing takes them any more"] * bool(gone)


def _title(recipe: ConfigurableRecipe) -> str:
    return recipe.name.upper()


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={name_of(value)}" for name, value in sorted(values.items()))


def _parts(node: Any) -> dict[str, Any]:
    """The fields of a part, by name."""
    if isinstance(node, type) or not dataclasses.is_dataclass(node):
        return {}
    return {f.name: getattr(node, f.name) for f in dataclasses.fields(node) if f.name not in ("row", "changes")}


def _hyperparameters(function: Any) -> dict[str, inspect.Parameter]:
    """Keyword-only arguments of a function, with the values bound so far as their defaults."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in DATA}


def _bound(node: Any, values: Mapping[str, Any], taken: set[str], keep: bool = False) -> Any:
    """``node`` with every field and hyperparameter of these names set, from the outside in; the names go into ``taken``.

    With ``keep`` only functions take them, and only what is not bound yet.
    """
    if isinstance(node, tuple):
        return tuple(_bound(item, values, taken, keep) for item in node)
    if parts := _parts(node):
        changes = {}
        for name, old in parts.items():
            new = old
            if name in values and not keep:
                taken.add(name)
                new = values[name]
                for twice, inside in _stated(new).items():
                    if not _alike(values.get(twice, inside), inside):
                        here, there = name_of(values[twice]), name_of(inside)
                        message = f"{twice} is given twice: {here} by name, and {there} in {name}"
                        raise UserError(message, argument=twice, value=(here, there), problem="duplicate")
                new = _bound(new, _keywords(old), set(), keep=True)
            changes[name] = _bound(new, values, taken, keep)
        return replace(node, **changes)
    if callable(node):
        fixed = getattr(node, "keywords", {}) if keep else {}
        # A tuple is a choice of functions, so it belongs to a field.
        given = {k: v for k, v in values.items() if k not in fixed and not isinstance(v, tuple)}
        found = {k: given[k] for k in _hyperparameters(node) if k in given}
        taken.update(found)
        return functools.partial(node, **found) if found else node
    return node


def _keywords(node: Any) -> dict[str, Any]:
    """What is bound to the functions below."""
    own = dict(node.keywords) if isinstance(node, functools.partial) else {}
    below = (_keywords(item) for item in (node if isinstance(node, tuple) else _parts(node).values()))
    return functools.reduce(operator.or_, below, own)


def _stated(node: Any) -> dict[str, Any]:
    """What a part says by itself: its fields and what is bound to its functions. The fields of parts in it are its own."""
    below = (_stated(item) for item in (node if isinstance(node, tuple) else _parts(node).values()))
    return functools.reduce(operator.or_, below, _keywords(node) | _parts(node))


def _set_by(node: Any) -> dict[str, Any]:
    """The numbers in it that are no part's default."""
    found, parts = _keywords(node), _parts(node)
    defaults = {f.name: f.default for f in dataclasses.fields(node)} if parts else {}
    found |= {k: v for k, v in parts.items() if isinstance(v, int | float) and v != defaults[k]}
    return functools.reduce(operator.or_, map(_set_by, parts.values()), found)


def _alike(a: Any, b: Any) -> bool:
    """Whether two choices are the same: functions with the same numbers, whether bound or by default, parts with the same fields."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_alike, a, b))
    if callable(a) and callable(b) and not _parts(a):
        plain = [x.func if isinstance(x, functools.partial) else x for x in (a, b)]
        return plain[0] is plain[1] and _defaults(a) == _defaults(b)
    if _parts(a) and type(a) is type(b):
        return all(_alike(x, y) for x, y in zip(_parts(a).values(), _parts(b).values(), strict=True))
    return bool(a == b)


def _defaults(function: Any) -> dict[str, Any]:
    return {name: p.default for name, p in _hyperparameters(function).items()}


def _leaves(node: Any) -> Iterator[Option]:
    """Every choice below."""
    if isinstance(node, tuple):
        for item in node:
            yield from _leaves(item)
    elif parts := _parts(node):
        kinds = {f.name: str(f.type) for f in dataclasses.fields(node)}
        for name, value in parts.items():
            yield Option(name, value, kinds[name], node)
            yield from _leaves(value)
    elif callable(node):
        for name, p in _hyperparameters(node).items():
            yield Option(name, None if p.default is p.empty else p.default, str(p.annotation), node)


def name_of(node: Any) -> str:
    """A function with the hyperparameters bound to it, a part made of functions, or a value, as text."""
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
