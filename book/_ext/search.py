"""The search: its index, a script that a page loads from a folder too. ``_static/search.js`` ranks; chapters come first.

Sphinx's own index knows pages, not sections, and its results fetch each page for their few lines, which a browser refuses to a page
that was opened as a file.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from library import API
from numbering import chapter_of
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

DATA = "_static/search-data.js"
DESCRIBED = 160  # letters of a page's description
LEFT_OUT = (nodes.literal_block, nodes.raw, nodes.comment, nodes.citation, nodes.system_message, nodes.target)


def kind(page: str) -> str:
    """Where a page stands in the ranking."""
    if page.startswith(f"{API}/"):
        return "library"
    if page.startswith("notebooks/"):
        return "notebook"
    return "chapter" if chapter_of(page) else "appendix"


def plain(latex: str) -> str:
    r"""The letters of a formula as a reader would type them: ``k3`` for ``k_3``, ``beta`` for ``\beta``."""
    bare = re.sub(r"\\(?:mathrm|mathcal|text|operatorname|bm|hat|bar|tilde|left|right)\b", "", latex)
    return " ".join(re.sub(r"\\([A-Za-z]+)", r" \1 ", re.sub(r"[_^{}$]", "", bare)).split())


def words(node: nodes.Node, tables: bool = True) -> Iterator[str]:
    """What a section says itself: without its subsections, code and references; a chapter's tables are for looking up."""
    if isinstance(node, nodes.Text):
        yield node.astext()
    elif isinstance(node, nodes.math | nodes.math_block):
        yield plain(node.astext())
    elif not isinstance(node, LEFT_OUT) and (tables or not isinstance(node, nodes.table)):
        for child in node.children:
            if not isinstance(child, nodes.section | nodes.title):
                yield from words(child, tables)
        if not isinstance(node, nodes.Inline):
            yield " "


def entries(env: BuildEnvironment, page: str) -> list[tuple[str, str, str]]:
    """Each section of a page: its anchor, its title, and what it says."""
    found = []
    for section in env.get_doctree(page).findall(nodes.section):
        title = next((child for child in section.children if isinstance(child, nodes.title)), nodes.title())
        said = (" ".join("".join(words(node, kind(page) != "chapter")).split()) for node in (title, section))
        found.append((section["ids"][0], *said))
    return found


def write(app: Sphinx, exception: Exception | None) -> None:
    """The index, once for the site."""
    if exception is None and app.builder.name == "html":
        pages = [(page, kind(page), entries(app.env, page)) for page in sorted(app.env.all_docs)]
        pages = [page for page in pages if page[2]]
        text = json.dumps(pages, ensure_ascii=False, separators=(",", ":"))
        (Path(app.outdir) / DATA).write_text(f"window.minirlhfPages = {text};\n", encoding="utf-8")


def describe(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """The first paragraph of a page is what a search engine shows of it."""
    first = next((p for p in doctree.findall(nodes.paragraph) if len(p.astext()) > 60), None) if doctree else None
    if first is not None:
        text = " ".join("".join(words(first)).split())
        context["description"] = text if len(text) <= DESCRIBED else f"{text[:DESCRIBED].rsplit(' ', 1)[0]} …"


def setup(app: Sphinx) -> dict[str, Any]:
    """After the pages."""
    app.connect("html-page-context", describe)
    app.connect("build-finished", write)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
