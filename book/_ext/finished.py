"""What the page of a finished chapter must be, asked as the book is built: its title, what it needs, its typed numbers.

A fault is a warning of the build. That every equation of the chapter is on its page is asked by :mod:`proofs`.
"""

import importlib.util
import re
import string
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from numbering import APPENDICES
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

from minirlhf_course import chapters

logger = logging.getLogger(__name__)


def asked_for(markdown: str) -> set[int]:
    """The chapters that the first lines of a page say its reader needs."""
    first = re.search(r"^You need (.*?)\n\n", markdown, re.S | re.M)
    return {int(n) for n in re.findall(r"\{chapter\}`(\d+)`", first[1])} if first else set()


def before(needs: Mapping[int, Iterable[int]]) -> dict[int, set[int]]:
    """All chapters from which a way of arrows of the map (``needs`` of the manifests) leads to each."""
    found: dict[int, set[int]] = {}
    for number in sorted(needs):
        found[number] = set(needs[number]).union(*(found[need] for need in needs[number]))
    return found


def misnumbered(titles: Mapping[str, str]) -> dict[str, str]:
    """The appendices, as the contents list them, whose title or equations do not have the letter of their place; with that letter."""
    letters = dict(zip(titles, string.ascii_uppercase, strict=False))
    carried = {page: APPENDICES.get(page, (letter, 0))[0] for page, letter in letters.items()}
    return {
        page: letter
        for page, letter in letters.items()
        if not (titles[page].startswith(f"{letter} · ") and carried[page] == letter)
    }


def typed_numbers(root: Path) -> ModuleType:
    """``tools/typed_numbers.py`` of the repository."""
    spec = importlib.util.spec_from_file_location("typed_numbers", root / "tools" / "typed_numbers.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def examine(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Look at every finished chapter's page that is there, and at the appendices; once, for the site."""
    if app.builder.name != "html":
        return []

    def complain(page: str, text: str) -> None:
        logger.warning(text, location=page, type="finished")

    source = Path(app.srcdir)
    leads = before({c.number: c.needs for c in chapters.chapters()})
    for c in chapters.chapters():
        if not c.finished or c.page not in env.found_docs:
            continue
        text = (source / f"{c.page}.md").read_text(encoding="utf-8")
        if text.splitlines()[0] != f"# {c.title}":
            complain(c.page, f"the title is not that of the manifest, {c.title!r}")
        if more := sorted(asked_for(text) - leads[c.number]):
            complain(c.page, f"the first lines ask for chapters {more}, to which `needs` of the manifest does not lead")
        number = f"{c.number:02}"
        if over := typed_numbers(source.parent).over(number, source.parent):
            counts = ", ".join(f"{place} {found}, at most {most}" for place, (found, most) in over.items())
            remedy = f"print them by {{measured}} or {{quoted}}, or cite; tools/typed_numbers.py --open {number}"
            complain(c.page, f"typed numbers that nothing vouches for: {counts}; {remedy}")
    contents = [node for node in env.get_doctree("index").findall(addnodes.toctree) if node["caption"] == "Appendices"]
    titles = {page: env.titles[page].astext() for node in contents for page in node["includefiles"]}
    for page, letter in misnumbered(titles).items():
        complain(
            page, f"the appendix has the place of letter {letter}; title and APPENDICES of numbering.py say otherwise"
        )
    return []


def setup(app: Sphinx) -> dict[str, Any]:
    """Look once all pages are read."""
    app.connect("env-updated", examine)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
