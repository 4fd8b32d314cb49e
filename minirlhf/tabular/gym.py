"""Conversion between our tables and Gymnasium environments, in both directions (the extra ``control``)."""

from __future__ import annotations

from typing import Any

import gymnasium
import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError, UserError
from minirlhf.core.validate import require_shapes
from minirlhf.tabular.process import Outcome, Process, choose, from_outcomes


class TableEnv(gymnasium.Env[Any, Any]):
    """A :class:`Process` as a Gymnasium environment. Use Gymnasium's wrapper ``TimeLimit`` to truncate episodes."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.observation_space = gymnasium.spaces.Discrete(process.num_states)
        self.action_space = gymnasium.spaces.Discrete(process.num_actions)
        self._rng, self._state, self._terminal = torch.Generator(), 0, process.terminal

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Reset to the start of an episode."""
        super().reset(seed=seed)
        self._rng.manual_seed(int(self.np_random.integers(2**31)))
        self._state = int(choose(self.process.start[None], self._rng))
        return self._state, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Take one action."""
        if not self.action_space.contains(action):
            raise ArgumentError(
                f"action {action!r}; expected 0 .. {self.process.num_actions - 1}",
                argument="action",
                value=action,
                expected=self.process.num_actions,
            )
        before, self._state = self._state, int(choose(self.process.transitions[self._state, action][None], self._rng))
        reward = float(self.process.rewards[before, action, self._state])
        return self._state, reward, bool(self._terminal[self._state]), False, {}


def from_gymnasium(env: gymnasium.Env[Any, Any]) -> Process:
    """Return the tables of a Gymnasium environment with an attribute ``P``, such as FrozenLake, CliffWalking and Taxi.

    In Gymnasium a *step* ends the episode; here a *state* is terminal.

    Raises:
        UserError: the environment has no tables, or some but not all of the steps to a state end the episode.
    """
    inner: Any = env.unwrapped
    if not hasattr(inner, "P"):
        raise UserError(
            f"{env.spec.id if env.spec else inner} has no table of transitions (an attribute P)",
            argument="P",
            value=env.spec.id if env.spec else None,
            problem="missing",
        )
    rows = [(state, action, row) for state, by in inner.P.items() for action, row in by.items()]
    terminal = {int(next_state) for _, _, row in rows for _, next_state, _, terminated in row if terminated}
    rows = [
        (state, action, row) for state, action, row in rows if state not in terminal
    ]  # the outcomes in terminal states have no meaning
    ambiguous = terminal & {int(to) for _, _, row in rows for p, to, _, terminated in row if p > 0 and not terminated}
    if ambiguous:
        raise UserError(f"states {sorted(ambiguous)[:5]} end the episode after some steps to them but not all")
    outcomes: dict[tuple[int, int], list[Outcome]] = {
        (state, action): [(float(p), int(next_state), float(reward)) for p, next_state, reward, _ in row]
        for state, action, row in rows
    }
    return from_outcomes(
        outcomes,
        num_states=int(inner.observation_space.n),
        actions=tuple(str(a) for a in range(int(inner.action_space.n))),
        start=[float(p) for p in inner.initial_state_distrib],
        terminal=sorted(terminal),
    )


def play(env: gymnasium.Env[Any, Any], policy: Tensor, *, episodes: int, seed: int) -> Tensor:
    """Return the undiscounted returns ``(episodes,)`` of a policy ``(S, A)`` in an environment with discrete spaces."""
    space: Any = env.observation_space
    require_shapes(policy=(policy, f"{int(space.n)} A"))
    rng = torch.Generator().manual_seed(seed)
    returns = []
    for episode in range(episodes):
        state, _ = env.reset(seed=seed + episode)
        total, over = 0.0, False
        while not over:
            action = int(choose(policy[int(state)][None], rng))
            state, reward, terminated, truncated, _ = env.step(action)
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    return torch.tensor(returns, dtype=torch.float64)
