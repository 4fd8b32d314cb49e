"""What a reader is asked to predict, and who answers: the library, a study or an oracle, as the page is built. Nobody states an answer.

A chapter's questions are in ``book/predictions/NN.py``, each an :class:`Ask` under the name that the page calls it by:

    best_of_sixteen = Ask(
        "A reward model picks the best of 16 replies in place of the best of 4. What do the replies earn, and what are they worth?",
        {
            "more of both": "So it is as long as what the reward model likes is what people like.",
            "more reward, less worth": "",
            "neither changes much": "The best of sixteen lies further out: the mean of a maximum grows with what it is taken of.",
        },
        lambda: ...,
    )

To each wrong choice belongs what its chooser may have had in mind, and why it is otherwise. The author says by the empty one which choice is
right, and a build in which the answer comes out otherwise fails. A number that is typed is a :class:`Typed`. A figure that can be touched has an
:class:`Ask` of its own.
"""

from __future__ import annotations

import importlib.util
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Formatter
from types import ModuleType
from typing import Any

from minirlhf.core.errors import ArgumentError
from minirlhf_course import evidence

FOLDER = Path(__file__).resolve().parents[1] / "predictions"

Found = Mapping[str, Any]


class _Prose(Formatter):
    """Numbers as the book's sentences write them: .90, −1.2."""

    def format_field(self, value: Any, format_spec: str) -> str:
        text = format(value, format_spec)
        if isinstance(value, str):
            return text
        return re.sub(r"^(−?)0\.", r"\1.", text.replace("-", "−"))


def prose(text: str, found: Found) -> str:
    """``text`` with the numbers of ``found`` in its fields."""
    return _Prose().vformat(text, (), found)


def printed(text: str) -> str:
    """With the apostrophes that print has."""
    return text.replace("'", "’")


@dataclass(frozen=True)
class Typed:
    """A number that the reader types.

    Attributes:
        within: how far from what came out is near enough, in its unit; or, with ``factor``, in how many times as much or as little.
        low, high: what is told to those whose number is too small, and too large; fields as in ``told``.
        unit: what stands behind the number, such as "%".
        form: how what came out is written.
        factor: is ``within`` a factor, 2 for half as much to twice as much?
    """

    within: float
    low: str
    high: str
    unit: str = ""
    form: str = ".2f"
    factor: bool = False

    def __post_init__(self) -> None:
        if not (self.within > 1 if self.factor else self.within > 0):
            low = 1 if self.factor else 0
            message = f"within: expected more than {low}, got {self.within}"
            raise ArgumentError(message, argument="within", value=self.within, expected=f"({low}, inf)")


@dataclass(frozen=True)
class Settled:
    """An :class:`Ask` with its answer: all texts as they are printed.

    Attributes:
        question: as it is asked.
        lessons: by choice, what is told to those who chose it; empty for the one that came out. For a typed number "low" and "high".
        answer: the choice that came out, or the number.
        told: what came out and why, in Markdown; a chapter says it on its page.
        typed: how a number is asked for, or None.
        found: the numbers and words that came with the answer.
    """

    question: str
    lessons: Mapping[str, str]
    answer: str | float
    told: str
    typed: Typed | None
    found: Found


@dataclass(frozen=True)
class Ask:
    """What a reader is asked to predict before the result is shown.

    Attributes:
        question: a sentence or two; it may hold fields for the numbers that ``answer`` finds, and so may the lessons.
        choices: two to ten, each with what is told to those who choose it and are wrong; or a number to type.
        answer: the choice that came out, or the number, and with it numbers and words by name. Of a figure it is a function of one that gives
            the oracle's values at a setting, of a chapter a function of nothing.
        told: of a figure what came out and why, in Markdown; a chapter says it on its page.
        shows: of a figure the setting of which the question speaks, where it differs from the start; there it goes when the answer is given.
    """

    question: str
    choices: Mapping[str, str] | Typed
    answer: Callable[..., Any]
    told: str = ""
    shows: Mapping[str, Any] = field(default_factory=dict)

    def settled(self, *given: Any) -> Settled:
        """Everything as it came out.

        Raises:
            ValueError: an answer that is no choice, or not the one that the author holds for right; a wrong choice without a lesson.
        """
        answer = self.answer(*given)
        answer, found = answer if isinstance(answer, tuple) else (answer, {})
        if isinstance(self.choices, Typed):
            if isinstance(answer, str):
                message = f"what came out, {answer!r}, is no number"
                raise ArgumentError(message, argument="answer", value=answer, expected="float")
            lessons = {"low": self.choices.low, "high": self.choices.high}
            right = []
        else:
            if not 2 <= len(self.choices) <= 10:
                message = f"choices: expected two to ten, got {list(self.choices)}"
                raise ArgumentError(message, argument="choices", value=list(self.choices), expected="[2, 10]")
            if answer not in self.choices:
                message = f"what came out, {answer!r}, is none of the choices {list(self.choices)}"
                raise ArgumentError(message, argument="answer", value=answer, expected=list(self.choices))
            lessons = dict(self.choices)
            right = [choice for choice, lesson in lessons.items() if not lesson]
            if right != [answer]:
                message = f"{answer!r} came out; the choice without a lesson, the right one, is {' and '.join(map(repr, right)) or 'none'}"
                raise ArgumentError(message, argument="answer", value=answer, expected=right)
            # Authors like to put the right one last. Turned round, what is in order stays so.
            if zlib.crc32(self.question.encode()) % 2:
                lessons = dict(reversed(lessons.items()))
        lessons = {printed(choice): printed(prose(lesson, found)) for choice, lesson in lessons.items()}
        if dull := [
            choice
            for choice, lesson in lessons.items()
            if choice not in map(printed, right) and not lesson.endswith((".", "!", "?"))
        ]:
            message = f"what is told to those who choose {dull[0]!r} is no sentence: {lessons[dull[0]]!r}"
            raise ArgumentError(message, argument=dull[0], value=lessons[dull[0]], problem="no sentence")
        typed = self.choices if isinstance(self.choices, Typed) else None
        answer = printed(answer) if isinstance(answer, str) else answer
        return Settled(printed(prose(self.question, found)), lessons, answer, prose(self.told, found), typed, found)


def module(path: Path, name: str) -> ModuleType:
    """A file of the book's, which is in no package."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def questions(chapter: str) -> dict[str, Ask]:
    """What chapter ``chapter`` ("05") asks, by name; nothing where it has no such file."""
    path = FOLDER / f"{chapter}.py"
    if not path.is_file():
        return {}
    found = module(path, f"book_predictions_{chapter}")
    return {name: one for name, one in vars(found).items() if isinstance(one, Ask)}


# -- what studies have found -------------------------------------------------------------------------------------


def seeds(study: str, name: str) -> list[float]:
    """A measurement of a study, one number a seed; ``minirlhf verify studies`` lists the studies."""
    return evidence.values(evidence.result(study), name)


def mean(study: str, name: str) -> float:
    """Its mean over the seeds."""
    found = seeds(study, name)
    return sum(found) / len(found)


def compared(study: str, name: str, other: str) -> str:
    """``"larger"``, ``"smaller"`` or ``"alike"``: what the seeds of a study say of two of its measurements, in pairs (:mod:`minirlhf_course.evidence.paired`)."""
    [pair] = evidence.differences({name: seeds(study, name), other: seeds(study, other)}).values()
    return ("larger" if pair.mean > 0 else "smaller") if pair.significant else "alike"
