"""From printed LaTeX to values: a precedence-climbing reader whose vocabulary is a legend ``{piece of ink: value}``.

=====================  =========================================================================================
in the legend          means
=====================  =========================================================================================
``"i": range(4)``      an index. Inside another key it is a slot: ``"r_i"`` also reads ``r_j`` and ``r_{i+1}``; with a
                       subscript (``a_t``) it is another thing
``"r_i": tensor``      looked up by its slots, in the order in which they are printed
``"V(s_t)": f``        computed from its slots
``"f(#)": f``          the same; ``#`` is a slot for any expression
``r"\\E_\\pi": p``       weights of the hidden outcomes; ``("y", p)`` if the index ``y`` names them
``r"\\theta": leaf``    what ``∇`` differentiates in
``r"\\dots": (x, a)``   in ``… + \\dots`` the piece ``x`` of the general term counts up from ``a``
``"words": None``      a remark that is not evaluated; the page says so
=====================  =========================================================================================

What is neither in the legend nor a known sign is an error, as is what could be read in two ways.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from minirlhf.ledger.formulas import values as v
from minirlhf.ledger.formulas.items import FormulaError, Group, Item, Items, leaves, read, replaced, show, split

Env: TypeAlias = Mapping[str, Any]

# What ends a product.
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
    """A piece of ink that the legend explains."""

    pattern: Items
    slots: tuple[str, ...]
    meaning: Any
    name: str

    @property
    def length(self) -> int:
        """How many signs it explains at once."""
        return sum(1 for _ in leaves(self.pattern))


def _is_leaf(meaning: Any) -> bool:
    return isinstance(meaning, Tensor) and meaning.is_leaf and meaning.requires_grad


class FormulaParser:
    """Reads formulas under one legend; definitions that the ink makes itself are added by :meth:`define`."""

    def __init__(self, legend: Mapping[str, Any], linear: bool = False) -> None:
        keys = [(name, read(name), meaning) for name, meaning in legend.items() if meaning is not None]
        self.indices: dict[str, Sequence[Any]] = {
            str(key[0]): meaning for _, key, meaning in keys if isinstance(meaning, range | list)
        }
        self.used: set[str] = set()  # keys of the legend
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
        """Give a piece of ink a meaning: a value, a function of its slots, or a term. ``name`` is its key in the legend."""
        if isinstance(meaning, Tensor) and not meaning.is_floating_point():
            meaning = meaning.double()  # an integer times a number would be rounded to float32
        signs = list(self._slots(pattern))
        slots = tuple(sign for k, sign in enumerate(signs) if sign == _ANY or sign not in signs[:k])
        self._entries.append(_Entry(pattern, slots, meaning, name))
        self._entries.sort(key=lambda e: (-e.length, len(e.slots)))

    def is_index(self, items: Items, at: int) -> bool:
        """Does an index stand here? With a subscript it is another thing."""
        return items[at] in self.indices and items[at + 1 : at + 2] != ("_",)

    def _slots(self, pattern: Items) -> Iterator[str]:
        for at, sign in enumerate(pattern):
            if isinstance(sign, Group):
                yield from self._slots(sign.items)
            elif sign == _ANY or self.is_index(pattern, at):
                yield sign

    def term(self, items: Items) -> Term:
        """The whole of these items as one expression.

        Raises:
            FormulaError: ink that the legend does not cover.
        """
        line = Line(self, items)
        found = line.sum()
        line.finish()
        return found

    def relation(self, items: Items) -> Term:
        """A condition such as ``a < b \\le c`` (1 where it holds, else 0), or an expression without a relation."""
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
        """Relations joined by commas or the word *and*; *otherwise* always holds."""
        words = {r"\text{if}", r"\text{and}", r"\text{otherwise}", r"\text{otherwise,}", r"\text{otherwise.}"}
        parts = [_unpunctuated(part) for part in split(items, {",", *words})[0] if _unpunctuated(part)]
        return apply(lambda *truths: math.prod(map(v.tensor, truths), start=v.tensor(1)), *map(self.relation, parts))

    def known(self, items: Items) -> bool:
        """Can this be read as a whole?"""
        try:
            self.term(items)
        except FormulaError:
            return False
        return True

    # -- the legend ----------------------------------------------------------------------------------------------

    def entry_at(self, items: Items, at: int) -> tuple[_Entry, list[Term], int] | None:
        """The longest entry that reads the ink from here on, the terms in its slots, and where it ends.

        Among equally long ones it is the one whose slots are filled by their own names.
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
            # What goes on with a subscript is another thing.
            if end is None or items[end : end + 1] == ("_",):
                continue
            literal = sum(piece == (name,) for name, piece in slots)
            try:
                found = entry, [self.term(piece) for _, piece in slots], end
            except FormulaError:
                continue
            if best is None or literal > best[0]:
                best, length = (literal, found), entry.length
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
                before = dict(slots).get(sign) if sign != _ANY else None
                if not piece or before not in (None, piece):
                    return None
                if before is None:
                    slots.append((sign, piece))
                at = end
            elif sign == items[at]:
                at += 1
            else:
                return None
        return at if not inside or at == len(items) else None

    @staticmethod
    def _slot_end(pattern: Items, k: int, items: Items, at: int, inside: bool) -> int:
        """One item after ``_`` or at the end of an entry; in a bracket all up to the entry's next fixed piece."""
        if not inside or (k and pattern[k - 1] in ("_", "^")):
            return at + 1
        following = pattern[k + 1] if k + 1 < len(pattern) else None
        for end in range(at + 1, len(items)):
            item = items[end]
            if item == following or (isinstance(item, Group) and isinstance(following, Group)):
                return end
        return len(items)

    def looked_up(self, entry: _Entry, terms: list[Term]) -> Term:
        """The value of a piece of ink, given what stands in its slots."""
        meaning = entry.meaning
        self.used.add(entry.name)
        if isinstance(meaning, Term):  # defined in the ink
            names = dict(zip(entry.slots, terms, strict=True))
            free = (meaning.free - names.keys()).union(*(t.free for t in terms))
            return Term(lambda env: meaning.value({**env, **{n: t.value(env) for n, t in names.items()}}), free)
        if not entry.slots:
            return Term(lambda env: meaning() if callable(meaning) else meaning)
        if callable(meaning):
            return apply(meaning, *terms)

        def entry_of(*at: v.Value) -> Tensor:
            found = meaning
            for name, x in zip(entry.slots, at, strict=True):
                position = int(x) - int(self.indices[name][0])
                if not 0 <= position < found.shape[0]:
                    message = f"{show(entry.pattern)} has no entry {name} = {int(x)}"
                    raise FormulaError(message, argument=name, value=int(x), problem="no entry")
                found = found[position]
            return found

        return apply(entry_of, *terms)

    # -- what ∇ and E refer to -----------------------------------------------------------------------------------

    def leaf(self, items: Items = (r"\theta",)) -> tuple[Tensor, list[Term]]:
        """The tensor that a derivative is taken in, and the index at which."""
        for entry in self._entries:
            slots: list[tuple[str, Items]] = []
            if _is_leaf(entry.meaning) and self._match(entry.pattern, items, 0, slots, inside=True) is not None:
                self.used.add(entry.name)
                return entry.meaning, [self.term(piece) for _, piece in slots]
        raise FormulaError(f"the legend has no {show(items)} to differentiate in", problem="no variable")

    def single_leaf(self) -> Tensor:
        """The one tensor of the legend that derivatives can be taken in."""
        found = [e.meaning for e in self._entries if _is_leaf(e.meaning)]
        if len(found) != 1:
            message = f"the legend has {len(found)} tensors to differentiate in; one is needed"
            raise FormulaError(message, value=len(found), expected=1, problem="no variable")
        return found[0]

    def law(self, below: Items) -> tuple[str | None, Term]:
        """The weights behind ``E`` with this subscript, and the index that names the outcomes, if one does."""
        key = (r"\E", "_", below[0] if len(below) == 1 else Group("{", below)) if below else (r"\E",)
        if key in self._laws:
            said, meaning = self._laws[key]
            self.used.add(said)
            name, weights = meaning if isinstance(meaning, tuple) else (None, meaning)
            return name, Term(lambda env: weights)
        if not below:
            raise FormulaError(r"no legend for \E without a subscript", value=r"\E", problem="no legend")
        return None, self.term(below)


