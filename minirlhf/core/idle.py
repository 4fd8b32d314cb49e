"""What somebody chose and what does nothing: a sentence for people, and the names of the options for programs and tests."""

from __future__ import annotations

from typing import Self


class Idle(str):
    """A sentence about options that have no effect, and why.

    Attributes:
        options: of which it speaks.
    """

    options: tuple[str, ...]

    def __new__(cls, sentence: str, *options: str) -> Self:
        """The sentence with the names of its options."""
        idle = super().__new__(cls, sentence)
        idle.options = options
        return idle
