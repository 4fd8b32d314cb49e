"""Prove a printed formula: compare all neighbouring sides by value, and require that misprint variants are noticed."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from minirlhf_course.ledger.formulas import misprints
from minirlhf_course.ledger.formulas import values as v
from minirlhf_course.ledger.formulas.items import FormulaError, Group, Items, nested, read, show, split, tokens
from minirlhf_course.ledger.formulas.legends import SymbolTable
from minirlhf_course.ledger.formulas.reader import FormulaParser, Term

# A misprint variant is noticed by its value if the error exceeds this multiple of the tolerance.
REJECTION = 1000.0
# Largest difference between the sides of ≈, relative to the right side.
APPROXIMATE = 1e-3
# Rounding error that ≤ and ≥ tolerate.
ROUNDING = 1e-9
# Tokens between the sides of a clause, and the relation that each token requires.
_CLAIMS = {sign: sign for sign in v.RELATIONS} | {
    r"\leftarrow": "=",
    r"\to": "=",
    r"\sim": "=",
    r"\approx": r"\approx",
    r"\propto": r"\propto",
}
_BREAKS = {r"\qquad", r"\quad", r"\\", r"\Longrightarrow"}


# Tokens that cannot be part of a symbol that a clause defines.
_OPERATORS = {"+", "-", "/", r"\cdot", r"\frac"}


class Claim(NamedTuple):
    """One pair of neighbouring sides, evaluated at every value of their free indices."""

    clause: str
    relation: str
    left: Tensor
    right: Tensor

    @property
    def error(self) -> float:
        """The error of the relation: ``|a − b| / max(1, |b|)``, and infinite for a violated inequality."""
        a, b = self.left, self.right
        if self.relation in v.RELATIONS and self.relation != "=":
            nearly = (a - b).abs() <= ROUNDING if self.relation in (r"\ge", r"\le") else torch.zeros(())
            return 0.0 if bool((v.RELATIONS[self.relation](a, b) + nearly > 0).all()) else math.inf
        if self.relation == r"\approx":
            return 0.0 if bool(((a - b).abs() <= APPROXIMATE * b.abs()).all()) else math.inf
        error = ((a - b).abs() / b.abs().clamp(min=1.0)).max().item()
        return error if math.isfinite(error) else math.inf


def _bare(items: Items) -> Items:
    while items and items[-1] in (",", ".", ";", ":"):
        items = items[:-1]
    return items


def _without(items: Items, remarks: Sequence[Items]) -> Items:
    for remark in remarks:
        for at in range(len(items) - len(remark) + 1):
            if items[at : at + len(remark)] == remark:
                items = items[:at] + items[at + len(remark) :]
                break
    return _bare(items)


class _Clause(NamedTuple):
    sides: list[Items]
    signs: list[str]
    condition: Items = ()
    goes_on: bool = False

    @classmethod
    def of(cls, items: Items, before: Items) -> _Clause:
        """Split at the relations; a new line that starts with a relation continues from the side ``before``."""
        outer = r"\iff" in items
        sides, signs = split(items, {r"\iff"} if outer else _CLAIMS)
        goes_on = bool(before) and not outer and not sides[0]
        return cls([before, *sides[1:]] if goes_on else sides, signs, goes_on=goes_on)


def clauses_of(items: Items, remarks: Sequence[Items]) -> list[_Clause]:
    """The clauses of a display; a clause in brackets, or with ∈, is the condition of the previous clause."""
    clauses: list[_Clause] = []
    before: Items = ()
    pieces, breaks = split(items, _BREAKS)
    for piece, separator in zip(pieces, [r"\\", *breaks], strict=True):
        clause = _without(_bare(tuple(item for item in piece if item != "&")), remarks)
        if not clause:
            continue
        bracket = clause[0] if len(clause) == 1 else None
        condition = bracket.items if isinstance(bracket, Group) and bracket.open == "(" else ()
        if r"\in" in clause and split(clause, _CLAIMS)[1] == [r"\in"]:
            condition = clause
        if condition and clauses:
            clauses[-1] = clauses[-1]._replace(condition=condition)
            continue
        clauses.append(_Clause.of(clause, before if separator == r"\\" else ()))
        before = clauses[-1].sides[-1] or clauses[-1].sides[0]
    return clauses


def _define(clauses: list[_Clause], reader: FormulaParser) -> tuple[list[_Clause], dict[str, int]]:
    """Define the left side of each clause ``new symbol = expression``; return the other clauses and a count of uses."""
    uses: dict[str, int] = {}
    remaining = list(clauses)
    while True:
        for clause in remaining:
            if clause.signs[:1] != ["="] or clause.goes_on or _OPERATORS & set(clause.sides[0]):
                continue
            if reader.known(clause.sides[0]) or not reader.known(clause.sides[1]):
                continue
            name, term = show(clause.sides[0]), reader.term(clause.sides[1])
            uses[name] = 0

            def counted(env: Mapping[str, Any], name: str = name, term: Term = term) -> Any:
                uses[name] += 1
                return term.value(env)

            reader.define(clause.sides[0], Term(counted, term.free))
            remaining.remove(clause)
            if len(clause.signs) > 1:
                remaining.append(_Clause(clause.sides[1:], clause.signs[1:], clause.condition))
            break
        else:
            return remaining, uses


def _stacked(rows: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    left, right = zip(*(torch.broadcast_tensors(a, b) for a, b in rows), strict=True)
    return torch.stack(left), torch.stack(right)


def _compared(clause: _Clause, reader: FormulaParser, stops_gradients: bool) -> Iterator[Claim]:
    if not clause.signs:
        raise FormulaError(f"no relation in {show(clause.sides[0])!r}", problem="no relation")
    sides = [*clause.sides]
    if clause.signs[0] == r"\leftarrow":
        sides[0] = (*sides[0], r"\leftarrow")
    read_side = reader.condition if r"\iff" in clause.signs else reader.relation
    terms = [read_side(side) for side in sides]
    condition = reader.condition(clause.condition) if clause.condition else Term(lambda env: v.tensor(1))
    free = sorted(condition.free.union(*(term.free for term in terms)))
    envs = [dict(zip(free, xs, strict=True)) for xs in itertools.product(*(reader.indices[name] for name in free))]
    evaluated = [(env, [term.value(env) for term in terms]) for env in envs if bool((condition.value(env) > 0).any())]
    if not evaluated:
        raise FormulaError("the condition holds for none of these inputs")
    text = show(tuple(itertools.chain(*clause.sides)))
    for k, sign in enumerate(clause.signs):
        relation = _CLAIMS.get(sign, "=")
        if any(isinstance(x, frozenset | set) for _, row in evaluated for x in row[k : k + 2]):
            yield Claim(
                text, "=", *_stacked([(v.RELATIONS[relation](*row[k : k + 2]), v.tensor(1)) for _, row in evaluated])
            )
            continue
        rows = [(v.tensor(row[k]), v.tensor(row[k + 1])) for _, row in evaluated]
        rows = [
            (torch.where(condition.value(env) > 0, a, b), b) for (env, _), (a, b) in zip(evaluated, rows, strict=True)
        ]
        left, right = _stacked(rows)
        if sign == r"\propto":
            left, right, relation = left / left.sum(), right / right.sum(), "="
        yield Claim(text, relation, left.detach(), right.detach())
        if stops_gradients:  # the value does not show a stopped gradient
            leaf, _ = reader.leaf()
            slopes = (v.derivative(torch.stack([row[j].sum() for row in rows]).sum(), leaf) for j in (0, 1))
            yield Claim(text, relation, *(slope.detach() for slope in slopes))


def comparisons(signs: Sequence[str], values: Mapping[str, Any], reader: FormulaParser) -> Iterator[Claim]:
    """Yield every claim of a formula, given its tokens, its symbol definitions and a fresh parser with them.

    Raises:
        FormulaError: a symbol without a definition, a definition that nothing uses, or nothing to compare.
    """
    remarks = [read(key) for key, meaning in values.items() if meaning is None]
    clauses, uses = _define(clauses_of(nested(signs), remarks), reader)
    for clause in clauses:
        yield from _compared(clause, reader, r"\mathrm{sg}" in signs)
    for name, count in uses.items():
        if not count:
            raise FormulaError(
                f"{name} is defined, but not used; add a symbol definition",
                argument="legend",
                value=name,
                problem="not used",
            )
    if not clauses:
        raise FormulaError("the formula has no two sides to compare")


def worst(signs: Sequence[str], values: Mapping[str, Any], linear: bool = False) -> tuple[float, set[str]]:
    """The largest error over all claims (see :attr:`Claim.error`), and the keys of the definitions that were needed."""
    reader = FormulaParser(values, linear)
    return max(comparison.error for comparison in comparisons(signs, values, reader)), reader.used


@dataclass(frozen=True)
class MisprintReport:
    """Verdict on one misprint variant: noticed by ``value``, ``refused`` by the parser, ``harmless`` or ``missed``."""

    kind: str
    latex: str
    how: str


@dataclass(frozen=True)
class Printed:
    """The result of evaluating one printed formula.

    Attributes:
        label: the label of the formula.
        error: the largest error over all claims; infinite if the formula could not be evaluated.
        message: why the formula could not be evaluated, or empty.
        misprints: every generated misprint variant and how it was noticed.
        explained: the symbols that were needed, and their values in a few words.
        remarks: pieces of the formula that are words and were left out.
        seconds: time for the formula itself, without its misprint variants.
    """

    label: str
    error: float
    message: str
    misprints: tuple[MisprintReport, ...]
    explained: tuple[tuple[str, str], ...]
    remarks: tuple[str, ...]
    seconds: float
    tolerance: float

    @property
    def passed(self) -> bool:
        """True if all sides agree."""
        return self.error <= self.tolerance


# Exceptions of evaluation: a formula that cannot be parsed, and one that torch rejects (incompatible shapes or types).
STUMBLES = (
    *(FormulaError, RuntimeError, TypeError, IndexError, KeyError, AttributeError),
    *(ValueError, OverflowError, ZeroDivisionError),
)


def noticed(signs: Sequence[str], worlds: Sequence[Mapping[str, Any]], linear: bool, tolerance: float) -> str:
    """How a misprint variant is noticed on these inputs: ``value``, ``refused`` or ``missed``."""
    for values in worlds:
        try:
            if not worst(signs, values, linear)[0] <= REJECTION * tolerance:
                return "value"
        except STUMBLES:  # it cannot be evaluated, so it has no wrong value
            return "refused"
    return "missed"


def prove(latex: str, legend: SymbolTable, seed: int, misprinted: int | None = None) -> Printed:
    """Evaluate a printed formula on the inputs of ``seed``, and at most ``misprinted`` of its misprint variants."""
    start, signs = time.perf_counter(), tokens(latex)
    values = legend.values(seed)
    try:
        (error, used), message = worst(signs, values, legend.linear), ""
    except Exception as exception:
        error, used, message = math.inf, set(), f"{type(exception).__name__}: {exception}"
    seconds = time.perf_counter() - start
    variants = misprints.generate(signs, [key for key, meaning in values.items() if isinstance(meaning, range | list)])
    if misprinted is not None and len(variants) > misprinted:
        variants = variants[:: -(-len(variants) // misprinted)]
    reports = []
    if not message:
        worlds = (values, legend.values(seed + 1))
        for kind, variant in variants:
            text, how = " ".join(variant), noticed(variant, worlds, legend.linear, legend.tolerance)
            if how == "missed" and any(piece in text for piece in legend.harmless):
                how = "harmless"
            reports.append(MisprintReport(kind, text, how))
    explained = tuple((name, described(value)) for name, value in values.items() if name in used)
    remarks = tuple(name for name, value in values.items() if value is None)
    return Printed(legend.label, error, message, tuple(reports), explained, remarks, seconds, legend.tolerance)


# -- text for readers --------------------------------------------------------------------------------------------


def described(value: Any) -> str:
    """The value of a symbol in a few words: ``0.42``, ``8 numbers``, ``0 … 4``, ``a function``."""
    if isinstance(value, Tensor) and value.ndim:
        return f"{' × '.join(map(str, value.shape))} numbers"
    if isinstance(value, range):
        return f"{value[0]} … {value[-1]}"
    if isinstance(value, bool | int | float | Tensor):
        return f"{float(torch.as_tensor(value).detach()):.4g}"
    return "a function" if callable(value) else f"{len(value)} things"
