"""What a notebook says to the machine and not to its reader is left out of its page: ``x.reveal(…)``, which computes the letter of an answer, and the tally.

The notebook itself has it all; on the page ``_static/predict.js`` asks, reveals and counts.
"""

import ast
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx


def spoken(source: str) -> str:
    """The source without such statements."""
    try:
        body = ast.parse(source).body
    except SyntaxError:  # magic
        return source
    lines = source.split("\n")
    for statement in reversed(body):
        match statement:
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="reveal" | "tally"))):
                assert statement.end_lineno is not None
                del lines[statement.lineno - 1 : statement.end_lineno]
    return "\n".join(lines).strip("\n")


def leave_out(app: Sphinx, doctree: nodes.document) -> None:
    """Before references are resolved, in pages of notebooks."""
    if not app.env.docname.startswith("notebooks/"):
        return
    for cell in list(doctree.findall(nodes.container)):
        if "cell_input" not in cell["classes"]:
            continue
        [source] = list(cell.findall(nodes.literal_block)) or [None]
        if source is None or (kept := spoken(source.astext())) == source.astext():
            continue
        if kept:
            source.rawsource, source.children = kept, []
            source += nodes.Text(kept)
        else:
            cell.parent.parent.remove(cell.parent)


def setup(app: Sphinx) -> dict[str, Any]:
    """Listen."""
    app.connect("doctree-read", leave_out)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
