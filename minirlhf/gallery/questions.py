"""Questions that people ask in trackers, from ``questions.toml``: found by the words they use, shown by a command of seconds."""

from __future__ import annotations

import functools
import math
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


_STOP = """
    a about after all also always am an and any are as at be been but by can could did do does for from get gets go goes had has have
    how i if in into is isn it its just keep keeps like make me my not of off on or our out over really same should so some something
    still t than that the their them then there these they this to too very was we what when where which while who why will with
    without would you your
    better different good model models problem question replies reply run runs training train trained using
"""
#: Words that stand in questions of every kind and tell none of them from another.
STOP = frozenset(_STOP.split())
_SAME = """
    fall falls fell falling drop drops dropped dropping decrease decreases decreased decreasing decline declines shrink shrinks down lower
    rise rises rose rising increase increases increased increasing grow grows grew growing climb climbs up higher
    identical alike
    flat stuck plateau plateaus stagnates
    spike spikes jump jumps leap leaps explode explodes
"""
#: Words that say the same in a search, each to the first of its line.
SAME = {word: line.split()[0] for line in _SAME.splitlines() for word in line.split()}
#: The share of a search that a question must meet, each word weighed by how rare it is.
FITS = 0.5


def search(text: str, count: int = 3) -> list[AskedQuestion]:
    """Those that fit the words best, the best first; none if nothing fits.

    A word counts by how rare it is among the questions, and one that no question has as much as the rarest; one that is met in the answer
    alone counts a third. A word of four letters or more is also met where one begins with the other. Words of :data:`STOP` do not count, those of a line of :data:`SAME` are one.
    A question fits if it meets the share :data:`FITS` of what was asked; among those that fit, one comes first
    that has the words in one phrase, and little else in it.
    """
    asked = [word for word in dict.fromkeys(_words(text)) if word not in STOP]
    every = [(question, _phrases(question), _words(question.answer)) for question in questions().values()]
    weight = dict[str, float]()
    for word in asked:
        held = sum(_met(word, answer) or any(_met(word, phrase) for phrase in phrases) for _, phrases, answer in every)
        weight[word] = math.log(1 + len(every) / max(held, 1))
    whole = sum(weight.values())
    scored: list[tuple[float, int, AskedQuestion]] = []
    for place, (question, phrases, answer) in enumerate(every):
        titled = {word for word in asked if any(_met(word, phrase) for phrase in phrases)}
        met = sum(weight[word] * (1 if word in titled else _met(word, answer) / 3) for word in asked)
        if asked and met >= FITS * whole:
            alike = max(
                2 * sum(_met(word, phrase) for word in asked) / (len(phrase) + len(asked)) for phrase in phrases
            )
            scored.append((-met - alike * whole / 2, place, question))
    return [question for _, _, question in sorted(scored)[:count]]


def _phrases(question: AskedQuestion) -> list[list[str]]:
    """The title and each of the ways to type it, without stop words."""
    spelled = (_words(text) for text in (question.asked, question.name, *question.words))
    return [[word for word in words if word not in STOP] or words for words in spelled]


def _words(text: str) -> list[str]:
    found: list[str] = re.findall(r"\d+\.\d+|[a-z0-9]+", text.lower().replace("_", " "))
    return [SAME.get(word, word) for word in found]


def _met(word: str, among: Sequence[str]) -> bool:
    return any(word == other or (min(len(word), len(other)) >= 4 and _begins(word, other)) for other in among)


def _begins(word: str, other: str) -> bool:
    """Whether one begins with the other: a search may be cut short, and an ending may be missing where it stands."""
    return other.startswith(word) or (word.startswith(other) and len(word) - len(other) <= 3)