class Line:
    """A position in the items of one bracket; the methods read on from there, by descending precedence."""

    def __init__(self, reader: FormulaParser, items: Items) -> None:
        self.reader, self.items, self.at = reader, items, 0

    def peek(self) -> Item | None:
        return self.items[self.at] if self.at < len(self.items) else None

    def take(self) -> Item:
        if self.at >= len(self.items):
            raise FormulaError(
                f"something is missing after {show(self.items) or 'an opening bracket'}", problem="missing"
            )
        self.at += 1
        return self.items[self.at - 1]

    def finish(self) -> None:
        if self.at < len(self.items):
            message = f"cannot read on at {show(self.items[self.at : self.at + 6])!r}"
            raise FormulaError(message, problem="unread rest")

    def argument(self) -> Items:
        """What ``\\frac``, ``_`` and ``^`` take: the items in braces, or one item."""
        item = self.take()
        return item.items if isinstance(item, Group) and item.open == "{" else (item,)

    # -- sums and products ---------------------------------------------------------------------------------------

    def sum(self) -> Term:
        """Products joined by + and −."""
        total: Term | None = None
        shown: list[Term] = []
        start = self.at
        while True:
            sign = self.peek()
            if sign not in ("+", "-"):
                if total is not None:
                    return total
                total = self.product()
                shown.append(total)
                continue
            self.at += 1
            if self.peek() == _DOTS and sign == "+":
                total = self._series(tuple(shown), self.items[start : self.at - 1])
                continue
            start = self.at
            term = self.product()
            signed = term if sign == "+" else apply(lambda a: -a, term)
            shown.append(signed)
            total = signed if total is None else apply(lambda a, b: a + b, total, signed)

    def _series(self, shown: tuple[Term, ...], before: Items) -> Term:
        """``a + b + … + z``, and ``a + b + c + …`` without an end: the terms shown must follow the general one.

        A series without an end stops at the third number of the legend's ``\\dots``.
        """
        if self.reader.dots is None:
            raise FormulaError(r"no legend for \dots: which piece of the general term counts up?")
        counting, first, ends = self.reader.dots
        self.at += 1
        if self.peek() == "+":
            self.at += 1
            start = self.at
            self.product()
            before = self.items[start : self.at]
        general = self.reader.term(replaced(before, counting, (_COUNT,)))
        last = self.reader.term(counting) if ends is None else Term(lambda env: ends)
        if _COUNT not in general.free:
            raise FormulaError(f"{show(counting)} does not occur in {show(before)}")

        def series(env: Env) -> v.Value:
            terms = [general.value({**env, _COUNT: k}) for k in range(first, int(last.value(env)) + 1)]
            for a, b in zip(terms, shown, strict=False):
                if not torch.allclose(v.tensor(a), v.tensor(b.value(env))):
                    raise FormulaError("the terms shown before the dots do not follow the general one")
            return sum(terms)

        return Term(series, (general.free - {_COUNT}).union(*(t.free for t in (*shown, last))))

    def product(self) -> Term:
        """Factors side by side, with · and /; ``a/b c`` is refused."""
        found, slashed = self.factor(), False
        while True:
            item = self.peek()
            if item == "/":
                self.at += 1
                found, slashed = apply(v.quotient, found, self.factor()), True
            elif item in (r"\cdot", r"\times"):
                self.at += 1
                found = apply(self.reader.dot, found, self.factor())
            elif item is None or item in _STOPS or (isinstance(item, str) and item.startswith(r"\text")):
                return found
            elif slashed:
                raise FormulaError("a/b c can be read in two ways; print a fraction", problem="ambiguous")
            else:
                found = apply(self.reader.times, found, self.factor())

    def factor(self) -> Term:
        """An atom with its powers."""
        found = self.atom()
        while self.peek() == "^":
            self.at += 1
            exponent = self.argument()
            if exponent == (r"\top",) and self.reader.linear:
                found = apply(v.transposed, found)
            else:
                found = apply(v.power, found, self.reader.term(exponent))
        return found

    # -- atoms ---------------------------------------------------------------------------------------------------

    def atom(self) -> Term:
        """One thing: from the legend first, then what every reader knows."""
        here = self.at
        item = self.take()
        matched = self.reader.entry_at(self.items, here)
        if matched is not None:
            entry, terms, self.at = matched
            return self.reader.looked_up(entry, terms)
        if isinstance(item, Group):
            return self._group(item)
        if self.reader.is_index(self.items, here):
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
        message = f"no legend for {show(self.items[here : here + 5])!r}"
        raise FormulaError(message, value=show(self.items[here : here + 5]), problem="no legend")

    def _number(self, first: str) -> Term:
        digits = first
        while True:
            item = self.peek()
            after = self.items[self.at + 1 : self.at + 2]
            point = item == "." and "." not in digits and after and isinstance(after[0], str) and after[0].isdigit()
            if not (isinstance(item, str) and (item.isdigit() or point)):
                break
            digits += str(self.take())
        if digits == ".":
            raise FormulaError("a full stop inside a formula")
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

        def chosen(*flat: v.Value) -> Tensor:
            values, truths = flat[::2], [v.tensor(t) > 0 for t in flat[1::2]]
            if not bool(torch.stack(torch.broadcast_tensors(*truths)).any(0).all()):
                raise FormulaError("no case applies", problem="no case")
            result = v.tensor(values[-1])
            for value, truth in zip(reversed(values), reversed(truths), strict=True):
                result = torch.where(truth, v.tensor(value), result)
            return result

        return apply(chosen, *(term for row in rows for term in row))

    def _set(self, items: Items) -> Term:
        (name, *_), condition = split(items, {":"})[0]
        if name not in self.reader.indices:
            raise FormulaError(f"{show((name,))} is no index")
        truth = self.reader.condition(condition)
        chosen = lambda env: frozenset(x for x in self.reader.indices[name] if truth.value({**env, name: x}))
        return Term(chosen, truth.free - {name})

    def bars(self) -> Term:
        return apply(lambda x: v.tensor(x).abs(), self._between("|"))

    def norm(self) -> Term:
        """Of a vector, whose components stand in front."""
        length = lambda x: v.tensor(x).square().sum(0).sqrt()
        return apply(length, self._between(r"\|"))

    def _between(self, bar: str) -> Term:
        try:
            end = self.items.index(bar, self.at)
        except ValueError:
            raise FormulaError(f"a bar {bar} is not closed") from None
        inner, self.at = self.items[self.at : end], end + 1
        return self.reader.term(inner)

    def fraction(self) -> Term:
        top, below = self.argument(), self.argument()
        d = below[0] if below and below[0] in (r"\partial", "d") else None
        if d and top[:1] == (d,) and len(below) > 1:
            return self._derivative(top[1:], below[1:])
        return apply(v.quotient, self.reader.term(top), self.reader.term(below))

    def _derivative(self, top: Items, below: Items) -> Term:
        term = self.reader.term(top) if top else self.product()
        try:
            leaf, at = self.reader.leaf(below)
        except FormulaError:
            single, other = self.reader.single_leaf(), self.reader.term(below)
            ratio = lambda x, y: v.slopes(x, single) / v.slopes(y, single)
            return apply(ratio, term, other)

        def slope(x: v.Value, *index: v.Value) -> Tensor:
            if not index:
                return v.slopes(x, leaf)
            return v.derivative(x, leaf)[int(index[0])]

        return apply(slope, term, *at)

    def gradient(self) -> Term:
        below: Items = (r"\theta",)
        if self.peek() == "_":
            self.at += 1
            below = self.argument()
        leaf, _ = self.reader.leaf(below)

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
            found = self._checked_call(name, [self.reader.term(p) for p in pieces])
        elif name == r"\sigma":
            raise FormulaError(r"\sigma without a bracket is not in the legend", value=r"\sigma", problem="no bracket")
        else:
            found = self._checked_call(name, [self.factor()])
        return apply(v.power, found, exponent) if exponent else found

    @staticmethod
    def _checked_call(name: str, arguments: list[Term]) -> Term:
        wanted = {r"\KL": 2, r"\mathrm{clip}": 3, r"\min": None, r"\max": None}.get(name, 1)
        if wanted not in (None, len(arguments)):
            raise FormulaError(f"{name} takes {wanted} arguments, not {len(arguments)}")
        return apply(v.FUNCTIONS[name], *arguments)

    # -- indices that run ----------------------------------------------------------------------------------------

    def _runs(self) -> tuple[list[str], Callable[[Env], Iterator[Env]], frozenset[str]]:
        """The subscript (and superscript) of Σ and its kin: the indices, their values, and what else occurs."""
        self.take()
        below, above = self.argument(), None
        if self.peek() == "^":
            self.at += 1
            above = self.reader.term(self.argument())
        rules: list[tuple[str, Term]] = []
        for said in split(below, {","})[0]:
            piece = tuple(item for item in said if isinstance(item, Group) or not item.startswith(r"\text"))
            name = next((sign for sign in leaves(piece) if sign in self.reader.indices), None)
            if name is None:
                raise FormulaError(f"no index in {show(piece)!r}")
            rules.append((name, self._run(name, piece, above)))
        names = [name for name, _ in rules]

        def values(env: Env, at: int = 0) -> Iterator[Env]:
            if at == len(rules):
                yield env
                return
            name, domain = rules[at]
            for x in domain.value(env):
                yield from values({**env, name: x}, at + 1)

        # A domain may depend on the indices that run before it.
        outer = (domain.free - set(names[:k]) for k, (_, domain) in enumerate(rules))
        return names, values, frozenset().union(*outer)

    def _run(self, name: str, piece: Items, above: Term | None) -> Term:
        """The values of one index: ``i``, ``t = 1`` (with an upper end), ``v \\in K``, or a condition such as ``j \\ne i``."""
        domain = self.reader.indices[name]
        if len(piece) == 1:
            return Term(lambda env: domain)
        if piece[1] == "=":
            if above is None:
                raise FormulaError(f"{show(piece)} has no upper end")
            return apply(lambda a, b: range(int(a), int(b) + 1), self.reader.term(piece[2:]), above)
        if piece[1] == r"\in":
            return apply(sorted, self.reader.term(piece[2:]))
        truth = self.reader.relation(piece)
        kept = lambda env: [x for x in domain if truth.value({**env, name: x})]
        return Term(kept, truth.free - {name})

    def _big(self, reduce: Callable[[Sequence[v.Value]], v.Value]) -> Term:
        names, values, outer = self._runs()
        body = self.product()
        for name in names:
            if name not in body.free:
                raise FormulaError(f"the index {name} runs, but does not occur", argument=name, problem="unused index")
        over = lambda env: reduce([body.value(inner) for inner in values(env)])
        return Term(over, (body.free - set(names)) | outer)

    def argmax(self) -> Term:
        if self.peek() != "_":
            raise FormulaError(r"\argmax over what?")
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
        """After E, Var or Cov: the indices of the outcomes (none if they are hidden), and the weights."""
        below: Items = ()
        if self.peek() == "_":
            self.at += 1
            below = self.argument()
        if r"\sim" not in below:
            name, weights = self.reader.law(below)
            return ([name] if name else []), weights
        (outcome, *_), law = split(below, {r"\sim"})[0]
        inner = outcome.items if isinstance(outcome, Group) else (outcome,)
        names = [sign for sign in leaves(inner) if sign in self.reader.indices]
        placed = replaced(law, (r"\cdot",), inner)
        return names, self.reader.term(placed if placed != law else (*law, Group("(", inner)))

    def _mean(self, names: list[str], weights: Term, body: Term) -> Term:
        named = set(names) & (body.free | weights.free)
        free = (weights.free | body.free) - set(names)
        if not named:
            return Term(lambda env: (v.tensor(weights.value(env)) * v.tensor(body.value(env))).sum(-1), free)
        domains = [self.reader.indices[name] for name in names]

        def mean(env: Env) -> v.Value:
            inner = [{**env, **dict(zip(names, xs, strict=True))} for xs in itertools.product(*domains)]
            ps = [weights.value(e) for e in inner] if weights.free & named else list(weights.value(env))
            if not body.free & named:  # the outcomes of the body are hidden in its last axis
                return (torch.stack([v.tensor(p) for p in ps]) * v.tensor(body.value(env))).sum(-1)
            # What has no probability does not count, whatever its value.
            return sum(p * body.value(e) for p, e in zip(ps, inner, strict=True) if v.tensor(p).any())

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
