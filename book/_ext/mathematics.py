"""Pages of the site whose formulas are typeset as they are needed; the one page, which is printed, is typeset at once.

MathJax stays in the reader's browser. Formulas that are typeset at build time, even as MathML, would make the ledger's page 656 kB
where 400 are allowed, leave their look to each browser's own fonts, and need a browser wherever the book is built.
The script ``mathematics.js`` has MathJax do first what is in the window.
"""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

MATH = 'class="math '
FIRST = 400  # before MathJax, whose priority is 500


def put(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """The script, on a page that has formulas."""
    if app.builder.name == "html" and MATH in context.get("body", ""):
        app.add_js_file("mathematics.js", loading_method="defer", priority=FIRST)


def setup(app: Sphinx) -> dict[str, Any]:
    """Listen."""
    app.connect("html-page-context", put)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
