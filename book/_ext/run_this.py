"""Below each chapter's title: its notebook and its slides, and, folded, what it takes to run it, as commands to copy."""

from pathlib import Path
from typing import Any

from details import fold
from docutils import nodes
from numbering import chapter_of
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode


class RunThis(SphinxPostTransform):
    """After all pages are known."""

    default_priority = 4

    def run(self, **kwargs: Any) -> None:
        """On each page as it is written; the one page holds many."""
        inside = [(page["docname"], page) for page in self.document.findall(addnodes.start_of_file)]
        for name, page in inside or [(self.env.docname, self.document)]:
            number = chapter_of(name)
            top = next(page.findall(nodes.section), None)
            if number and "/" not in name and top is not None:
                at = top.first_child_matching_class(nodes.title) + 1
                top[at:at] = self._lines(number)

    def _lines(self, number: int) -> list[nodes.Node]:
        notebook = next((p for p in sorted(self.env.all_docs) if p.startswith(f"notebooks/{number:02d}_")), None)
        runs: list[tuple[str, str]] = [("first", "source .venv/bin/activate")]
        links = nodes.paragraph("", classes=["chapter-links"])
        if notebook:
            links += make_refnode(self.app.builder, self.env.docname, notebook, "", nodes.Text("notebook"))
            runs.append(("notebook", f"jupyter lab {notebook}.ipynb"))
        runs.append(("proofs", f"minirlhf verify --chapter {number}"))
        runs.append(("exercises", f"minirlhf class release --chapter {number} --out mine"))
        if (Path(self.app.srcdir) / "slides" / f"{number:02d}.md").is_file():
            address = f"slides/{number:02d}.html"
            links += [nodes.Text(" · "), nodes.reference("", "slides", refuri=address, internal=True)]
        get = make_refnode(self.app.builder, self.env.docname, "run-it", "", nodes.Text("get it first"))
        where = nodes.paragraph("", "In the repository's folder (", get, nodes.Text("):"), classes=["run-this"])
        rows = nodes.bullet_list(classes=["run-rows"])
        for name, command in runs:
            row = nodes.paragraph("", "", nodes.Text(f"{name} "), nodes.literal("", command), classes=["run-this"])
            rows += nodes.list_item("", row)
        return [links, fold("Run this chapter on your machine", where, rows, classes=("run-fold",))]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the transform."""
    app.add_post_transform(RunThis)
    app.add_js_file("lecture.js", loading_method="defer")  # beside these links it puts a button
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
