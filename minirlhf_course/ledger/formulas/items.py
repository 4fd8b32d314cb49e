"""Printed LaTeX as nested items: sizes, spaces and alignment are removed, and every bracket becomes one group."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from minirlhf.core.errors import ArgumentError


class FormulaError(ArgumentError):
    """A formula that cannot be parsed or evaluated with its symbol definitions."""


class Group(NamedTuple):
    """A bracket and its content; ``open`` is ``(``, ``[``, ``{``, ``\\{`` or ``cases``."""

    open: str
    items: tuple[Item, ...]


Item: TypeAlias = "str | Group"
Items: TypeAlias = tuple[Item, ...]

_CLOSING = {"(": ")", "[": "]", "{": "}", r"\{": r"\}", r"\begin{cases}": r"\end{cases}"}
_SILENT = re.compile(
    r"\\left\.|\\right\\\}|\\right\.|\\(?:begin|end)\{aligned\}|\\[,;:! ]"
    r"|\\(?:left|right|[bB]igg?[lr]?|displaystyle|textstyle)(?![A-Za-z])"
)


def _named(match: re.Match[str]) -> str:
    """``\\piref`` for ``\\pi_{\\mathrm{ref}}``."""
    return rf"\pi{match['a'] or match['b']} "


_SPELLINGS: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    (re.compile(r"\\\\\[\w+\]"), r"\\\\"),  # a line break with extra room
    (re.compile(r"\\[bB]igg?m\|"), r"\\mid "),
    (re.compile(r"\\[td]frac(?![A-Za-z])"), r"\\frac"),
    (re.compile(r"\\mathsf(?:\s*\{T\}|\s+T(?![A-Za-z]))"), r"\\top "),
    (re.compile(r"\\pi_(?:\{\\(?:mathrm|text)\{(?P<a>ref|old)\}\}|\\(?:mathrm|text)\{(?P<b>ref|old)\})"), _named),
    (re.compile(r"\\mathbb(?:\{E\}|\s*E(?![A-Za-z]))"), r"\\E "),
    (re.compile(r"D_\{\\(?:mathrm|text)\{KL\}\}|\\(?:mathrm|operatorname)\{KL\}"), r"\\KL "),
    (re.compile(r"\\(?:mathrm|operatorname)\*?\s*\{\s*([^{}]*?)\s*\}"), r"\\mathrm{\1}"),
    (re.compile(r"\\text(?:it)?\s*\{\s*([^{}]*?)\s*\}"), r"\\text{\1}"),
]
_TOKEN = re.compile(
    r"\\(?:text|mathrm|mathcal|mathbb)\s*\{[^{}]*\}|\\(?:begin|end)\{cases\}|(?:\\[A-Za-z]+|[A-Za-z])'+|\\[A-Za-z]+|\\.|\S",
    re.DOTALL,
)


def tokens(latex: str) -> list[str]:
    """The tokens of a formula that carry meaning, each in one spelling."""
    for pattern, spelling in _SPELLINGS:
        latex = pattern.sub(spelling, latex)
    # A line break is two backslashes; the second one must not be parsed as the start of a space.
    parts = re.split(r"(\\\\)", latex)
    return _TOKEN.findall("".join(part if part == r"\\" else _SILENT.sub(" ", part) for part in parts))


def digest(latex: str) -> str:
    """Twelve hexadecimal digits that identify a formula; spaces and sizes do not count."""
    return hashlib.sha256(" ".join(tokens(latex)).encode()).hexdigest()[:12]


def nested(signs: Sequence[str]) -> Items:
    """Tokens with every bracket folded into one group; braces around a single item are dropped.

    Raises:
        FormulaError: brackets that do not match.
    """
    stack: list[tuple[str, list[Item]]] = [("", [])]
    for sign in signs:
        if sign in _CLOSING:
            stack.append((sign, []))
        elif sign in _CLOSING.values():
            opened, inner = stack.pop()
            if _CLOSING.get(opened) != sign:
                raise FormulaError(f"{sign} closes {opened or 'nothing'}", value=sign, problem="not opened")
            single = opened == "{" and len(inner) == 1
            kind = "cases" if opened == r"\begin{cases}" else opened
            stack[-1][1].append(inner[0] if single else Group(kind, tuple(inner)))
        else:
            stack[-1][1].append(sign)
    if len(stack) > 1:
        raise FormulaError(f"{stack[-1][0]} is never closed", value=stack[-1][0], problem="not closed")
    return _without_underbraces(tuple(stack[0][1]))


def _without_underbraces(items: Items) -> Items:
    """``\\underbrace{x}_{words}`` is ``(x)``."""
    out: list[Item] = []
    at = 0
    while at < len(items):
        item = items[at]
        if item == r"\underbrace":
            inner = items[at + 1]
            out.append(Group("(", _without_underbraces(inner.items if isinstance(inner, Group) else (inner,))))
            at += 4 if items[at + 2 : at + 3] == ("_",) else 2
        else:
            out.append(Group(item.open, _without_underbraces(item.items)) if isinstance(item, Group) else item)
            at += 1
    return tuple(out)


def read(latex: str) -> Items:
    """The items of a formula."""
    return nested(tokens(latex))


def show(items: Sequence[Item]) -> str:
    """Convert items back to LaTeX, for messages."""
    return " ".join(
        item if isinstance(item, str) else f"{item.open} {show(item.items)} {_CLOSING.get(item.open, ')')}"
        for item in items
    )


def split(items: Items, at: Collection[str]) -> tuple[list[Items], list[str]]:
    """Split at these items: the pieces, and the items between them; brackets are not split."""
    pieces: list[list[Item]] = [[]]
    separators: list[str] = []
    for item in items:
        if isinstance(item, str) and item in at:
            pieces.append([])
            separators.append(item)
        else:
            pieces[-1].append(item)
    return [tuple(piece) for piece in pieces], separators


def replaced(items: Items, piece: Items, by: Items) -> Items:
    """Replace every occurrence of ``piece`` ``by`` other items, inside groups too."""
    out: list[Item] = []
    at = 0
    while at < len(items):
        item = items[at]
        if piece and items[at : at + len(piece)] == piece:
            out += by
            at += len(piece)
        else:
            out.append(Group(item.open, replaced(item.items, piece, by)) if isinstance(item, Group) else item)
            at += 1
    return tuple(out)


def leaves(items: Sequence[Item]) -> Iterator[str]:
    """All tokens in order, including those in groups."""
    for item in items:
        if isinstance(item, Group):
            yield from leaves(item.items)
        else:
            yield item
