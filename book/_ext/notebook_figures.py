"""``{nbfigure} 05 frontier``: a figure of the chapter's executed notebook, with the alt text it has there."""

import base64
import json
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.directives.patches import Figure
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[2]


def notebook_of(chapter: str) -> Path:
    """The executed notebook of a chapter.

    Raises:
        ValueError: there is none, or more than one.
    """
    found = sorted((ROOT / "notebooks").glob(f"{chapter}_*.ipynb"))
    if len(found) != 1:
        raise ValueError(f"expected one notebook notebooks/{chapter}_*.ipynb, found {len(found)}")
    return found[0]


def figure(chapter: str, name: str) -> tuple[bytes, dict[str, str]]:
    """PNG bytes of the figure ``name``, made by the cell that says ``# figure: name``; its ``alt`` text and ``width``.

    Raises:
        ValueError: no such notebook or figure, or the cell shows no image.
    """
    path = notebook_of(chapter)
    cells = {cell["id"]: cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]}
    cell = cells.get(f"figure-{name}")
    if cell is None:
        names = ", ".join(sorted(c.removeprefix("figure-") for c in cells if c.startswith("figure-"))) or "none"
        raise ValueError(f"{path.name} has no figure {name!r}; it has: {names}")
    images = [out["data"]["image/png"] for out in cell["outputs"] if "image/png" in out.get("data", {})]
    if not images:
        raise ValueError(f"the cell of figure {name!r} in {path.name} shows no image; run tools/notebooks.py build")
    return base64.b64decode(images[0]), cell["metadata"]["mystnb"]["image"]


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


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("nbfigure", NotebookFigure)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
