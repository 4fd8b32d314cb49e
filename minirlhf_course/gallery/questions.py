"""Frequent questions from issue trackers (``questions.toml``), with a search by words and a command that shows each."""

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
class FrequentQuestion:
    """A question and its answer.

    Attributes:
        name: the name on the command line and in links.
        part: the heading of its section.
        question: as users ask it.
        words: search phrases that users type.
        answer: in Markdown, one or two paragraphs.
        command: a command that demonstrates the answer within seconds.
        shows: what to look at in the output of the command.
        threads: ``owner/repository#number`` of issues that ask the question.
        metrics: metrics whose entries link to the question.
        findings: findings of the doctor that link to the question.
    """

    name: str
    part: str
    question: str
    words: tuple[str, ...]
    answer: str
    command: str
    shows: str
    threads: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()


@functools.cache
def questions() -> dict[str, FrequentQuestion]:
    """Return all questions by name, in the order of the page."""
    tables = tomllib.loads(files("minirlhf_course.gallery").joinpath("questions.toml").read_text(encoding="utf-8"))
    by_name = {}
    for name, row in tables.items():
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value.strip() for key, value in row.items()
        }
        by_name[name] = FrequentQuestion(name, **fields)
    return by_name


def get(name: str) -> FrequentQuestion:
    """Return the question of this name; an unknown name raises a ``UserError`` that suggests the nearest name."""
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
#: Stop words: words of all kinds of questions, which do not help to distinguish them.
STOP = frozenset(_STOP.split())
_SAME = """
    fall falls fell falling drop drops dropped dropping decrease decreases decreased decreasing decline declines shrink shrinks down lower
    rise rises rose rising increase increases increased increasing grow grows grew growing climb climbs up higher
    identical alike
    flat stuck plateau plateaus stagnates
    spike spikes jump jumps leap leaps explode explodes
    high large big huge
    0 zero
    logps logp logprob logprobs
"""
#: Synonyms in a search: each word is mapped to the first word of its line.
SAME = {word: line.split()[0] for line in _SAME.splitlines() for word in line.split()}
#: The fraction of a query that a question must match, with each word weighted by its rarity.
FITS = 0.5


def search(text: str, count: int = 3) -> list[FrequentQuestion]:
    """Return the questions that match the words best, the best first; an empty list if none matches.

    Words are weighted by their rarity among the questions; a word of no question weighs as much as the rarest. A word
    that occurs only in the answer counts one third. Words of four or more letters also match if one is a prefix of the
    other. Words of :data:`STOP` do not count, and the words of a line of :data:`SAME` are synonyms. A question matches
    if it has the fraction :data:`FITS` of the query's weight. Among the matches, questions with the words in one short
    phrase rank first.
    """
    query = [word for word in dict.fromkeys(_words(text)) if word not in STOP]
    docs = [(question, _phrases(question), _words(question.answer)) for question in questions().values()]
    weights = dict[str, float]()
    for word in query:
        hits = sum(_met(word, answer) or any(_met(word, phrase) for phrase in phrases) for _, phrases, answer in docs)
        weights[word] = math.log(1 + len(docs) / max(hits, 1))
    total_weight = sum(weights.values())
    scored: list[tuple[float, int, FrequentQuestion]] = []
    for position, (question, phrases, answer) in enumerate(docs):
        in_title = {word for word in query if any(_met(word, phrase) for phrase in phrases)}
        matched_weight = sum(weights[word] * (1 if word in in_title else _met(word, answer) / 3) for word in query)
        if query and matched_weight >= FITS * total_weight:
            similarity = max(
                2 * sum(_met(word, phrase) for word in query) / (len(phrase) + len(query)) for phrase in phrases
            )
            scored.append((-matched_weight - similarity * total_weight / 2, position, question))
    return [question for _, _, question in sorted(scored)[:count]]


def _phrases(question: FrequentQuestion) -> list[list[str]]:
    """Return the title, the name and the search phrases, without stop words."""
    word_lists = (_words(text) for text in (question.question, question.name, *question.words))
    return [[word for word in words if word not in STOP] or words for words in word_lists]


def _words(text: str) -> list[str]:
    words: list[str] = re.findall(r"\d+\.\d+|[a-z0-9]+", text.lower().replace("_", " "))
    return [SAME.get(word, word) for word in words]


def _met(word: str, words: Sequence[str]) -> bool:
    return any(word == other or (min(len(word), len(other)) >= 4 and _begins(word, other)) for other in words)


def _begins(word: str, other: str) -> bool:
    """Return whether one word is a prefix of the other: queries may be abbreviated, and endings may differ."""
    return other.startswith(word) or (word.startswith(other) and len(word) - len(other) <= 3)
