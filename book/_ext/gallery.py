"""``{gallery}``: every failure of the gallery: the changed line, what it does to the metrics, cause, fix, check; and what the doctor said
over the seeds of the gallery's study. The pictures are drawn from that study's numbers.

``{questions}``: the questions that people ask, from the file that ``minirlhf doctor faq`` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import phone_figures
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from minirlhf_course import evidence
from minirlhf_course.gallery import pictures
from minirlhf_course.gallery.catalogue import gallery
from minirlhf_course.gallery.failure import BrokenRun
from minirlhf_course.gallery.questions import FrequentQuestion, questions
from minirlhf_course.report import curves


class Gallery(SphinxDirective):
    """One section per failure; ``failure-sign`` is the address of the entry ``sign``."""

    def run(self) -> list[nodes.Node]:
        """Draw the pictures, write the entries."""
        seen = pictures.result()
        self.env.note_dependency(str(pictures.RESULT))
        folder = Path(self.env.srcdir) / "_generated"
        folder.mkdir(exist_ok=True)
        return [self._entry(failure, seen, folder) for failure in gallery().values()]

    def _entry(self, failure: BrokenRun, seen: pictures.Result, folder: Path) -> nodes.Node:
        address = nodes.make_id(f"failure-{failure.name}")
        entry = nodes.section("", nodes.title(text=failure.title), ids=[address], names=[address])
        entry += nodes.literal_block(text=f"{failure.line}\n\n{failure.source}".strip(), language="python")
        target = folder / f"gallery-{failure.name}.svg"
        drawn = pictures.draw(failure, seen)
        drawn.canvas.draw()
        drawn.set_layout_engine("none")  # the layout has been found
        cut = phone_figures.classes(np.asarray(drawn.canvas.buffer_rgba()) / 255)
        curves.save(drawn, target)
        entry += nodes.image(
            uri=f"/_generated/{target.name}", alt=pictures.alt(failure, seen), width="100%", classes=cut
        )
        lines = nodes.field_list()
        named = evidence.values(seen, f"named_{failure.name}")
        doctor = (
            f"names it in {sum(map(int, named))} of {len(named)} seeds"
            if failure.findings
            else "does not see it: no metric that is logged shows it"
        )
        for title, text in (
            ("symptom", failure.symptom), ("cause", failure.cause), ("fix", failure.fix), ("a check that sees it", failure.check),
            ("the doctor", f"{doctor}; minirlhf doctor gallery {failure.name}"),
        ):  # fmt: skip
            lines += nodes.field("", nodes.field_name(text=title), nodes.field_body("", nodes.paragraph(text=text)))
        entry += lines
        return entry


class Verdicts(SphinxDirective):
    """A sentence: how often the doctor was right, and how often he accused a healthy run."""

    def run(self) -> list[nodes.Node]:
        """From the study's numbers."""
        seen = pictures.result()
        each = lambda what: [
            x for failure in gallery().values() for x in evidence.values(seen, f"{what}_{failure.name}")
        ]
        named, besides = each("named"), each("besides")
        elsewhere = sum(not right and some > 0 for right, some in zip(named, besides, strict=True))
        learned, accused, stuck, accused_stuck, copies = (
            sum(map(int, evidence.values(seen, name)))
            for name in ("healthy_runs", "accused", "stuck_runs", "accused_stuck", "copies")
        )
        return [
            nodes.paragraph(
                text=f"Over the seeds of this page it names one of the right suspicions in {sum(map(int, named))} of {len(named)} broken "
                f"runs. In these runs it has {int(sum(besides))} suspicions that are not among the right ones, some of them consequences of the fault and some of them wrong; in {elsewhere} of "
                f"the {len(named) - int(sum(named))} that it misses it suspects only something else. Of {learned} healthy ones it accuses {accused}. Healthy are the runs beside the broken ones, the one with sampler and trainer both at .6, and every "
                f"online recipe in the same world, with the settings of the gallery and as long as its runs, if nine replies in ten are right "
                f"in the last fifth of the run; of runs whose every number is the same, as where an algorithm's own line has nothing to do here, one is counted ({copies} copies are left out). {stuck} runs of these were not that far and are left out, so that the share of false "
                f"alarms holds for runs that succeed and for no others: of those left out it suspects {accused_stuck}, and a slow run is "
                "not a broken one. Runs of offline training are two of each seed, one of fine-tuning and one of DPO."
            )
        ]


class Questions(SphinxDirective):
    """Every question, under the heading of its part; ``question-loss-zero`` is the address of the entry ``loss_zero``."""

    def run(self) -> list[nodes.Node]:
        """From the same file that ``minirlhf doctor faq`` reads."""
        parts: dict[str, nodes.section] = {}
        for question in questions().values():
            if question.part not in parts:
                address = nodes.make_id(f"questions-{question.part}")
                parts[question.part] = nodes.section(
                    "", nodes.title(text=question.part), ids=[address], names=[address]
                )
            parts[question.part] += self._entry(question)
        return list(parts.values())

    def _entry(self, question: FrequentQuestion) -> nodes.Node:
        address = nodes.make_id(f"question-{question.name}")
        title = nodes.title("", "", *self.parse_inline(question.question)[0])
        entry = nodes.section("", title, ids=[address], names=[address])
        entry += self.parse_text_to_nodes(question.answer)
        entry += nodes.literal_block(text=question.command, language="bash")
        entry += self.parse_text_to_nodes(question.shows)
        if question.threads:
            links = [
                nodes.reference("", thread, refuri=f"https://github.com/{thread.replace('#', '/issues/')}")
                for thread in question.threads
            ]
            line = nodes.paragraph("", "Asked in ", classes=["asked-in"])
            for i, link in enumerate(links):
                line += [nodes.Text(", ")] * (i > 0) + [link]
            line += nodes.Text(".")
            entry += line
        return entry


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives."""
    app.add_directive("gallery", Gallery)
    app.add_directive("gallery-verdicts", Verdicts)
    app.add_directive("questions", Questions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
