"""The running sum: add six numbers modulo 5, one step of working for each.

    =3 +2 +4 +1 +0 +3 +2
    =3 +2 =0 +4 =4 +1 =0 +0 =0 +3 =3 +2 =0

A step is a number and the sum so far, ``+4 =4``. Three words decide whether it is valid: the previous sum, the number
and the new sum. The demonstrator is careless: each sum is wrong with probability :data:`CARELESS`, and the later steps
continue from the written sum, so one error spoils the answer although every later step is valid. Two errors may cancel.

Therefore the probability of a right answer is known from any prefix (:meth:`RunningSum.chance`), and verifiers can be
compared with it.
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
    numbers = numpy_generator("running_sum", "prompts").choice(MODULUS ** (STEPS + 1), size=total, replace=False)
    texts = []
    for number in numbers.tolist():
        digits = [number // MODULUS**position % MODULUS for position in range(STEPS + 1)]
        texts.append(" ".join([f"={digits[0]}", *(f"+{digit}" for digit in digits[1:])]))
    return {"train": texts[: SIZES["train"]], "test": texts[SIZES["train"] :]}


def _value(word: str, sign: str) -> int | None:
    """Return the number of ``=3`` or ``+3``; None for any other word."""
    digit = word[1:]
    return int(digit) if word[:1] == sign and digit in map(str, range(MODULUS)) else None


class RunningSum:
    """See the head of this module. A :class:`~minirlhf.data.tasks.base.Task` that also grades steps."""

    name = "running_sum"
    words = tuple(f"{sign}{digit}" for sign in "+=" for digit in range(MODULUS))
    max_completion_length = 2 * STEPS + 2

    def prompts(self, split: Split) -> list[str]:
        """Return the prompts: 20,000 of the 78,125 sums for training, 1,000 for testing."""
        return list(_splits()[split])

    def reference(self, prompt: str) -> str:
        """Return the working without errors."""
        return " ".join(self.working(prompt))

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """Return the working of the careless demonstrator."""
        slips = [int(rng.integers(1, MODULUS)) if rng.random() < CARELESS else 0 for _ in range(STEPS)]
        return " ".join(self.working(prompt, slips))

    def working(self, prompt: str, slips: Sequence[int] = (0,) * STEPS) -> list[str]:
        """Return the steps, the first with the start value; ``slips`` are errors, added to the written sums."""
        start, *added = prompt.split()
        total, lines = int(start[1:]), []
        for number, slip in zip(added, slips, strict=True):
            total = (total + int(number[1:]) + slip) % MODULUS
            lines.append(f"{number} ={total}")
        return [f"{start} {lines[0]}", *lines[1:]]

    def grade(self, prompt: str, completion: str) -> float:
        """Return 1 if the last word is the sum of the prompt, else 0."""
        numbers = [_value(word, sign) for word, sign in zip(prompt.split(), "=" + "+" * STEPS, strict=False)]
        words = completion.split()
        if len(numbers) != STEPS + 1 or None in numbers or not words:
            return 0.0
        return float(_value(words[-1], "=") == sum(n for n in numbers if n is not None) % MODULUS)

    def grade_steps(self, prompt: str, words: Sequence[str]) -> list[float]:
        """Return 1 or 0 at every sum after the first, NaN elsewhere.

        The grade is 1 if the sum follows from the sum and the number before it, and these words agree with the prompt:
        the number is its next one, and the first sum its start value.
        """
        parts = prompt.split()
        grades = [float("nan")] * len(words)
        for step in range(1, (len(words) + 1) // 2):
            i = 2 * step
            before, number, after = _value(words[i - 2], "="), _value(words[i - 1], "+"), _value(words[i], "=")
            valid = None not in (before, number, after) and words[i - 1] == (parts[step] if step < len(parts) else "")
            valid = valid and (step > 1 or words[0] == parts[0])
            grades[i] = float(valid and (before or 0) + (number or 0) - (after or 0) in (0, MODULUS))
        return grades

    def chance(self, prompt: str, steps: Sequence[str]) -> float:
        """Return the probability of a right answer after these steps if the careless demonstrator continues.

        An error moves the sum to one of the other four values. With m steps left and k = (1 − 1.25·CARELESS)^m it is
        1/5 + 4k/5 if the sum is right so far, and 1/5 − k/5 if it is not.
        """
        start, *added = prompt.split()
        correct = (int(start[1:]) + sum(int(number[1:]) for number in added[: len(steps)])) % MODULUS
        k = (1 - CARELESS * MODULUS / (MODULUS - 1)) ** (STEPS - len(steps))
        is_correct = steps[-1].split()[-1] == f"={correct}" if steps else True
        return 1 / MODULUS + (1 - 1 / MODULUS) * k if is_correct else (1 - k) / MODULUS


RUNNING_SUM = RunningSum()
