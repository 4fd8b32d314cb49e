"""Planning: the tables are known, and the best policy is computed, not learned."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import require_positive, require_range
from minirlhf.equations.mdp import (
    action_values,
    bellman_expectation,
    bellman_optimality,
    greedy_policy,
    policy_values,
)
from minirlhf.tabular.process import Process


@dataclass(frozen=True)
class Plan:
    """The result of planning.

    Attributes:
        policy: ``(S, A)``, zeros and ones.
        values: ``(S,)``.
        history: the values ``(K, S)`` after each sweep or each evaluation; the first row holds the initial values.
    """

    policy: Tensor
    values: Tensor
    history: Tensor


def evaluate(process: Process, policy: Tensor, *, gamma: float, tolerance: float = 1e-10) -> Tensor:
    """Evaluate a policy by sweeps of its Bellman equation from zero: the history ``(K, S)``, the result last.

    Raises:
        ValueError: as :func:`minirlhf.equations.mdp.policy_values`, which is called first to check that the values
            exist.
    """
    policy_values(
        process.transitions, process.expected_rewards, policy, gamma=gamma
    )  # an improper policy never converges
    history = [torch.zeros_like(process.start)]
    while len(history) < 2 or float((history[-1] - history[-2]).abs().max()) > tolerance:
        history.append(
            bellman_expectation(process.transitions, process.expected_rewards, policy, history[-1], gamma=gamma)
        )
    return torch.stack(history)


def value_iteration(process: Process, *, gamma: float, tolerance: float = 1e-10, max_sweeps: int = 100_000) -> Plan:
    """Sweep Bellman's optimality equation from zero until no value changes by more than ``tolerance``.

    Raises:
        ValueError: gamma outside [0, 1]; with gamma = 1, a state from which no actions lead to a terminal one; or values that
            have not converged after ``max_sweeps`` (with gamma = 1: a loop with positive reward).
    """
    require_range(0.0, 1.0, gamma=gamma)
    require_positive(tolerance=tolerance, max_sweeps=max_sweeps)
    require_termination(process, gamma)
    rewards = process.expected_rewards
    history = [torch.zeros_like(process.start)]
    for _ in range(max_sweeps):
        history.append(bellman_optimality(process.transitions, rewards, history[-1], gamma=gamma))
        if float((history[-1] - history[-2]).abs().max()) <= tolerance:
            policy = greedy_policy(action_values(process.transitions, rewards, history[-1], gamma=gamma))
            return Plan(policy, history[-1], torch.stack(history))
    raise ArgumentError(
        f"values have not converged after {max_sweeps} sweeps with gamma = {gamma!r}: does a loop have reward > 0?",
        argument="max_sweeps",
        value=max_sweeps,
        problem="not settled",
    )


def policy_iteration(process: Process, *, gamma: float, policy: Tensor | None = None, margin: float = 1e-9) -> Plan:
    """Alternate exact evaluation and greedy improvement until no action is better than those of the policy.

    An action counts as better only by more than ``margin``: otherwise rounding errors between equal actions could
    repeat the improvement forever.

    Args:
        policy: initial policy, ``(S, A)``; None: the uniform policy.

    Raises:
        ValueError: as :func:`value_iteration` and :func:`minirlhf.equations.mdp.policy_values`.
    """
    require_termination(process, gamma)
    tables = process.transitions, process.expected_rewards
    policy = process.uniform_policy() if policy is None else policy
    history = []
    while True:
        values = policy_values(*tables, policy, gamma=gamma)
        history.append(values)
        q_values = action_values(*tables, values, gamma=gamma)  # (S, A)
        better = q_values.amax(-1) > values + margin  # (S,)
        if not bool(better.any()):
            # Choose among the policy's own actions in each state; their values differ by at most the margin.
            final = greedy_policy(torch.where(policy > 0, q_values, q_values.min() - 1.0))
            return Plan(final, values, torch.stack(history))
        policy = torch.where(better[:, None], greedy_policy(q_values), policy)


def require_termination(process: Process, gamma: float) -> None:
    """With gamma = 1, raise ``ValueError`` unless a terminal state can be reached from every state."""
    if gamma != 1.0:
        return
    reaches = process.terminal
    for _ in range(process.num_states):
        reaches = reaches | ((process.transitions > 0) & reaches).any(-1).any(-1)
    stuck = (~reaches).nonzero().flatten().tolist()
    if stuck:
        raise ArgumentError(
            f"state(s) {stuck[:5]}: no policy reaches a terminal state from there, so with gamma = 1 "
            "returns need not be finite",
            argument="process",
            value=stuck,
            problem="not terminating",
        )
