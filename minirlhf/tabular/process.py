"""A decision process as tables, and parallel episodes sampled from it.

``S`` states, ``A`` actions. The tables define the process completely, so every question about it has an exact answer.
The learners of this package see only the steps of their own episodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import (
    require_distributions,
    require_finite,
    require_positive,
    require_range,
    require_shapes,
)


@dataclass(frozen=True, eq=False)
class Process:
    """A Markov decision process.

    Attributes:
        transitions: P(s'|s,a), ``(S, A, S)``.
        rewards: r(s,a,s') ``(S, A, S)``, reward of the step; any finite number where the step is impossible.
        start: distribution of the first state, ``(S,)``.
        actions: the names of the actions.
    """

    transitions: Tensor
    rewards: Tensor
    start: Tensor
    actions: tuple[str, ...]

    def __post_init__(self) -> None:
        sizes = require_shapes(
            transitions=(self.transitions, "S A S"), rewards=(self.rewards, "S A S"), start=(self.start, "S")
        )
        require_finite(rewards=self.rewards)
        require_distributions(transitions=self.transitions, start=self.start)
        if len(self.actions) != sizes["A"]:
            raise ArgumentError(
                f"{len(self.actions)} names of actions; expected {sizes['A']}, as in transitions",
                argument="actions",
                value=len(self.actions),
                expected=sizes["A"],
            )

    @property
    def num_states(self) -> int:
        """``S``."""
        return len(self.start)

    @property
    def num_actions(self) -> int:
        """``A``."""
        return len(self.actions)

    @property
    def expected_rewards(self) -> Tensor:
        """r(s,a) = Σ_s' P(s'|s,a) r(s,a,s'), ``(S, A)``."""
        return (self.transitions * self.rewards).sum(-1)

    @property
    def terminal(self) -> Tensor:
        """``(S,)`` bool: states that no action leaves and whose expected rewards are 0."""
        stays = (self.transitions.diagonal(dim1=0, dim2=2) == 1.0).all(0)  # the diagonal is (A, S)
        return stays & (self.expected_rewards == 0).all(-1)

    def uniform_policy(self) -> Tensor:
        """Return ``(S, A)``, every action equally probable."""
        return torch.full_like(self.expected_rewards, 1.0 / self.num_actions)


Outcome = tuple[float, int, float]  # probability, next state, reward


def from_outcomes(
    outcomes: Mapping[tuple[int, int], Sequence[Outcome]],
    *,
    num_states: int,
    actions: Sequence[str],
    start: Sequence[float],
    terminal: Sequence[int] = (),
) -> Process:
    """Build a process from the outcomes of each action: ``{(state, action): [(probability, next, reward), …]}``.

    Terminal states need no entry. If several outcomes lead to the same state, their rewards are averaged.

    Raises:
        ValueError: a state that is not terminal lacks an action, or probabilities do not sum to 1.
    """
    transitions = torch.zeros(num_states, len(actions), num_states, dtype=torch.float64)
    weighted = torch.zeros_like(transitions)
    for state in range(num_states):
        for action in range(len(actions)):
            if state in terminal:
                transitions[state, action, state] = 1.0
                continue
            if (state, action) not in outcomes:
                raise ArgumentError(
                    f"outcomes has no entry for state {state}, action {action} ({actions[action]!r})",
                    argument="outcomes",
                    value=(state, action),
                    problem="missing",
                )
            for probability, next_state, reward in outcomes[state, action]:
                transitions[state, action, next_state] += probability
                weighted[state, action, next_state] += probability * reward
    rewards = torch.where(transitions > 0, weighted / transitions.clamp(min=1e-300), 0.0)
    return Process(transitions, rewards, torch.tensor(start, dtype=torch.float64), tuple(actions))


# -- sampling from distributions ------------------------------------------------------------------------------------


def choose(probs: Tensor, rng: torch.Generator) -> Tensor:
    """Sample one index per row of ``probs (N, K)``: ``(N,)``. Entries of probability 0 are never sampled."""
    cumulative = probs.cumsum(-1)
    cumulative = cumulative / cumulative[:, -1:]  # the last possible entry is exactly 1, above every uniform number
    u = torch.rand(len(probs), 1, generator=rng, dtype=probs.dtype)
    return torch.searchsorted(cumulative, u, right=True)[:, 0]


def sample_chain(transitions: Tensor, start: Tensor, *, steps: int, count: int, rng: torch.Generator) -> Tensor:
    """Sample trajectories of a Markov chain: ``(S, S), (S,) -> (count, steps + 1)``, the states visited.

    Raises:
        ValueError: shapes differ, a row is not a distribution, or ``steps`` or ``count`` is not positive.
    """
    require_shapes(transitions=(transitions, "S S"), start=(start, "S"))
    require_distributions(transitions=transitions, start=start)
    require_positive(steps=steps, count=count)
    states = [choose(start.expand(count, -1), rng)]
    for _ in range(steps):
        states.append(choose(transitions[states[-1]], rng))
    return torch.stack(states, 1)


# -- episodes ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Transition:
    """One step of each of ``N`` parallel episodes; every field is ``(N,)``.

    Attributes:
        terminated: the step led to a terminal state.
        truncated: the step did not lead to a terminal state, but the time limit truncates the episode here.
    """

    states: Tensor
    actions: Tensor
    rewards: Tensor
    next_states: Tensor
    terminated: Tensor
    truncated: Tensor

    @property
    def over(self) -> Tensor:
        """``(N,)`` bool: the episode is over, for either reason, and a new one begins."""
        return self.terminated | self.truncated


class ParallelEpisodes:
    """``N`` parallel episodes, each in its own copy of a process; an episode that is over is followed by a new one.

    Attributes:
        states: ``(N,)``, the current states.
    """

    def __init__(self, process: Process, count: int, *, rng: torch.Generator, time_limit: int | None = None) -> None:
        require_positive(count=count, **({} if time_limit is None else {"time_limit": time_limit}))
        self._process, self._rng, self._limit = process, rng, time_limit
        self._terminal = process.terminal
        if bool(self._terminal[process.start > 0].any()):
            raise ArgumentError(
                "start has a probability > 0 of a terminal state; expected 0, as an episode needs at least one step",
                argument="start",
                problem="terminal",
            )
        self._age = torch.zeros(count, dtype=torch.long)
        self.states = choose(process.start.expand(count, -1), rng)

    def step(self, actions: Tensor) -> Transition:
        """Take one step with ``actions (N,)``."""
        states = self.states
        after = choose(self._process.transitions[states, actions], self._rng)
        terminated = self._terminal[after]
        self._age = self._age + 1
        timeout = torch.zeros_like(terminated) if self._limit is None else self._age >= self._limit
        step = Transition(
            states, actions, self._process.rewards[states, actions, after], after, terminated, timeout & ~terminated
        )
        self.states = after
        if bool(step.over.any()):
            restarts = choose(self._process.start.expand(len(after), -1), self._rng)
            self.states = torch.where(step.over, restarts, after)
        self._age = torch.where(step.over, 0, self._age)
        return step


@dataclass(frozen=True)
class Episodes:
    """``N`` episodes of at most ``T`` steps.

    Attributes:
        states: ``(N, T + 1)``; after the end the last state is repeated.
        actions, rewards, mask: ``(N, T)``; ``mask`` is True for steps that were taken, rewards are 0 elsewhere.
        terminated: ``(N,)`` bool, False if the time limit truncated the episode.
    """

    states: Tensor
    actions: Tensor
    rewards: Tensor
    mask: Tensor
    terminated: Tensor


def sample_episodes(
    process: Process, policy: Tensor, *, count: int, rng: torch.Generator, time_limit: int = 1_000
) -> Episodes:
    """Sample ``count`` episodes of a policy ``(S, A)`` from the start distribution.

    Raises:
        ValueError: the policy has a wrong shape or is not a distribution, or a number is not positive.
    """
    require_shapes(transitions=(process.transitions, "S A S"), policy=(policy, "S A"))
    require_distributions(policy=policy)
    envs = ParallelEpisodes(process, count, rng=rng, time_limit=time_limit)
    active = torch.ones(count, dtype=torch.bool)
    current, columns, terminated = envs.states, [], torch.zeros(count, dtype=torch.bool)
    states = [current]
    while bool(active.any()):
        step = envs.step(choose(policy[envs.states], rng))
        columns.append((step.actions, torch.where(active, step.rewards, 0.0), active))
        current = torch.where(active, step.next_states, current)
        states.append(current)
        terminated = terminated | (active & step.terminated)
        active = active & ~step.over
    actions, rewards, mask = (torch.stack(column, 1) for column in zip(*columns, strict=True))
    return Episodes(torch.stack(states, 1), actions, rewards, mask, terminated)


def count_occupancy(episodes: Episodes, *, num_states: int, num_actions: int, gamma: float) -> Tensor:
    """Estimate the occupancy from episodes: (1−γ) Σ_t γ^t [s_t = s, a_t = a], averaged over *all* episodes: ``(S, A)``.

    An episode that has ended still counts in the average. From then on it only visits its terminal state, which is left
    out.
    """
    require_range(0.0, 1.0, gamma=gamma)
    pair = episodes.states[:, :-1] * num_actions + episodes.actions  # (N, T)
    weight = (1 - gamma) * gamma ** torch.arange(pair.shape[1], dtype=torch.float64)  # (T,)
    total = torch.zeros(num_states * num_actions, dtype=torch.float64)
    total.index_add_(0, pair.flatten(), (weight * episodes.mask).flatten())
    return total.view(num_states, num_actions) / len(pair)
