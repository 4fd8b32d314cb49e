"""``{index-of-terms}``: for each term of the glossary the sections that say most about it; ``{index-of-equations}``: all labels by name.

Nothing is marked by hand: the sections are those whose text has the term. One that links it (``{term}``) counts more, and so does one that has it
in its title; the first chapter that links it, or else that has it, introduces it. A term that stands in the glossary only leads there.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from docutils import nodes
from numbering import APPENDICES, chapter_of
from proofs import equation_link, equations
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

GLOSSARY = "glossary"
MOST = 7  # places of a term
PLAIN = (
    "model",
    "sampling",
    "method",
    "theorem",
    "policy",
    "count",
    "law",
)  # words that do not tell a term from others
LINKED, TITLED = 5, 4  # how many occurrences a link counts for, and a title


@dataclass(frozen=True)
class Section:
    """A section of a page: where it is, what it is called, what it says, and which terms it links."""

    page: str
    anchor: str
    number: str
    title: str
    text: str
    links: tuple[str, ...]

    @cached_property
    def small(self) -> str:
        """Text and title in small letters, in which a search for a plain string is quick."""
        return f"{self.text}\n{self.title}".lower()


@dataclass(frozen=True)
class Place:
    """A section that an index leads to; the one that introduces the term is ``first``."""

    section: Section
    first: bool


def pattern(term: str) -> re.Pattern[str]:
    """A term as it stands in a text: with any space or hyphen between its words, in the plural too; short ones and names by their own letters."""
    name = term.split(" (")[0]
    words = [re.escape(word) for word in re.split(r"[\s-]+", name)]
    last = words[-1]
    if last.endswith("y"):
        words[-1] = f"{last[:-1]}(?:y|ies)"
    elif not last.endswith("s"):
        words[-1] = f"{last}(?:e?s)?"
    exact = name.isupper() or len(name) <= 3
    between = r"[\s-]+"
    return re.compile(rf"(?<![\w-]){between.join(words)}(?!\w)", 0 if exact else re.IGNORECASE)


def stems(term: str) -> list[re.Pattern[str]]:
    """The words of a term that mean something by themselves, without their endings, for texts that have them apart or bent."""
    words = [word for word in re.split(r"[\s-]+", term.replace("’", "'")) if len(word) > 3 and word not in PLAIN]
    bare = [re.sub(r"(?:'s|ation|ness|ing|ion|ors?|ed|s)$", "", word) for word in words]
    return [re.compile(rf"\b{re.escape(word)}", re.IGNORECASE) for word in bare if len(word) > 3]


def begins(term: str) -> str:
    """What every text that has the term contains, in small letters: its first word, without an ending that the plural changes."""
    return re.split(r"[\s-]+", term.split(" (")[0])[0].lower().removesuffix("y")


def places(term: str, sections: Iterable[Section]) -> list[Place]:
    """Where to look a term up, in the order of the book; where no section has it as it stands, those that have all of its words."""
    known = list(sections)
    near = [section for section in known if begins(term) in section.small or term.lower() in section.links]
    return _places(term, near, [pattern(term)]) or _places(term, known, stems(term))


def _places(term: str, sections: list[Section], signs: list[re.Pattern[str]]) -> list[Place]:
    scored = []
    for section in sections:
        linked = term.lower() in section.links
        said = min((len(sign.findall(section.text)) for sign in signs), default=0)
        titled = bool(signs) and all(sign.search(section.title) for sign in signs)
        score = said + LINKED * linked + TITLED * titled
        if score:
            scored.append((section, score, linked))
    if not scored:
        return []
    chapters = [entry for entry in scored if chapter_of(entry[0].page)] or scored
    first = next((section for section, _, linked in chapters if linked), chapters[0][0])
    best = sorted(scored, key=lambda entry: (entry[0] is not first, -entry[1]))[:MOST]
    kept = {id(section) for section, _, _ in best}
    return [Place(section, section is first) for section, _, _ in scored if id(section) in kept]


# -- what the book says --------------------------------------------------------------------------------------------


def sections(env: BuildEnvironment) -> Iterator[Section]:
    """All sections of the chapters, then of the appendices with text, in the order of the book."""
    pages = sorted(page for page in env.found_docs if "/" not in page and chapter_of(page))
    for page in [*pages, *sorted(APPENDICES, key=lambda page: APPENDICES[page][0]), "engine"]:
        if page in env.all_docs:
            yield from _sections(env, page)


def _sections(env: BuildEnvironment, page: str) -> Iterator[Section]:
    tree = env.get_doctree(page)
    letter = env.titles[page].astext().split(" · ")[0]
    numbers = env.toc_secnumbers.get(page, {})
    for node in tree.findall(nodes.section):
        if isinstance(node.parent, nodes.section) and isinstance(node.parent.parent, nodes.section):
            continue  # its text belongs to the section around it
        title = next((child for child in node.children if isinstance(child, nodes.title)), None)
        if title is None:
            continue  # a frame without a name
        own = [child for child in node.children if not (isinstance(child, nodes.section) and node.parent is tree)]
        anchor = node["ids"][0] if isinstance(node.parent, nodes.section) else ""
        number = numbers.get(f"#{anchor}" if anchor else "")
        yield Section(
            page=page,
            anchor=anchor,
            number=".".join(map(str, number)) if number else letter,
            title=title.astext(),
            text="\n".join(_prose(child) for child in own),
            links=tuple(link.lower() for child in own for link in _links(child)),
        )


def _prose(node: nodes.Node) -> str:
    """A node's text without formulas and programs."""
    skipped = (nodes.math, nodes.math_block, nodes.literal_block, nodes.literal, nodes.comment, nodes.raw)
    if isinstance(node, skipped):
        return " "
    if isinstance(node, nodes.Text):
        return node.astext()
    block = isinstance(node, nodes.Body | nodes.Structural | nodes.title)
    return "".join(map(_prose, node.children)) + ("\n" if block else "")


