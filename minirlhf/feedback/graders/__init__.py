"""Graders of free text: ``(completion, reference) -> reward``, computed from the two strings alone.

A grader never raises, whatever the two texts are. NaN means that the *reference* is unusable (no number, no tests): the
sample could not be graded, and is counted and left out. A completion never causes a NaN: nonsense gets the lowest
reward.

Thoughts are no answers: a grader reads what stands after the last ``</think>`` of a text, and a thought that is never
closed has no answer (:func:`answer_part`). Only ``think``, ``language`` and ``repetition`` read the thoughts too.

Each is a ``--grader NAME``; ``A*0.8+B*0.2`` is their weighted sum. Rewards that depend on the length of a completion in
tokens are not graders: they are in :mod:`minirlhf.equations.shaping`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Mapping
from functools import partial as fix
from typing import TypeAlias

from minirlhf.core.errors import UserError, unknown
from minirlhf.feedback.graders.answers import answer_number, contains, edit, exact, gsm8k, numeric, partial
from minirlhf.feedback.graders.forms import constraints, language, repetition, think
from minirlhf.feedback.graders.maths import LONGEST, final_text, maths, plain
from minirlhf.feedback.graders.programs import tests, tests_share
from minirlhf.feedback.graders.thoughts import THOUGHTS, ThoughtTags, answer_part

Grader: TypeAlias = Callable[[str, str], float]

GRADERS: dict[str, Grader] = {
    grader.__name__: grader
    for grader in (
        *(exact, contains, edit, numeric, gsm8k, partial, maths),
        *(think, constraints, language, repetition),
        *(tests, tests_share),
    )
}

#: Graders that read the completion alone. They ignore the reference, which may be missing.
ALONE: tuple[Grader, ...] = (think, repetition)

#: Graders of a whole completion, thoughts included, whatever the tags of thoughts are.
WHOLE: tuple[Grader, ...] = (language, repetition)

_VOTES: Mapping[str, Callable[[str], Hashable]] = {
    "exact": lambda text: tuple(text.split()),
    "numeric": answer_number,
    "gsm8k": lambda text: answer_number(text) if "####" in text else None,
    "maths": lambda text: plain(final_text(text)[:LONGEST]) or None,
}


def votes(name: str, thoughts: ThoughtTags = THOUGHTS) -> Callable[[str], Hashable] | None:
    """Return the function that extracts a completion's answer, by which completions vote; None for other graders.

    Its value is None if there is no answer. All completions that the grader accepts vote for one answer, whatever is
    extracted from them.
    """
    vote = _VOTES.get(name)
    return None if vote is None else lambda text: vote(answer_part(text, thoughts))


_TERM = re.compile(r"([a-z_0-9]+|[^*]+\.py:\w+)(?:\*([0-9]*\.?[0-9]+))?")


def get(name: str, thoughts: ThoughtTags = THOUGHTS) -> Grader:
    """Return the grader of this name, or the weighted sum that an expression such as ``gsm8k*0.9+think*0.1`` names.

    Args:
        thoughts: the tags that open and close a thought.

    Raises:
        UserError: no grader has this name (the message suggests the nearest), or a weight is not a number.
    """
    if "+" not in name and "*" not in name:
        if name not in GRADERS:
            raise unknown("grader", name, GRADERS)
        grader: Callable[..., float] = GRADERS[name]
        return grader if thoughts == THOUGHTS or grader in WHOLE else fix(grader, thoughts=thoughts)
    return weighted([(get(term, thoughts), weight) for term, weight in terms(name)])


def terms(expression: str) -> list[tuple[str, float]]:
    """Split a weighted sum into names and weights; a name is a grader's, or ``FILE.py:FUNCTION``.

    Raises:
        UserError: a term has another form, or occurs twice.
    """
    parts: list[tuple[str, float]] = []
    for term in expression.split("+"):
        match = _TERM.fullmatch(term.strip())
        if match is None or match[1] in dict(parts):
            raise UserError(
                f"grader {expression[:80]!r}: expected different names with weights, such as gsm8k*0.9+think*0.1",
                argument="grader",
                value=expression,
                expected="NAME*WEIGHT",
            )
        parts.append((match[1], float(match[2] or 1)))
    return parts


def weighted(parts: list[tuple[Grader, float]]) -> Grader:
    """Return the weighted sum of graders; it is NaN if any of them is."""

    def grade(completion: str, reference: str) -> float:
        return math.fsum(weight * grader(completion, reference) for grader, weight in parts)

    return grade
