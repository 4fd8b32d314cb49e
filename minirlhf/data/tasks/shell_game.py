"""The shell game: follow the ball under four cups through six swaps. Writing a chain of thought pays.

    ball b swaps ab cd ac bd ad bc
    think b a a c c c b answer b

A small model cannot follow six swaps without writing, but it can write the position of the ball at the start and after
each swap: the chain of thought. One demonstration in five does so; the others answer directly. Only the answer is
graded, so reinforcement learning has to discover that the chain of thought pays.

The chain begins with the first position, so that every later position follows from the word before it in the same way.
Without the first position, the first step is a separate rule, which some runs do not learn in the fine-tuning of a
notebook.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import combinations

import numpy as np

from minirlhf.core.randomness import numpy_generator
from minirlhf.data.tasks.base import Split

CUPS = ("a", "b", "c", "d")
SWAPS = tuple(one + other for one, other in combinations(CUPS, 2))
NUM_SWAPS = 6
SIZES = {"train": 20_000, "test": 1_000}


def positions(prompt: str) -> list[str]:
    """Return the cup of the ball after each swap of a prompt of this task; the last is the answer."""
    _, ball, _, *swaps = prompt.split()
    path = []
    for swap in swaps:
        if ball in swap:
            ball = swap.replace(ball, "")
        path.append(ball)
    return path


def _is_game(prompt: str) -> bool:
    words = prompt.split()
    return words[:1] == ["ball"] and words[2:3] == ["swaps"] and len(words) >= 4


def _game(number: int) -> str:
    """Return game ``number`` of all 4 · 6⁶: its digits in base 6 are the swaps, the remaining quotient is the cup."""
    swaps = []
    for _ in range(NUM_SWAPS):
        number, swap = divmod(number, len(SWAPS))
        swaps.append(SWAPS[swap])
    return f"ball {CUPS[number]} swaps {' '.join(swaps)}"


@cache
def _splits() -> dict[str, list[str]]:
    games, total = len(CUPS) * len(SWAPS) ** NUM_SWAPS, sum(SIZES.values())
    numbers = numpy_generator("shell_game", "prompts").choice(games, size=total, replace=False)
    texts = [_game(number) for number in numbers.tolist()]
    return {"train": texts[: SIZES["train"]], "test": texts[SIZES["train"] :]}


class ShellGame:
    """See the head of this module. A :class:`~minirlhf.data.tasks.base.Task`."""

    name = "shell_game"
    words = (*CUPS, *SWAPS, "ball", "swaps", "think", "answer")
    max_completion_length = NUM_SWAPS + 5
    thinking_share = 0.2

    def prompts(self, split: Split) -> list[str]:
        """Return the prompts: 20,000 of the 186,624 games for training, 1,000 for testing."""
        return list(_splits()[split])

    def reference(self, prompt: str) -> str:
        """Return the chain of thought, then the answer."""
        first, path = prompt.split()[1], positions(prompt)
        return f"think {first} {' '.join(path)} answer {path[-1]}"

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """Return the chain and the answer one time in five, else the direct answer; always right."""
        if rng.random() < self.thinking_share:
            return self.reference(prompt)
        return f"answer {positions(prompt)[-1]}"

    def grade(self, prompt: str, completion: str) -> float:
        """Return 1 if the completion ends in ``answer`` and the right cup, else 0. The chain is not graded."""
        if not _is_game(prompt):
            return 0.0  # not a prompt of this task
        return float(completion.split()[-2:] == ["answer", positions(prompt)[-1]])

    def grade_steps(self, prompt: str, words: Sequence[str]) -> list[float]:
        """Return 1 or 0 for each named cup, in the chain (in the order of the swaps) and after ``answer``, else NaN."""
        if not _is_game(prompt):
            return [math.nan] * len(words)
        expected = [prompt.split()[1], *positions(prompt)]
        grades, index = [], 0
        for previous, word in zip(["", *words], words, strict=False):
            if word not in CUPS:
                grades.append(math.nan)
            elif previous == "answer":
                grades.append(float(word == expected[-1]))
            else:
                grades.append(float(index < len(expected) and word == expected[index]))
                index += 1
        return grades


SHELL_GAME = ShellGame()
