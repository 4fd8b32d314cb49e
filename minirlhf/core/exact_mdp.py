"""The exact oracle for small Markov decision processes: sums over trajectories and over time, in float64.

A process has ``S`` states and ``A`` actions: ``start (S,)``, ``transitions (S, A, S)`` with P(s'|s,a), expected
``rewards (S, A)`` and a ``policy (S, A)``. Everything here follows from the definition "the policy acts, the process
moves". No Bellman equation is used, so that Bellman equations can be checked against it. All results are
differentiable.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError


@dataclass(frozen=True)
class Trajectories:
    """All sequences of ``H`` steps, ``N = S (A S)^H`` of them, including impossible ones.

    Attributes:
        states: ``(N, H + 1)``.
        actions: ``(N, H)``.
    """

    states: Tensor
    actions: Tensor


def trajectories(num_states: int, num_actions: int, horizon: int) -> Trajectories:
    """Every sequence s₀ a₀ s₁ a₁ … s_H."""
    axes = [range(num_states), *[range(num_actions), range(num_states)] * horizon]
    table = torch.tensor(list(itertools.product(*axes)))  # (N, 2H + 1)
    return Trajectories(states=table[:, 0::2], actions=table[:, 1::2])


def probabilities(paths: Trajectories, start: Tensor, transitions: Tensor, policy: Tensor) -> Tensor:
    """Probability of each trajectory: ``(N,)``, sums to 1."""
    states, next_states = paths.states[:, :-1], paths.states[:, 1:]
    step_probs = policy[states, paths.actions] * transitions[states, paths.actions, next_states]  # (N, H)
    return start[paths.states[:, 0]] * step_probs.prod(-1)


def step_rewards(paths: Trajectories, rewards: Tensor) -> Tensor:
    """Expected reward of each step of each trajectory: ``(N, H)``."""
    return rewards[paths.states[:, :-1], paths.actions]


def horizon_for(gamma: float, precision: float = 1e-15) -> int:
    """Number of steps after which the discount ``gamma**t`` is at most ``precision``; ``gamma`` is below 1."""
    if not 0.0 <= gamma < 1.0:
        raise ArgumentError(
            f"gamma = {gamma!r}; expected a number in [0, 1)", argument="gamma", value=gamma, expected="[0, 1)"
        )
    return 1 if gamma == 0.0 else math.ceil(math.log(precision) / math.log(gamma))


def visits(start: Tensor, transitions: Tensor, policy: Tensor, *, gamma: float, steps: int | None = None) -> Tensor:
    """Σ_t γ^t P(s_t = s, a_t = a), by pushing the distribution over states forward through time.

    Args:
        start: ``(..., S)``; leading axes are independent starts, and ``policy (..., S, A)`` may differ between them.
        steps: number of terms of the sum; by default, the number that matters in float64.

    Returns:
        ``(..., S, A)``, not normalised.
    """
    state_transitions = (policy[..., None] * transitions).sum(-2)  # (..., S, S), P(s'|s) under the policy
    state_probs, total = start, torch.zeros_like(start)
    for t in range(horizon_for(gamma) if steps is None else steps):
        total = total + gamma**t * state_probs
        state_probs = (state_probs[..., None, :] @ state_transitions).squeeze(-2)
    return total[..., None] * policy


def expected_return(
    start: Tensor, transitions: Tensor, rewards: Tensor, policy: Tensor, *, gamma: float, steps: int | None = None
) -> Tensor:
    """E[Σ_t γ^t r_t] from the start distribution: ``(..., S) -> (...)``."""
    return (visits(start, transitions, policy, gamma=gamma, steps=steps) * rewards).sum((-2, -1))


def state_values(
    transitions: Tensor, rewards: Tensor, policy: Tensor, *, gamma: float, steps: int | None = None
) -> Tensor:
    """The expected return from each state: ``(S,)``."""
    starts = torch.eye(len(transitions), dtype=transitions.dtype)
    return expected_return(starts, transitions, rewards, policy, gamma=gamma, steps=steps)


def action_values(
    transitions: Tensor, rewards: Tensor, policy: Tensor, *, gamma: float, steps: int | None = None
) -> Tensor:
    """The expected return of taking each action and then following the policy: ``(S, A)``."""
    return rewards + gamma * expected_return(transitions, transitions, rewards, policy, gamma=gamma, steps=steps)


def deterministic_policies(num_states: int, num_actions: int) -> Iterator[Tensor]:
    """All ``A^S`` policies that always take the same action in a state, as ``(S, A)`` of zeros and ones."""
    for choice in itertools.product(range(num_actions), repeat=num_states):
        yield torch.eye(num_actions, dtype=torch.float64)[list(choice)]


def best_values(transitions: Tensor, rewards: Tensor, *, gamma: float) -> tuple[Tensor, Tensor]:
    """The best state values ``(S,)`` and action values ``(S, A)`` over all deterministic policies, by enumeration."""
    num_states, num_actions = rewards.shape
    policies = torch.stack(list(deterministic_policies(num_states, num_actions)))[:, None]  # (A^S, 1, S, A)
    starts = torch.eye(num_states, dtype=transitions.dtype).expand(len(policies), num_states, num_states)
    values = expected_return(starts, transitions, rewards, policies, gamma=gamma)  # (A^S, S)
    next_state_probs = transitions.flatten(0, 1).expand(len(policies), num_states * num_actions, num_states)
    next_values = expected_return(next_state_probs, transitions, rewards, policies, gamma=gamma)  # (A^S, S·A)
    return values.amax(0), rewards + gamma * next_values.amax(0).view(num_states, num_actions)
