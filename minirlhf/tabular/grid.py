"""Gridworlds: a map drawn in characters, and the decision process that it describes.

A state is a cell, numbered row by row. ``S`` is where one starts, ``G`` the goal, which is never left; any other character
is a kind of cell. A step moves up, right, down or left; at the edge one stays where one is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left: row, column
ARROWS = "↑→↓←"

#: The way from S to G is short through the flower bed, and longer around it.
GARDEN_MAP = """
. . . . .
. . * . .
S . * . G
. . . . .
"""


@dataclass(frozen=True)
class Grid:
    """A map.

    Attributes:
        rows, columns: its size.
        cells: its characters, row by row.
    """

    rows: int
    columns: int
    cells: str

    @classmethod
    def parse(cls, drawing: str) -> Grid:
        """Read a map; spaces between the characters do not count.

        Raises:
            ValueError: rows of different lengths, or not exactly one ``S`` and one ``G``.
        """
        lines = ["".join(line.split()) for line in drawing.strip().splitlines()]
        if len({len(line) for line in lines}) != 1:
            raise ArgumentError(
                f"rows of lengths {[len(line) for line in lines]}; expected all the same",
                argument="drawing",
                value=[len(line) for line in lines],
            )
        cells = "".join(lines)
        for mark in "SG":
            if cells.count(mark) != 1:
                raise ArgumentError(
                    f"{cells.count(mark)} cells marked {mark}; expected one",
                    argument=mark,
                    value=cells.count(mark),
                    expected=1,
                )
        return cls(len(lines), len(lines[0]), cells)

    @property
    def size(self) -> int:
        """Number of states."""
        return len(self.cells)

    @property
    def goal(self) -> int:
        """The state that is never left."""
        return self.cells.index("G")

    def start(self) -> Tensor:
        """``(S,)``, certainty about the first state."""
        return torch.nn.functional.one_hot(torch.tensor(self.cells.index("S")), self.size).double()

    def transitions(self, slip: float = 0.0) -> Tensor:
        """P(s'|s,a) ``(S, 4, S)``; with probability ``slip`` the step goes in a random direction instead.

        Raises:
            ValueError: ``slip`` outside [0, 1].
        """
        if not 0.0 <= slip <= 1.0:
            raise ArgumentError(f"{slip=}; expected a number in [0, 1]", argument="slip", value=slip, expected="[0, 1]")
        moves = torch.zeros(self.size, 4, self.size, dtype=torch.float64)
        for state in range(self.size):
            row, column = divmod(state, self.columns)
            for action, (down, right) in enumerate(MOVES):
                r, c = row + down, column + right
                inside = 0 <= r < self.rows and 0 <= c < self.columns and state != self.goal
                moves[state, action, r * self.columns + c if inside else state] = 1.0
        return (1 - slip) * moves + slip * moves.mean(1, keepdim=True)

    def values_of(self, kinds: Mapping[str, float]) -> Tensor:
        """``(S,)``: a number for every cell by its character."""
        return torch.tensor([kinds[cell] for cell in self.cells], dtype=torch.float64)

    def table(self, values: Tensor) -> Tensor:
        """``(S,) -> (rows, columns)``, for drawing."""
        return values.view(self.rows, self.columns)


GARDEN = Grid.parse(GARDEN_MAP)

#: What the people of the garden want, and nobody tells the learner: sit on the bench, and mind the flowers on your way.
GARDEN_WISHES = {"S": 0.0, ".": 0.0, "*": -6.0, "G": 2.0}


def arrival_rewards(transitions: Tensor, cell_values: Tensor) -> Tensor:
    """The expected value of the cell that a step leads to: ``(S, A, S), (S,) -> (S, A)``."""
    return transitions @ cell_values
