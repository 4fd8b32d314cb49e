"""From printed LaTeX to values: a precedence-climbing parser whose vocabulary is a table of symbol definitions.

=====================  =========================================================================================
definition             meaning
=====================  =========================================================================================
``"i": range(4)``      an index. Inside another key it is a slot: ``"r_i"`` also matches ``r_j`` and ``r_{i+1}``; with
                       a subscript (``a_t``) it is a different symbol
``"r_i": tensor``      indexed by its slots, in the order in which they are printed
``"V(s_t)": f``        computed from its slots
``"f(#)": f``          the same; ``#`` is a slot for any expression
``r"\\E_\\pi": p``       probabilities of the hidden outcomes; ``("y", p)`` if the index ``y`` names them
``r"\\theta": leaf``    the variable in which ``∇`` differentiates
``r"\\dots": (x, a)``   in ``… + \\dots`` the piece ``x`` of the general term counts up from ``a``
``"words": None``      a remark that is not evaluated; the page says so
=====================  =========================================================================================

A symbol that is neither defined nor built in is an error, and so is an ambiguous formula.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from minirlhf_course.ledger.formulas import values as v
from minirlhf_course.ledger.formulas.items import FormulaError, Group, Item, Items, leaves, read, replaced, show, split

Env: TypeAlias = Mapping[str, Any]

# Tokens that end a product.
_STOPS = {*v.RELATIONS, "+", "-", ",", ".", ";", ":", "&", r"\\", "/", r"\cdot", r"\times", r"\sim", r"\mid", r"\|"}
_ANY, _DOTS = "#", r"\dots"
_COUNT = r"\#"  # the index that counts the terms of a series with dots


@dataclass(frozen=True)
class Term:
    """A function of the values of its free indices."""

    value: Callable[[Env], v.Value]
    free: frozenset[str] = frozenset()


def apply(f: Callable[..., v.Value], *terms: Term) -> Term:
    """``f`` of the values of these terms."""
    return Term(lambda env: f(*(t.value(env) for t in terms)), frozenset().union(*(t.free for t in terms)))


@dataclass(frozen=True)
class _Entry:
    """A symbol definition: the items that it matches, its slots, its value, and its key."""

    pattern: Items
    slots: tuple[str, ...]
    meaning: Any
    name: str

    @property
    def length(self) -> int:
        """The number of tokens that it matches."""
        return sum(1 for _ in leaves(self.pattern))


def _is_leaf(meaning: Any) -> bool:
    return isinstance(meaning, Tensor) and meaning.is_leaf and meaning.requires_grad


class FormulaParser:
    """Parses formulas with one table of symbol definitions; :meth:`define` adds those that a formula makes itself."""

    def __init__(self, legend: Mapping[str, Any], linear: bool = False) -> None:
        keys = [(name, read(name), meaning) for name, meaning in legend.items() if meaning is not None]
        self.indices: dict[str, Sequence[Any]] = {
            str(key[0]): meaning for _, key, meaning in keys if isinstance(meaning, range | list)
        }
        self.used: set[str] = set()  # keys of the symbol definitions that were needed
        self.times = v.matrix_product if linear else v.product
        self.dot = v.inner_product if linear else v.product
        self.linear = linear
        self._entries: list[_Entry] = []
        self._laws: dict[Items, tuple[str, Any]] = {}
        self.dots: tuple[Items, int, int | None] | None = None
        for name, key, meaning in keys:
            if key == (_DOTS,):
                self.dots = (read(meaning[0]), meaning[1], meaning[2] if len(meaning) > 2 else None)
                self.indices[_COUNT] = range(0)
            elif key[0] == r"\E" and (len(key) == 1 or (len(key) == 3 and key[1] == "_")):
                self._laws[key] = name, meaning
            elif not isinstance(meaning, range | list):
                self.define(key, meaning, name)

    def define(self, pattern: Items, meaning: Any, name: str = "") -> None:
        """Define a symbol as a value, a function of its slots, or a term. ``name`` is its key among the definitions."""
        if isinstance(meaning, Tensor) and not meaning.is_floating_point():
            meaning = meaning.double()  # an integer tensor times a number would be rounded to float32
        names = list(self._slots(pattern))
        slots = tuple(slot for k, slot in enumerate(names) if slot == _ANY or slot not in names[:k])
        self._entries.append(_Entry(pattern, slots, meaning, name))
        self._entries.sort(key=lambda e: (-e.length, len(e.slots)))

    def is_index(self, items: Items, at: int) -> bool:
        """Return whether the item is an index; with a subscript it is a different symbol."""
        return items[at] in self.indices and items[at + 1 : at + 2] != ("_",)

    def _slots(self, pattern: Items) -> Iterator[str]:
        for at, item in enumerate(pattern):
            if isinstance(item, Group):
                yield from self._slots(item.items)
            elif item == _ANY or self.is_index(pattern, at):
                yield item

    def term(self, items: Items) -> Term:
        """Parse all of these items as one expression.

        Raises:
            FormulaError: a symbol without a definition.
        """
        line = Line(self, items)
        term = line.sum()
        line.finish()
        return term

    def relation(self, items: Items) -> Term:
        """Parse a condition such as ``a < b \\le c`` (1 if it holds, else 0), or an expression without a relation."""
        sides, signs = split(items, v.RELATIONS)
        terms = [self.term(side) for side in sides]
        if not signs:
            return terms[0]

        def holds(*sides: v.Value) -> Tensor:
            truth = v.tensor(1)
            for sign, (a, b) in zip(signs, itertools.pairwise(sides), strict=True):
                truth = truth * v.RELATIONS[sign](a, b)
            return truth

        return apply(holds, *terms)

    def condition(self, items: Items) -> Term:
        """Parse relations joined by commas or the word *and*; *otherwise* always holds."""
        separators = {r"\text{if}", r"\text{and}", r"\text{otherwise}", r"\text{otherwise,}", r"\text{otherwise.}"}
        parts = [_unpunctuated(part) for part in split(items, {",", *separators})[0] if _unpunctuated(part)]
        return apply(lambda *truths: math.prod(map(v.tensor, truths), start=v.tensor(1)), *map(self.relation, parts))

    def known(self, items: Items) -> bool:
        """Return whether all of these items can be parsed."""
        try:
            self.term(items)
        except FormulaError:
            return False
        return True

    # -- symbol definitions --------------------------------------------------------------------------------------

    def entry_at(self, items: Items, at: int) -> tuple[_Entry, list[Term], int] | None:
        """Find the longest entry that matches from here on; return it, the terms in its slots, and where it ends.

        Among entries of equal length we take the one with the most slots that are filled by their own names.
        """
        best: tuple[int, tuple[_Entry, list[Term], int]] | None = None
        length = 0
        for entry in self._entries:
            if best and entry.length < length:
                break
            if entry.pattern[0] not in (items[at], _ANY) and not isinstance(entry.pattern[0], Group):
                continue
            slots: list[tuple[str, Items]] = []
            end = self._match(entry.pattern, items, at, slots, inside=False)
            # A symbol that continues with a subscript is a different symbol.
            if end is None or items[end : end + 1] == ("_",):
                continue
            num_own_names = sum(piece == (name,) for name, piece in slots)
            try:
                match = entry, [self.term(piece) for _, piece in slots], end
            except FormulaError:
                continue
            if best is None or num_own_names > best[0]:
                best, length = (num_own_names, match), entry.length
        return best[1] if best else None

    def _match(self, pattern: Items, items: Items, at: int, slots: list[tuple[str, Items]], inside: bool) -> int | None:
        for k, sign in enumerate(pattern):
            if at >= len(items):
                return None
            if isinstance(sign, Group):
                group = items[at]
                if isinstance(group, Group) and group.open == sign.open:
                    if self._match(sign.items, group.items, 0, slots, inside=True) is None:
                        return None
                elif sign.open != "{" or self._match(sign.items, (group,), 0, slots, inside=True) is None:
                    return None
                at += 1
            elif sign == _ANY or self.is_index(pattern, k):
                end = self._slot_end(pattern, k, items, at, inside)
                piece = items[at:end]
                if len(piece) == 1 and isinstance(piece[0], Group) and piece[0].open == "{":
                    piece = piece[0].items
                previous = dict(slots).get(sign) if sign != _ANY else None
                if not piece or previous not in (None, piece):
                    return None
                if previous is None:
                    slots.append((sign, piece))
                at = end
            elif sign == items[at]:
                at += 1
            else:
                return None
        return at if not inside or at == len(items) else None

    @staticmethod
    def _slot_end(pattern: Items, k: int, items: Items, at: int, inside: bool) -> int:
        """The end of a slot: one item outside brackets or after ``_``, ``^``; otherwise up to the next fixed item."""
        if not inside or (k and pattern[k - 1] in ("_", "^")):
            return at + 1
        following = pattern[k + 1] if k + 1 < len(pattern) else None
        for end in range(at + 1, len(items)):
            item = items[end]
            if item == following or (isinstance(item, Group) and isinstance(following, Group)):
                return end
        return len(items)

    def looked_up(self, entry: _Entry, terms: list[Term]) -> Term:
        """The value of a defined symbol, given the terms in its slots."""
        meaning = entry.meaning
        self.used.add(entry.name)
        if isinstance(meaning, Term):  # defined by the formula itself
            names = dict(zip(entry.slots, terms, strict=True))
            free = (meaning.free - names.keys()).union(*(t.free for t in terms))
            return Term(lambda env: meaning.value({**env, **{n: t.value(env) for n, t in names.items()}}), free)
        if not entry.slots:
            return Term(lambda env: meaning() if callable(meaning) else meaning)
        if callable(meaning):
            return apply(meaning, *terms)

        def entry_of(*values: v.Value) -> Tensor:
            value = meaning
            for name, x in zip(entry.slots, values, strict=True):
                position = int(x) - int(self.indices[name][0])
                if not 0 <= position < value.shape[0]:
                    message = f"{show(entry.pattern)} has no entry {name} = {int(x)}"
                    raise FormulaError(message, argument=name, value=int(x), problem="no entry")
                value = value[position]
            return value

        return apply(entry_of, *terms)

    # -- the variables of ∇ and the probabilities of E -----------------------------------------------------------

    def leaf(self, items: Items = (r"\theta",)) -> tuple[Tensor, list[Term]]:
        """The variable of a derivative, and the terms of the index at which it is taken."""
        for entry in self._entries:
            slots: list[tuple[str, Items]] = []
            if _is_leaf(entry.meaning) and self._match(entry.pattern, items, 0, slots, inside=True) is not None:
                self.used.add(entry.name)
                return entry.meaning, [self.term(piece) for _, piece in slots]
        raise FormulaError(f"no symbol definition for the variable {show(items)} of ∇ or ∂", problem="no variable")

    def single_leaf(self) -> Tensor:
        """The only defined tensor in which we can differentiate."""
        tensors = [e.meaning for e in self._entries if _is_leaf(e.meaning)]
        if len(tensors) != 1:
            message = f"the legend has {len(tensors)} tensors to differentiate in; one is needed"
            raise FormulaError(message, value=len(tensors), expected=1, problem="no variable")
        return tensors[0]

    def law(self, below: Items) -> tuple[str | None, Term]:
        """The index that names the outcomes (None if they are hidden), and the weights of ``E`` with this subscript."""
        key = (r"\E", "_", below[0] if len(below) == 1 else Group("{", below)) if below else (r"\E",)
        if key in self._laws:
            entry_name, meaning = self._laws[key]
            self.used.add(entry_name)
            name, weights = meaning if isinstance(meaning, tuple) else (None, meaning)
            return name, Term(lambda env: weights)
        if not below:
            raise FormulaError(r"no symbol definition for \E without a subscript", value=r"\E", problem="no legend")
        return None, self.term(below)


class Line:
    """A position in the items of one bracket. Its methods parse on from there: sums, their products, factors, atoms."""

    def __init__(self, reader: FormulaParser, items: Items) -> None:
        self.reader, self.items, self.at = reader, items, 0

    def peek(self) -> Item | None:
        return self.items[self.at] if self.at < len(self.items) else None

    def take(self) -> Item:
        if self.at >= len(self.items):
            raise FormulaError(
                f"an argument is missing after {show(self.items) or 'an opening bracket'}", problem="missing"
            )
        self.at += 1
        return self.items[self.at - 1]

    def finish(self) -> None:
        if self.at < len(self.items):
            message = f"cannot read on at {show(self.items[self.at : self.at + 6])!r}"
            raise FormulaError(message, problem="unread rest")

    def argument(self) -> Items:
        """Take the argument of ``\\frac``, ``_`` or ``^``: the items in braces, or one item."""
        item = self.take()
        return item.items if isinstance(item, Group) and item.open == "{" else (item,)

    # -- sums and products ---------------------------------------------------------------------------------------

    def sum(self) -> Term:
        """Parse products joined by + and −."""
        total: Term | None = None
        terms: list[Term] = []
        start = self.at
        while True:
            operator = self.peek()
            if operator not in ("+", "-"):
                if total is not None:
                    return total
                total = self.product()
                terms.append(total)
                continue
            self.at += 1
            if self.peek() == _DOTS and operator == "+":
                total = self._series(tuple(terms), self.items[start : self.at - 1])
                continue
            start = self.at
            term = self.product()
            signed = term if operator == "+" else apply(lambda a: -a, term)
            terms.append(signed)
            total = signed if total is None else apply(lambda a, b: a + b, total, signed)

    def _series(self, printed: tuple[Term, ...], last_printed: Items) -> Term:
        """Parse ``a + b + … + z``, or an endless ``a + b + c + …``; the printed terms must agree with the general one.

        An endless series stops at the third entry in the definition of ``\\dots``.
        """
        if self.reader.dots is None:
            raise FormulaError(r"no symbol definition for \dots; define which piece of the general term counts up")
        counter, first, stop = self.reader.dots
        self.at += 1
        if self.peek() == "+":
            self.at += 1
            start = self.at
            self.product()
            last_printed = self.items[start : self.at]
        general = self.reader.term(replaced(last_printed, counter, (_COUNT,)))
        last = self.reader.term(counter) if stop is None else Term(lambda env: stop)
        if _COUNT not in general.free:
            raise FormulaError(f"{show(counter)} does not occur in {show(last_printed)}")

        def series(env: Env) -> v.Value:
            terms = [general.value({**env, _COUNT: k}) for k in range(first, int(last.value(env)) + 1)]
            for a, b in zip(terms, printed, strict=False):
                if not torch.allclose(v.tensor(a), v.tensor(b.value(env))):
                    raise FormulaError("the terms before the dots do not agree with the general term")
            return sum(terms)

        return Term(series, (general.free - {_COUNT}).union(*(t.free for t in (*printed, last))))

    def product(self) -> Term:
        """Parse factors side by side, with · and /; ``a/b c`` is an error."""
        term, slashed = self.factor(), False
        while True:
            item = self.peek()
            if item == "/":
                self.at += 1
                term, slashed = apply(v.quotient, term, self.factor()), True
            elif item in (r"\cdot", r"\times"):
                self.at += 1
                term = apply(self.reader.dot, term, self.factor())
            elif item is None or item in _STOPS or (isinstance(item, str) and item.startswith(r"\text")):
                return term
            elif slashed:
                raise FormulaError("a/b c is ambiguous; print a fraction", problem="ambiguous")
            else:
                term = apply(self.reader.times, term, self.factor())

    def factor(self) -> Term:
        """Parse an atom with its powers."""
        term = self.atom()
        while self.peek() == "^":
            self.at += 1
            exponent = self.argument()
            if exponent == (r"\top",) and self.reader.linear:
                term = apply(v.transposed, term)
            else:
                term = apply(v.power, term, self.reader.term(exponent))
        return term

    # -- atoms ---------------------------------------------------------------------------------------------------

    def atom(self) -> Term:
        """Parse one symbol, number, bracket or function; definitions take precedence over built-in symbols."""
        start = self.at
        item = self.take()
        match = self.reader.entry_at(self.items, start)
        if match is not None:
            entry, terms, self.at = match
            return self.reader.looked_up(entry, terms)
        if isinstance(item, Group):
            return self._group(item)
        if self.reader.is_index(self.items, start):
            return Term(lambda env: env[item], frozenset({item}))
        if item.isdigit() or item == ".":
            return self._number(item)
        if item in _SIGNS:
            return _SIGNS[item](self)
        if item in v.BIG and self.peek() == "_":
            return self._big(v.BIG[item])
        if item in v.FUNCTIONS:
            return self._call(item)
        if item == "e" and self.peek() == "^":
            self.at += 1
            return apply(v.FUNCTIONS[r"\exp"], self.reader.term(self.argument()))
        message = f"no legend for {show(self.items[start : start + 5])!r}"
        raise FormulaError(message, value=show(self.items[start : start + 5]), problem="no legend")

    def _number(self, first: str) -> Term:
        digits = first
        while True:
            item = self.peek()
            rest = self.items[self.at + 1 : self.at + 2]
            is_point = item == "." and "." not in digits and rest and isinstance(rest[0], str) and rest[0].isdigit()
            if not (isinstance(item, str) and (item.isdigit() or is_point)):
                break
            digits += str(self.take())
        if digits == ".":
            raise FormulaError("a full stop stands inside the formula; it may only end it")
        number = float(digits) if "." in digits else int(digits)
        return Term(lambda env: number)

    def _group(self, group: Group) -> Term:
        if group.open == "cases":
            return self._cases(group.items)
        if group.open == r"\{" and ":" in group.items:
            return self._set(group.items)
        return self.reader.relation(group.items)

    def _cases(self, items: Items) -> Term:
        rows = []
        for row in split(items, {r"\\"})[0]:
            if row:
                value, *condition = split(row, {"&"})[0]
                if len(condition) != 1:
                    raise FormulaError(f"a case needs one & before its condition: {show(row)}")
                rows.append((self.reader.term(_unpunctuated(value)), self.reader.condition(condition[0])))

        def select(*flat: v.Value) -> Tensor:
            values, truths = flat[::2], [v.tensor(t) > 0 for t in flat[1::2]]
            if not bool(torch.stack(torch.broadcast_tensors(*truths)).any(0).all()):
                raise FormulaError("no case applies", problem="no case")
            result = v.tensor(values[-1])
            for value, truth in zip(reversed(values), reversed(truths), strict=True):
                result = torch.where(truth, v.tensor(value), result)
            return result

        return apply(select, *(term for row in rows for term in row))

    def _set(self, items: Items) -> Term:
        (name, *_), condition = split(items, {":"})[0]
        if name not in self.reader.indices:
            raise FormulaError(f"{show((name,))} is not defined as an index")
        truth = self.reader.condition(condition)
        members = lambda env: frozenset(x for x in self.reader.indices[name] if truth.value({**env, name: x}))
        return Term(members, truth.free - {name})

    def bars(self) -> Term:
        return apply(lambda x: v.tensor(x).abs(), self._between("|"))

    def norm(self) -> Term:
        """Parse the norm of a vector, whose components are on the first axis."""
        norm = lambda x: v.tensor(x).square().sum(0).sqrt()
        return apply(norm, self._between(r"\|"))

    def _between(self, bar: str) -> Term:
        try:
            end = self.items.index(bar, self.at)
        except ValueError:
            raise FormulaError(f"a bar {bar} is not closed") from None
        inner, self.at = self.items[self.at : end], end + 1
        return self.reader.term(inner)

    def fraction(self) -> Term:
        numerator, denominator = self.argument(), self.argument()
        differential = denominator[0] if denominator and denominator[0] in (r"\partial", "d") else None
        if differential and numerator[:1] == (differential,) and len(denominator) > 1:
            return self._derivative(numerator[1:], denominator[1:])
        return apply(v.quotient, self.reader.term(numerator), self.reader.term(denominator))

    def _derivative(self, numerator: Items, denominator: Items) -> Term:
        term = self.reader.term(numerator) if numerator else self.product()
        try:
            leaf, index_terms = self.reader.leaf(denominator)
        except FormulaError:
            variable, inner = self.reader.single_leaf(), self.reader.term(denominator)
            ratio = lambda x, y: v.slopes(x, variable) / v.slopes(y, variable)
            return apply(ratio, term, inner)

        def slope(x: v.Value, *index: v.Value) -> Tensor:
            if not index:
                return v.slopes(x, leaf)
            return v.derivative(x, leaf)[int(index[0])]

        return apply(slope, term, *index_terms)

    def gradient(self) -> Term:
        variable: Items = (r"\theta",)
        if self.peek() == "_":
            self.at += 1
            variable = self.argument()
        leaf, _ = self.reader.leaf(variable)

        def gradient(x: v.Value) -> Tensor:
            x = v.tensor(x)
            if not x.requires_grad:  # a constant, for every outcome
                return torch.zeros(leaf.numel(), 1, dtype=torch.float64)
            return v.derivative(x, leaf).reshape(leaf.numel(), *x.shape)

        return apply(gradient, self.factor())

    def indicator(self) -> Term:
        group = self.take()
        if not isinstance(group, Group):
            raise FormulaError("an indicator needs a bracket")
        return self.reader.condition(group.items)

    def root(self) -> Term:
        return apply(lambda x: v.tensor(x).sqrt(), self.reader.term(self.argument()))

    def _call(self, name: str) -> Term:
        exponent: Term | None = None
        if self.peek() == "^":
            self.at += 1
            exponent = self.reader.term(self.argument())
        group = self.peek()
        if isinstance(group, Group) and group.open in "([":
            self.at += 1
            pieces = split(group.items, {",", r"\|"})[0]
            result = self._checked_call(name, [self.reader.term(p) for p in pieces])
        elif name == r"\sigma":
            raise FormulaError(r"\sigma without a bracket is not defined", value=r"\sigma", problem="no bracket")
        else:
            result = self._checked_call(name, [self.factor()])
        return apply(v.power, result, exponent) if exponent else result

    @staticmethod
    def _checked_call(name: str, arguments: list[Term]) -> Term:
        num_expected = {r"\KL": 2, r"\mathrm{clip}": 3, r"\min": None, r"\max": None}.get(name, 1)
        if num_expected not in (None, len(arguments)):
            raise FormulaError(f"{name} takes {num_expected} arguments, not {len(arguments)}")
        return apply(v.FUNCTIONS[name], *arguments)

    # -- running indices -----------------------------------------------------------------------------------------

    def _runs(self) -> tuple[list[str], Callable[[Env], Iterator[Env]], frozenset[str]]:
        """Parse the subscript (and superscript) of Σ, Π, max …: the indices, their values, the other free indices."""
        self.take()
        subscript, upper = self.argument(), None
        if self.peek() == "^":
            self.at += 1
            upper = self.reader.term(self.argument())
        domains: list[tuple[str, Term]] = []
        for part in split(subscript, {","})[0]:
            piece = tuple(item for item in part if isinstance(item, Group) or not item.startswith(r"\text"))
            name = next((sign for sign in leaves(piece) if sign in self.reader.indices), None)
            if name is None:
                raise FormulaError(f"no index in {show(piece)!r}")
            domains.append((name, self._run(name, piece, upper)))
        names = [name for name, _ in domains]

        def values(env: Env, depth: int = 0) -> Iterator[Env]:
            if depth == len(domains):
                yield env
                return
            name, domain = domains[depth]
            for x in domain.value(env):
                yield from values({**env, name: x}, depth + 1)

        # A domain may depend on the indices that run before it.
        outer = (domain.free - set(names[:k]) for k, (_, domain) in enumerate(domains))
        return names, values, frozenset().union(*outer)

    def _run(self, name: str, piece: Items, upper: Term | None) -> Term:
        """The values of an index: ``i``, ``t = 1`` (with upper limit), ``v \\in K``, or a condition: ``j \\ne i``."""
        domain = self.reader.indices[name]
        if len(piece) == 1:
            return Term(lambda env: domain)
        if piece[1] == "=":
            if upper is None:
                raise FormulaError(f"{show(piece)} has no upper limit")
            return apply(lambda a, b: range(int(a), int(b) + 1), self.reader.term(piece[2:]), upper)
        if piece[1] == r"\in":
            return apply(sorted, self.reader.term(piece[2:]))
        condition = self.reader.relation(piece)
        selected = lambda env: [x for x in domain if condition.value({**env, name: x})]
        return Term(selected, condition.free - {name})

    def _big(self, reduce: Callable[[Sequence[v.Value]], v.Value]) -> Term:
        names, values, outer = self._runs()
        body = self.product()
        for name in names:
            if name not in body.free:
                raise FormulaError(f"the index {name} runs, but is not used", argument=name, problem="unused index")
        reduced = lambda env: reduce([body.value(inner) for inner in values(env)])
        return Term(reduced, (body.free - set(names)) | outer)

    def argmax(self) -> Term:
        if self.peek() != "_":
            raise FormulaError(r"\argmax needs an index as its subscript")
        names, values, outer = self._runs()
        body = self.product()
        best = lambda env: max(values(env), key=lambda inner: float(body.value(inner)))[names[0]]
        return Term(best, (body.free - set(names)) | outer)

    def expectation(self) -> Term:
        names, weights = self._law()
        group = self.peek()
        if isinstance(group, Group) and group.open in "([":
            self.at += 1
            body = self.reader.relation(group.items)
        else:
            body = self.factor()
        return self._mean(names, weights, body)

    def _law(self) -> tuple[list[str], Term]:
        """Parse the subscript of E, Var or Cov: the indices of the outcomes (none if hidden), and the weights."""
        subscript: Items = ()
        if self.peek() == "_":
            self.at += 1
            subscript = self.argument()
        if r"\sim" not in subscript:
            name, weights = self.reader.law(subscript)
            return ([name] if name else []), weights
        (outcome, *_), distribution = split(subscript, {r"\sim"})[0]
        inner = outcome.items if isinstance(outcome, Group) else (outcome,)
        names = [sign for sign in leaves(inner) if sign in self.reader.indices]
        applied = replaced(distribution, (r"\cdot",), inner)
        return names, self.reader.term(applied if applied != distribution else (*distribution, Group("(", inner)))

    def _mean(self, names: list[str], weights: Term, body: Term) -> Term:
        named = set(names) & (body.free | weights.free)
        free = (weights.free | body.free) - set(names)
        if not named:
            return Term(lambda env: (v.tensor(weights.value(env)) * v.tensor(body.value(env))).sum(-1), free)
        domains = [self.reader.indices[name] for name in names]

        def mean(env: Env) -> v.Value:
            envs = [{**env, **dict(zip(names, xs, strict=True))} for xs in itertools.product(*domains)]
            probs = [weights.value(e) for e in envs] if weights.free & named else list(weights.value(env))
            if not body.free & named:  # the outcomes of the body are hidden in its last axis
                return (torch.stack([v.tensor(p) for p in probs]) * v.tensor(body.value(env))).sum(-1)
            # An outcome of probability 0 does not count, whatever its value.
            return sum(p * body.value(e) for p, e in zip(probs, envs, strict=True) if v.tensor(p).any())

        return Term(mean, free)

    def moment(self) -> Term:
        names, weights = self._law()
        group = self.take()
        if not isinstance(group, Group):
            raise FormulaError("Var and Cov need a bracket")
        x, *rest = [self.reader.term(piece) for piece in split(group.items, {","})[0]]
        if len(rest) > 1:
            raise FormulaError("Cov takes two arguments")
        y = rest[0] if rest else x
        mean = lambda term: self._mean(names, weights, term)
        product = apply(v.product, x, y)
        return apply(lambda xy, a, b: xy - a * b, mean(product), mean(x), mean(y))


_SIGNS: dict[str, Callable[[Line], Term]] = {
    "|": Line.bars,
    r"\|": Line.norm,
    r"\frac": Line.fraction,
    r"\sqrt": Line.root,
    r"\nabla": Line.gradient,
    r"\mathbb{1}": Line.indicator,
    r"\argmax": Line.argmax,
    r"\E": Line.expectation,
    r"\mathrm{Var}": Line.moment,
    r"\mathrm{Cov}": Line.moment,
    r"\infty": lambda line: Term(lambda env: math.inf),
}


def _unpunctuated(items: Items) -> Items:
    while items and items[-1] in (",", ".", ";", ":"):
        items = items[:-1]
    return items
