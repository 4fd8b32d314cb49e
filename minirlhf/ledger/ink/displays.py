"""The labelled displays of a Markdown text: ``$$ … $$ (eq:name)``, as MyST writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_FENCE = re.compile(r"\s*(`{3,}|~{3,}|:{3,})")
_CLOSE = re.compile(r"\$\$\s*(?:\(([^()\s]*)\))?\s*$")


class Display(NamedTuple):
    """One display: its label (None without one), what is printed, and the line on which it opens, from 1."""

    label: str | None
    latex: str
    line: int


def displays(markdown: str) -> Iterator[Display]:
    """All displays in order; what stands in fenced code is none."""
    fence = ""
    opened, inner = 0, ""
    for number, line in enumerate(markdown.splitlines(), 1):
        mark = _FENCE.match(line)
        if not opened and mark and not mark.group(1).startswith(":"):
            if not fence:
                fence = mark.group(1)
            elif mark.group(1).startswith(fence):
                fence = ""
            continue
        if fence:
            continue
        text = line.strip()
        if not opened and text.startswith("$$"):
            opened, inner, text = number, "", text[2:]
        if not opened:
            continue
        closing = _CLOSE.search(text)
        inner += (text[: closing.start()] if closing else text) + "\n"
        if closing:
            yield Display(closing.group(1), inner.strip(), opened)
            opened = 0
