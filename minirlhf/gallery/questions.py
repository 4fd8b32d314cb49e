"""Questions that people ask in trackers, from ``questions.toml``: found by the words they use, shown by a command of seconds."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from minirlhf.core.errors import unknown


@dataclass(frozen=True)
class AskedQuestion:
    """A question and its answer.

    Attributes:
        name: for the command line, and what the page is linked by.
        part: the heading it stands under.
        asked: as one would ask.
        words: what people type when they look for it.
        answer: in Markdown, one paragraph or two.
        command: shows it within seconds.
        shows: what to look at in what the command prints.
        threads: ``owner/repository#number`` of trackers where it was asked.
        metrics: of a run, in whose entries it is linked.
        findings: of the doctor, beside which it is named.
    """

    name: str
    part: str
    asked: str
    words: tuple[str, ...]
    answer: str
    command: str
    shows: str
    threads: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()


@functools.cache
def questions() -> dict[str, AskedQuestion]:
    """All of them by name, in the order of the page."""
    read = tomllib.loads(files("minirlhf.gallery").joinpath("questions.toml").read_text(encoding="utf-8"))
    found = {}
    for name, row in read.items():
        given: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value.strip() for key, value in row.items()
        }
        found[name] = AskedQuestion(name, **given)
    return found


def get(name: str) -> AskedQuestion:
    """The question of this name; an unknown one is a ``UserError`` with the nearest."""
    if name not in questions():
        raise unknown("question", name, questions())
    return questions()[name]


def search(text: str, count: int = 3) -> list[AskedQuestion]:
    """Those that have most of the words, the best first; words of the title and of the list count three times those of the answer.

    A word of four letters or more also counts where another begins with it; none are found if no word is met.
    """
    asked = _words(text)
    scored: list[tuple[int, int, AskedQuestion]] = []
    for question in questions().values():
        title, answer = _words(" ".join((question.asked, *question.words, question.name))), _words(question.answer)
        score = sum(3 * _met(word, title) or _met(word, answer) for word in asked)
        if score:
            scored.append((-score, len(scored), question))
    return [question for _, _, question in sorted(scored)[:count]]


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower().replace("_", " "))


def _met(word: str, among: Sequence[str]) -> bool:
    return word in among or (len(word) >= 4 and any(other.startswith(word) for other in among))
