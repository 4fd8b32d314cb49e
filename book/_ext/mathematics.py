"""Pages of the site whose formulas are typeset as they are needed; the one page, which is printed, is typeset at once.

MathJax stays in the reader's browser. Formulas that are typeset at build time, even as MathML, would make the ledger's page 656 kB
where 400 are allowed, leave their look to each browser's own fonts, and need a browser wherever the book is built.
The script ``mathematics.js`` has MathJax do first what is in the window.

A browser may break a line on either side of a formula, even before a comma; so a formula and the signs that touch it are held together.
"""

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

MATH = 'class="math '
FIRST = 400  # before MathJax, whose priority is 500
OPENING, CLOSING = re.compile(r"[(\[“‘]+$"), re.compile(r"^[.,;:!?)\]”’…-]+")


class Held(SphinxPostTransform):
    """A formula in a line, what opens before it and what closes behind it, in a ``span`` that is not broken."""

    default_priority = 950

    def run(self, **kwargs: Any) -> None:
        """On each page as it is written."""
        for formula in list(self.document.findall(nodes.math)):
            parent, at = formula.parent, formula.parent.index(formula)
            before, after = parent[at - 1] if at else None, parent[at + 1] if at + 1 < len(parent) else None
            opens = OPENING.search(before) if isinstance(before, nodes.Text) else None
            closes = CLOSING.search(after) if isinstance(after, nodes.Text) else None
            if not opens and not closes:
                continue
            held = nodes.inline(classes=["held"])
            formula.replace_self(held)
            if opens:
                parent.replace(before, nodes.Text(before[: opens.start()]))
                held += nodes.Text(opens[0])
            held += formula
            if closes:
                parent.replace(after, nodes.Text(after[closes.end() :]))
                held += nodes.Text(closes[0])


def put(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """The script, on a page that has formulas."""
    if app.builder.name == "html" and MATH in context.get("body", ""):
        app.add_js_file("mathematics.js", loading_method="defer", priority=FIRST)


def setup(app: Sphinx) -> dict[str, Any]:
    """Listen."""
    app.add_post_transform(Held)
    app.connect("html-page-context", put)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
