"""What a tiny world is: prompts in two disjoint splits, demonstrations, a string grader."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from minirlhf.core.randomness import derive_seed

Split = Literal["train", "test"]


@runtime_checkable
class Task(Protocol):
    """A tiny world. Texts are words separated by single spaces; every word is in ``words``.

    Attributes:
        name: as on the command line, and the name of its module.
        words: the vocabulary, in the order of their ids, without special tokens.
        max_completion_length: tokens a good completion needs at most, EOS included.
    """

    name: str
    words: tuple[str, ...]
    max_completion_length: int

    def prompts(self, split: Split) -> list[str]:
        """The prompts of a split, always the same list in the same mixed order; the two splits share none."""
        ...

    def reference(self, prompt: str) -> str:
        """A completion that :meth:`grade` gives full marks: none gets more."""
        ...

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """A completion to imitate: what the demonstrator of this world would write, not always the best."""
        ...

    def grade(self, prompt: str, completion: str) -> float:
        """The reward of a completion; a finite number for any two texts, never an exception."""
        ...


@runtime_checkable
class HasDocuments(Protocol):
    """A tiny world with raw text to pretrain on."""

    def document(self, rng: np.random.Generator) -> str:
        """A text, drawn at random."""
        ...


@runtime_checkable
class GradesSteps(Protocol):
    """A tiny world that can also grade the steps of a completion."""

    def grade_steps(self, prompt: str, words: Sequence[str]) -> list[float]:
        """For every word the grade of the step that ends with it, NaN where none does; no exception for any words."""
        ...


def mixed(texts: Iterable[str], *keys: int | str) -> list[str]:
    """The texts without repetition, in an order that depends on ``keys`` and each text alone, on every platform."""
    return sorted(set(texts), key=lambda text: derive_seed(*keys, text))
