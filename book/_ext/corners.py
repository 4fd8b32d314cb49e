"""The corner of a table whose rows have names: an empty cell and no header, which a reader that reads aloud would announce."""

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

EMPTY = re.compile(r'<th class="head[^"]*">(?:<p></p>)?</th>')


def mend(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """In the page as it was written."""
    if "body" in context:
        context["body"] = EMPTY.sub("<td></td>", context["body"])


def setup(app: Sphinx) -> dict[str, Any]:
    """Listen."""
    app.connect("html-page-context", mend)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
