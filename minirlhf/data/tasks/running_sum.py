"""The running sum: add six numbers modulo 5, one line of working for each.

    =3 +2 +4 +1 +0 +3 +2
    =3 +2 =0 +4 =4 +1 =0 +0 =0 +3 =3 +2 =0

A step is a number and the sum so far, ``+4 =4``, and three words decide whether it is valid: the sum before, the number, the sum
after. The demonstrator is careless: each sum is wrong with probability :data:`CARELESS`, and the steps after it go on from what was
written, so that one slip spoils the answer although every later step is valid. Two slips may cancel.

That makes the chance of a right answer known from any prefix (:meth:`RunningSum.chance`), which verifiers can be held against.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from minirlhf.core.randomness import numpy_generator
from minirlhf.data.tasks.base import Split

MODULUS, STEPS, CARELESS = 5, 6, 0.1
SIZES = {"train": 20_000, "test": 1_000}


@cache
def _splits() -> dict[str, list[str]]:
    total = sum(SIZES.values())
    drawn = numpy_generator("running_sum", "prompts").choice(MODULUS ** (STEPS + 1), size=total, replace=False)
    texts = []
    for number in drawn.tolist():
        digits = [number // MODULUS**place % MODULUS for place in range(STEPS + 1)]
        texts.append(" ".join([f"={digits[0]}", *(f"+{digit}" for digit in digits[1:])]))
    return {"train": texts[: SIZES["train"]], "test": texts[SIZES["train"] :]}


def _value(word: str, sign: str) -> int | None:
    """The number of ``=3`` or ``+3``; None for any other word."""
    digit = word[1:]
    return int(digit) if word[:1] == sign and digit in map(str, range(MODULUS)) else None


class RunningSum:
    """See the head of this module. A :class:`~minirlhf.data.tasks.base.Task` that also grades steps."""

    name = "running_sum"
    words = tuple(f"{sign}{digit}" for sign in "+=" for digit in range(MODULUS))
    max_completion_length = 2 * STEPS + 2

    def prompts(self, split: Split) -> list[str]:
        """20,000 of the 78,125 sums to train on, 1,000 to test on."""
        return list(_splits()[split])

    def reference(self, prompt: str) -> str:
        """The working without a slip."""
        return " ".join(self.working(prompt))

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """The working of a careless writer."""
        slips = [int(rng.integers(1, MODULUS)) if rng.random() < CARELESS else 0 for _ in range(STEPS)]
        return " ".join(self.working(prompt, slips))

    def working(self, prompt: str, slips: Sequence[int] = (0,) * STEPS) -> list[str]:
        """The steps, the first with what one starts from; ``slips`` are added to the sums as they are written."""
        start, *added = prompt.split()
        total, lines = int(start[1:]), []
        for number, slip in zip(added, slips, strict=True):
            total = (total + int(number[1:]) + slip) % MODULUS
            lines.append(f"{number} ={total}")
        return [f"{start} {lines[0]}", *lines[1:]]

    def grade(self, prompt: str, completion: str) -> float:
        """1 if the last word is the sum of the prompt, else 0."""
        numbers = [_value(word, sign) for word, sign in zip(prompt.split(), "=" + "+" * STEPS, strict=False)]
        said = completion.split()
        if len(numbers) != STEPS + 1 or None in numbers or not said:
            return 0.0
        return float(_value(said[-1], "=") == sum(n for n in numbers if n is not None) % MODULUS)

    def grade_steps(self, prompt: str, words: Sequence[str]) -> list[float]:
        """At every sum after the first: 1 if it follows from the sum and the number before it, which is the prompt's next, else 0."""
        asked = prompt.split()
        grades = [float("nan")] * len(words)
        for step in range(1, (len(words) + 1) // 2):
            at = 2 * step
            before, number, after = _value(words[at - 2], "="), _value(words[at - 1], "+"), _value(words[at], "=")
            valid = None not in (before, number, after) and words[at - 1] == (asked[step] if step < len(asked) else "")
            valid = valid and (step > 1 or words[0] == asked[0])
            grades[at] = float(valid and (before or 0) + (number or 0) - (after or 0) in (0, MODULUS))
        return grades

    def chance(self, prompt: str, steps: Sequence[str]) -> float:
        """The chance of a right answer after these steps, if the careless writer goes on.

        A slip moves the sum to one of the other four. With m steps left and k = (1 − 1.25·CARELESS)^m it is 1/5 + 4k/5 if the sum
        is right so far, and 1/5 − k/5 if it is not.
        """
        start, *added = prompt.split()
        right = (int(start[1:]) + sum(int(number[1:]) for number in added[: len(steps)])) % MODULUS
        kept = (1 - CARELESS * MODULUS / (MODULUS - 1)) ** (STEPS - len(steps))
        so_far = steps[-1].split()[-1] == f"={right}" if steps else True
        return 1 / MODULUS + (1 - 1 / MODULUS) * kept if so_far else (1 - kept) / MODULUS


RUNNING_SUM = RunningSum()
