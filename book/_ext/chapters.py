"""Links to chapters that may not be written yet, and the list of a chapter's exercises."""

import fnmatch
import json
from typing import Any, ClassVar

from details import details, summary
from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from numbering import chapter_of
from sphinx.application import Sphinx
from sphinx.directives.other import TocTree
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective, SphinxRole
from sphinx.util.nodes import make_refnode

from minirlhf.core.errors import UserError
from minirlhf_course import chapters
from minirlhf_course.classroom import exercise, in_page


def written(env: Any) -> dict[int, str]:
    """The pages of the chapters that exist."""
    pages = {chapter_of(page): page for page in env.found_docs if "/" not in page}
    return {number: page for number, page in pages.items() if number is not None}


class Pages(TocTree):
    """``{pages} notebooks/*``: contents, made of those of these pages that are there; nothing if none is.

    ``{pages} part II`` is a part of the book: its chapters, by their manifests.
    """

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Fill in the pages and go on as an ordinary toctree."""
        self.env.note_reread()
        patterns = self.arguments[0].split()
        if patterns[0] == "part":
            patterns = [c.page for c in chapters.chapters() if c.part == patterns[1]]
        pages = [page for p in patterns for page in sorted(self.env.found_docs) if fnmatch.fnmatch(page, p)]
        self.content = StringList(pages, source=self.env.docname)
        return super().run() if pages else []


class chapter_link(nodes.Inline, nodes.TextElement):
    """Stands for a link to a chapter until it is known which are there."""


class ChapterRole(SphinxRole):
    """``{chapter}`13```: the words "chapter 13", a link once that chapter is written."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Leave a place for the link."""
        try:
            chapters.chapter(int(self.text))
        except (ValueError, UserError):
            last = chapters.chapters()[-1].number
            message = self.inliner.reporter.error(f"{{chapter}} takes a number from 1 to {last}, not {self.text!r}")
            return [], [message]
        return [chapter_link("", "", chapter=int(self.text))], []


def _begins(node: nodes.Node) -> bool:
    """Does a sentence begin here?"""
    at = node.parent.index(node)
    before = "".join(one.astext() for one in node.parent.children[:at]).rstrip("\"'“”‘’)*_ \n")
    return not before or (before[-1] in ".?!" and not before.endswith(("e.g.", "i.e.", "cf.", "vs.", "al.")))


class ChapterLinks(SphinxPostTransform):
    """Make the links."""

    default_priority = 4

    def run(self, **kwargs: Any) -> None:
        """On each page as it is written."""
        pages = written(self.env)
        for node in list(self.document.findall(chapter_link)):
            word = "" if node.get("short") else "Chapter " if _begins(node) else "chapter "
            text = nodes.inline("", node.get("words") or f"{word}{node['chapter']}")
            page = pages.get(node["chapter"])
            builder = self.app.builder
            node.replace_self(make_refnode(builder, self.env.docname, page, "", text) if page else text)


KINDS = {"numeric": "read a result", "bughunt": "bug hunt"}  # others speak for themselves


class HomeworkRole(SphinxRole):
    """``{homework}`05```: how many points and minutes a chapter's exercises are; "to come" while it has none."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Read from the exercises, so that it is always true."""
        root = exercise.folder()
        found = [exercise.read(path) for path in exercise.sources(root, self.text)]
        for e in found:
            self.env.note_dependency(str(e.path))
        if not found:
            return [nodes.inline("", "to come")], []
        words = f"{sum(e.points for e in found):g} points, {sum(e.minutes for e in found)} minutes"
        return [nodes.inline("", words)], []


