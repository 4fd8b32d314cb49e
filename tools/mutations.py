"""Mutants of the equations: every mistake of a kind that people make, at every place where it can be made.

A mutant is one changed expression. The list is a function of the source alone. What is changed is what is computed: the bodies of
functions, and what their decorators say about gradients. Left alone are docstrings, types, default values, and the checks of
arguments (``raise``, the condition before it, the rules of ``@takes``), which have tests of their own.

A library that mutates Python in general does not know these mistakes (a forgotten ``detach``, the wrong axis, a dropped mask, the
other ``ddof``), starts a process that imports torch for every mutant, or leaves decorated functions out, which is nearly all of them.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EQUATIONS = ROOT / "minirlhf" / "equations"
CHAPTERS = ROOT / "minirlhf_course" / "chapters"

#: one function in place of another, both ways
TWINS = [
    ("minimum", "maximum"),
    ("min", "max"),
    ("amin", "amax"),
    ("argmin", "argmax"),
    ("cummin", "cummax"),
    ("any", "all"),
    ("sum", "mean"),
    ("softmax", "log_softmax"),
    ("exp", "expm1"),
    ("log", "log1p"),
    ("sigmoid", "logsigmoid"),
    ("forward_kl", "reverse_kl"),
    ("sqrt", "square"),
]
#: functions and methods that are left out, so that their (first) argument remains
DROPPED = {
    "detach",
    "abs",
    "square",
    "sqrt",
    "relu",
    "flip",
    "exp",
    "cumsum",
    "neg",
    "triu",
    "masked_fill",
    "diagonal",
    "rsqrt",
}
#: functions of ``(x, mask, ...)``: the mask is forgotten
MASKED = {"zero_where_masked", "masked_sum", "masked_mean", "masked_var", "masked_whiten", "sequence_logps", "lengths"}
OPERATORS: dict[type, tuple[type, ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Div: (ast.Mult,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}


@dataclass(frozen=True)
class Mutant:
    """One changed expression.

    Attributes:
        module: dotted.
        place: the function, class or constant at the top of the module in which it is.
        kind: of mistake.
        change: ``before → after``, with ``#2`` for the second such change in this place.
        line: in the file.
        source: the whole module, changed.
    """

    module: str
    place: str
    kind: str
    change: str
    line: int
    source: str

    @property
    def name(self) -> str:
        """Unique, and the same when lines move; an equation of chapter 6 alone begins with ``ch06.``."""
        home = re.sub(r"^minirlhf_course\.chapters\.(ch\d\d)\w*\.equations$", r"\1", self.module)
        return f"{home.removeprefix('minirlhf.equations.')}.{self.place}: {self.change}"


Change = tuple[str, ast.expr]  # kind of mistake, and what stands there instead


def changes(node: ast.AST, keywords: dict[str, ast.expr | None]) -> Iterator[Change]:
    """What an expression can be mistaken for. ``keywords`` are those of the function around it, with their defaults."""
    match node:
        case ast.BinOp(left, operator, right):
            for other in OPERATORS.get(type(operator), ()):
                yield "operator", ast.BinOp(left, other(), right)
            if isinstance(operator, ast.Mult):
                yield "factor", left
                yield "factor", right
            elif isinstance(operator, ast.Div | ast.Pow):
                yield "factor", left
            elif isinstance(operator, ast.Sub):
                yield "sign", ast.BinOp(right, ast.Sub(), left)
        case ast.BoolOp(operator, values):
            for other in OPERATORS[type(operator)]:
                yield "condition", ast.BoolOp(other(), values)
        case ast.Compare(left, [operator], [right]):
            for other in OPERATORS.get(type(operator), ()):
                yield "comparison", ast.Compare(left, [other()], [right])
        case ast.UnaryOp(ast.USub(), ast.Constant(value=1)):  # an axis, nearly always
            yield "axis", ast.Constant(0)
        case ast.UnaryOp(ast.USub(), operand):
            yield "sign", operand
        case ast.UnaryOp(ast.Invert() | ast.Not(), operand):
            yield "condition", operand
        case ast.IfExp(_, body, orelse):
            yield "condition", body
            yield "condition", orelse
        case ast.Constant(value=bool() as value):
            yield "condition", ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield "off by one", ast.Constant(value + 1)
        case ast.Constant(value=float() as value):
            yield "factor", ast.Constant(2 * value if value else 1.0)
        case ast.Call():
            yield from _of_call(node)
        case ast.Name(name, ast.Load()) if name in keywords:
            yield "keyword ignored", keywords[name] or ast.Constant(1)


def _of_call(node: ast.Call) -> Iterator[Change]:
    function, arguments = node.func, node.args
    is_method = isinstance(function, ast.Attribute) and not _is_module(function.value)
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    operand = function.value if is_method else arguments[0] if arguments else None
    for pair in TWINS:
        if name in pair:
            other = pair[1 - pair.index(name)]
            renamed = ast.Attribute(function.value, other) if isinstance(function, ast.Attribute) else ast.Name(other)
            yield "twin", ast.Call(renamed, arguments, node.keywords)
    if name in DROPPED and operand is not None:
        yield "detach" if name == "detach" else "dropped", operand
    if name in MASKED:
        at = 0 if name == "lengths" else 1
        ones = ast.Call(ast.Attribute(ast.Name("torch"), "ones_like"), [arguments[at]], [])
        yield "mask", ast.Call(function, [*arguments[:at], ones, *arguments[at + 1 :]], node.keywords)
    if name == "where" and len(arguments) == 3:
        yield "mask", arguments[1]
        yield "mask", arguments[2]
    if name == "clamp" and operand is not None:
        yield "clamp", operand
        bounds = arguments if is_method else arguments[1:]
        if len(bounds) == 2:
            yield "clamp", ast.Call(ast.Attribute(operand, "clamp"), [], [ast.keyword("min", bounds[0])])
            yield "clamp", ast.Call(ast.Attribute(operand, "clamp"), [], [ast.keyword("max", bounds[1])])
        for k in node.keywords:
            side = {"min": "max", "max": "min"}[str(k.arg)]
            yield "clamp", ast.Call(function, arguments, [ast.keyword(side, k.value)])
    if len(arguments) == 2 and all(isinstance(x, ast.Name | ast.Attribute) for x in arguments) and not is_method:
        yield "swapped", ast.Call(function, arguments[::-1], node.keywords)


def _is_module(node: ast.expr) -> bool:
    """Whether an attribute of this is a function rather than a method: ``torch.nn.functional``, ``math``, ``kl``."""
    return ast.unparse(node).split(".")[0] in {"torch", "math", "kl", "returns", "shaping", "functools"}


# -- where they are made -----------------------------------------------------------------------------------------


def _guards(statement: ast.stmt) -> bool:
    """An argument check: ``if ...: raise``, or a call of ``require_...``."""
    if isinstance(statement, ast.If):
        return isinstance(statement.body[-1], ast.Raise) and not statement.orelse
    return isinstance(statement, ast.Expr | ast.Raise | ast.Import | ast.ImportFrom)


class _Sites(ast.NodeVisitor):
    """Collects every expression that may be changed, with the keywords of the function around it."""

    def __init__(self) -> None:
        self.found: list[tuple[ast.AST, dict[str, ast.expr | None]]] = []
        self._keywords: dict[str, ast.expr | None] = {}

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.expr):
            self.found.append((node, self._keywords))
        if isinstance(node, ast.stmt) and _guards(node):
            return
        super().visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        before = self._keywords
        defaults = dict(zip([a.arg for a in node.args.kwonlyargs], node.args.kw_defaults, strict=True))
        self._keywords = {**before, **defaults}
        for part in node.body:
            self.visit(part)
        self._keywords = before

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":  # of zip(), an argument check too
            self.visit(node.value)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.body)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)


def _gradients(node: ast.AST) -> Iterator[ast.expr]:
    """What decorators and rules say about gradients: the value of every ``gradient=``."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.keyword) and inner.arg == "gradient" and isinstance(inner.value, ast.Constant):
            yield inner.value


