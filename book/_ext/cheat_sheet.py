"""``{cheat-sheet}``: formulas of the book by their labels, as the chapters print them, each linked to where it is derived.

A line of its content is a heading, a colon and labels (without ``eq:``), which may go on over indented lines::

    Pairs: dpo ipo
        cdpo
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from minirlhf.core.errors import ArgumentError
from minirlhf_course.ledger.formulas.displays import displays

#: A sentence's comma or full stop, and the space before it.
END = re.compile(r"(\\[,;:!]|\\q?quad|\s)*[.,;:]\s*$")


def sections(lines: list[str]) -> dict[str, list[str]]:
    """Labels by heading.

    Raises:
        ValueError: a first line without a heading, or a label twice.
    """
    found: dict[str, list[str]] = {}
    seen: set[str] = set()
    for line in filter(str.strip, lines):
        heading, colon, names = line.partition(":") if not line.startswith(" ") else ("", "", line)
        if colon:
            found[heading.strip()] = []
        if not found:
            raise ArgumentError(
                f"{line!r} stands under no heading; expected 'Heading: label label'", value=line, problem="no heading"
            )
        for name in names.split():
            if name in seen:
                raise ArgumentError(f"{name} stands on the sheet twice", value=name, problem="duplicate")
            seen.add(name)
            list(found.values())[-1].append(f"eq:{name}")
    return found


def printed(book: Path) -> dict[str, tuple[str, str]]:
    """The page and the LaTeX of every labelled formula."""
    return {
        label: (path.stem, latex)
        for path in sorted(book.glob("*.md"))
        for label, latex, *_ in displays(path.read_text(encoding="utf-8"))
        if label
    }


class CheatSheet(SphinxDirective):
    """Headings and rows in narrow columns."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Look every label up; an unknown one stops the build."""
        known, sheet = printed(Path(self.env.srcdir)), nodes.container(classes=["cheat-sheet"])
        for heading, labels in sections(list(self.content)).items():
            sheet += nodes.paragraph(text=heading, classes=["cheat-heading"])
            for label in labels:
                if label not in known:
                    raise self.error(f"no page prints {label}")
                page, latex = known[label]
                self.env.note_dependency(f"{self.env.srcdir}/{page}.md")
                name = label.removeprefix("eq:")
                title = nodes.paragraph(
                    "", f"{name} ", *self.parse_inline(f"{{eq}}`{label}`")[0], classes=["cheat-name"]
                )
                row = nodes.container(classes=["cheat-row"])
                row += title
                row += nodes.math_block(latex, END.sub("", latex), nowrap=False, number=None, label=None)
                sheet += row
        return [sheet]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("cheat-sheet", CheatSheet)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