class OutcomeRole(SphinxRole):
    """``{outcome}`05```: what a reader can do after the chapter, as its manifest says."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """A few words."""
        return [nodes.inline("", chapters.chapter(int(self.text)).outcome)], []


PARTS = {
    "I": "Foundations",
    "II": "Preferences and rewards",
    "III": "Optimisation",
    "IV": "Advanced",
    "V": "Open questions",
}


class CardsDirective(SphinxDirective):
    """``{cards}``: a card for each chapter: its title, what it lets one do, and what it holds, counted at this build."""

    def run(self) -> list[nodes.Node]:
        """Part by part."""
        whole: list[nodes.Node] = []
        for part, title in PARTS.items():
            box = nodes.container(classes=["cards"])
            for c in chapters.chapters():
                if c.part != part:
                    continue
                card = nodes.container(classes=["card-of-chapter"])
                link = chapter_link("", "", chapter=c.number, words=f"{c.number} · {c.title}")
                card += nodes.paragraph("", "", link, classes=["card-title"])
                card += nodes.paragraph(text=f"You can {c.outcome}.")
                card += nodes.paragraph(text=self._holds(c), classes=["card-counts"])
                box += card
            whole += [nodes.paragraph(text=f"{part} · {title}", classes=["cards-part"]), box]
        return whole

    def _holds(self, c: chapters.Chapter) -> str:
        labels = {check.label for check in chapters.load_checks().select(chapter=c.number)}
        asked = len(list(exercise.sources(exercise.folder(), f"{c.number:02d}")))
        return f"{len(labels)} equations proved · {asked} exercises · a notebook"


class ExercisesDirective(SphinxDirective):
    """``{exercises} 05``: what the chapter asks, and the commands that check it. Never more than students may see.

    ``{exercises} 05.2`` is one exercise; with ``:open:`` its fold is open.
    """

    required_arguments = 1
    option_spec: ClassVar = {"open": directives.flag}

    def run(self) -> list[nodes.Node]:
        """A fold per exercise."""
        try:
            found = exercise.load(exercise.folder(), [self.arguments[0]])
        except UserError as problem:
            raise self.error(str(problem)) from None
        one = "." in self.arguments[0]
        return [*([] if one else self._how(self.arguments[0])), *(self._one(e) for e in found)]

    def _how(self, chapter: str) -> list[nodes.Node]:
        told = "Where an exercise asks for letters or numbers, answer it here. For all of them, get a notebook and a Python file to fill in, and check your answers there as often as you like:"
        commands = f"minirlhf class release --chapter {chapter} --out mine\ncd mine\nminirlhf check {chapter}"
        return [nodes.paragraph(text=told), nodes.literal_block(commands, commands, language="shell")]

    def _one(self, e: exercise.Exercise) -> nodes.Node:
        self.env.note_dependency(str(e.path))
        heading = f"{e.id} · {e.title}"
        facts = f"{KINDS.get(e.kind, e.kind)}, {e.minutes} minutes, {e.points:g} points"
        folded = details(
            "", summary("", "", nodes.strong("", heading), nodes.inline("", f" ({facts})")), classes=["exercise"]
        )
        folded["open"] = "open" in self.options
        folded["ids"] = [nodes.make_id(f"exercise-{e.id}")]  # the search leads there
        body = nodes.container()
        self.state.nested_parse(StringList(e.statement.splitlines(), source=str(e.path)), 0, body)
        folded += [*body.children, nodes.literal_block(e.stub, e.stub, language="python")]
        check = f"minirlhf check {e.id}"
        folded += nodes.paragraph("", "", nodes.Text("Check your answer: "), nodes.literal("", check))
        if (table := in_page.table(e)) is not None:
            folded += answering("", data=json.dumps(table, ensure_ascii=False))
        return folded


class answering(nodes.General, nodes.Element):
    """The data of a form in which ``_static/answer.js`` takes and judges answers; on a page of the site only."""


def _visit_answering(translator: Any, node: nodes.Element) -> None:
    if translator.builder.name == "html":
        data = node["data"].replace("</", "<\\/")
        translator.body.append(f'<script type="application/json" class="answer-data">{data}</script>\n')


def _script(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    if doctree is not None and next(iter(doctree.findall(answering)), None) is not None:
        app.add_js_file("numbers.js", loading_method="defer")
        app.add_js_file("answer.js", loading_method="defer")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register role and directive."""
    app.setup_extension("details")
    app.add_node(chapter_link)
    app.add_role("chapter", ChapterRole())
    app.add_role("homework", HomeworkRole())
    app.add_role("outcome", OutcomeRole())
    app.add_directive("cards", CardsDirective)
    app.add_post_transform(ChapterLinks)
    app.add_directive("exercises", ExercisesDirective)
    app.add_node(answering, html=(_visit_answering, lambda *_: None))
    app.connect("html-page-context", _script)
    app.add_directive("pages", Pages)
    return {"version": "1", "parallel_read_safe": False, "parallel_write_safe": False}
