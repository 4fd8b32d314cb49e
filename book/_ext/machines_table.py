"""``{machines} step`` (or another table of ``minirlhf_course/report/machines.py``), and ``{machine}`training``` for one of its numbers."""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective, SphinxRole

from minirlhf_course.report import machines


class Machines(SphinxDirective):
    """One table; its first column is words, the others are numbers."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """An unknown table is an error."""
        name = self.arguments[0]
        if name not in machines.TABLES:
            known = ", ".join(machines.TABLES)
            return [self.state.document.reporter.error(f"{{machines}} {name!r}: not one of {known}", line=self.lineno)]
        head, *body = machines.TABLES[name]()
        group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in head), cols=len(head))
        group += nodes.thead("", _row(head))
        group += nodes.tbody("", *map(_row, body))
        return [nodes.container("", nodes.table("", group, classes=["recipes"]), classes=["recipe-table"])]


def _row(cells: list[str]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", nodes.paragraph("", cell)) for cell in cells))


class MachineRole(SphinxRole):
    """One number in a sentence."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """An unknown name is an error."""
        facts = machines.facts()
        if self.text not in facts:
            message = f"{{machine}} {self.text!r}: not one of {', '.join(facts)}"
            return [], [self.inliner.reporter.error(message)]
        return [nodes.inline("", facts[self.text])], []


def setup(app: Sphinx) -> dict[str, Any]:
    """Register both."""
    app.add_directive("machines", Machines)
    app.add_role("machine", MachineRole())
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
