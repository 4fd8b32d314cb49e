"""``{bridge} recipes TRL`` (or ``losses TRL``, ``settings``, ``numbers``): the maps of ``minirlhf export`` as tables."""

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from minirlhf_cli.export import tables
from minirlhf_cli.export.write import ENGINES

TITLES = {engine.title: name for name, engine in ENGINES.items()}
ROWS = {"recipes": tables.online, "losses": tables.preferences}
NAMES = {"settings": tables.settings, "numbers": tables.numbers}


def cells(rows: dict[str, tables.OptionCell]) -> list[list[nodes.Node]]:
    """A line for each recipe: its name, the mark, the options, what differs or is missing."""
    found = []
    for name, cell in rows.items():
        # Where a long cell may break: between options, and behind the dots of a name.
        shown = [_code(option.replace(".", ".\u200b").replace("=", "=\u200b")) for option in cell.options]
        between = [node for option in shown for node in (option, nodes.Text(" "))][:-1]
        found.append(
            [_code(name), nodes.Text(cell.mark), nodes.inline("", "", *between), nodes.Text("; ".join(cell.words))]
        )
    return found


def table(head: list[str], lines: list[list[nodes.Node]]) -> nodes.container:
    """The table in a frame that scrolls."""
    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in head), cols=len(head))
    group += nodes.thead("", _row([nodes.Text(title) for title in head]))
    group += nodes.tbody("", *(_row(line) for line in lines))
    return nodes.container("", nodes.table("", group, classes=["recipes"]), classes=["recipe-table"])


def _row(line: list[nodes.Node]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", nodes.paragraph("", "", cell)) for cell in line))


def _code(text: str) -> nodes.Node:
    return nodes.literal(text=text)


def _names(text: str) -> nodes.Node:
    shown = [_code(name.replace(".", ".\u200b")) for name in text.split(", ") if name]
    return (
        nodes.inline("", "", *[node for name in shown for node in (name, nodes.Text(" "))][:-1])
        if shown
        else nodes.Text("–")
    )


class Bridge(SphinxDirective):
    """One of the tables."""

    required_arguments = 1
    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """An unknown table or engine is an error."""
        part, *engine = self.arguments
        if part in NAMES and not engine:
            lines = [[_code(ours), *map(_names, theirs)] for ours, theirs in NAMES[part]().items()]
            return [table(["here", *TITLES], lines)]
        if part in ROWS and engine and engine[0] in TITLES:
            return [
                table(["here", "", engine[0], "what differs, or is not there"], cells(ROWS[part](TITLES[engine[0]])))
            ]
        known = f"{', '.join([*ROWS, *NAMES])}; {', '.join(TITLES)}"
        return [self.state.document.reporter.error(f"{{bridge}} {self.arguments}: not among {known}", line=self.lineno)]


#: The appendix that prints all tables.
PAGE = "other-libraries"


def wanted() -> list[str]:
    """The tables of the appendix, in its order; an engine without any preference loss has no table of them."""
    losses = {title: tables.preferences(name).values() for title, name in TITLES.items()}
    with_losses = [title for title, cells in losses.items() if any(cell.mark != tables.NONE for cell in cells)]
    return [*NAMES, *(f"recipes {title}" for title in TITLES), *(f"losses {title}" for title in with_losses)]


def require_tables(app: Sphinx, docname: str, source: list[str]) -> None:
    """Refuse the appendix if one of its tables is missing, or stands elsewhere than expected."""
    asked = re.findall(r"^```\{bridge\} (.*)$", source[0], flags=re.MULTILINE)
    if docname == PAGE and asked != wanted():
        raise ExtensionError(f"{docname}: its {{bridge}} tables are {asked}; expected {wanted()}")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("bridge", Bridge)
    app.connect("source-read", require_tables)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
