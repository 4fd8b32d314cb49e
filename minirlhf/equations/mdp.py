"""Markov reward and decision processes with tables: values, Bellman equations, occupancy.

``S`` states, ``A`` actions. ``transitions (S, S)`` or ``(S, A, S)`` hold P(s'|s) or P(s'|s,a). ``rewards (S,)`` or
``(S, A)`` hold the expected reward for being in s (and taking a). A ``policy (S, A)`` holds action probabilities,
``values (S,)`` and ``action_values (S, A)`` hold expected returns. An episode ends in a *terminal* state: the process
never leaves it, and its reward is 0. Its value is 0, also with γ = 1; with γ = 1 every state must be able to reach a
terminal state.

"Sutton and Barto" stands for Sutton and Barto (2018), "Reinforcement Learning".
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import UNIT, distribution, number, rounding, takes

DISCOUNT = number("[0, 1)", "for the normaliser 1 − gamma")
_process = takes(transitions=distribution("S A S"), rewards="S A", policy=distribution("S A"))
_backup = takes(transitions=distribution("S A S"), rewards="S A", values="S", gamma=UNIT)
_policy = takes(action_values="S A", policy=distribution("S A"))

# -- reward processes ----------------------------------------------------------------------------------------------


@takes(rewards="... T", gamma=UNIT)
@equation("eq:return", source="Sutton and Barto, equation 3.8.")
def discounted_return(rewards: Tensor, *, gamma: float) -> Tensor:
    """Return G = Σ_k γ^k r_k of a sequence of rewards, ``(...)``; the first one is not discounted."""
    powers = gamma ** torch.arange(rewards.shape[-1], dtype=rewards.dtype, device=rewards.device)  # (T,)
    return (powers * rewards).sum(-1)


@takes(transitions=distribution("S S"), rewards="S", gamma=UNIT)
@equation(
    "eq:bellman-matrix",
    source='Bellman (1957), "A Markovian decision process"; Puterman (1994), "Markov Decision Processes".',
)
def mrp_values(transitions: Tensor, rewards: Tensor, *, gamma: float) -> Tensor:
    """Values ``(S,)`` of a Markov reward process, V = (I − γP)⁻¹ r: the Bellman equation as a linear system."""
    return solve_bellman(transitions, rewards[:, None], gamma=gamma)[:, 0]


@_process
@equation("eq:marginalised-mrp", source='Puterman (1994), "Markov Decision Processes".')
def marginalise(transitions: Tensor, rewards: Tensor, policy: Tensor) -> tuple[Tensor, Tensor]:
    """The Markov reward process that a policy induces in a decision process, by averaging over its actions.

    P_π(s'|s) = Σ_a π(a|s) P(s'|s,a), ``(S, S)``, and r_π(s) = Σ_a π(a|s) r(s,a), ``(S,)``.
    """
    return torch.einsum("sa,sat->st", policy, transitions), (policy * rewards).sum(-1)


# -- values of a policy --------------------------------------------------------------------------------------------


@equation("eq:state-value", source="Sutton and Barto, equation 3.12.")
def policy_values(transitions: Tensor, rewards: Tensor, policy: Tensor, *, gamma: float) -> Tensor:
    """State values V^π(s) = E_π[Σ_t γ^t r_t | s₀ = s], exactly: the values of the marginalised reward process."""
    return mrp_values(*marginalise(transitions, rewards, policy), gamma=gamma)


@_backup
@equation("eq:q-from-v", source="Sutton and Barto, section 3.5.")
def action_values(transitions: Tensor, rewards: Tensor, values: Tensor, *, gamma: float) -> Tensor:
    """Action values from state values, Q(s,a) = r(s,a) + γ Σ_s' P(s'|s,a) V(s')."""
    return rewards + gamma * transitions @ values


@_policy
@equation("eq:v-from-q", source="Sutton and Barto, section 3.5.")
def values_from_actions(action_values: Tensor, policy: Tensor) -> Tensor:
    """State values from action values, V(s) = Σ_a π(a|s) Q(s,a)."""
    return (policy * action_values).sum(-1)


@equation("eq:advantage-function", source='Baird (1993), "Advantage updating".')
def advantage_function(action_values: Tensor, policy: Tensor) -> Tensor:
    """Advantage A(s,a) = Q(s,a) − V(s): the gain of one action over following the policy. Its mean under π is 0."""
    return action_values - values_from_actions(action_values, policy)[:, None]


# -- Bellman operators ---------------------------------------------------------------------------------------------


@equation("eq:bellman-expectation", "eq:policy-evaluation", source="Sutton and Barto, equations 3.14 and 4.5.")
def bellman_expectation(
    transitions: Tensor, rewards: Tensor, policy: Tensor, values: Tensor, *, gamma: float
) -> Tensor:
    """One sweep of policy evaluation, (T^π V)(s) = Σ_a π(a|s) [r(s,a) + γ Σ_s' P(s'|s,a) V(s')].

    V^π is its only fixed point, and each application reduces the largest error at least by the factor γ.
    """
    return values_from_actions(action_values(transitions, rewards, values, gamma=gamma), policy)


@equation("eq:bellman-optimality", source='Bellman (1957), "A Markovian decision process".')
def bellman_optimality(transitions: Tensor, rewards: Tensor, values: Tensor, *, gamma: float) -> Tensor:
    """One sweep of value iteration, (T V)(s) = max_a [r(s,a) + γ Σ_s' P(s'|s,a) V(s')]. Its fixed point is V*."""
    return action_values(transitions, rewards, values, gamma=gamma).amax(-1)


@equation("eq:bellman-q", source="Sutton and Barto, section 3.5.")
def bellman_q_expectation(
    transitions: Tensor, rewards: Tensor, policy: Tensor, next_action_values: Tensor, *, gamma: float
) -> Tensor:
    """One sweep of policy evaluation for Q, (T^π Q)(s,a) = r(s,a) + γ Σ_s' P(s'|s,a) Σ_a' π(a'|s') Q(s',a').

    Its fixed point is Q^π.
    """
    return action_values(transitions, rewards, values_from_actions(next_action_values, policy), gamma=gamma)


@equation("eq:bellman-q-optimality", source="Sutton and Barto, equation 3.20.")
def bellman_q_optimality(transitions: Tensor, rewards: Tensor, next_action_values: Tensor, *, gamma: float) -> Tensor:
    """One sweep of value iteration for Q, (T Q)(s,a) = r(s,a) + γ Σ_s' P(s'|s,a) max_a' Q(s',a').

    Its fixed point is Q*.
    """
    return action_values(transitions, rewards, next_action_values.amax(-1), gamma=gamma)


@takes(action_values="S A")
@equation(
    "eq:policy-improvement",
    source='Howard (1960), "Dynamic Programming and Markov Processes"; Sutton and Barto, section 4.2.',
)
def greedy_policy(action_values: Tensor) -> Tensor:
    """Policy improvement, π'(s) = argmax_a Q(s,a), as probabilities ``(S, A)``; ties go to the first action.

    Greedy with respect to Q^π, the new policy is at least as good as π in every state.
    """
    best = action_values.argmax(-1)  # (S,)
    return torch.nn.functional.one_hot(best, action_values.shape[-1]).to(action_values.dtype)


# -- occupancy -----------------------------------------------------------------------------------------------------


@takes(transitions=distribution("S A S"), policy=distribution("S A"), start=distribution("S"), gamma=DISCOUNT)
@equation("eq:occupancy", source='Puterman (1994), "Markov Decision Processes".')
def occupancy(transitions: Tensor, policy: Tensor, start: Tensor, *, gamma: float) -> Tensor:
    """Discounted occupancy ν(s,a) = (1−γ) Σ_t γ^t P(s_t = s, a_t = a): discounted visit frequencies.

    A distribution ``(S, A)``, so that J(π) = E_ν[r]/(1−γ). Episodes that have ended count, in their terminal state;
    dividing by the number of unfinished episodes gives a different quantity.
    """
    state_transitions = torch.einsum("sa,sat->st", policy, transitions)  # (S, S)
    identity = torch.eye(len(state_transitions), dtype=state_transitions.dtype, device=state_transitions.device)
    visitation = torch.linalg.solve(identity - gamma * state_transitions.T, (1 - gamma) * start)  # d = (1−γ)μ + γPᵀd
    return visitation[:, None] * policy


# -- helpers -------------------------------------------------------------------------------------------------------


def solve_bellman(transitions: Tensor, rewards: Tensor, *, gamma: float) -> Tensor:
    """X ``(S, K)`` = rewards + γ · transitions @ X for several right-hand sides at once; 0 in terminal states.

    The inputs, ``(S, S)`` and ``(S, K)``, are already validated. This function checks only that with gamma = 1 every
    state can reach a terminal state.
    """
    is_absorbing = transitions.diagonal() >= 1 - rounding(transitions)
    nonterminal = ~(is_absorbing & (rewards == 0).all(-1))  # (S,)
    if gamma == 1.0:
        _require_termination(transitions, nonterminal)
    inner_transitions = transitions[nonterminal][:, nonterminal]
    identity = torch.eye(len(inner_transitions), dtype=inner_transitions.dtype, device=inner_transitions.device)
    solution = torch.linalg.solve(identity - gamma * inner_transitions, rewards[nonterminal])
    return torch.zeros_like(rewards).masked_scatter(nonterminal[:, None].expand_as(rewards), solution)


def _require_termination(transitions: Tensor, nonterminal: Tensor) -> None:
    """Raise unless every state can reach a terminal state. ``transitions (S, S)``, ``nonterminal (S,)`` bool."""
    reaches_terminal = ~nonterminal
    for _ in range(len(nonterminal)):
        reaches_terminal = reaches_terminal | ((transitions > 0) & reaches_terminal).any(-1)
    stuck = (~reaches_terminal).nonzero().flatten().tolist()
    if stuck:
        raise ArgumentError(
            f"transitions of shape {tuple(transitions.shape)}: state(s) {stuck[:5]} cannot reach a terminal state "
            "(never left, reward 0), so with gamma = 1 the Bellman system is singular",
            argument="transitions",
            value=stuck,
            problem="not terminating",
        )
