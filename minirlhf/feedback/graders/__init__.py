"""Graders of free text: ``(completion, reference) -> reward``, from strings alone.

A grader never raises, whatever the two texts are. NaN says that the *reference* cannot be used (no number, no tests): the
sample could not be graded, and is counted and left out. What a completion says never makes a NaN: nonsense earns the least.

Each is a ``--grader NAME``; ``A*0.8+B*0.2`` is their weighted sum. The rewards that depend on how long a reply is, counted in
tokens, are no graders: they are in :mod:`minirlhf.equations.shaping`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Mapping
from typing import TypeAlias

from minirlhf.core.errors import UserError, unknown
from minirlhf.feedback.graders.answers import answer_number, contains, edit, exact, gsm8k, numeric, partial
from minirlhf.feedback.graders.forms import constraints, language, repetition, think
from minirlhf.feedback.graders.maths import LONGEST, final_text, maths, plain
from minirlhf.feedback.graders.programs import tests, tests_share

Grader: TypeAlias = Callable[[str, str], float]

GRADERS: dict[str, Grader] = {
    grader.__name__: grader
    for grader in (
        *(exact, contains, edit, numeric, gsm8k, partial, maths),
        *(think, constraints, language, repetition),
        *(tests, tests_share),
    )
}

#: These grade a reply by itself; what the reference is does not matter, nor whether there is one.
ALONE: tuple[Grader, ...] = (think, repetition)

#: What a reply says, for graders that compare a single answer: replies of one value vote alike. None: it gives no answer. Replies that such a grader
#: accepts are alike, whatever stands here.
ANSWER_OF: Mapping[str, Callable[[str], Hashable]] = {
    "exact": lambda text: tuple(text.split()),
    "numeric": answer_number,
    "gsm8k": lambda text: answer_number(text) if "####" in text else None,
    "maths": lambda text: plain(final_text(text)[:LONGEST]) or None,
}

_TERM = re.compile(r"([a-z_0-9]+)(?:\*([0-9]*\.?[0-9]+))?")


def get(name: str) -> Grader:
    """The grader of this name, or of a weighted sum of names, ``gsm8k*0.9+think*0.1``.

    Raises:
        UserError: no grader has this name (with the nearest), or a weight that is no number.
    """
    if "+" not in name and "*" not in name:
        if name not in GRADERS:
            raise unknown("grader", name, GRADERS)
        return GRADERS[name]
    parts: list[tuple[Grader, float]] = []
    for term in name.split("+"):
        found = _TERM.fullmatch(term.strip())
        if found is None:
            raise UserError(
                f"grader {name[:80]!r}: expected names with weights, such as gsm8k*0.9+think*0.1",
                argument="grader",
                value=name,
                expected="NAME*WEIGHT",
            )
        parts.append((get(found[1]), float(found[2] or 1)))
    return weighted(parts)


def weighted(parts: list[tuple[Grader, float]]) -> Grader:
    """Their sum, each times its weight; NaN where one of them is. On tensors: :func:`~minirlhf.equations.shaping.composite_reward`."""

    def grade(completion: str, reference: str) -> float:
        return math.fsum(weight * grader(completion, reference) for grader, weight in parts)

    return grade
