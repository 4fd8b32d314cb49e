"""Chapters carry the number of their file: 05-rlhf-problem.md is chapter 5, with equation 5.1 and figure 5.1 in it.

Sphinx numbers by place in the table of contents, which is wrong while chapters are missing, and counts on from the first chapter
of one part to the first of the next; so both numbers are mended after Sphinx has counted.
"""

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

#: Appendices with equations of their own, which carry a letter (equation H.1), and the chapter whose checks they show.
APPENDICES = {
    "losses": ("H", 14),
    "old-samples": ("J", 12),
    "group-methods": ("K", 13),
    "reasoning-runs": ("P", 16),
    "many-machines": ("Q", 5),
    "real-model": ("T", 16),
}


def chapter_of(docname: str) -> int | None:
    """5 for ``05-rlhf-problem`` and ``notebooks/05_rlhf_problem``, None for other pages."""
    found = re.match(r"(?:notebooks/)?(\d\d)[-_]", docname)
    return int(found.group(1)) if found else None


def checked_by(docname: str) -> int | None:
    """The chapter whose checks prove the equations of a page: its own, or the one that an appendix belongs to."""
    return APPENDICES[docname][1] if docname in APPENDICES else chapter_of(docname)


def renumber(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Put the chapter's number first, wherever Sphinx has stored one."""
    for docname, (letter, _) in APPENDICES.items():
        for figures in env.toc_fignumbers.get(docname, {}).values():
            before = min((number[-1] for number in figures.values()), default=1) - 1
            for key, number in figures.items():
                figures[key] = (letter, number[-1] - before)  # type: ignore[assignment]
    for docname, anchors in env.toc_secnumbers.items():
        chapter = chapter_of(docname)
        if chapter is None:
            continue
        for anchor, number in anchors.items():
            anchors[anchor] = (chapter, *number[1:]) if number else number
        for figures in env.toc_fignumbers.get(docname, {}).values():
            before = min((number[-1] for number in figures.values()), default=1) - 1
            for key, number in figures.items():
                figures[key] = (chapter, *number[1:-1], number[-1] - before)
        titled = [env.titles[docname], *env.tocs[docname].findall(nodes.reference)]
        for node in titled:
            if node.get("secnumber"):
                node["secnumber"] = [chapter, *node["secnumber"][1:]]
    return []


def setup(app: Sphinx) -> dict[str, Any]:
    """Run after Sphinx's own collector, which listens with priority 500."""
    app.connect("env-get-updated", renumber, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