def _links(node: nodes.Node) -> Iterator[str]:
    if isinstance(node, nodes.Element):
        for link in node.findall(addnodes.pending_xref):
            if link.get("reftype") == "term":
                yield link["reftarget"]


def terms(env: BuildEnvironment) -> list[tuple[str, str, str]]:
    """Each entry of the glossary: its English name, its Chinese one, its anchor."""
    found = []
    for glossary in env.get_doctree(GLOSSARY).findall(addnodes.glossary):
        for item in glossary.findall(nodes.definition_list_item):
            english, chinese, *_ = list(item.findall(nodes.term))
            found.append((english.astext(), chinese.astext(), english["ids"][0]))
    return sorted(found, key=lambda entry: entry[0].lower())


# -- the page ------------------------------------------------------------------------------------------------------


class index_of_terms(nodes.General, nodes.Element):
    """Stands for the index until all pages are read."""


class index_of_equations(nodes.General, nodes.Element):
    """Stands for the list of the equations until all pages are read."""


class IndexOfTerms(SphinxDirective):
    """Leave a place for it."""

    def run(self) -> list[nodes.Node]:
        """Written anew at each build."""
        self.env.note_reread()
        return [index_of_terms()]


class IndexOfEquations(SphinxDirective):
    """Leave a place for it."""

    def run(self) -> list[nodes.Node]:
        """Written anew at each build."""
        self.env.note_reread()
        return [index_of_equations()]


class Fill(SphinxPostTransform):
    """When all pages are read and numbered."""

    default_priority = 5

    def run(self, **kwargs: Any) -> None:
        """On the page of the index only."""
        for node in list(self.document.findall(index_of_terms)):
            node.replace_self(self._terms())
        for node in list(self.document.findall(index_of_equations)):
            node.replace_self(self._equations())

    def _link(self, page: str, anchor: str, *inside: nodes.Node, title: str = "") -> nodes.reference:
        return make_refnode(self.app.builder, self.env.docname, page, anchor, list(inside), title or None)

    def _terms(self) -> list[nodes.Node]:
        known = list(sections(self.env))
        letters: dict[str, nodes.container] = {}
        for english, chinese, anchor in terms(self.env):
            found = places(english, known)
            letter = english[0].upper()
            box = letters.setdefault(letter, nodes.container(classes=["index-letter"]))
            line = nodes.paragraph(classes=["index-entry"])
            line += self._link(GLOSSARY, anchor, nodes.inline("", english))
            line += nodes.inline("", f" {chinese} ", classes=["index-other"])
            for at, place in enumerate(found):
                shown = (nodes.strong if place.first else nodes.inline)("", place.section.number)
                line += nodes.Text(", " if at else "")
                line += self._link(place.section.page, place.section.anchor, shown, title=place.section.title)
            box += line
        return [part for letter, box in letters.items() for part in (nodes.rubric(text=letter), box)]

    def _equations(self) -> list[nodes.Node]:
        box = nodes.container(classes=["index-letter"])
        for label in sorted(equations(self.env)):
            name = nodes.literal(text=label.removeprefix("eq:"))
            link = equation_link(label, self.env.docname)
            box += nodes.paragraph("", "", name, nodes.Text(" "), link, classes=["index-entry"])
        return [box]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register both places, and what fills them."""
    app.add_node(index_of_terms)
    app.add_node(index_of_equations)
    app.add_directive("index-of-terms", IndexOfTerms)
    app.add_directive("index-of-equations", IndexOfEquations)
    app.add_post_transform(Fill)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
