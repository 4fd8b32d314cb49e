"""The interface of a task: prompts in two disjoint splits, demonstrations, a string grader."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from minirlhf.core.randomness import derive_seed

Split = Literal["train", "test"]


@runtime_checkable
class Task(Protocol):
    """A small task. Texts are words separated by single spaces; every word is in ``words``.

    Attributes:
        name: its name on the command line and the name of its module.
        words: the vocabulary, in the order of the token ids, without special tokens.
        max_completion_length: the most tokens that a good completion needs, EOS included.
    """

    name: str
    words: tuple[str, ...]
    max_completion_length: int

    def prompts(self, split: Split) -> list[str]:
        """Return the prompts of a split, always in the same shuffled order; the two splits are disjoint."""
        ...

    def reference(self, prompt: str) -> str:
        """Return a completion to which :meth:`grade` gives the maximum reward."""
        ...

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """Return a completion to imitate, written by the demonstrator of this task; it is not always the best."""
        ...

    def grade(self, prompt: str, completion: str) -> float:
        """Return the reward of a completion: a finite number for any two texts, never an exception."""
        ...


@runtime_checkable
class HasDocuments(Protocol):
    """A task with raw text for pretraining."""

    def document(self, rng: np.random.Generator) -> str:
        """Return a random text."""
        ...


@runtime_checkable
class GradesSteps(Protocol):
    """A task that can also grade the steps of a completion."""

    def grade_steps(self, prompt: str, words: Sequence[str]) -> list[float]:
        """Return for every word the grade of the step that ends with it, NaN if none does; never raises."""
        ...


def mixed(texts: Iterable[str], *keys: int | str) -> list[str]:
    """Return the texts without duplicates, in a platform-independent order that ``keys`` and each text decide."""
    return sorted(set(texts), key=lambda text: derive_seed(*keys, text))
