"""Choices bound by name: a name is a field of a recipe's part, or a keyword-only hyperparameter of a function in it.

What a recipe was given stands beside the row that it was made from, and all of it is bound anew, from the outside in. So the
order never matters within a call of ``with_``; over several calls a number comes after the function that takes it, or is an error:

* a number given by name goes to every function that takes it, also to one that replaces another; one that nothing takes is an error;
* a number given by name and another one inside a part given beside it is an error;
* what a *row* had bound to a function that is replaced goes to the new one if that takes it. What it does not take was
  the old function's, and the header says that it is gone.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
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


@dataclass(frozen=True)
class Bindable:
    """A frozen dataclass of functions and parts.

    Attributes:
        name: as on the command line.
        deviations: in what this implementation differs from the paper, a sentence each.
        row: the row of a table that this is a variant of; None if it is one itself.
        changes: in what it differs from that row.
    """

    name: str
    _: KW_ONLY
    deviations: tuple[str, ...] = ()
    row: Any = dataclasses.field(default=None, repr=False, compare=False)
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False, compare=False)

    def with_(self, **changes: Any) -> Self:
        """This recipe with other choices: fields, or hyperparameters of its functions, by name.

        A variant is called after its row and its changes. With a ``source`` it is a row by itself, named and declared by whoever made it.

        Raises:
            UserError: nothing takes one of the names, or two numbers are given for it.
        """
        base: Self = self.row or self
        wanted = {**self.changes, **changes}
        if not wanted:
            return base
        taken: set[str] = set()
        made: Self = _bound(base, wanted, taken)
        for name in sorted(wanted.keys() - taken):
            if name in base.options():
                others = _listed({k: v for k, v in wanted.items() if k != name})
                raise UserError(f"{_title(base)} with {others}: nothing takes {_listed({name: wanted[name]})} any more")
            raise unknown(f"option of recipe {base.name!r}", name, made.options())
        if "source" in changes:
            return replace(made, row=None, changes={}, deviations=wanted.get("deviations", ()))
        return replace(
            made, row=base, changes=wanted, name=wanted.get("name", f"{_title(base)} with {_listed(wanted)}")
        )

    def filled(self, **values: Any) -> Self:
        """This recipe with what the run decides, where a function takes it and nothing else was chosen by name. It is no variant."""
        made: Self = _bound(self, {k: v for k, v in values.items() if k not in self.changes}, set())
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
        if self.row is None:
            return [f"{self.name}: {source}"]
        lines = [f"{self.name}: as {_title(self.row)} ({source}), except {_listed(self.changes)}"]
        gone = {k: v for k, v in _given(self.row).items() if k not in self.options()}
        return lines + [f"  without          {_listed(gone)}: nothing takes them any more"] * bool(gone)


def _title(recipe: Bindable) -> str:
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


def _bound(node: Any, values: Mapping[str, Any], taken: set[str]) -> Any:
    """``node`` with every field and hyperparameter of these names set, from the outside in; the names go into ``taken``."""
    if isinstance(node, tuple):
        return tuple(_bound(item, values, taken) for item in node)
    if parts := _parts(node):
        changes = {}
        for name, old in parts.items():
            new = values.get(name, old)
            if name in values:
                taken.add(name)
                for twice, inside in _given(new).items():
                    if values.get(twice, inside) != inside:
                        raise UserError(f"{twice} is given twice: {values[twice]} by name, and {inside} in {name}")
                new = _bound(new, {k: v for k, v in _given(old, parts=False).items() if k not in _given(new)}, set())
            changes[name] = _bound(new, values, taken)
        return replace(node, **changes)
    if callable(node):
        # A tuple is a choice of functions, so it belongs to a field.
        found = {k: values[k] for k in _hyperparameters(node) if k in values and not isinstance(values[k], tuple)}
        taken.update(found)
        return functools.partial(node, **found) if found else node
    return node


def _given(node: Any, *, parts: bool = True) -> dict[str, Any]:
    """What is bound to the functions below and, in ``parts``, differs from a part's defaults."""
    found: dict[str, Any] = {}
    if isinstance(node, functools.partial):
        found.update(node.keywords)
    for item in node if isinstance(node, tuple) else _parts(node).values():
        found.update(_given(item, parts=parts))
    if parts and _parts(node):
        defaults = {f.name: f.default for f in dataclasses.fields(node)}
        found.update({k: v for k, v in _parts(node).items() if v != defaults[k] and isinstance(v, int | float)})
    return found


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
