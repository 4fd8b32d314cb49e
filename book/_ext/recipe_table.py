"""``{recipes}``: the online algorithms as one table, from the recipes themselves. With names, only those rows.

A line for each recipe, a column for each choice, and the paper behind the name. On a narrow screen the table scrolls in its own frame.
"""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from minirlhf.core.errors import UserError
from minirlhf.recipes import RECIPES, Recipe, get, summary

#: Of ``summary``, from left to right.
COLUMNS = ("recipe", "credit", "objective", "weights", "KL", "beside")


def table(recipes: list[Recipe]) -> nodes.container:
    """The table in a frame that scrolls."""
    rows = [summary(recipe) for recipe in recipes]
    columns = COLUMNS
    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in columns), cols=len(columns))
    group += nodes.thead("", _row([nodes.Text(column) for column in columns]))
    group += nodes.tbody("", *(_row([_cell(row[column]) for column in columns]) for row in rows))
    return nodes.container("", nodes.table("", group, classes=["recipes"]), classes=["recipe-table"])


def _row(cells: list[nodes.Node]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", nodes.paragraph("", "", cell)) for cell in cells))


def _cell(text: str) -> nodes.Node:
    if text in ("", "none"):
        return nodes.Text("–" if text else "")
    # Where a long cell may break: before its hyperparameters.
    return nodes.literal(text=text.replace("(", "(\u200b"))


class Recipes(SphinxDirective):
    """The table of all recipes, or of those named."""

    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """An unknown name is an error."""
        names = self.arguments[0].split() if self.arguments else list(RECIPES)
        try:
            return [table([get(name) for name in names])]
        except UserError as problem:
            return [self.state.document.reporter.error(f"{{recipes}}: {problem}", line=self.lineno)]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("recipes", Recipes)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
