"""A chapter's predictions and page exercises as a SCORM 1.2 package: ``imsmanifest.xml`` and one page that reports to the platform.

Source: ADL, *Sharable Content Object Reference Model*, version 1.2 (2001), the parts on content aggregation and on the
run-time environment. The page judges answers as the book does (:mod:`minirlhf_course.classroom.in_page`), keeps them in
``cmi.suspend_data``, and reports the score in percent and the completion.
"""

from __future__ import annotations

import functools
import importlib
import json
import re
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from minirlhf.core import provenance
from minirlhf.core.errors import UserError
from minirlhf_course.chapters import chapters
from minirlhf_course.classroom import in_page, release
from minirlhf_course.classroom.exercise import Exercise
from minirlhf_course.report.templates import render

BOOK = provenance.ROOT / "book"
PAGE = "index.html"
LEAST, MOST = (
    -1e9,
    1e12,
)  # ends of "too small" and "too large"; intervals of one width would share a cell, see encrypted_numbers
MANIFEST = """<?xml version="1.0" encoding="UTF-8"?>
<manifest identifier="minirlhf-{number}" version="1.2"
    xmlns="http://www.imsproject.org/xsd/imscp_rootv1p1p2"
    xmlns:adlcp="http://www.adlnet.org/xsd/adlcp_rootv1p2">
  <metadata><schema>ADL SCORM</schema><schemaversion>1.2</schemaversion></metadata>
  <organizations default="chapter">
    <organization identifier="chapter">
      <title>{title}</title>
      <item identifier="questions" identifierref="page"><title>{title}</title></item>
    </organization>
  </organizations>
  <resources>
    <resource identifier="page" type="webcontent" adlcp:scormtype="sco" href="{page}"><file href="{page}"/></resource>
  </resources>
</manifest>
"""


@functools.cache
def book_module(name: str) -> Any:
    """A module of the book's build, which is in no package.

    Raises:
        UserError: the book is not there, because the package was installed without its repository.
    """
    folder = BOOK / "_ext"
    if not (folder / f"{name}.py").is_file():
        message = f"no folder {BOOK}; expected a clone of the repository, which holds the book's questions"
        raise UserError(message, file=BOOK, problem="missing")
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))


def prediction(chapter: str, name: str, asked: Any) -> dict[str, Any]:
    """The data that ``answer.js`` needs of a prediction, as :func:`in_page.table` gives it for an exercise.

    Args:
        chapter: ``"05"``.
        name: the question's name in ``book/predictions``.
        asked: the question with its answer, as ``asking.Settled``.
    """
    salt = f"{chapter} {name}|prediction|"
    entry: dict[str, Any]
    if asked.typed is None:
        letters = [chr(ord("a") + i) for i in range(len(asked.lessons))]
        judged = {letter: (not lesson, lesson) for letter, lesson in zip(letters, asked.lessons.values(), strict=True)}
        verdicts = in_page.encrypted_words(salt, judged)
        entry = {"options": letters, "texts": list(asked.lessons), "verdicts": verdicts}
    else:
        low, high = _near_enough(float(asked.answer), asked.typed)
        intervals = [
            (low, high, True, ""),
            (LEAST, low, False, asked.lessons["low"]),
            (high, MOST, False, asked.lessons["high"]),
        ]
        entry = {"options": [], "verdicts": in_page.encrypted_numbers(salt, intervals), "otherwise": ""}
        entry |= {"unit": asked.typed.unit, "large": abs(float(asked.answer)) >= 10}
    test = {"asks": "Your prediction", "points": 1, "hints": [], "names": ["prediction"]}
    base = {"id": f"{chapter} {name}", "once": True, "penalty": 0.0, "printed": ""}
    return base | {"tests": [test], "answers": {"prediction": entry}}


def _near_enough(answer: float, typed: Any) -> tuple[float, float]:
    """The interval of the numbers that count as right, as ``predict.js`` judges them."""
    slack = 1 + 1e-9
    if not typed.factor:
        return answer - slack * typed.within, answer + slack * typed.within
    low, high = sorted((answer / typed.within / slack, answer * typed.within * slack))
    return low, high


def _statement(exercise: Exercise) -> str:
    """The statement as HTML, its formulas in letters, so that the page needs nothing to typeset them."""
    from markdown_it import MarkdownIt

    letters = book_module("plain_formulas").letters

    def formula(match: re.Match[str]) -> str:
        return str(letters(match[0]) or match[0])

    text = re.sub(r"\$\$.+?\$\$|\$[^$\n]+\$", formula, exercise.statement, flags=re.DOTALL)
    return str(MarkdownIt("commonmark", {"html": False}).enable("table").render(text))


def questions(number: str, exercises: Sequence[Exercise]) -> list[dict[str, Any]]:
    """The chapter's questions in their order: ``title``, ``body`` as HTML, and ``data`` for ``answer.js``.

    Args:
        number: of the chapter, ``"05"``.
        exercises: all of the chapter; those that a page cannot judge are left out.

    Raises:
        UserError: the chapter has no question that a page can judge.
    """
    found = []
    for i, (name, ask) in enumerate(book_module("asking").questions(number).items(), 1):
        asked = ask.settled()
        found.append((f"Prediction {i}", f"<p>{escape(asked.question)}</p>", prediction(number, name, asked)))
    for e in exercises:
        if (table := in_page.table(e)) is not None:
            found.append((f"{e.id} {e.title}", _statement(e), table))
    if not found:
        message = f"chapter {number} has no question that a page can judge; choose another chapter"
        raise UserError(message, argument="--chapter", value=number, problem="empty")
    return [{"title": title, "body": body, "data": _for_script(data)} for title, body, data in found]


def _for_script(data: dict[str, Any]) -> str:
    """JSON that cannot end the element it is written into."""
    return json.dumps(data, ensure_ascii=False).replace("</", "<\\/")


def title(number: str) -> str:
    """``"5 · The RLHF problem"``; of chapter 00 its name."""
    found = [f"{c.number} · {c.title}" for c in chapters() if f"{c.number:02}" == number]
    return found[0] if found else "Prerequisites"


def files(number: str, exercises: Sequence[Exercise]) -> dict[str, str]:
    """The files of the package by name. Raises as :func:`questions`."""
    name = title(number)
    scripts = [(BOOK / "_static" / script).read_text(encoding="utf-8") for script in ("numbers.js", "answer.js")]
    page = render("scorm", title=name, questions=questions(number, exercises), scripts=scripts)
    return {"imsmanifest.xml": MANIFEST.format(number=number, title=escape(name), page=PAGE), PAGE: page}


def write(exercises: Sequence[Exercise], out: Path, replace: bool = False) -> list[Path]:
    """Write one chapter's package into ``out``, and return the file. Raises as :func:`questions`."""
    name = exercises[0].path.parent.name
    made = release.archive(files(exercises[0].chapter, exercises))
    return release.place({out / f"{name}-scorm.zip": made}, replace)
