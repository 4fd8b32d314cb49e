"""The whole book as ``one-page.html`` beside the site: all but the library's pages, which it links to. The PDF is its print."""

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from library import API
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.builders.singlehtml import SingleFileHTMLBuilder
from sphinx.util.console import darkgreen
from sphinx.util.nodes import inline_all_toctrees


def anchor(page: str, name: str) -> str:
    """An anchor that is unique in the book: each chapter has its own ``exercises``."""
    return f"{page}:{name}"


class OnePage(SingleFileHTMLBuilder):
    """Sphinx's builder of that name, with unique anchors, into the folder that already holds the site."""

    def get_output_path(self, page_name: str, /) -> Path:
        """The one page."""
        return Path(self.outdir) / "one-page.html"

    def get_target_uri(self, docname: str, typ: str | None = None) -> str:
        """The library's pages stay where the site has them."""
        return f"{docname}.html" if docname.startswith(f"{API}/") else super().get_target_uri(docname, typ)

    def assemble_doctree(self) -> nodes.document:
        """All pages in the order of the contents, with their references resolved and their anchors made unique."""
        root = self.config.root_doc
        left_out = [page for page in self.env.all_docs if page.startswith(f"{API}/")]
        tree = inline_all_toctrees(self, set(), root, self.env.get_doctree(root), darkgreen, [root, *left_out])
        tree["docname"] = root
        self.env.resolve_references(tree, root, self)
        for page in tree.findall(addnodes.start_of_file):
            for node in page.findall(nodes.Element):
                for key in ("ids", "backrefs"):
                    node[key] = [anchor(page["docname"], name) for name in node.get(key, [])]
                if "refid" in node:
                    node["refid"] = anchor(page["docname"], node["refid"])
        return tree

    def assemble_toc_secnumbers(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """Numbers of sections, found by the unique anchors."""
        numbers = {
            f"{page}/{f'#{anchor(page, name[1:])}' if name else ''}": number
            for page, anchors in self.env.toc_secnumbers.items()
            for name, number in anchors.items()
        }
        return {self.config.root_doc: numbers}

    def assemble_toc_fignumbers(self) -> dict[str, dict[str, dict[str, tuple[int, ...]]]]:
        """Numbers of figures and equations, likewise."""
        numbers = {
            f"{page}/{kind}": {anchor(page, name): number for name, number in found.items()}
            for page, kinds in self.env.toc_fignumbers.items()
            for kind, found in kinds.items()
        }
        return {self.config.root_doc: numbers}

    def finish(self) -> None:
        """Make the links follow the anchors; all else the site has already."""
        self.copy_image_files()
        page = self.get_output_path("")
        html = page.read_text(encoding="utf-8")
        html = re.sub(r'href="#document-([^"#]+)#([^"]+)"', lambda m: f'href="#{anchor(m[1], m[2])}"', html)
        page.write_text(html, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Take the place of the builder ``singlehtml``, whose name the theme knows."""
    app.add_builder(OnePage, override=True)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
