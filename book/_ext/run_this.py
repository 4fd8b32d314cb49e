"""Below each chapter's title: what it takes to run it, as commands to copy, and its slides."""

from pathlib import Path
from typing import Any

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
                top.insert(top.first_child_matching_class(nodes.title) + 1, self._line(number, name))

    def _line(self, number: int, page: str) -> nodes.Node:
        notebook = next((p for p in sorted(self.env.all_docs) if p.startswith(f"notebooks/{number:02d}_")), None)
        parts: list[list[nodes.Node]] = []
        if notebook:
            link = make_refnode(self.app.builder, self.env.docname, notebook, "", nodes.Text("notebook"))
            parts.append([link, nodes.Text(" "), nodes.literal("", f"jupyter lab {notebook}.ipynb")])
        parts.append([nodes.Text("proofs "), nodes.literal("", f"minirlhf verify --chapter {number}")])
        parts.append(
            [nodes.Text("exercises "), nodes.literal("", f"minirlhf release --chapter {number:02d} --out mine")]
        )
        if (Path(self.app.srcdir) / "slides" / f"{number:02d}.md").is_file():
            address = f"slides/{number:02d}.html"
            parts.append([nodes.reference("", "slides", refuri=address, internal=True)])
        line = nodes.paragraph("", "Run this, in the repository's folder, after ", classes=["run-this"])
        line += [nodes.literal("", "source .venv/bin/activate"), nodes.Text(": ")]
        for i, part in enumerate(parts):
            line += [nodes.Text(" · "), *part] if i else part
        return line


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the transform."""
    app.add_post_transform(RunThis)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
