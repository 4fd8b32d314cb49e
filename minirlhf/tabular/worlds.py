"""The worlds of chapter 03: the standard small examples, each with its tables.

A map is drawn in characters as in :mod:`minirlhf.tabular.grid`; states are its cells, row by row, and actions are up, right,
down, left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.core.validate import require_positive
from minirlhf.tabular.grid import ARROWS, MOVES
from minirlhf.tabular.process import Outcome, Process, from_outcomes

# -- two examples to do by hand ------------------------------------------------------------------------------------

#: A reward process with six states, s1 … s6; the last one is terminal. Transitions and what it earns to be in a state.
SIX_STATES = torch.tensor(
    [
        [0.9, 0.1, 0.0, 0.0, 0.0, 0.0],
        [0.5, 0.0, 0.5, 0.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.6, 0.0, 0.4],
        [0.0, 0.0, 0.0, 0.0, 0.3, 0.7],
        [0.0, 0.2, 0.3, 0.5, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.0, 0.0, 1.0],
    ],
    dtype=torch.float64,
)
SIX_REWARDS = torch.tensor([-1.0, -2.0, -2.0, 10.0, 1.0, 0.0], dtype=torch.float64)


def two_choices() -> Process:
    """A decision process with five states and two actions, "left" and "right" in the order of the drawing; s5 is terminal.

    In s4 "right" is a gamble: it earns 1 and leads back to s2, s3 or s4. Episodes begin in s1 … s4, equally likely.
    """
    return from_outcomes(
        {
            (0, 0): [(1.0, 0, -1.0)],
            (0, 1): [(1.0, 1, 0.0)],
            (1, 0): [(1.0, 0, -1.0)],
            (1, 1): [(1.0, 2, -2.0)],
            (2, 0): [(1.0, 3, -2.0)],
            (2, 1): [(1.0, 4, 0.0)],
            (3, 0): [(1.0, 4, 10.0)],
            (3, 1): [(0.2, 1, 1.0), (0.4, 2, 1.0), (0.4, 3, 1.0)],
        },
        num_states=5,
        actions=("left", "right"),
        start=(0.25, 0.25, 0.25, 0.25, 0.0),
        terminal=(4,),
    )


def random_walk(length: int = 5) -> Process:
    """A corridor of ``length`` cells between two ends; leaving on the right earns 1. Both actions, left and right, are certain.

    Under the policy that tosses a coin, the value of cell k (from 1) is k/(length + 1). Episodes begin in the middle.
    """
    require_positive(length=length)
    left, right = 0, length + 1
    outcomes: dict[tuple[int, int], list[Outcome]] = {}
    for state in range(1, length + 1):
        outcomes[state, 0] = [(1.0, state - 1, 0.0)]
        outcomes[state, 1] = [(1.0, state + 1, float(state + 1 == right))]
    start = torch.zeros(length + 2)
    start[(length + 1) // 2] = 1.0
    return from_outcomes(
        outcomes, num_states=length + 2, actions=("left", "right"), start=start.tolist(), terminal=(left, right)
    )


# -- maps ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class GridWorld:
    """A process on a map.

    Attributes:
        process: its tables.
        rows, columns: size of the map.
        cells: its characters, row by row.
    """

    process: Process
    rows: int
    columns: int
    cells: str

    def table(self, values: Tensor) -> Tensor:
        """``(S,) -> (rows, columns)``, for drawing."""
        return values.view(self.rows, self.columns)


#: What a step does: (cell it starts from, state it starts from, state it would lead to or None at the edge) -> (next, reward).
Rule = Callable[[str, int, int | None], tuple[int, float]]


def draw_world(
    drawing: str, rule: Rule, *, terminal: str = "G", directions: Mapping[int, float] | None = None
) -> GridWorld:
    """A world from its map.

    Args:
        drawing: rows of characters; spaces between them do not count. Episodes begin at ``S``; without one, anywhere outside
            the terminal cells.
        rule: what a step in a direction does.
        terminal: characters of the cells that end an episode.
        directions: by how many quarter turns to the right the step goes astray, with probabilities; None for never.

    Raises:
        ValueError: rows of different lengths, no cell that is not terminal, or probabilities that do not sum to 1.
    """
    lines = ["".join(line.split()) for line in drawing.strip().splitlines()]
    if len({len(line) for line in lines}) != 1:
        raise ValueError(f"rows of lengths {[len(line) for line in lines]}; expected all the same")
    rows, columns, cells = len(lines), len(lines[0]), "".join(lines)
    outcomes: dict[tuple[int, int], list[Outcome]] = {}
    for state, cell in enumerate(cells):
        for action in range(4):
            outcomes[state, action] = [
                (probability, *rule(cell, state, _target(rows, columns, state, (action + turn) % 4)))
                for turn, probability in (directions or {0: 1.0}).items()
            ]
    begins = torch.tensor([cell == "S" if "S" in cells else cell not in terminal for cell in cells]).double()
    process = from_outcomes(
        outcomes,
        num_states=len(cells),
        actions=tuple(ARROWS),
        start=(begins / begins.sum()).tolist(),
        terminal=[state for state, cell in enumerate(cells) if cell in terminal],
    )
    return GridWorld(process, rows, columns, cells)


def _target(rows: int, columns: int, state: int, direction: int) -> int | None:
    """The cell that lies in this direction, None behind the edge."""
    row, column = (a + b for a, b in zip(divmod(state, columns), MOVES[direction], strict=True))
    return row * columns + column if 0 <= row < rows and 0 <= column < columns else None


def four_by_four() -> GridWorld:
    """Two corners end the episode, every step costs 1. Sutton and Barto (2018), example 4.1."""
    drawing = "G...\n....\n....\n...G"
    return draw_world(drawing, lambda cell, state, target: (state if target is None else target, -1.0))


def five_by_five() -> GridWorld:
    """No end: every step from A leads to A' and earns 10, from B to B' and earns 5; bumping into the edge costs 1.

    Sutton and Barto (2018), example 3.5. Episodes begin anywhere.
    """
    drawing = ".A.B.\n.....\n...b.\n.....\n.a..."
    landing = {cell: drawing.replace("\n", "").index(cell.lower()) for cell in "AB"}

    def rule(cell: str, state: int, target: int | None) -> tuple[int, float]:
        if cell in landing:
            return landing[cell], 10.0 if cell == "A" else 5.0
        return (state, -1.0) if target is None else (target, 0.0)

    return draw_world(drawing, rule, terminal="")


def cliff_walking() -> GridWorld:
    """Along the edge of a cliff: every step costs 1, stepping off costs 100 and leads back to the start.

    Sutton and Barto (2018), example 6.6; the tables are those of Gymnasium's ``CliffWalking-v1``.
    """
    drawing = "............\n............\n............\nS##########G"
    home = 36

    def rule(cell: str, state: int, target: int | None) -> tuple[int, float]:
        to = state if target is None else target
        return (home, -100.0) if 37 <= to <= 46 else (to, -1.0)

    return draw_world(drawing, rule)


def frozen_lake(*, slippery: bool = True) -> GridWorld:
    """Across the ice to G, which earns 1; holes H end the episode. If slippery, a third of the steps go astray to either side.

    The map and, up to the order of the actions, the tables of Gymnasium's ``FrozenLake-v1``.
    """
    drawing = "SFFF\nFHFH\nFFFH\nHFFG"
    goal = 15

    def rule(cell: str, state: int, target: int | None) -> tuple[int, float]:
        to = state if target is None else target
        return to, float(to == goal)

    return draw_world(
        drawing, rule, terminal="HG", directions={-1: 1 / 3, 0: 1 / 3, 1: 1 / 3} if slippery else {0: 1.0}
    )


def maze() -> GridWorld:
    """Walls # that stop a step; every step costs 1. The shortest way has 14 steps."""
    drawing = """
        . . . . . . . # G
        . . # . . . . # .
        S . # . . . . # .
        . . # . . . . . .
        . . . . . # . . .
        . . . . . . . . .
    """
    cells = "".join(drawing.split())

    def rule(cell: str, state: int, target: int | None) -> tuple[int, float]:
        return (state if target is None or cells[target] == "#" else target), -1.0

    return draw_world(drawing, rule)


def many_doors_env(doors: int = 10) -> Process:
    """Go home for nothing (the first action), or into a hall with ``doors`` doors, behind each of which waits −0.1.

    With noise on the rewards one of the doors always looks good. States: start, hall, home, which is the end.
    """
    require_positive(doors=doors)
    outcomes: dict[tuple[int, int], list[Outcome]] = {}
    for door in range(doors):
        outcomes[0, door] = [(1.0, 2 if door == 0 else 1, 0.0)]
        outcomes[1, door] = [(1.0, 2, -0.1)]
    return from_outcomes(
        outcomes,
        num_states=3,
        actions=[f"door {door + 1}" for door in range(doors)],
        start=(1.0, 0.0, 0.0),
        terminal=(2,),
    )
