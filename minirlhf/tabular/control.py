"""Control: learn action values while acting on them. Sarsa, Q-learning, Dyna-Q.

``N`` learners learn in parallel, each with its own table and its own random numbers.
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
    """The learners' action values and episodes.

    Attributes:
        action_values: ``(N, S, A)`` at the end.
        returns: ``(N, E)``, the undiscounted return of each episode.
        lengths: ``(N, E)``, the number of steps of each episode.
        terminated: ``(N, E)`` bool, False where the time limit truncated the episode.
    """

    action_values: Tensor
    returns: Tensor
    lengths: Tensor
    terminated: Tensor


class _Book:
    """Returns and lengths of the episodes, and which learners are still learning."""

    def __init__(self, learners: int, episodes: int) -> None:
        self.returns = torch.zeros(
            learners, episodes + 1, dtype=torch.float64
        )  # the last column is for learners that have finished
        self.lengths = torch.zeros(learners, episodes + 1, dtype=torch.long)
        self.terminated = torch.zeros(learners, episodes + 1, dtype=torch.bool)
        self._episode = torch.zeros(learners, dtype=torch.long)
        self._last, self._rows = episodes, torch.arange(learners)

    @property
    def learning(self) -> Tensor:
        """``(N,)`` bool."""
        return self._episode < self._last

    def note(self, step: Transition) -> None:
        index = self._rows, self._episode
        self.returns[index] += step.rewards
        self.lengths[index] += 1
        self.terminated[index] = step.terminated
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
    """Sarsa: learn the action values of the ε-greedy policy itself, including its exploratory actions.

    Raises:
        ValueError: gamma, alpha or epsilon outside [0, 1], or a count that is not positive.
    """
    envs, table, log = _begin(process, alpha, epsilon, episodes, learners, rng, time_limit)
    rows = torch.arange(learners)
    actions = choose(epsilon_greedy(table[rows, envs.states], epsilon=epsilon), rng)
    while bool((learning := log.learning).any()):
        step = envs.step(actions)
        next_values = table[rows, step.next_states]  # (N, A)
        next_actions = choose(epsilon_greedy(next_values, epsilon=epsilon), rng)
        target = sarsa_target(step.rewards, next_values, next_actions, step.terminated, gamma=gamma)
        _move(table, rows, step, target, torch.where(learning, alpha, 0.0))
        log.note(step)
        actions = next_actions
        if bool(step.over.any()):
            first_actions = choose(epsilon_greedy(table[rows, envs.states], epsilon=epsilon), rng)
            actions = torch.where(step.over, first_actions, next_actions)
    return log.close(table)


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
    """Q-learning: act ε-greedily, learn the action values of the greedy policy.

    Raises:
        ValueError: as :func:`sarsa`.
    """
    return _off_policy(
        process, gamma, alpha, epsilon, episodes, learners, rng, time_limit, lambda table, step, learning: None
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
    """Dyna-Q: Q-learning plus ``planning_steps`` updates per step from a model, the last outcome of each action.

    The model is deterministic: it stores only the latest outcome of each action.

    Raises:
        ValueError: as :func:`sarsa`, or ``planning_steps`` is not positive.
    """
    require_positive(planning_steps=planning_steps)
    rows, pairs = torch.arange(learners), process.num_states * process.num_actions
    visited = torch.zeros(learners, pairs, dtype=torch.float64)
    rewards, next_states = (
        torch.zeros(learners, pairs, dtype=torch.float64),
        torch.zeros(learners, pairs, dtype=torch.long),
    )

    terminal = process.terminal

    def remember_and_replay(table: Tensor, step: Transition, learning: Tensor) -> None:
        pair = step.states * process.num_actions + step.actions
        visited[rows, pair], rewards[rows, pair], next_states[rows, pair] = 1.0, step.rewards, step.next_states
        rate = torch.where(learning, alpha, 0.0)
        for replay in torch.multinomial(visited, planning_steps, replacement=True, generator=rng).unbind(1):
            after = next_states[rows, replay]
            target = q_learning_target(rewards[rows, replay], table[rows, after], terminal[after], gamma=gamma)
            flat = table.view(learners, pairs)
            flat[rows, replay] += rate * (target - flat[rows, replay])

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
    after_step: Callable[[Tensor, Transition, Tensor], None],
) -> TrainingResult:
    """Run Q-learning and call ``after_step(table, step, learning)`` after each of its steps."""
    envs, table, log = _begin(process, alpha, epsilon, episodes, learners, rng, time_limit)
    rows = torch.arange(learners)
    while bool((learning := log.learning).any()):
        step = envs.step(choose(epsilon_greedy(table[rows, envs.states], epsilon=epsilon), rng))
        target = q_learning_target(step.rewards, table[rows, step.next_states], step.terminated, gamma=gamma)
        _move(table, rows, step, target, torch.where(learning, alpha, 0.0))
        after_step(table, step, learning)
        log.note(step)
    return log.close(table)


def _begin(
    process: Process, alpha: float, epsilon: float, episodes: int, learners: int, rng: torch.Generator, time_limit: int
) -> tuple[ParallelEpisodes, Tensor, _Book]:
    require_range(0.0, 1.0, alpha=alpha, epsilon=epsilon)
    require_positive(episodes=episodes)
    envs = ParallelEpisodes(process, learners, rng=rng, time_limit=time_limit)
    return (
        envs,
        process.start.new_zeros(learners, process.num_states, process.num_actions),
        _Book(learners, episodes),
    )


def _move(table: Tensor, rows: Tensor, step: Transition, target: Tensor, rate: Tensor) -> None:
    """Q(s,a) ← Q(s,a) + rate · (target − Q(s,a))."""
    index = rows, step.states, step.actions
    table[index] += rate * (target - table[index])
