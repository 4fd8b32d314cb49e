"""``{quoted}`01 sure! lovely cats purr and nap```: a reply that a model gave, as the executed notebook of a chapter has printed it.

A quotation of words is set in italics, one of a number as it is. The build fails where the committed notebook has not printed it. Executing a
notebook on another machine changes nothing that it has printed, as long as its code stays the same (``tools/notebooks.py``). What several seeds found is ``{measured}``'s.
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from notebook_figures import notebook_of
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxRole

from minirlhf.core.errors import ArgumentError


@cache
def printed(notebook: Path, changed: float) -> str:
    """What the cells of an executed notebook have printed, in one line; ``changed`` is when the file was."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    texts = [output.get("text") or output.get("data", {}).get("text/plain") or "" for output in outputs]
    return " ".join(" ".join("".join(text) for text in texts).split())


def quoted(text: str) -> str:
    """The quotation, if the notebook has printed it: whole words, and a number with all of its digits.

    Raises:
        ValueError: no such notebook, or it has not printed this.
    """
    chapter, _, said = text.partition(" ")
    said = " ".join(said.split())
    if not said:
        message = f"{text!r}: expected a chapter's number and what its notebook has printed"
        raise ArgumentError(message, value=text, problem="empty")
    notebook = notebook_of(chapter)
    pattern = rf"(?<![\w.,]){re.escape(said.replace('−', '-'))}(?![\w]|[.,]\d)"
    if not re.search(pattern, printed(notebook, notebook.stat().st_mtime).replace("−", "-")):
        message = f"notebook {chapter} has not printed {said!r}"
        raise ArgumentError(message, value=said, file=notebook, problem="not printed")
    return said


class Quoted(SphinxRole):
    """The quotation, as text."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Look it up; one that nobody printed is an error."""
        try:
            said = quoted(self.text)
        except ValueError as problem:
            return [], [self.inliner.reporter.error(f"{{quoted}} {problem}", line=self.lineno)]
        self.env.note_dependency(str(notebook_of(self.text.split()[0])))
        return [nodes.emphasis(said, said) if re.search("[a-z]", said) else nodes.Text(said)], []


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the role."""
    app.add_role("quoted", Quoted())
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
