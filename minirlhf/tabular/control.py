"""Decision: learn action values by acting on them. Sarsa, Q-learning, Dyna-Q.

``N`` learners learn side by side, each with its own table and its own luck.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.core.validate import require_positive, require_range
from minirlhf.equations.value_learning import epsilon_greedy, q_learning_target, sarsa_target
from minirlhf.tabular.process import ParallelEpisodes, Process, Transition, choose


@dataclass(frozen=True)
class TrainingResult:
    """What the learners learned and earned.

    Attributes:
        action_values: ``(N, S, A)`` at the end.
        returns: ``(N, E)``, the undiscounted return of each episode.
        lengths: ``(N, E)``, its number of steps.
        terminated: ``(N, E)`` bool, False where the time limit cut it off.
    """

    action_values: Tensor
    returns: Tensor
    lengths: Tensor
    terminated: Tensor


class _Book:
    """Returns and lengths of the episodes, and who is not through with theirs."""

    def __init__(self, learners: int, episodes: int) -> None:
        self.returns = torch.zeros(
            learners, episodes + 1, dtype=torch.float64
        )  # the last column is for those who are through
        self.lengths = torch.zeros(learners, episodes + 1, dtype=torch.long)
        self.terminated = torch.zeros(learners, episodes + 1, dtype=torch.bool)
        self._episode = torch.zeros(learners, dtype=torch.long)
        self._last, self._rows = episodes, torch.arange(learners)

    @property
    def learning(self) -> Tensor:
        """``(N,)`` bool."""
        return self._episode < self._last

    def note(self, step: Transition) -> None:
        at = self._rows, self._episode
        self.returns[at] += step.rewards
        self.lengths[at] += 1
        self.terminated[at] = step.terminated
        self._episode = (self._episode + step.over).clamp(max=self._last)

    def close(self, table: Tensor) -> TrainingResult:
        return TrainingResult(table, self.returns[:, :-1], self.lengths[:, :-1], self.terminated[:, :-1])


def sarsa(
    process: Process,
    *,
    gamma: float,
    alpha: float,
    epsilon: float,
    episodes: int,
    learners: int,
    rng: torch.Generator,
    time_limit: int = 10_000,
) -> TrainingResult:
    """Sarsa: learn what the ε-greedy policy itself is worth, its wrong steps included.

    Raises:
        ValueError: gamma, alpha or epsilon outside [0, 1], or a count that is not positive.
    """
    walkers, table, book = _begin(process, alpha, epsilon, episodes, learners, rng, time_limit)
    rows = torch.arange(learners)
    actions = choose(epsilon_greedy(table[rows, walkers.states], epsilon=epsilon), rng)
    while bool((learning := book.learning).any()):
        step = walkers.step(actions)
        next_values = table[rows, step.next_states]  # (N, A)
        next_actions = choose(epsilon_greedy(next_values, epsilon=epsilon), rng)
        target = sarsa_target(step.rewards, next_values, next_actions, step.terminated, gamma=gamma)
        _move(table, rows, step, target, torch.where(learning, alpha, 0.0))
        book.note(step)
        actions = next_actions
        if bool(step.over.any()):
            first_actions = choose(epsilon_greedy(table[rows, walkers.states], epsilon=epsilon), rng)
            actions = torch.where(step.over, first_actions, next_actions)
    return book.close(table)


def q_learning(
    process: Process,
    *,
    gamma: float,
    alpha: float,
    epsilon: float,
    episodes: int,
    learners: int,
    rng: torch.Generator,
    time_limit: int = 10_000,
) -> TrainingResult:
    """Q-learning: act ε-greedily, learn what acting greedily would be worth.

    Raises:
        ValueError: as :func:`sarsa`.
    """
    return _off_policy(
        process, gamma, alpha, epsilon, episodes, learners, rng, time_limit, lambda table, step, on: None
    )


def dyna_q(
    process: Process,
    *,
    gamma: float,
    alpha: float,
    epsilon: float,
    episodes: int,
    learners: int,
    rng: torch.Generator,
    planning_steps: int,
    time_limit: int = 10_000,
) -> TrainingResult:
    """Dyna-Q: Q-learning that also remembers what each action did last, and learns from ``planning_steps`` memories per step.

    The memory is a model of a world in which nothing is random: of several outcomes it keeps the latest.

    Raises:
        ValueError: as :func:`sarsa`, or ``planning_steps`` is not positive.
    """
    require_positive(planning_steps=planning_steps)
    rows, pairs = torch.arange(learners), process.num_states * process.num_actions
    seen = torch.zeros(learners, pairs, dtype=torch.float64)
    rewards, following = (
        torch.zeros(learners, pairs, dtype=torch.float64),
        torch.zeros(learners, pairs, dtype=torch.long),
    )

    terminal = process.terminal

    def remember_and_replay(table: Tensor, step: Transition, learning: Tensor) -> None:
        pair = step.states * process.num_actions + step.actions
        seen[rows, pair], rewards[rows, pair], following[rows, pair] = 1.0, step.rewards, step.next_states
        rate = torch.where(learning, alpha, 0.0)
        for memory in torch.multinomial(seen, planning_steps, replacement=True, generator=rng).unbind(1):
            to = following[rows, memory]
            target = q_learning_target(rewards[rows, memory], table[rows, to], terminal[to], gamma=gamma)
            flat = table.view(learners, pairs)
            flat[rows, memory] += rate * (target - flat[rows, memory])

    return _off_policy(process, gamma, alpha, epsilon, episodes, learners, rng, time_limit, remember_and_replay)


def _off_policy(
    process: Process,
    gamma: float,
    alpha: float,
    epsilon: float,
    episodes: int,
    learners: int,
    rng: torch.Generator,
    time_limit: int,
    also: Callable[[Tensor, Transition, Tensor], None],
) -> TrainingResult:
    """Q-learning, and ``also(table, step, learning)`` after each of its steps."""
    walkers, table, book = _begin(process, alpha, epsilon, episodes, learners, rng, time_limit)
    rows = torch.arange(learners)
    while bool((learning := book.learning).any()):
        step = walkers.step(choose(epsilon_greedy(table[rows, walkers.states], epsilon=epsilon), rng))
        target = q_learning_target(step.rewards, table[rows, step.next_states], step.terminated, gamma=gamma)
        _move(table, rows, step, target, torch.where(learning, alpha, 0.0))
        also(table, step, learning)
        book.note(step)
    return book.close(table)


def _begin(
    process: Process, alpha: float, epsilon: float, episodes: int, learners: int, rng: torch.Generator, time_limit: int
) -> tuple[ParallelEpisodes, Tensor, _Book]:
    require_range(0.0, 1.0, alpha=alpha, epsilon=epsilon)
    require_positive(episodes=episodes)
    walkers = ParallelEpisodes(process, learners, rng=rng, time_limit=time_limit)
    return (
        walkers,
        process.start.new_zeros(learners, process.num_states, process.num_actions),
        _Book(learners, episodes),
    )


def _move(table: Tensor, rows: Tensor, step: Transition, target: Tensor, rate: Tensor) -> None:
    """Q(s,a) ← Q(s,a) + rate · (target − Q(s,a))."""
    at = rows, step.states, step.actions
    table[at] += rate * (target - table[at])
