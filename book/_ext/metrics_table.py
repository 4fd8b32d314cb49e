"""``{metrics}``: the glossary of metrics, from the same data that ``minirlhf doctor metrics`` prints."""

from typing import Any

from docutils import nodes
from library import inline
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from minirlhf_course.gallery.questions import FrequentQuestion, questions
from minirlhf_course.report.metrics import METRICS, Metric


class Metrics(SphinxDirective):
    """A definition list, one entry per metric; ``metric-kl`` is the address of the entry ``kl``."""

    def run(self) -> list[nodes.Node]:
        listed = nodes.definition_list()
        listed += [_entry(metric) for metric in METRICS.values()]
        return [listed]


def _entry(metric: Metric) -> nodes.definition_list_item:
    term = nodes.term("", "", nodes.literal(text=metric.name), ids=[nodes.make_id(f"metric-{metric.name}")])
    term += nodes.inline(text=f"  logged by {', '.join(metric.trainers)}", classes=["metric-by"])
    body = nodes.definition()
    body += nodes.paragraph(text=metric.definition)
    lines = nodes.field_list()
    for title, text in (("unit", metric.unit), ("healthy", metric.healthy), ("a bad curve", metric.bad)):
        lines += nodes.field("", nodes.field_name(text=title), nodes.field_body("", nodes.paragraph(text=text)))
    body += lines
    asked = [question for question in questions().values() if metric.name in question.metrics]
    if asked:
        entries = nodes.bullet_list(classes=["metric-asked"])
        entries += [nodes.list_item("", nodes.paragraph("", "", _link(question))) for question in asked]
        body += entries
    return nodes.definition_list_item("", term, body)


def _link(question: FrequentQuestion) -> nodes.reference:
    """To its entry in the page of questions."""
    address = f"questions.html#{nodes.make_id(f'question-{question.name}')}"
    return nodes.reference("", "", *inline(question.question), refuri=address, internal=True)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("metrics", Metrics)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
