"""The policy gradient of listed trajectories, and the variance of its estimators.

Scores are gradients of log-probabilities, ``∇ log π(a_t|s_t)``, with the ``D`` parameters of the policy as last axis.
The functions take exact expectations over the listed ``B`` trajectories or ``N`` outcomes, weighted by their
probabilities. With samples in place of all outcomes they are the estimators.

"Williams (1992)" is "Simple statistical gradient-following algorithms for connectionist reinforcement learning",
"Greensmith et al. (2004)" Greensmith, Bartlett and Baxter, "Variance reduction techniques for gradient estimates in
reinforcement learning".
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.masking import zero_where_masked
from minirlhf.core.validate import MASK, at_least, distribution, shape, takes, under_mask

# -- from trajectories ---------------------------------------------------------------------------------------------


@takes(mask=MASK, scores=under_mask("B T D"))
@equation("eq:trajectory-score", source="Williams (1992).")
def trajectory_score(scores: Tensor, mask: Tensor) -> Tensor:
    """Score ``(B, D)`` of a trajectory, ∇log p(τ) = Σ_t ∇log π(a_t|s_t): initial state and dynamics do not depend on θ."""
    return zero_where_masked(scores, mask[..., None]).sum(1)


@takes(mask=MASK, probs=distribution("B"), scores=shape("B T D"), psi=under_mask())
@equation(
    "eq:policy-gradient-psi",
    source='Schulman et al. (2016), "High-dimensional continuous control using generalized advantage estimation".',
)
def policy_gradient(probs: Tensor, scores: Tensor, psi: Tensor, mask: Tensor) -> Tensor:
    """Policy gradient E[Σ_t Ψ_t ∇log π(a_t|s_t)], ``(D,)``.

    Six choices of Ψ give the same gradient (undiscounted, with the true values): the total return, the
    reward-to-go, the reward-to-go minus a baseline, Q(s_t, a_t), A(s_t, a_t), and the TD residual. They differ
    in variance.
    """
    masked_psi = zero_where_masked(psi, mask)  # before the product, so that no NaN outside reaches a gradient
    return probs @ trajectory_score(masked_psi[..., None] * scores, mask)


# -- variance ------------------------------------------------------------------------------------------------------


@takes(probs=distribution("N"), estimates="N D")
@equation("eq:gradient-variance", source="Greensmith et al. (2004).")
def gradient_variance(probs: Tensor, estimates: Tensor) -> Tensor:
    """Variance of a gradient estimator, E‖g‖² − ‖E g‖²: the trace of its covariance, a scalar."""
    centred = estimates - probs @ estimates  # (N, D), centred first: a difference of squares loses precision
    return probs @ centred.square().sum(-1)


@takes(probs=distribution("A"), scores="A D", action_values="A")
@equation("eq:optimal-baseline", source="Greensmith et al. (2004).")
def optimal_baseline(probs: Tensor, scores: Tensor, action_values: Tensor) -> Tensor:
    """The baseline with minimum variance, a scalar: b* = E[‖∇log π‖² Q] / E[‖∇log π‖²]. It is not V = E[Q]."""
    weight = probs * scores.square().sum(-1)  # (A,)
    if not bool(weight.sum() > 0):
        raise ArgumentError(
            f"scores of shape {tuple(scores.shape)} is 0, so every baseline is optimal; expected nonzero scores",
            argument="scores",
            problem="zero",
        )
    return (weight * action_values).sum() / weight.sum()


@takes(num_samples=at_least(1))
@equation(
    "eq:own-mean-shrinkage",
    source='Kool, van Hoof and Welling (2019), "Buy 4 REINFORCE samples, get a baseline for free!".',
)
def group_mean_shrinkage(num_samples: int) -> float:
    """Factor (K−1)/K by which the mean of all K rewards as baseline scales the expected gradient.

    The bias arises since the mean includes the sample's own reward. The leave-one-out mean has no bias. With K = 1 the
    expected gradient is 0.
    """
    return (num_samples - 1) / num_samples


@takes(logits="T V", quality="T V", carried="T T")
@equation("eq:decision-noise", source="elementary; the tokens are independent, and each δ has mean 0.")
def decision_noise(logits: Tensor, quality: Tensor, carried: Tensor) -> Tensor:
    """Variance of ``Σ_t A_t ∇log π(y_t)`` over its squared mean, for completions of T independent tokens.

    Token t adds q_t(y_t) to the reward; ``A_t = δ_t + Σ_{k≠t} ω_tk δ_k`` with δ_k = q_k(y_k) − E[q_k]. With ω = 1, A is
    the total reward minus its mean. With ω_tk = λ^(k−t) for later tokens and 0 for earlier ones, A is GAE with exact
    values.

    Args: ``carried`` holds the weights ω; its diagonal is not used.
    Returns: a scalar, for one completion; inf or NaN if the gradient is 0.
    """
    probs = logits.softmax(-1)
    deltas = quality - (probs * quality).sum(-1, keepdim=True)  # (T, V)
    scores = torch.eye(logits.shape[1]).to(logits) - probs[:, None, :]  # (T, V, V): ∇log π of each token
    squared_norms = scores.square().sum(-1)  # (T, V)
    means = ((probs * deltas)[..., None] * scores).sum(1)  # (T, V): the gradient
    own = (probs * deltas.square() * squared_norms).sum(-1) - means.square().sum(-1)  # (T,)
    others = carried.square().fill_diagonal_(0.0) @ (probs * deltas.square()).sum(-1)  # (T,)
    return (own + others * (probs * squared_norms).sum(-1)).sum() / means.square().sum()
