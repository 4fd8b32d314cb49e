"""What a program that reads a page aloud would announce wrongly, in the pages as they were written.

The corner of a table whose rows have names is an empty cell and no header. A source in the list of sources is an item of a list:
the role that docutils gives it was taken out of the standard (ARIA 1.3), and is no child that a list may have. A name (``id``)
stands once on a page; what holds an algorithm or a theorem has the same one everywhere, which is left to the first.
"""

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

EMPTY = re.compile(r'<th class="head[^"]*">(?:<p></p>)?</th>')
PROOF = ' id="proof-content"'


def mend(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """In the page as it was written."""
    if "body" in context:
        body = EMPTY.sub("<td></td>", context["body"])
        first, *others = body.replace('role="doc-biblioentry"', 'role="listitem"').split(PROOF)
        context["body"] = first + PROOF * bool(others) + "".join(others)


def setup(app: Sphinx) -> dict[str, Any]:
    """Listen."""
    app.connect("html-page-context", mend)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
