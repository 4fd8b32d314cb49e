"""Graders of free text: ``(completion, reference) -> reward``, in strings alone, for any two texts.

Each gives 1.0 or 0.0 and never raises.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import TypeAlias

from minirlhf.core.errors import unknown

Grader: TypeAlias = Callable[[str, str], float]

# 72, -3.5, 1,080, .5, 3/4. At most 30 digits in a row: longer ones are no answers, and slow to calculate with.
_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3}){1,9}(?![0-9])|[0-9]{1,30}(?![0-9]))"
_NUMBER = re.compile(
    rf"(?<![0-9.])-?(?:{_DIGITS}(?:\.[0-9]{{1,30}}(?![0-9]))?|\.[0-9]{{1,30}}(?![0-9]))(?:/{_DIGITS})?"
)


def exact(completion: str, reference: str) -> float:
    """1 if the two are the same words in the same order."""
    return float(completion.split() == reference.split())


def contains(completion: str, reference: str) -> float:
    """1 if the reference stands in the completion as whole words, in any case: ``7`` does not stand in ``72``."""
    text, wanted = (" ".join(words.casefold().split()) for words in (completion, reference))
    return float(bool(wanted) and bool(re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", text)))


def numeric(completion: str, reference: str) -> float:
    """1 if both give the same number: ``#### 1,080`` and ``1080.0``, ``$0.5`` and ``1/2``.

    The answer of a text is the first number after its last ``####``, as in GSM8K; without ``####``, its last number.
    """
    answer, wanted = answer_number(completion), answer_number(reference)
    return float(answer is not None and answer == wanted)


def gsm8k(completion: str, reference: str) -> float:
    """As :func:`numeric`, and the completion must mark its answer by ``####``: the format is part of the task."""
    return numeric(completion, reference) if "####" in completion else 0.0


def answer_number(text: str) -> Fraction | None:
    """The number that a text gives as its answer (see :func:`numeric`), or None."""
    _, marked, after = text.replace("$", "").replace("−", "-").rpartition("####")
    found = _NUMBER.findall(after)
    if not found:
        return None
    value = (found[0] if marked else found[-1]).replace(",", "")
    numerator, _, denominator = value.partition("/")
    below = Fraction(denominator or 1)
    return Fraction(numerator) / below if below else None


GRADERS: dict[str, Grader] = {grader.__name__: grader for grader in (exact, contains, numeric, gsm8k)}


def get(name: str) -> Grader:
    """The grader of this name; an unknown one is a ``UserError`` with the nearest."""
    if name not in GRADERS:
        raise unknown("grader", name, GRADERS)
    return GRADERS[name]
