"""A node that folds: ``<details>`` with its ``<summary>``, both plain HTML; and the directive ``{fold}``."""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class details(nodes.General, nodes.Element):
    """Folded content; its first child is a :class:`summary`."""


class summary(nodes.General, nodes.TextElement):
    """The line that stays visible."""


def fold(title: str, *children: nodes.Node, classes: tuple[str, ...] = ()) -> details:
    """``children`` behind one line of text."""
    return details("", summary("", title), *children, classes=[*classes])


class FoldDirective(SphinxDirective):
    """``{fold} Title``: what stands in it, behind one line of text."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Title and content are Markdown."""
        words, messages = self.state.inline_text(self.arguments[0], self.lineno)
        folded = details("", summary("", "", *words), classes=["fold"])
        self.state.nested_parse(self.content, self.content_offset, folded)
        return [folded, *messages]


def _open(tag: str) -> Any:
    def visit(translator: Any, node: nodes.Element) -> None:
        state = {"open": "open"} if node.get("open") else {}
        translator.body.append(translator.starttag(node, tag, "", **state))

    return visit


def _close(tag: str) -> Any:
    return lambda translator, node: translator.body.append(f"</{tag}>\n")


def setup(app: Sphinx) -> dict[str, Any]:
    """HTML is all that the book is written to."""
    app.add_node(details, html=(_open("details"), _close("details")))
    app.add_directive("fold", FoldDirective)
    app.add_node(summary, html=(_open("summary"), _close("summary")))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
