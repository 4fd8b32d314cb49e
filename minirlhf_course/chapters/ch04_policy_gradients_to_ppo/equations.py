"""The equations that only chapter 4 needs: from the probability of a trajectory to the theorem.

Scores are gradients of log-probabilities, ``∇ log π(a_t|s_t)``, with the ``D`` parameters of the policy as last axis.
Expectations are exact, over the listed ``B`` trajectories, ``N`` outcomes, or ``S`` states and ``A`` actions.
Occupancies are normalised. ``policy_jacobian (S, A, D)`` is ∂π(a|s)/∂θ.

"Williams (1992)" is "Simple statistical gradient-following algorithms for connectionist reinforcement learning",
"Sutton et al. (2000)" Sutton, McAllester, Singh and Mansour, "Policy gradient methods for reinforcement learning with
function approximation".
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.masking import masked_sum
from minirlhf.core.validate import MASK, UNIT, distribution, require_distributions, shape, takes
from minirlhf.equations.mdp import DISCOUNT, solve_bellman

# -- from trajectories ---------------------------------------------------------------------------------------------


@takes(mask=MASK, start_logps=shape("B"), action_logps=shape("B T"), transition_logps=shape("B T"))
@equation("eq:trajectory-probability", source="Williams (1992).")
def trajectory_logp(start_logps: Tensor, action_logps: Tensor, transition_logps: Tensor, mask: Tensor) -> Tensor:
    """Log-probability ``(B,)`` of a trajectory, log p(τ) = log p(s₀) + Σ_t [log π(a_t|s_t) + log P(s_{t+1}|s_t, a_t)].

    The mask is True at the steps taken. Impossible trajectories get −inf.
    """
    return start_logps + masked_sum(action_logps + transition_logps, mask, -1)


@takes(probs=distribution("N"), values="N", scores="N D")
@equation("eq:log-derivative", source="Williams (1992).")
def log_derivative(probs: Tensor, values: Tensor, scores: Tensor) -> Tensor:
    """Log-derivative trick, ∇ E_p[f] = E_p[f ∇log p]: it turns the gradient into an expectation ``(D,)``."""
    return (probs * values) @ scores


# -- the theorem ---------------------------------------------------------------------------------------------------


@takes(
    transitions=distribution("S A S"),
    policy=distribution("S A"),
    policy_jacobian="S A D",
    action_values="S A",
    gamma=UNIT,
)
@equation("eq:value-gradient", source="Sutton et al. (2000), appendix.")
def value_gradient(
    transitions: Tensor, policy: Tensor, policy_jacobian: Tensor, action_values: Tensor, *, gamma: float
) -> Tensor:
    """Gradient ``(S, D)`` of the values, the solution of ∇V(s) = Σ_a ∇π(a|s) Q(s,a) + γ Σ_s' P_π(s'|s) ∇V(s').

    It follows from the product rule on V = Σ π Q, with ∇Q = γ Σ P ∇V: a Bellman equation with reward Σ_a ∇π Q.
    """
    immediate = torch.einsum("sad,sa->sd", policy_jacobian, action_values)
    return solve_bellman(torch.einsum("sa,sat->st", policy, transitions), immediate, gamma=gamma)


@takes(state_occupancy=distribution("S"), policy_jacobian=shape("S A D"), action_values=shape("S A"), gamma=DISCOUNT)
@equation("eq:policy-gradient-theorem", source="Sutton et al. (2000), theorem 1.")
def policy_gradient_theorem(
    state_occupancy: Tensor, policy_jacobian: Tensor, action_values: Tensor, *, gamma: float
) -> Tensor:
    """Policy-gradient theorem, ∇J = 1/(1−γ) Σ_s d(s) Σ_a ∇π(a|s) Q(s,a): no gradient of the state distribution.

    The occupancy d is ``mdp.occupancy(...).sum(-1)``.
    """
    return torch.einsum("s,sad,sa->d", state_occupancy, policy_jacobian, action_values) / (1 - gamma)


@takes(occupancy=shape("S A"), scores=shape("S A D"), action_values=shape("S A"), gamma=DISCOUNT)
@equation("eq:policy-gradient-expectation", source="Sutton et al. (2000).")
def policy_gradient_expectation(occupancy: Tensor, scores: Tensor, action_values: Tensor, *, gamma: float) -> Tensor:
    """The theorem as an expectation over the policy's state-action pairs, ∇J = 1/(1−γ) E_{(s,a)~ν}[∇log π(a|s) Q(s,a)].

    Q may be replaced by the advantage: subtracting V(s) changes nothing, since Σ_a ∇π(a|s) = 0.
    """
    require_distributions(occupancy=occupancy.flatten())
    return torch.einsum("sa,sad,sa->d", occupancy, scores, action_values) / (1 - gamma)
