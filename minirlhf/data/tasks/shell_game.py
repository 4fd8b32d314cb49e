"""The shell game: follow the ball under four cups through six swaps. Thinking aloud pays, and nobody says so.

    ball b swaps ab cd ac bd ad bc
    think b a a c c c b answer b

A small model cannot follow six swaps in its head, but it can write down where the ball is at first and after each swap:
the chain of thought. One demonstration in five does so; the others blurt out a bare answer. Only the answer is graded, so
reinforcement learning has to discover that thinking pays.

The chain begins with the first position so that every later one follows from the word before it in the same way.
Without it, the first step is a rule of its own, which some runs do not learn in the fine-tuning of a notebook.
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
    """Where the ball is after each swap of a prompt of this world; the last is the answer."""
    _, ball, _, *swaps = prompt.split()
    path = []
    for swap in swaps:
        if ball in swap:
            ball = swap.replace(ball, "")
        path.append(ball)
    return path


def _is_game(prompt: str) -> bool:
    given = prompt.split()
    return given[:1] == ["ball"] and given[2:3] == ["swaps"] and len(given) >= 4


def _game(number: int) -> str:
    """Game ``number`` of all 4 · 6⁶: its digits in base 6 are the swaps, what remains is the cup."""
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
        """20,000 of the 186,624 games to train on, 1,000 to test on."""
        return list(_splits()[split])

    def reference(self, prompt: str) -> str:
        """The chain of thought, then the answer."""
        first, path = prompt.split()[1], positions(prompt)
        return f"think {first} {' '.join(path)} answer {path[-1]}"

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """One time in five the chain and the answer, else the bare answer; always right."""
        if rng.random() < self.thinking_share:
            return self.reference(prompt)
        return f"answer {positions(prompt)[-1]}"

    def grade(self, prompt: str, completion: str) -> float:
        """1 if the completion ends in ``answer`` and the right cup, else 0. What comes before is not graded."""
        if not _is_game(prompt):
            return 0.0  # no right answer
        return float(completion.split()[-2:] == ["answer", positions(prompt)[-1]])

    def grade_steps(self, prompt: str, words: Sequence[str]) -> list[float]:
        """1 or 0 for each cup that is named: those of the chain in the order of the swaps, and the one after ``answer``."""
        if not _is_game(prompt):
            return [math.nan] * len(words)
        expected = [prompt.split()[1], *positions(prompt)]
        grades, place = [], 0
        for before, word in zip(["", *words], words, strict=False):
            if word not in CUPS:
                grades.append(math.nan)
            elif before == "answer":
                grades.append(float(word == expected[-1]))
            else:
                grades.append(float(place < len(expected) and word == expected[place]))
                place += 1
        return grades


SHELL_GAME = ShellGame()
