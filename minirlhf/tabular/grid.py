"""Grid worlds: a map drawn in characters, and the decision process that it describes.

A state is a cell, numbered row by row. ``S`` is the initial state, ``G`` the goal, which no action leaves. Any other
character is a kind of cell. An action moves up, right, down or left; at the edge the state does not change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left: row, column
ARROWS = "↑→↓←"

#: The path from S to G is short through the flower bed, and longer around it.
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
        cells: the characters of the map, row by row.
    """

    rows: int
    columns: int
    cells: str

    @classmethod
    def parse(cls, drawing: str) -> Grid:
        """Parse a map; spaces between the characters are ignored.

        Raises:
            ValueError: rows of different lengths, or not exactly one ``S`` and one ``G``.
        """
        lines = ["".join(line.split()) for line in drawing.strip().splitlines()]
        if len({len(line) for line in lines}) != 1:
            raise ArgumentError(
                f"rows of lengths {[len(line) for line in lines]}; expected equal lengths",
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
        """The goal state, which no action leaves."""
        return self.cells.index("G")

    def start(self) -> Tensor:
        """Return ``(S,)``, the distribution with all probability on the initial state."""
        return torch.nn.functional.one_hot(torch.tensor(self.cells.index("S")), self.size).double()

    def transitions(self, slip: float = 0.0) -> Tensor:
        """Return P(s'|s,a) ``(S, 4, S)``; with probability ``slip`` the step goes in a random direction instead.

        Raises:
            ValueError: ``slip`` outside [0, 1].
        """
        if not 0.0 <= slip <= 1.0:
            raise ArgumentError(f"{slip=}; expected a number in [0, 1]", argument="slip", value=slip, expected="[0, 1]")
        moves = torch.zeros(self.size, 4, self.size, dtype=torch.float64)
        for state in range(self.size):
            row, column = divmod(state, self.columns)
            for action, (down, right) in enumerate(MOVES):
                next_row, next_column = row + down, column + right
                inside = 0 <= next_row < self.rows and 0 <= next_column < self.columns and state != self.goal
                moves[state, action, next_row * self.columns + next_column if inside else state] = 1.0
        return (1 - slip) * moves + slip * moves.mean(1, keepdim=True)

    def values_of(self, kinds: Mapping[str, float]) -> Tensor:
        """Return ``(S,)``: the number of every cell's character."""
        return torch.tensor([kinds[cell] for cell in self.cells], dtype=torch.float64)

    def table(self, values: Tensor) -> Tensor:
        """Reshape ``(S,) -> (rows, columns)``, for plots."""
        return values.view(self.rows, self.columns)


GARDEN = Grid.parse(GARDEN_MAP)

#: The gold reward of the garden, unknown to the learner: reach the bench, and avoid the flowers on the way.
GARDEN_WISHES = {"S": 0.0, ".": 0.0, "*": -6.0, "G": 2.0}


def arrival_rewards(transitions: Tensor, cell_values: Tensor) -> Tensor:
    """Return the expected value of the cell that a step leads to: ``(S, A, S), (S,) -> (S, A)``."""
    return transitions @ cell_values
