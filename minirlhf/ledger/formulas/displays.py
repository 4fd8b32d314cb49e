"""The labelled displays of a Markdown text: ``$$ … $$ (eq:name)``, as MyST writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from minirlhf.ledger.formulas.items import FormulaError

_FENCE = re.compile(r"\s*(`{3,}|~{3,})")
_CLOSE = re.compile(r"\$\$\s*(?:\(([^()\s]*)\))?\s*$")


class Display(NamedTuple):
    """One display: its label (None without one), what is printed, the lines on which it opens and ends, from 1."""

    label: str | None
    latex: str
    line: int
    last: int


class Fence(NamedTuple):
    """One block of fenced code: what stands behind the opening mark, the code, the lines of the two marks."""

    info: str
    code: str
    line: int
    last: int


def fences(markdown: str) -> Iterator[Fence]:
    """All fenced blocks of code in order; what opens when a question is answered, ``{predict}``, is text, and its blocks count.

    Raises:
        FormulaError: one that is never closed; the message begins with its line.
    """
    mark, info, first = "", "", 0
    inner: list[str] = []
    around: list[tuple[str, int]] = []  # marks of what is text all the same, and the lines on which they open
    for number, line in enumerate(markdown.splitlines(), 1):
        found = _FENCE.match(line)
        if not mark and found and line[found.end() :].strip().startswith("{predict}"):
            around.append((found.group(1), number))
        elif not mark and found and around and found.group(1) == around[-1][0] and not line[found.end() :].strip():
            around.pop()
        elif not mark and found:
            mark, info, first, inner = found.group(1), line[found.end() :].strip(), number, []
        elif mark and found and found.group(1).startswith(mark) and not line[found.end() :].strip():
            yield Fence(info, "\n".join(inner) + "\n", first, number)
            mark = ""
        elif mark:
            inner.append(line)
    if around and not mark:
        mark, first = around[-1]
    if mark:
        raise FormulaError(f"{first}: {mark} is never closed", value=mark, problem="not closed", line=first)


def displays(markdown: str) -> Iterator[Display]:
    """All displays in order; what stands in fenced code is none.

    Raises:
        FormulaError: a display or a fence that is never closed; the message begins with its line.
    """
    code = [range(found.line, found.last + 1) for found in fences(markdown)]
    opened, inner = 0, ""
    for number, line in enumerate(markdown.splitlines(), 1):
        text = line.strip()
        if any(number in block for block in code):
            continue
        if not opened and text.startswith("$$"):
            opened, inner, text = number, "", text[2:]
        if not opened:
            continue
        closing = _CLOSE.search(text)
        inner += (text[: closing.start()] if closing else text) + "\n"
        if closing:
            yield Display(closing.group(1), inner.strip(), opened, number)
            opened = 0
    if opened:
        raise FormulaError(f"{opened}: $$ is never closed", line=opened)
