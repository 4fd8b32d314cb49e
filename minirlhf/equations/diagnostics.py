"""Training metrics: scalars over ``(B, T)``, for logging only, never part of a loss; no gradient flows."""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.masking import masked_mean, masked_var, zero_where_masked
from minirlhf.core.validate import MASK, takes, under_mask
from minirlhf.equations.policy_losses import _limited, clip_interval, objective, policy_ratio, ratio_inputs


@torch.no_grad()
@objective
@equation(
    "eq:clip-fraction",
    source="the metric of PPO implementations; here a ratio outside the interval counts only if the clip is active.",
    gradient=(),
)
def clip_fraction(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    epsilon: float = 0.2,
    epsilon_high: float | None = None,
    delta: float | None = None,
) -> Tensor:
    """Fraction of tokens whose gradient ``ppo_clip`` removes: ratio beyond the clip, in the advantage's direction.

    Args: as for :func:`~.policy_losses.ppo_clip`.
    """
    low, high = clip_interval(epsilon, epsilon_high)
    ratio = policy_ratio(logps, old_logps, mask)
    clipped = ((advantages > 0) & (ratio > high)) | ((advantages < 0) & (ratio < low))
    if delta is not None:
        clipped |= (advantages < 0) & (ratio > delta)
    return masked_mean(clipped.to(logps.dtype), mask)


@torch.no_grad()
@ratio_inputs
@equation("eq:approx-kl", source='Schulman (2020), "Approximating KL Divergence", for samples of π_old.', gradient=())
def approx_kl(logps: Tensor, old_logps: Tensor, mask: Tensor) -> Tensor:
    """Mean over tokens of ``(ρ − 1) − log ρ``: an unbiased, never negative estimate of KL(π_old‖π), in nats per token."""
    log_ratio = _limited(logps - old_logps)
    return masked_mean(torch.expm1(log_ratio) - log_ratio, mask)


@torch.no_grad()
@takes(logits="... V", advantages="... V")
@equation(
    "eq:entropy-covariance",
    source='Cui et al. (2025), "The entropy mechanism of reinforcement learning for reasoning language models".',
    gradient=(),
)
def entropy_rate(logits: Tensor, advantages: Tensor) -> Tensor:
    """−Cov_π(log π, π A): change of a distribution's entropy per unit of step size, if logit a changes by π(a) A(a).

    This change of the logits is the gradient of E_π[A] for advantages with mean 0 under π. A mean other than 0 is
    subtracted from the advantages first.

    Returns: ``(...)``, nats per unit of step size, to first order in it.
    """
    logps = logits.log_softmax(-1)
    probs = logps.exp()

    def mean(x: Tensor) -> Tensor:
        return (probs * x).sum(-1, keepdim=True)

    logit_steps = probs * (advantages - mean(advantages))  # (..., V)
    return -mean((logps - mean(logps)) * (logit_steps - mean(logit_steps)))[..., 0]


@torch.no_grad()
@takes(mask=MASK, logps=under_mask(), advantages=under_mask())
@equation(
    "eq:token-covariance",
    source='Cui et al. (2025), "The entropy mechanism of reinforcement learning for reasoning language models".',
    gradient=(),
)
def token_covariances(logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Each token's part of the covariance of log-probability and advantage over the batch: ``(log π − mean)(A − mean)``.

    Clip-Cov takes the gradient of a few tokens between two bounds of this number; KL-Cov penalises the tokens with the
    largest ones.

    Args: logps, advantages ``(B, T)``; the means are over all tokens under the mask.
    Returns: ``(B, T)``, 0 on padding. The mean over the tokens is their covariance.
    """
    values = (logps - masked_mean(logps, mask)) * (advantages - masked_mean(advantages, mask))
    return zero_where_masked(values, mask)


@torch.no_grad()
@takes(mask=MASK, values=under_mask(), returns=under_mask())
@equation(
    "eq:explained-variance",
    source="the coefficient of determination without its mean term; a standard metric of actor-critic implementations.",
    gradient=(),
)
def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
    """``1 − Var(returns − values) / Var(returns)``: 1 for perfect predictions, 0 for a constant, negative if worse.

    Returns: a scalar ≤ 1; NaN if all returns are equal.
    """
    total = masked_var(returns - returns[mask.bool()][0], mask, ddof=0)  # minus one return: equal ones give exactly 0
    residual = masked_var(returns - values, mask, ddof=0)
    return torch.where(total > 0, 1 - residual / total, torch.nan)
