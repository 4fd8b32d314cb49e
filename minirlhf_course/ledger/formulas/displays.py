"""The labelled displays of a Markdown text: ``$$ … $$ (eq:name)``, as MyST writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from minirlhf_course.ledger.formulas.items import FormulaError

_FENCE = re.compile(r"\s*(`{3,}|~{3,})")
_CLOSE = re.compile(r"\$\$\s*(?:\(([^()\s]*)\))?\s*$")


class Display(NamedTuple):
    """One display: its label (None without one), its LaTeX, its first and last line, counted from 1."""

    label: str | None
    latex: str
    line: int
    last: int


class Fence(NamedTuple):
    """One block of fenced code: the text behind the opening fence, the code, the lines of the two fences."""

    info: str
    code: str
    line: int
    last: int


def fences(markdown: str) -> Iterator[Fence]:
    """Yield all fenced blocks of code in order, including those inside ``{predict}`` fences, whose content is text.

    Raises:
        FormulaError: a fence that is never closed; the message begins with its line.
    """
    mark, info, first = "", "", 0
    code: list[str] = []
    outer: list[tuple[str, int]] = []  # fences whose content is text, and their first lines
    for number, line in enumerate(markdown.splitlines(), 1):
        match = _FENCE.match(line)
        if not mark and match and line[match.end() :].strip().startswith("{predict}"):
            outer.append((match.group(1), number))
        elif not mark and match and outer and match.group(1) == outer[-1][0] and not line[match.end() :].strip():
            outer.pop()
        elif not mark and match:
            mark, info, first, code = match.group(1), line[match.end() :].strip(), number, []
        elif mark and match and match.group(1).startswith(mark) and not line[match.end() :].strip():
            yield Fence(info, "\n".join(code) + "\n", first, number)
            mark = ""
        elif mark:
            code.append(line)
    if outer and not mark:
        mark, first = outer[-1]
    if mark:
        raise FormulaError(f"{first}: {mark} is never closed", value=mark, problem="not closed", line=first)


def displays(markdown: str) -> Iterator[Display]:
    """Yield all displays in order, except those inside fenced code.

    Raises:
        FormulaError: a display or a fence that is never closed; the message begins with its line.
    """
    code_lines = [range(fence.line, fence.last + 1) for fence in fences(markdown)]
    first, latex = 0, ""
    for number, line in enumerate(markdown.splitlines(), 1):
        text = line.strip()
        if any(number in block for block in code_lines):
            continue
        if not first and text.startswith("$$"):
            first, latex, text = number, "", text[2:]
        if not first:
            continue
        closing = _CLOSE.search(text)
        latex += (text[: closing.start()] if closing else text) + "\n"
        if closing:
            yield Display(closing.group(1), latex.strip(), first, number)
            first = 0
    if first:
        raise FormulaError(f"{first}: $$ is never closed", line=first)
