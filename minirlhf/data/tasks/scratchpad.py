"""Sums with a scratchpad: add two numbers digit by digit, from the right, and carry.

    4 7 + 8 5
    think 7 + 5 + 0 = 1 2 then 4 + 8 + 1 = 1 3 answer 1 3 2

A step adds a digit of each number and the carry; the two digits of its result are the new carry and the next digit of
the sum. One demonstration in five shows the steps, the others answer directly. Only the answer is graded. The
difficulty is the number of digits.

Source: Nye et al. (2021), "Show Your Work: Scratchpads for Intermediate Computation with Language Models".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from minirlhf.core.randomness import numpy_generator
from minirlhf.data.tasks.base import Split

DIGITS = tuple("0123456789")
MOST = {"train": 20_000, "test": 1_000}


@cache
def _splits(digits: int) -> dict[str, list[str]]:
    """Return sums of two numbers with ``digits`` digits each, the first not 0; at most one in six is a test prompt."""
    smallest = 10 ** (digits - 1)
    count = 9 * smallest
    indices = numpy_generator("scratchpad", digits).choice(
        count**2, size=min(count**2, sum(MOST.values())), replace=False
    )
    texts = [" + ".join(" ".join(str(smallest + n)) for n in divmod(number, count)) for number in indices.tolist()]
    num_test = min(MOST["test"], len(texts) // 6)
    return {"test": texts[:num_test], "train": texts[num_test:]}


def read(prompt: str) -> tuple[str, str] | None:
    """Return the two numbers of a prompt as strings of digits; None for another text."""
    one, plus, other = prompt.partition(" + ")
    numbers = [side.split(" ") for side in (one, other)]
    if not plus or not all(digit in DIGITS for side in numbers for digit in side) or len(numbers[0]) != len(numbers[1]):
        return None
    return "".join(numbers[0]), "".join(numbers[1])


def working(one: str, other: str) -> list[str]:
    """Return the steps, from the last digits to the first: ``7 + 5 + 0 = 1 2``."""
    carry, steps = 0, []
    for a, b in zip(reversed(one), reversed(other), strict=True):
        total = int(a) + int(b) + carry
        steps.append(f"{a} + {b} + {carry} = {total // 10} {total % 10}")
        carry = total // 10
    return steps


@dataclass(frozen=True)
class Scratchpad:
    """See the head of this module. A :class:`~minirlhf.data.tasks.base.Task` that also grades steps.

    Attributes:
        digits: the number of digits of each number, 2 to 9.
        thinking_share: the fraction of demonstrations that show the steps.
    """

    digits: int = 3
    thinking_share: float = 0.2

    def __post_init__(self) -> None:
        if not 2 <= self.digits <= 9:
            raise ValueError(f"digits = {self.digits!r}; expected 2 .. 9")

    @property
    def name(self) -> str:
        """``scratchpad``, followed by the number of digits if it is not three."""
        return "scratchpad" + ("" if self.digits == 3 else f"_{self.digits}")

    words = (*DIGITS, "+", "=", "think", "then", "answer")

    @property
    def max_completion_length(self) -> int:
        """The tokens of all steps, the answer, and EOS."""
        return 9 * self.digits + self.digits + 3

    def prompts(self, split: Split) -> list[str]:
        """Return different sums."""
        return list(_splits(self.digits)[split])

    def reference(self, prompt: str) -> str:
        """Return the steps, then the answer."""
        numbers = read(prompt)
        if numbers is None:
            raise ValueError(f"prompt = {prompt[:80]!r}; expected a sum")
        return f"think {' then '.join(working(*numbers))} answer {_answer(*numbers)}"

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """Return the steps and the answer one time in five, else the direct answer; always right."""
        completion = self.reference(prompt)
        return completion if rng.random() < self.thinking_share else completion[completion.index("answer") :]

    def grade(self, prompt: str, completion: str) -> float:
        """Return 1 if the completion ends in ``answer`` and the digits of the sum, else 0. The steps are not graded."""
        numbers = read(prompt)
        if numbers is None:
            return 0.0
        _, marker, answer = f" {completion} ".rpartition(" answer ")
        return float(bool(marker) and answer.split() == _answer(*numbers).split())

    def grade_steps(self, prompt: str, words: Sequence[str]) -> list[float]:
        """Return 1 or 0 at the last digit of each step, NaN elsewhere.

        The grade is 1 if the whole step is right: it adds the next digits of the prompt and the carry of the step
        before.
        """
        numbers, grades = read(prompt), [math.nan] * len(words)
        expected = [step.split() for step in working(*numbers)] if numbers else []
        ends = [i + 2 for i, word in enumerate(words) if word == "=" and i + 2 < len(words)]
        for end, step in zip(ends, expected, strict=False):
            grades[end] = float(list(words[max(end - 7, 0) : end + 1]) == step)
        for end in ends[len(expected) :]:
            grades[end] = 0.0
        return grades


def _answer(one: str, other: str) -> str:
    return " ".join(str(int(one) + int(other)))


SCRATCHPAD = Scratchpad()
