"""Digit sorting: six digits in, the same digits in order out.

sort 3 1 4 1 5 9
1 1 3 4 5 9
"""

from __future__ import annotations

from functools import cache

import numpy as np

from minirlhf.core.randomness import numpy_generator
from minirlhf.data.tasks.base import Split

DIGITS = tuple("0123456789")
NUM_DIGITS = 6
SIZES = {"train": 20_000, "test": 1_000}


@cache
def _splits() -> dict[str, list[str]]:
    total = sum(SIZES.values())
    numbers = numpy_generator("sort_digits", "prompts").choice(10**NUM_DIGITS, size=total, replace=False)
    texts = [f"sort {' '.join(f'{number:0{NUM_DIGITS}d}')}" for number in numbers.tolist()]
    return {"train": texts[: SIZES["train"]], "test": texts[SIZES["train"] :]}


class SortDigits:
    """See the head of this module. A :class:`~minirlhf.data.tasks.base.Task`."""

    name = "sort_digits"
    words = (*DIGITS, "sort")
    max_completion_length = NUM_DIGITS + 1

    def prompts(self, split: Split) -> list[str]:
        """Return the prompts: 20,000 of the million lists for training, 1,000 for testing."""
        return list(_splits()[split])

    def reference(self, prompt: str) -> str:
        """Return the digits in order."""
        return " ".join(sorted(prompt.split()[1:]))

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """Return the right answer."""
        return self.reference(prompt)

    def grade(self, prompt: str, completion: str) -> float:
        """Return 1 if the completion is exactly the sorted list, else 0."""
        return float(completion.split() == sorted(prompt.split()[1:]))


SORT_DIGITS = SortDigits()
