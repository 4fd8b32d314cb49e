"""What the chapter's executed notebook has shown, in the book.

* ``{nbfigure} 05 frontier``: a figure, with the alt text it has there.
* ``{nbtable} 01 opening``: the table that the cell ``# table: opening`` has printed as Markdown.
"""

import base64
import json
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.directives.patches import Figure
from sphinx.util.docutils import SphinxDirective

from minirlhf.core.errors import ArgumentError

ROOT = Path(__file__).resolve().parents[2]


def notebook_of(chapter: str) -> Path:
    """The executed notebook of a chapter.

    Raises:
        ValueError: there is none, or more than one.
    """
    found = sorted((ROOT / "notebooks").glob(f"{chapter}_*.ipynb"))
    if len(found) != 1:
        message = f"expected one notebook notebooks/{chapter}_*.ipynb, found {len(found)}"
        raise ArgumentError(message, file=f"notebooks/{chapter}_*.ipynb", value=len(found), expected=1)
    return found[0]


def cells_of(chapter: str) -> dict[str, Any]:
    """The notebook's cells by id, executed."""
    return {cell["id"]: cell for cell in json.loads(notebook_of(chapter).read_text(encoding="utf-8"))["cells"]}


def shown(chapter: str, kind: str, name: str, mime: str) -> tuple[Any, dict[str, Any]]:
    """What the cell ``# figure: name`` or ``# table: name`` shows in the format ``mime``, and the cell.

    Raises:
        ValueError: no such notebook or cell, or it shows nothing in this format.
    """
    path, cells = notebook_of(chapter), cells_of(chapter)
    cell = cells.get(f"{kind}-{name}")
    if cell is None:
        names = ", ".join(sorted(c.removeprefix(f"{kind}-") for c in cells if c.startswith(f"{kind}-"))) or "none"
        message = f"{path.name} has no {kind} {name!r}; it has: {names}"
        raise ArgumentError(message, argument=kind, value=name, expected=names.split(", "), file=path.name)
    found = [out["data"][mime] for out in cell["outputs"] if mime in out.get("data", {})]
    if not found:
        message = f"the cell of {kind} {name!r} in {path.name} shows no {mime}; run tools/notebooks.py build"
        raise ArgumentError(message, argument=kind, value=name, expected=mime, file=path.name)
    return found[0], cell


def figure(chapter: str, name: str) -> tuple[bytes, dict[str, str]]:
    """PNG bytes of the figure ``name``; its ``alt`` text and ``width``. Raises as :func:`shown`."""
    image, cell = shown(chapter, "figure", name, "image/png")
    return base64.b64decode(image), cell["metadata"]["mystnb"]["image"]


def table(chapter: str, name: str) -> str:
    """The Markdown of the table ``name``. Raises as :func:`shown`."""
    return "".join(shown(chapter, "table", name, "text/markdown")[0])


class NotebookFigure(Figure, SphinxDirective):
    """A figure whose image comes out of a notebook."""

    required_arguments = 2
    optional_arguments = 0
    final_argument_whitespace = False

    def run(self) -> list[nodes.Node]:
        """Write the image where Sphinx finds it, then go on as an ordinary figure."""
        chapter, name = self.arguments
        try:
            image, about = figure(chapter, name)
        except ValueError as problem:
            raise self.error(str(problem)) from None
        self.env.note_dependency(str(notebook_of(chapter)))
        target = Path(self.env.srcdir) / "_generated" / f"{chapter}-{name}.png"
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(image)
        self.arguments = [f"/_generated/{target.name}"]
        self.options = {**about, **self.options}
        return super().run()


class NotebookTable(SphinxDirective):
    """A table that a notebook has printed."""

    required_arguments = 2
    final_argument_whitespace = False

    def run(self) -> list[nodes.Node]:
        """Read its Markdown."""
        chapter, name = self.arguments
        try:
            text = table(chapter, name)
        except ValueError as problem:
            raise self.error(str(problem)) from None
        self.env.note_dependency(str(notebook_of(chapter)))
        return self.parse_text_to_nodes(text)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives."""
    app.add_directive("nbfigure", NotebookFigure)
    app.add_directive("nbtable", NotebookTable)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
