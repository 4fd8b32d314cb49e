"""``{predict} Question?``: a question in a chapter whose result opens when the reader has chosen; notebooks' questions become the same.

    ```{predict} What does the true worth do as β falls?
    :choices: it rises | it falls | it rises, then falls
    :answer: it rises, then falls
    What came out, as Markdown.
    ```

``_static/predict.js`` makes forms of both; without JavaScript, and in print, they are text.
"""

from html import escape
from typing import Any, ClassVar

from details import details, summary
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


def form(question: str, choices: list[str], answer: str, folded: nodes.Element) -> list[nodes.Node]:
    """Plain HTML round a folded result, which ``predict.js`` makes a form of."""
    letter = "abcdefghij"[choices.index(answer)]
    items = "".join(f"<li>{escape(choice)}</li>" for choice in choices)
    begin = f'<div class="predict" data-answer="{letter}"><p class="predict-question">{escape(question)}</p><ol type="a">{items}</ol>'
    return [nodes.raw("", begin, format="html"), folded, nodes.raw("", "</div>", format="html")]


def result() -> nodes.Element:
    """The folded result, empty."""
    return details("", summary("", "What came out"), classes=["fold"])


class PredictDirective(SphinxDirective):
    """The question, its choices, and the folded result."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {
        "choices": directives.unchanged_required,
        "answer": directives.unchanged_required,
    }

    def run(self) -> list[nodes.Node]:
        """The form round what came out."""
        choices = [choice.strip() for choice in self.options.get("choices", "").split("|")]
        if not 2 <= len(choices) <= 10 or not all(choices):
            raise self.error(f":choices: expected two to ten, separated by |; got {self.options.get('choices')!r}")
        if self.options.get("answer") not in choices:
            raise self.error(f":answer: expected one of {choices}; got {self.options.get('answer')!r}")
        if not self.content:
            raise self.error("the content says what came out; there is none")
        folded = result()
        self.state.nested_parse(self.content, self.content_offset, folded)
        return form(self.arguments[0], choices, self.options["answer"], folded)


def script(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """Load the script where something is asked."""
    asks = doctree is not None and any("predict" in node.astext()[:24] for node in doctree.findall(nodes.raw))
    if page.startswith("notebooks/") or asks:
        app.add_js_file("predict.js", loading_method="defer")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("predict", PredictDirective)
    app.connect("html-page-context", script)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
