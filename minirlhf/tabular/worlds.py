"""The environments of chapter 03: the standard small examples, each with its tables.

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

# -- two examples by hand -------------------------------------------------------------------------------------------

#: A reward process with six states, s1 … s6; the last one is terminal. Transitions, and the reward of each state.
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

    In s4 the action "right" is random: it gives reward 1 and leads to s2, s3 or s4. Episodes begin in s1 … s4, with
    equal probabilities.
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
    """A corridor of ``length`` cells between two ends. The right end gives reward 1; both actions are deterministic.

    Under the uniform policy, the value of cell k (from 1) is k/(length + 1). Episodes begin in the middle.
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
        cells: the characters of the map, row by row.
    """

    process: Process
    rows: int
    columns: int
    cells: str

    def table(self, values: Tensor) -> Tensor:
        """Reshape ``(S,) -> (rows, columns)``, for plots."""
        return values.view(self.rows, self.columns)


#: A step: (cell it starts from, state it starts from, state it would lead to or None at the edge) -> (next, reward).
Rule = Callable[[str, int, int | None], tuple[int, float]]


def draw_world(
    drawing: str, rule: Rule, *, terminal: str = "G", directions: Mapping[int, float] | None = None
) -> GridWorld:
    """Build a grid world from its map.

    Args:
        drawing: rows of characters; spaces between them are ignored. Episodes begin at ``S``; without an ``S``, in any
            cell that is not terminal, with equal probabilities.
        rule: returns the next state and the reward of a step.
        terminal: characters of the cells that end an episode.
        directions: probabilities of turning the step by this many quarter turns to the right; None for no turns.

    Raises:
        ValueError: rows of different lengths, no cell that is not terminal, or probabilities that do not sum to 1.
    """
    lines = ["".join(line.split()) for line in drawing.strip().splitlines()]
    if len({len(line) for line in lines}) != 1:
        raise ValueError(f"rows of lengths {[len(line) for line in lines]}; expected equal lengths")
    rows, columns, cells = len(lines), len(lines[0]), "".join(lines)
    outcomes: dict[tuple[int, int], list[Outcome]] = {}
    for state, cell in enumerate(cells):
        for action in range(4):
            outcomes[state, action] = [
                (probability, *rule(cell, state, _target(rows, columns, state, (action + turn) % 4)))
                for turn, probability in (directions or {0: 1.0}).items()
            ]
    is_start = torch.tensor([cell == "S" if "S" in cells else cell not in terminal for cell in cells]).double()
    process = from_outcomes(
        outcomes,
        num_states=len(cells),
        actions=tuple(ARROWS),
        start=(is_start / is_start.sum()).tolist(),
        terminal=[state for state, cell in enumerate(cells) if cell in terminal],
    )
    return GridWorld(process, rows, columns, cells)


def _target(rows: int, columns: int, state: int, direction: int) -> int | None:
    """Return the cell in this direction, None beyond the edge."""
    row, column = (a + b for a, b in zip(divmod(state, columns), MOVES[direction], strict=True))
    return row * columns + column if 0 <= row < rows and 0 <= column < columns else None


def four_by_four() -> GridWorld:
    """Two corners end the episode, every step costs 1. Sutton and Barto (2018), example 4.1."""
    drawing = "G...\n....\n....\n...G"
    return draw_world(drawing, lambda cell, state, target: (state if target is None else target, -1.0))


def five_by_five() -> GridWorld:
    """No terminal state: every step from A leads to A' with reward 10, from B to B' with 5; hitting the edge costs 1.

    Sutton and Barto (2018), example 3.5. Episodes begin in any cell, with equal probabilities.
    """
    drawing = ".A.B.\n.....\n...b.\n.....\n.a..."
    landing_state = {cell: drawing.replace("\n", "").index(cell.lower()) for cell in "AB"}

    def rule(cell: str, state: int, target: int | None) -> tuple[int, float]:
        if cell in landing_state:
            return landing_state[cell], 10.0 if cell == "A" else 5.0
        return (state, -1.0) if target is None else (target, 0.0)

    return draw_world(drawing, rule, terminal="")


def cliff_walking() -> GridWorld:
    """A path along a cliff: every step costs 1, a step into the cliff costs 100 and leads back to the initial state.

    Sutton and Barto (2018), example 6.6; the tables are those of Gymnasium's ``CliffWalking-v1``.
    """
    drawing = "............\n............\n............\nS##########G"
    start = 36

    def rule(cell: str, state: int, target: int | None) -> tuple[int, float]:
        next_state = state if target is None else target
        return (start, -100.0) if 37 <= next_state <= 46 else (next_state, -1.0)

    return draw_world(drawing, rule)


def frozen_lake(*, slippery: bool = True) -> GridWorld:
    """Ice with a goal G of reward 1; holes H end the episode. If slippery, 1/3 of the steps turn left, 1/3 right.

    The map and, up to the order of the actions, the tables are those of Gymnasium's ``FrozenLake-v1``.
    """
    drawing = "SFFF\nFHFH\nFFFH\nHFFG"
    goal = 15

    def rule(cell: str, state: int, target: int | None) -> tuple[int, float]:
        next_state = state if target is None else target
        return next_state, float(next_state == goal)

    return draw_world(
        drawing, rule, terminal="HG", directions={-1: 1 / 3, 0: 1 / 3, 1: 1 / 3} if slippery else {0: 1.0}
    )


def maze() -> GridWorld:
    """Walls # block a step; every step costs 1. The shortest path has 14 steps."""
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
    """The first action leads home with reward 0, any other into a hall with ``doors`` doors of reward −0.1 each.

    With noise on the rewards, the estimate of at least one door tends to be too high. States: start, hall, home
    (terminal).
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
