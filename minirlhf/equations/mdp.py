"""Markov reward and decision processes with tables: values, Bellman equations, occupancy.

``S`` states, ``A`` actions. ``transitions (S, S)`` or ``(S, A, S)`` hold P(s'|s) or P(s'|s,a), ``rewards (S,)`` or ``(S, A)``
the expected reward for being in s (and taking a), a ``policy (S, A)`` its action probabilities. An episode ends in a
*terminal* state: one that is never left and earns nothing. Its value is 0, also with γ = 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.validate import require_finite, require_range, require_shapes

# -- reward processes ----------------------------------------------------------------------------------------------


def discounted_return(rewards: Tensor, *, gamma: float) -> Tensor:
    """Return G = Σ_k γ^k r_k of a sequence of rewards; the first one is not discounted.

    Label: eq:return
    Source: Sutton and Barto (2018), "Reinforcement Learning", equation 3.8.
    Args: rewards ``(..., T)``; gamma in [0, 1].
    Returns: ``(...)``.
    Raises: ValueError if rewards is not finite or gamma is outside [0, 1].
    """
    if rewards.dim() == 0:
        raise ValueError("rewards has shape (); expected (..., T)")
    require_finite(rewards=rewards)
    require_range(0.0, 1.0, gamma=gamma)
    powers = gamma ** torch.arange(rewards.shape[-1], dtype=rewards.dtype, device=rewards.device)  # (T,)
    return (powers * rewards).sum(-1)


def mrp_values(transitions: Tensor, rewards: Tensor, *, gamma: float) -> Tensor:
    """Values of a Markov reward process, V = (I − γP)⁻¹ r: the Bellman equation as a linear system.

    Label: eq:bellman-matrix
    Source: Bellman (1957), "A Markovian decision process"; Puterman (1994), "Markov Decision Processes".
    Args: transitions ``(S, S)``; rewards ``(S,)``; gamma in [0, 1].
    Returns: ``(S,)``.
    Raises: ValueError if a row of transitions is no distribution, or gamma = 1 and a state cannot reach a terminal one.
    """
    sizes = require_shapes(transitions=(transitions, "S S"), rewards=(rewards, "S"))
    require_finite(rewards=rewards)
    require_range(0.0, 1.0, gamma=gamma)
    require_distributions(transitions=transitions)
    return solve_bellman(transitions, rewards.view(sizes["S"], 1), gamma=gamma)[:, 0]


def marginalise(transitions: Tensor, rewards: Tensor, policy: Tensor) -> tuple[Tensor, Tensor]:
    """The reward process that a policy makes of a decision process: the policy averages the actions away.

    P_π(s'|s) = Σ_a π(a|s) P(s'|s,a) and r_π(s) = Σ_a π(a|s) r(s,a).

    Label: eq:marginalised-mrp
    Source: Puterman (1994), "Markov Decision Processes".
    Args: transitions ``(S, A, S)``; rewards ``(S, A)``; policy ``(S, A)``.
    Returns: transitions ``(S, S)`` and rewards ``(S,)``.
    Raises: ValueError if shapes differ or a row of transitions or policy is no distribution.
    """
    _require_mdp(transitions, rewards)
    _require_policy(transitions, policy)
    return torch.einsum("sa,sat->st", policy, transitions), (policy * rewards).sum(-1)


# -- values of a policy --------------------------------------------------------------------------------------------


def policy_values(transitions: Tensor, rewards: Tensor, policy: Tensor, *, gamma: float) -> Tensor:
    """State values V^π(s) = E_π[Σ_t γ^t r_t | s₀ = s], exactly: the values of the marginalised reward process.

    Label: eq:state-value
    Source: Sutton and Barto (2018), "Reinforcement Learning", equation 3.12.
    Args: transitions ``(S, A, S)``; rewards ``(S, A)``; policy ``(S, A)``; gamma in [0, 1].
    Returns: ``(S,)``.
    Raises: ValueError as :func:`marginalise` and :func:`mrp_values`.
    """
    return mrp_values(*marginalise(transitions, rewards, policy), gamma=gamma)


def action_values(transitions: Tensor, rewards: Tensor, values: Tensor, *, gamma: float) -> Tensor:
    """Action values from state values, Q(s,a) = r(s,a) + γ Σ_s' P(s'|s,a) V(s').

    Label: eq:q-from-v
    Source: Sutton and Barto (2018), "Reinforcement Learning", section 3.5.
    Args: transitions ``(S, A, S)``; rewards ``(S, A)``; values ``(S,)``; gamma in [0, 1].
    Returns: ``(S, A)``.
    Raises: ValueError if shapes differ, a row of transitions is no distribution, or gamma is outside [0, 1].
    """
    _require_mdp(transitions, rewards)
    require_shapes(transitions=(transitions, "S A S"), values=(values, "S"))
    require_finite(values=values)
    require_range(0.0, 1.0, gamma=gamma)
    return rewards + gamma * transitions @ values


def values_from_actions(action_values: Tensor, policy: Tensor) -> Tensor:
    """State values from action values, V(s) = Σ_a π(a|s) Q(s,a).

    Label: eq:v-from-q
    Source: Sutton and Barto (2018), "Reinforcement Learning", section 3.5.
    Args: action_values ``(S, A)``; policy ``(S, A)``.
    Returns: ``(S,)``.
    Raises: ValueError if shapes differ or a row of policy is no distribution.
    """
    require_shapes(action_values=(action_values, "S A"), policy=(policy, "S A"))
    require_finite(action_values=action_values)
    require_distributions(policy=policy)
    return (policy * action_values).sum(-1)


def advantage_function(action_values: Tensor, policy: Tensor) -> Tensor:
    """Advantage A(s,a) = Q(s,a) − V(s): what one action gains over following the policy. Its mean under π is 0.

    Label: eq:advantage-function
    Source: Baird (1993), "Advantage updating".
    Args: action_values ``(S, A)``; policy ``(S, A)``.
    Returns: ``(S, A)``.
    Raises: ValueError as :func:`values_from_actions`.
    """
    return action_values - values_from_actions(action_values, policy)[:, None]


# -- Bellman operators ---------------------------------------------------------------------------------------------


def bellman_expectation(
    transitions: Tensor, rewards: Tensor, policy: Tensor, values: Tensor, *, gamma: float
) -> Tensor:
    """One sweep of policy evaluation, (T^π V)(s) = Σ_a π(a|s) [r(s,a) + γ Σ_s' P(s'|s,a) V(s')].

    V^π is its only fixed point, and each application shrinks the largest error by γ at least.

    Label: eq:bellman-expectation, eq:policy-evaluation
    Source: Sutton and Barto (2018), "Reinforcement Learning", equations 3.14 and 4.5.
    Args: transitions ``(S, A, S)``; rewards ``(S, A)``; policy ``(S, A)``; values ``(S,)``; gamma in [0, 1].
    Returns: ``(S,)``.
    Raises: ValueError as :func:`action_values` and :func:`values_from_actions`.
    """
    return values_from_actions(action_values(transitions, rewards, values, gamma=gamma), policy)


def bellman_optimality(transitions: Tensor, rewards: Tensor, values: Tensor, *, gamma: float) -> Tensor:
    """One sweep of value iteration, (T V)(s) = max_a [r(s,a) + γ Σ_s' P(s'|s,a) V(s')]. Its fixed point is V*.

    Label: eq:bellman-optimality
    Source: Bellman (1957), "A Markovian decision process".
    Args: transitions ``(S, A, S)``; rewards ``(S, A)``; values ``(S,)``; gamma in [0, 1].
    Returns: ``(S,)``.
    Raises: ValueError as :func:`action_values`.
    """
    return action_values(transitions, rewards, values, gamma=gamma).amax(-1)


def greedy_policy(action_values: Tensor) -> Tensor:
    """Policy improvement, π'(s) = argmax_a Q(s,a), as probabilities; the first action among equals.

    Greedy with respect to Q^π, the new policy is at least as good as π in every state.

    Label: eq:policy-improvement
    Source: Howard (1960), "Dynamic Programming and Markov Processes"; Sutton and Barto (2018), section 4.2.
    Args: action_values ``(S, A)``.
    Returns: ``(S, A)``, ones and zeros in the dtype of ``action_values``.
    Raises: ValueError if action_values is not ``(S, A)`` or not finite.
    """
    require_shapes(action_values=(action_values, "S A"))
    require_finite(action_values=action_values)
    best = action_values.argmax(-1)  # (S,)
    return torch.nn.functional.one_hot(best, action_values.shape[-1]).to(action_values.dtype)


# -- where a policy spends its time --------------------------------------------------------------------------------


def occupancy(transitions: Tensor, policy: Tensor, start: Tensor, *, gamma: float) -> Tensor:
    """Discounted occupancy ν(s,a) = (1−γ) Σ_t γ^t P(s_t = s, a_t = a): where a policy spends its (discounted) time.

    A distribution, so that J(π) = E_ν[r]/(1−γ). Episodes that have ended count, in their terminal state; dividing by
    the number of those that go on measures another thing.

    Label: eq:occupancy
    Source: Puterman (1994), "Markov Decision Processes".
    Args: transitions ``(S, A, S)``; policy ``(S, A)``; start ``(S,)``; gamma in [0, 1).
    Returns: ``(S, A)``, sums to 1.
    Raises: ValueError if shapes differ, a row is no distribution, or gamma is outside [0, 1).
    """
    sizes = require_shapes(transitions=(transitions, "S A S"), start=(start, "S"))
    _require_policy(transitions, policy)
    require_distributions(transitions=transitions, start=start)
    require_discount(gamma)
    moves = torch.einsum("sa,sat->st", policy, transitions)  # (S, S)
    identity = torch.eye(sizes["S"], dtype=moves.dtype, device=moves.device)
    states = torch.linalg.solve(identity - gamma * moves.T, (1 - gamma) * start)  # (S,), from d = (1−γ)μ + γ Pᵀd
    return states[:, None] * policy


# -- helpers -------------------------------------------------------------------------------------------------------


def solve_bellman(transitions: Tensor, rewards: Tensor, *, gamma: float) -> Tensor:
    """X = rewards + γ · transitions @ X for several right-hand sides at once; 0 in terminal states. Inputs are checked already.

    Args: transitions ``(S, S)``; rewards ``(S, K)``; gamma in [0, 1].
    Returns: ``(S, K)``.
    Raises: ValueError if gamma = 1 and a state cannot reach a terminal one.
    """
    stays = transitions.diagonal() >= 1 - _rounding(transitions)
    alive = ~(stays & (rewards == 0).all(-1))  # (S,)
    if gamma == 1.0:
        _require_termination(transitions, alive)
    inner = transitions[alive][:, alive]
    identity = torch.eye(len(inner), dtype=inner.dtype, device=inner.device)
    solution = torch.linalg.solve(identity - gamma * inner, rewards[alive])
    return torch.zeros_like(rewards).masked_scatter(alive[:, None].expand_as(rewards), solution)


def require_distributions(**named: Tensor) -> None:
    """Raise ``ValueError`` unless the last axis of every tensor holds a probability distribution."""
    for name, tensor in named.items():
        sums_to_one = (tensor.sum(-1) - 1).abs() <= _rounding(tensor)
        bad = (~(sums_to_one & (tensor >= 0).all(-1))).nonzero().tolist()
        if bad:
            raise ValueError(
                f"{name} of shape {tuple(tensor.shape)} holds no probability distribution along its last axis at "
                f"{bad[:3]}: an entry is negative or NaN, or they do not sum to 1"
            )


def require_discount(gamma: float) -> None:
    """Raise ``ValueError`` unless ``gamma`` lies in [0, 1): occupancies are normalised by 1 − gamma."""
    if not 0.0 <= gamma < 1.0:
        raise ValueError(f"gamma = {gamma!r}; expected a number in [0, 1), for the normaliser 1 − gamma")


def _rounding(tensor: Tensor) -> float:
    """How far a sum of a few probabilities may be off in this dtype."""
    return 64 * torch.finfo(tensor.dtype).eps


def _require_termination(transitions: Tensor, alive: Tensor) -> None:
    """Every state must be able to reach one that is not alive. Both ``(S, S)`` and ``(S,)``."""
    reaches = ~alive
    for _ in range(len(alive)):
        reaches = reaches | ((transitions > 0) & reaches).any(-1)
    stuck = (~reaches).nonzero().flatten().tolist()
    if stuck:
        raise ValueError(
            f"transitions of shape {tuple(transitions.shape)}: state(s) {stuck[:5]} cannot reach a terminal state (one that "
            "is never left and earns nothing), so with gamma = 1 the Bellman system is singular"
        )


def _require_mdp(transitions: Tensor, rewards: Tensor) -> None:
    require_shapes(transitions=(transitions, "S A S"), rewards=(rewards, "S A"))
    require_finite(rewards=rewards)
    require_distributions(transitions=transitions)


def _require_policy(transitions: Tensor, policy: Tensor) -> None:
    require_shapes(transitions=(transitions, "S A S"), policy=(policy, "S A"))
    require_distributions(policy=policy)
