"""The search: its index, a script that a page loads from a folder too. ``_static/search.js`` ranks; chapters come before the library.

Sphinx's own index knows pages, not sections, and its results fetch each page for their few lines, which a browser refuses to a page
that was opened as a file. This one is read from the pages as they were written, so that it says what a reader sees: numbers, references
and citations as they are printed, short formulas in letters. An entry of the glossary is a section by itself, found by each of its names;
so is a frequent question, with the phrases that users type, and an exercise, and a numbered equation, with the name of its label.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from docutils import nodes
from library import API
from numbering import chapter_of
from plain_formulas import letters
from sphinx.application import Sphinx

from minirlhf_course.gallery.questions import SAME, STOP, questions

DATA = "_static/search-data.js"
EQUATIONS = "_static/equations.js"
DESCRIBED = 160  # letters of a page's description
GLOSSARY = "glossary"
PHRASES = {nodes.make_id(f"question-{name}"): question.words for name, question in questions().items()}
LEFT_OUT = {"script", "style", "pre", "svg", "math", "button", "select", "input", "template"}
NO_PROSE = {"headerlink", "section-number", "eqno", "library", "proof-marks", "citation", "highlight", "touch-whole", "run-this", "run-rows", "cell_input", "predict-question", "predict-choices", "predict-typed", "predict-lessons"}  # fmt: skip
VOID = {"br", "img", "hr", "input", "link", "meta", "source", "wbr", "col"}
INLINE = {"a", "span", "em", "strong", "code", "cite", "sub", "sup", "i", "b", "mark"}
HAN = r"\u4e00-\u9fff"


@dataclass
class Section:
    """What a section says itself, without its subsections.

    ``terms`` are the entries of the glossary that it links; a name in italics is mostly said there for the first time.
    """

    anchor: str
    title: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    terms: set[str] = field(default_factory=set)
    said: list[str] = field(default_factory=list)  # what stands in italics
    names: list[str] = field(default_factory=list)  # of an entry of the glossary; of a question, what users type

    def entry(self) -> list[Any]:
        """As it is written into the index."""
        said = [self.anchor, _joined(self.title), _joined(self.text)]
        if self.names:
            return [*said, sorted(self.terms), self.names]
        known = {name for text in self.said if 2 <= len((name := _joined([text])).split()) <= 4 and name[:1].isalpha()}
        return [*said, sorted(self.terms | known)] if self.terms | known else said


class Reader(HTMLParser):
    """The sections of a page, and its numbered equations."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.page, self.chapter = page, kind(page) == "chapter"
        self.sections: list[Section] = []
        self.equations: dict[str, str] = {}
        self._open: list[tuple[str, str]] = []  # elements: tag, and what they are here
        self._inside: list[Section] = []
        self._formula: list[str] = []
        self._label, self._number, self._naming = "", "", False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what begins."""
        if tag in VOID:
            self.handle_data(" ")
            return
        given = {name: value or "" for name, value in attrs}
        classes = set(given.get("class", "").split())
        what = ""
        if not self._open:
            what = "page" if tag == "article" else "outside"
        elif "eqno" in classes and self._is("math div"):
            what, self._number = "number", ""
        elif self._is("silent") or tag in LEFT_OUT or classes & NO_PROSE or (self.chapter and tag == "table"):
            what = "silent"
        elif "math" in classes and tag in ("span", "div"):
            what, self._formula, self._label = f"math {tag}", [], given.get("id", "")
        elif _own(tag, given.get("id", "")):
            what = self._enter(given["id"])
        elif self._inside and (re.fullmatch("h[1-6]", tag) or (tag == "summary" and self._of_exercise())):
            what = "title"
        elif tag == "em" and self._inside and self.chapter:
            what = "emphasis"
            self._inside[-1].said.append("")
        elif tag == "dt" and given.get("id", "").startswith("term-"):
            what = "term"
            if not self._naming:  # the second name of an entry stands right behind the first
                self.sections.append(Section(given["id"]))
            self._naming = True
            self.sections[-1].names.append("")
        elif tag == "dd" and self.sections and self.sections[-1].names:
            what, self._naming = "meaning", False
            self._inside.append(self.sections[-1])
        elif tag == "a" and self._inside and re.match(r"(?:.*glossary\.html)?#term-", given.get("href", "")):
            self._inside[-1].terms.add(given["href"].partition("#")[2])
        if what == "outside":
            return
        self._open.append((tag, what))
        if tag not in INLINE:
            self.handle_data(" ")

    def handle_endtag(self, tag: str) -> None:
        """Close it."""
        if not self._open or tag in VOID:
            return
        opened, what = self._open.pop()
        assert opened == tag, f"{self.page}: <{opened}> is closed by </{tag}>"
        if what.startswith("math"):
            self._said(what)
        elif what in ("section", "meaning"):
            self._inside.pop()
        if tag not in INLINE:
            self.handle_data(" ")

    def handle_data(self, data: str) -> None:
        """Text goes where it stands."""
        if not self._open or self._is("silent"):
            return
        if self._is("number"):
            self._number += data.strip()
        elif self._is("math span", "math div"):
            self._formula.append(data)
        elif self._is("term"):
            self.sections[-1].names[-1] += data.strip()
        elif self._inside:
            if self._is("emphasis") and self._inside[-1].said:
                self._inside[-1].said[-1] += data
            (self._inside[-1].title if self._is("title") else self._inside[-1].text).append(data)

    def _is(self, *kinds: str) -> bool:
        return any(what in kinds for _, what in self._open)

    def _enter(self, anchor: str) -> str:
        self._inside.append(Section(anchor))
        self.sections.append(self._inside[-1])
        return "section"

    def _of_exercise(self) -> bool:
        return self._inside[-1].anchor.startswith("exercise-") and not self._inside[-1].title

    def _said(self, what: str) -> None:
        tex = "".join(self._formula).strip()
        bare = re.sub(r"^\\[(\[]|\\[)\]]$", "", tex)
        if what == "math span":
            self.handle_data(letters(bare) or "…")
        elif self._label.startswith("equation-"):
            self.equations[self._label] = tex
            name = self._label.removeprefix("equation-eq-").replace("-", " ")
            around = "".join(self._inside[-1].title) if self._inside else ""
            self.sections.append(Section(self._label, [f"{self._number} {name}"], [letters(bare) or around]))


def _own(tag: str, name: str) -> bool:
    """Is this element a result of its own? A theorem's box is part of its section."""
    if tag == "section":
        return name not in ("", "proof-content")
    return tag == "details" and name.startswith("exercise-")


