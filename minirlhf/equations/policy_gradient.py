"""The policy gradient: from the probability of a trajectory to the theorem, and the variance of what estimates it.

Scores are gradients of log-probabilities, ``∇ log π(a_t|s_t)``, with the ``D`` parameters of the policy as last axis. The
functions take expectations over what is listed, with its probabilities; fed with one sample each they are the estimators.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.masking import masked_sum, zero_where_masked
from minirlhf.core.validate import require_finite, require_finite_where, require_mask, require_range, require_shapes
from minirlhf.equations.mdp import require_discount, require_distributions, solve_bellman

# -- from trajectories ---------------------------------------------------------------------------------------------


def trajectory_logp(start_logps: Tensor, action_logps: Tensor, transition_logps: Tensor, mask: Tensor) -> Tensor:
    """Log-probability of a trajectory, log p(τ) = log p(s₀) + Σ_t [log π(a_t|s_t) + log P(s_{t+1}|s_t, a_t)].

    Label: eq:trajectory-probability
    Source: Williams (1992), "Simple statistical gradient-following algorithms for connectionist reinforcement learning".
    Args: start_logps ``(N,)``; action_logps ``(N, T)``; transition_logps ``(N, T)``; mask ``(N, T)``, the steps taken.
    Returns: ``(N,)``; −inf for what cannot happen.
    Raises: ValueError if shapes differ or the mask has an empty row.
    """
    require_shapes(
        start_logps=(start_logps, "N"),
        action_logps=(action_logps, "N T"),
        transition_logps=(transition_logps, "N T"),
        mask=(mask, "N T"),
    )
    require_mask(mask)
    return start_logps + masked_sum(action_logps + transition_logps, mask, -1)


def log_derivative(probs: Tensor, values: Tensor, scores: Tensor) -> Tensor:
    """Log-derivative trick, ∇ E_p[f] = E_p[f ∇log p]: a gradient of probabilities becomes an expectation.

    Label: eq:log-derivative
    Source: Williams (1992), "Simple statistical gradient-following algorithms for connectionist reinforcement learning".
    Args: probs ``(N,)``; values f ``(N,)``; scores ∇log p ``(N, D)``.
    Returns: ``(D,)``.
    Raises: ValueError if shapes differ, probs is no distribution, or values or scores is not finite.
    """
    require_shapes(probs=(probs, "N"), values=(values, "N"), scores=(scores, "N D"))
    require_distributions(probs=probs)
    require_finite(values=values, scores=scores)
    return (probs * values) @ scores


def trajectory_score(scores: Tensor, mask: Tensor) -> Tensor:
    """Score of a trajectory, ∇log p(τ) = Σ_t ∇log π(a_t|s_t): start and dynamics do not depend on the parameters.

    Label: eq:trajectory-score
    Source: Williams (1992), "Simple statistical gradient-following algorithms for connectionist reinforcement learning".
    Args: scores ``(N, T, D)``; mask ``(N, T)``.
    Returns: ``(N, D)``.
    Raises: ValueError if shapes differ, the mask has an empty row, or scores is not finite under it.
    """
    require_shapes(scores=(scores, "N T D"), mask=(mask, "N T"))
    require_mask(mask)
    require_finite_where(mask[..., None], scores=scores)
    return zero_where_masked(scores, mask[..., None]).sum(1)


def policy_gradient(probs: Tensor, scores: Tensor, psi: Tensor, mask: Tensor) -> Tensor:
    """Policy gradient E[Σ_t Ψ_t ∇log π(a_t|s_t)].

    Six choices of Ψ give the same gradient (undiscounted, with the true values): the total return, the reward-to-go, the
    reward-to-go less a baseline, Q(s_t, a_t), A(s_t, a_t), and the TD residual. They differ in variance.

    Label: eq:policy-gradient-psi
    Source: Schulman et al. (2016), "High-dimensional continuous control using generalized advantage estimation".
    Args: probs ``(N,)`` of the trajectories; scores ``(N, T, D)``; psi ``(N, T)``; mask ``(N, T)``.
    Returns: ``(D,)``.
    Raises: ValueError if shapes differ, probs is no distribution, the mask has an empty row, or psi is not finite under it.
    """
    require_shapes(probs=(probs, "N"), scores=(scores, "N T D"), psi=(psi, "N T"), mask=(mask, "N T"))
    require_finite_where(mask, psi=psi)
    require_distributions(probs=probs)
    return probs @ trajectory_score(psi[..., None] * scores, mask)


# -- the theorem ---------------------------------------------------------------------------------------------------


def value_gradient(
    transitions: Tensor, policy: Tensor, policy_jacobian: Tensor, action_values: Tensor, *, gamma: float
) -> Tensor:
    """Gradient of the values, the solution of ∇V(s) = Σ_a ∇π(a|s) Q(s,a) + γ Σ_s' P_π(s'|s) ∇V(s').

    The product rule on V = Σ π Q, with ∇Q = γ Σ P ∇V: a Bellman equation whose reward is Σ_a ∇π Q.

    Label: eq:value-gradient
    Source: Sutton, McAllester, Singh and Mansour (2000), "Policy gradient methods for reinforcement learning with
        function approximation", appendix.
    Args: transitions ``(S, A, S)``; policy ``(S, A)``; policy_jacobian ∂π(a|s)/∂θ ``(S, A, D)``; action_values ``(S, A)``
        of the policy; gamma in [0, 1].
    Returns: ``(S, D)``.
    Raises: ValueError if shapes differ, a row is no distribution, or gamma = 1 and a state cannot reach a terminal one.
    """
    require_shapes(
        transitions=(transitions, "S A S"),
        policy=(policy, "S A"),
        policy_jacobian=(policy_jacobian, "S A D"),
        action_values=(action_values, "S A"),
    )
    require_distributions(transitions=transitions, policy=policy)
    require_finite(policy_jacobian=policy_jacobian, action_values=action_values)
    require_range(0.0, 1.0, gamma=gamma)
    now = torch.einsum("sad,sa->sd", policy_jacobian, action_values)
    return solve_bellman(torch.einsum("sa,sat->st", policy, transitions), now, gamma=gamma)


def policy_gradient_theorem(
    state_occupancy: Tensor, policy_jacobian: Tensor, action_values: Tensor, *, gamma: float
) -> Tensor:
    """Policy-gradient theorem, ∇J = 1/(1−γ) Σ_s d(s) Σ_a ∇π(a|s) Q(s,a): no gradient of the state distribution in it.

    Label: eq:policy-gradient-theorem
    Source: Sutton, McAllester, Singh and Mansour (2000), "Policy gradient methods for reinforcement learning with
        function approximation", theorem 1.
    Args: state_occupancy d ``(S,)``, normalised: ``mdp.occupancy(...).sum(-1)``; policy_jacobian ``(S, A, D)``;
        action_values ``(S, A)``; gamma in [0, 1).
    Returns: ``(D,)``.
    Raises: ValueError if shapes differ, state_occupancy is no distribution, or gamma is outside [0, 1).
    """
    require_shapes(
        state_occupancy=(state_occupancy, "S"),
        policy_jacobian=(policy_jacobian, "S A D"),
        action_values=(action_values, "S A"),
    )
    require_distributions(state_occupancy=state_occupancy)
    require_discount(gamma)
    return torch.einsum("s,sad,sa->d", state_occupancy, policy_jacobian, action_values) / (1 - gamma)


def policy_gradient_expectation(occupancy: Tensor, scores: Tensor, action_values: Tensor, *, gamma: float) -> Tensor:
    """The theorem as an expectation over what the policy does, ∇J = 1/(1−γ) E_{(s,a)~ν}[∇log π(a|s) Q(s,a)].

    Q may be replaced by the advantage: subtracting V(s) changes nothing, since Σ_a ∇π(a|s) = 0.

    Label: eq:policy-gradient-expectation
    Source: Sutton, McAllester, Singh and Mansour (2000), "Policy gradient methods for reinforcement learning with
        function approximation".
    Args: occupancy ν ``(S, A)`` of ``mdp.occupancy``; scores ``(S, A, D)``; action_values ``(S, A)``; gamma in [0, 1).
    Returns: ``(D,)``.
    Raises: ValueError if shapes differ, occupancy is no distribution, or gamma is outside [0, 1).
    """
    require_shapes(occupancy=(occupancy, "S A"), scores=(scores, "S A D"), action_values=(action_values, "S A"))
    require_distributions(occupancy=occupancy.flatten())
    require_discount(gamma)
    return torch.einsum("sa,sad,sa->d", occupancy, scores, action_values) / (1 - gamma)


# -- variance ------------------------------------------------------------------------------------------------------


def gradient_variance(probs: Tensor, estimates: Tensor) -> Tensor:
    """Variance of a gradient estimator, E‖g‖² − ‖E g‖²: the trace of its covariance.

    Label: eq:gradient-variance
    Source: Greensmith, Bartlett and Baxter (2004), "Variance reduction techniques for gradient estimates in
        reinforcement learning".
    Args: probs ``(N,)``; estimates g ``(N, D)``.
    Returns: a scalar, ≥ 0.
    Raises: ValueError if shapes differ, probs is no distribution, or estimates is not finite.
    """
    require_shapes(probs=(probs, "N"), estimates=(estimates, "N D"))
    require_distributions(probs=probs)
    require_finite(estimates=estimates)
    centred = estimates - probs @ estimates  # (N, D), centred first: the difference of two squares would cancel
    return probs @ centred.square().sum(-1)


def optimal_baseline(probs: Tensor, scores: Tensor, action_values: Tensor) -> Tensor:
    """The baseline of least variance, b* = E[‖∇log π‖² Q] / E[‖∇log π‖²]. It is not V = E[Q].

    Label: eq:optimal-baseline
    Source: Greensmith, Bartlett and Baxter (2004), "Variance reduction techniques for gradient estimates in
        reinforcement learning".
    Args: probs ``(A,)``; scores ``(A, D)``, not all zero; action_values ``(A,)``.
    Returns: a scalar.
    Raises: ValueError if shapes differ, probs is no distribution, a value is not finite, or all scores are zero.
    """
    require_shapes(probs=(probs, "A"), scores=(scores, "A D"), action_values=(action_values, "A"))
    require_distributions(probs=probs)
    require_finite(scores=scores, action_values=action_values)
    weight = probs * scores.square().sum(-1)  # (A,)
    if not bool(weight.sum() > 0):
        raise ValueError(f"scores of shape {tuple(scores.shape)} is zero; every baseline is optimal")
    return (weight * action_values).sum() / weight.sum()


def own_mean_shrinkage(num_samples: int) -> float:
    """Factor (K−1)/K by which a mean over K samples that includes the own one shrinks the expected gradient.

    Leaving the own sample out of the mean leaves the gradient as it is.

    Label: eq:own-mean-shrinkage
    Source: Kool, van Hoof and Welling (2019), "Buy 4 REINFORCE samples, get a baseline for free!".
    Args: num_samples K ≥ 1; with one sample nothing is left.
    Returns: a number in [0, 1).
    Raises: ValueError if num_samples < 1.
    """
    if num_samples < 1:
        raise ValueError(f"num_samples = {num_samples!r}; expected an integer of at least 1")
    return (num_samples - 1) / num_samples