def _of_statement(statement: ast.stmt) -> Iterator[tuple[str, ast.AST, ast.expr]]:
    """Kind of mistake, what is changed and what stands there instead, for a function, a class or a constant."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        sites = _Sites()
        sites.visit(statement)
        for node, keywords in sites.found:
            for kind, other in changes(node, keywords):
                yield kind, node, other
        rules: list[ast.expr] = statement.decorator_list
    elif isinstance(statement, ast.Assign):
        rules = [statement.value]
    else:
        return
    for rule in rules:
        for value in _gradients(rule):
            yield "detach", value, ast.Constant(not value.value)  # type: ignore[attr-defined]


def of_module(path: Path) -> Iterator[Mutant]:
    """All mutants of a file, in the order of the file; no two with the same code."""
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    for statement in ast.parse(text).body:
        place = getattr(statement, "name", "") or ast.unparse(getattr(statement, "targets", [ast.Name("")])[0])
        first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))])
        before, after = "".join(lines[: first - 1]), "".join(lines[statement.end_lineno :])
        seen, counts = {ast.unparse(statement)}, {}
        for kind, node, other in _of_statement(statement):
            line, change = node.lineno, f"{_short(node)} → {_short(other)}"
            with _replaced(node, other):
                code = ast.unparse(statement)
            if code not in seen:
                seen.add(code)
                counts[change] = counts.get(change, 0) + 1
                change += "" if counts[change] == 1 else f" #{counts[change]}"
                yield Mutant(module, place, kind, change, line, f"{before}{code}\n{after}")


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 90 else text[:60] + " … " + text[-28:]


class _replaced:
    """Within the block ``node`` is ``other``; its own fields are put back at the end."""

    def __init__(self, node: ast.AST, other: ast.AST) -> None:
        self.node, self.other = node, copy.deepcopy(other)

    def __enter__(self) -> None:
        self.kind, self.fields = type(self.node), dict(vars(self.node))
        self.node.__class__ = type(self.other)
        vars(self.node).clear()
        vars(self.node).update(vars(self.other))

    def __exit__(self, *problem: object) -> None:
        self.node.__class__ = self.kind
        vars(self.node).clear()
        vars(self.node).update(self.fields)


def mutants(wanted: Callable[[Mutant], bool] = lambda mutant: True) -> list[Mutant]:
    """All mutants of all equations, module by module."""
    return [m for path in modules() for m in of_module(path) if wanted(m)]


def modules() -> list[Path]:
    """The files that hold equations: the library's, and those that only one chapter needs."""
    return [*sorted(EQUATIONS.rglob("*.py")), *sorted(CHAPTERS.glob("*/equations.py"))]
