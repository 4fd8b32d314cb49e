"""An unreliable tool: a call fails, or its result is unrelated to the question. Part of a lab of chapter 17."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass
class Luck:
    """Random failures of a tool in one episode.

    Attributes:
        fail: probability that a call raises.
        lie: probability that a call returns a result that is unrelated to the question.
        rng: generator from which every call samples.
    """

    fail: float
    lie: float
    rng: np.random.Generator

    def says(self, truth: Callable[[], str], lie: Callable[[np.random.Generator], str]) -> str:
        """Return the true result or a lie.

        Raises:
            RuntimeError: the call fails.
        """
        uniform = self.rng.random()
        if uniform < self.fail:
            raise RuntimeError("?")
        return lie(self.rng) if uniform < self.fail + self.lie else truth()