def _joined(parts: list[str]) -> str:
    return " ".join("".join(parts).replace("\u200b", "").split())


def kind(page: str) -> str:
    """Where a page stands in the ranking."""
    if page.startswith(f"{API}/"):
        return "library"
    if page.startswith("notebooks/"):
        return "notebook"
    return "chapter" if chapter_of(page) else "appendix"


def other_names(meaning: str) -> list[str]:
    """What an entry's text calls "also": names of at most four words, one behind the other."""
    said = [
        part
        for text in re.findall(r"\b(?:Also|Abbreviated) ([^.;:]+)", meaning)
        for part in re.split(r", | and ", text)
    ]
    names = [re.sub(rf"(?<=[{HAN}]) .*", "", part.strip()) for part in said]
    short = re.match(r"([A-Z][A-Za-z]{1,6}):", meaning)  # "DPO: fitting the policy itself …"
    return [*([short[1]] if short else []), *(n for n in names if len(n.split()) <= 4 and not n.startswith("the "))]


def read(page: str, text: str) -> Reader:
    """A page as it was written."""
    reader = Reader(page)
    begin, end = text.find("<article"), text.rfind("</article>")
    if begin >= 0 and end > begin:
        reader.feed(text[begin : end + len("</article>")])
    for section in reader.sections:
        if section.names:
            section.title = [" · ".join(section.names)]
            section.names = [*section.names, *other_names(_joined(section.text))]
        elif section.anchor in PHRASES:
            section.names = list(PHRASES[section.anchor])
    return reader


def written(app: Sphinx) -> Iterator[Reader]:
    """All pages."""
    for page in sorted(app.env.all_docs):
        path = Path(app.builder.get_outfilename(page))
        if path.is_file():
            yield read(page, path.read_text(encoding="utf-8"))


def write(app: Sphinx, exception: Exception | None) -> None:
    """The index, once for the site, and the equations that other pages show where they refer to them."""
    if exception is not None or app.builder.name != "html":
        return
    known = list(written(app))
    pages = [(one.page, kind(one.page), [s.entry() for s in one.sections]) for one in known if one.sections]
    equations = {f"{one.page}.html#{name}": tex for one in known for name, tex in one.equations.items()}
    words = {"stop": sorted(STOP), "same": SAME}
    for place, data in ((DATA, {"Pages": pages, "Words": words}), (EQUATIONS, {"Equations": equations})):
        lines = [
            f"window.minirlhf{name} = {json.dumps(value, ensure_ascii=False, separators=(',', ':'))};\n"
            for name, value in data.items()
        ]
        (Path(app.outdir) / place).write_text("".join(lines), encoding="utf-8")


def words(node: nodes.Node) -> Iterator[str]:
    """A paragraph as it is described."""
    if isinstance(node, nodes.Text):
        yield node.astext()
    elif isinstance(node, nodes.math):
        yield letters(node.astext()) or "…"
    else:
        for child in node.children:
            yield from words(child)


def describe(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """The first paragraph of a page is what a search engine shows of it."""
    long = (
        (p for p in doctree.findall(nodes.paragraph) if len(p.astext()) > 60 and "run-this" not in p["classes"])
        if doctree
        else iter(())
    )
    first = next(long, None)
    if first is not None:
        goal = "After this chapter you will be able to " * (
            isinstance(first.parent, nodes.list_item) and chapter_of(page) is not None
        )
        text = goal + " ".join("".join(words(first)).split())
        context["description"] = text if len(text) <= DESCRIBED else f"{text[:DESCRIBED].rsplit(' ', 1)[0]} …"


def setup(app: Sphinx) -> dict[str, Any]:
    """After the pages."""
    app.connect("html-page-context", describe)
    app.connect("build-finished", write)
    return {"version": "2", "parallel_read_safe": True, "parallel_write_safe": True}
