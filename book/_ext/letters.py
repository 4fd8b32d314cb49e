"""``{letters}``: the letters with which the terms of the page's glossary begin, each a link to the first of its terms."""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class letters(nodes.General, nodes.Element):
    """Where the links will stand; the terms come later on the page."""


class LettersDirective(SphinxDirective):
    """The place of the links."""

    def run(self) -> list[nodes.Node]:
        """A mark, which :func:`fill` replaces."""
        return [letters()]


def fill(app: Sphinx, doctree: nodes.document) -> None:
    """Set the links, once the glossary has been read and sorted."""
    for mark in list(doctree.findall(letters)):
        first: dict[str, str] = {}
        for term in doctree.findall(nodes.term):
            initial = term.astext()[:1].upper()
            if term["ids"] and initial.isascii() and initial.isalpha():  # a Chinese name follows an English one
                first.setdefault(initial, term["ids"][0])
        line = nodes.paragraph("", classes=["letters"])
        for letter, place in sorted(first.items()):
            line += [nodes.reference("", letter, internal=True, refid=place), nodes.Text(" ")]
        mark.replace_self(line)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_node(letters)
    app.add_directive("letters", LettersDirective)
    app.connect("doctree-read", fill)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
