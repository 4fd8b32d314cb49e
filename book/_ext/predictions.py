"""``{predict} NAME``: a question in a chapter whose result, the content, opens when the reader has answered; notebooks' questions become the same.

    ```{predict} best_of_sixteen
    What came out, as Markdown: the paragraph, the figure, the table that tells it.
    ```

The question of that name, its choices and its answer come from ``book/predictions/NN.py``; see :mod:`asking`.
``_static/predict.js`` makes forms of both; without JavaScript, and in print, they are text.
"""

from html import escape
from typing import Any

import asking
from details import details, summary
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

LETTERS = "abcdefghij"


def form(asked: asking.Settled, folded: nodes.Element) -> list[nodes.Node]:
    """Plain HTML round a folded result, which ``predict.js`` makes a form of."""
    if asked.typed is None:
        items = [f"<li>{escape(choice)}</li>" for choice in asked.lessons]
        begin = f'<div class="predict" data-answer="{LETTERS[list(asked.lessons).index(str(asked.answer))]}">'
        choices = f'<ol type="a" class="predict-choices">{"".join(items)}</ol>'
        lessons = {LETTERS[n]: (choice, lesson) for n, (choice, lesson) in enumerate(asked.lessons.items()) if lesson}
    else:
        typed = asked.typed
        said = asking.prose(f"{{x:{typed.form}}}", {"x": asked.answer})
        begin = (
            f'<div class="predict" data-answer="{asked.answer!r}" data-said="{said}" data-within="{typed.within!r}"'
            f' data-unit="{escape(typed.unit)}"{" data-factor" * typed.factor}>'
        )
        size = asking.prose("{x:g}", {"x": typed.within})
        percent = typed.unit == "%"  # "within 3 %" could be three percent of the number
        near = (
            f"within a factor of {size}"
            if typed.factor
            else f"within {size}{' points' if percent else _unit(typed.unit)}"
        )
        number = "A percentage" if percent else f"A number{_unit(typed.unit) and f' of {escape(typed.unit)}'}"
        choices = f'<p class="predict-typed">{number}; {escape(near)} is near enough.</p>'
        lessons = {way: (words, asked.lessons[way]) for way, words in (("low", "less"), ("high", "more"))}
    begin += f'<p class="predict-question">{escape(asked.question)}</p>{choices}'
    told = "".join(
        f'<li data-chosen="{chosen}"><em>{escape(words)}?</em> <span>{escape(lesson)}</span></li>'
        for chosen, (words, lesson) in lessons.items()
    )
    folded += nodes.raw("", f'<ul class="predict-lessons">{told}</ul>', format="html")
    return [nodes.raw("", begin, format="html"), folded, nodes.raw("", "</div>", format="html")]


def _unit(unit: str) -> str:
    return f" {unit}" if unit else ""


def result() -> nodes.Element:
    """The folded result, empty."""
    return details("", summary("", "What came out"), classes=["fold"])


class PredictDirective(SphinxDirective):
    """The question, its choices, and the folded result."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """The form round what came out."""
        chapter, name = self.env.docname[:2], self.arguments[0]
        there = asking.questions(chapter)
        if name not in there:
            raise self.error(
                f"book/predictions/{chapter}.py has no question {name!r}; it has {', '.join(there) or 'none'}"
            )
        self.env.note_dependency(str(asking.FOLDER / f"{chapter}.py"))
        try:
            asked = there[name].settled()
        except ValueError as error:
            raise self.error(f"question {name}: {error}") from None
        if not self.content:
            raise self.error("the content says what came out; there is none")
        folded = result()
        self.state.nested_parse(self.content, self.content_offset, folded)
        return form(asked, folded)


def script(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """Load the script where something is asked."""
    asks = doctree is not None and any("predict" in node.astext()[:24] for node in doctree.findall(nodes.raw))
    if page.startswith("notebooks/") or asks:
        app.add_js_file("numbers.js", loading_method="defer")
        app.add_js_file("predict.js", loading_method="defer")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("predict", PredictDirective)
    app.connect("html-page-context", script)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
