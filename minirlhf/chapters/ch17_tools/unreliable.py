"""Luck that a tool may have: its call fails, or what it says has nothing to do with the question. Part of a lab of chapter 17."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass
class Luck:
    """Of one episode.

    Attributes:
        fail: probability that a call raises.
        lie: probability that it gives something that has nothing to do with the question.
        rng: each call draws anew.
    """

    fail: float
    lie: float
    rng: np.random.Generator

    def says(self, truth: Callable[[], str], lie: Callable[[np.random.Generator], str]) -> str:
        """The truth, or a lie; ``RuntimeError`` where the call fails."""
        luck = self.rng.random()
        if luck < self.fail:
            raise RuntimeError("?")
        return lie(self.rng) if luck < self.fail + self.lie else truth()
