"""The whole book on one page, for reading offline and for the PDF: all but the library's pages, which it links to."""

from typing import Any

from docutils import nodes
from library import API
from sphinx.application import Sphinx
from sphinx.builders.singlehtml import SingleFileHTMLBuilder
from sphinx.util.console import darkgreen
from sphinx.util.nodes import inline_all_toctrees


class OnePage(SingleFileHTMLBuilder):
    """Sphinx's builder of that name, which would put in every page there is."""

    def assemble_doctree(self) -> nodes.document:
        """All pages in the order of the contents, with their references resolved."""
        root = self.config.root_doc
        left_out = [page for page in self.env.all_docs if page.startswith(f"{API}/")]
        tree = inline_all_toctrees(self, set(), root, self.env.get_doctree(root), darkgreen, [root, *left_out])
        tree["docname"] = root
        self.env.resolve_references(tree, root, self)
        return tree

    def get_target_uri(self, docname: str, typ: str | None = None) -> str:
        """The library's pages stay where the site has them."""
        return f"../{docname}.html" if docname.startswith(f"{API}/") else super().get_target_uri(docname, typ)


def setup(app: Sphinx) -> dict[str, Any]:
    """Take the place of the builder ``singlehtml``, whose name the theme knows."""
    app.add_builder(OnePage, override=True)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
