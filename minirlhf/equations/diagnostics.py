"""What to watch while training. Numbers for a log, never part of a loss; no gradient flows."""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.masking import masked_mean, masked_var
from minirlhf.core.validate import require_finite_where, require_mask, require_shapes
from minirlhf.equations.policy_losses import LOG_RATIO_LIMIT, clip_interval, policy_inputs, policy_ratio


@torch.no_grad()
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
    """Share of tokens whose gradient :func:`~.policy_losses.ppo_clip` removes: too far, in the direction the advantage asks for.

    Label: eq:clip-fraction
    Source: the metric of PPO implementations; here a ratio outside the interval counts only if the clip is active.
    Args:
        logps, old_logps, advantages, mask, epsilon, epsilon_high, delta: as for ``ppo_clip``.
    Returns:
        A scalar in [0, 1].
    Raises:
        ValueError: as ``ppo_clip``.
    """
    low, high = clip_interval(epsilon, epsilon_high)
    ratio = policy_ratio(logps, old_logps, mask)
    _, _, advantages = policy_inputs(logps, old_logps, advantages, mask)
    clipped = ((advantages > 0) & (ratio > high)) | ((advantages < 0) & (ratio < low))
    if delta is not None:
        clipped |= (advantages < 0) & (ratio > delta)
    return masked_mean(clipped.to(logps.dtype), mask)


@torch.no_grad()
def approx_kl(logps: Tensor, old_logps: Tensor, mask: Tensor) -> Tensor:
    """Mean over tokens of ``(ρ − 1) − log ρ``: an unbiased, never negative estimate of KL(π_old‖π) per token.

    Label: eq:approx-kl
    Source: Schulman (2020), "Approximating KL Divergence", for samples of π_old.
    Args:
        logps, old_logps, mask: ``(B, T)``.
    Returns:
        A scalar in nats per token.
    Raises:
        ValueError: other shapes, an empty row, values that are not finite under the mask.
    """
    logps, old_logps, _ = policy_inputs(logps, old_logps, torch.zeros_like(logps), mask)
    log_ratio = (logps - old_logps).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    return masked_mean(torch.expm1(log_ratio) - log_ratio, mask)


@torch.no_grad()
def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
    """``1 − Var(returns − values) / Var(returns)``: 1 a perfect critic, 0 as good as a constant, negative worse than none.

    Label: eq:explained-variance
    Source: the coefficient of determination without its mean term; a standard metric of actor-critic implementations.
    Args:
        values, returns, mask: ``(B, T)``.
    Returns:
        A scalar ≤ 1; NaN if all returns are equal.
    Raises:
        ValueError: other shapes, an empty row, values that are not finite under the mask.
    """
    require_mask(mask)
    require_shapes(mask=(mask, "B T"), values=(values, "B T"), returns=(returns, "B T"))
    require_finite_where(mask, values=values, returns=returns)
    total = masked_var(returns - returns[mask.bool()][0], mask, ddof=0)  # from a member: equal returns give exactly 0
    left = masked_var(returns - values, mask, ddof=0)
    return torch.where(total > 0, 1 - left / total, torch.nan)
