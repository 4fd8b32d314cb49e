"""Training metrics: scalars over ``(B, T)``, for logging only, never part of a loss; no gradient flows."""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.masking import masked_mean, masked_var
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
