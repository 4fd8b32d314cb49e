"""Corrections for samples that another policy drew: a truncated or older sampler (``behavior_logps``), a stale batch."""

from __future__ import annotations

from torch import Tensor

from minirlhf.core.masking import masked_mean, zero_where_masked
from minirlhf.core.validate import require_finite_where, require_mask, require_positive, require_shapes
from minirlhf.equations.policy_losses import policy_ratio, sequence_advantage


def truncated_importance_weight(
    old_logps: Tensor, behavior_logps: Tensor, mask: Tensor, *, importance_sampling_cap: float = 2.0
) -> Tensor:
    """``min(π_old / μ, C)`` per token, the weight of truncated importance sampling. Multiply the objective by it.

    μ is what was really sampled from. The cap trades the variance of the exact weight for a bias: tokens that μ
    under-sampled by more than C count too little.

    Label: eq:truncated-importance-weight
    Source: Ionides (2008), "Truncated Importance Sampling"; per token in Yao et al. (2025), "Your Efficient RL Framework
        Secretly Brings You Off-Policy RL Training".
    Args:
        old_logps, behavior_logps, mask: ``(B, T)``.
        importance_sampling_cap: ``C`` > 0.
    Returns:
        ``(B, T)`` without gradient, 0 outside the mask.
    Raises:
        ValueError: other shapes, an empty row, values that are not finite under the mask, a cap that is not positive.
    """
    require_positive(importance_sampling_cap=importance_sampling_cap)
    return policy_ratio(old_logps.detach(), behavior_logps, mask).clamp(max=importance_sampling_cap)


def off_policy_keep(
    logps: Tensor, behavior_logps: Tensor, advantages: Tensor, mask: Tensor, *, off_policy_mask_threshold: float
) -> Tensor:
    """Which rows to keep: all but the bad responses that the policy has left far behind, as DeepSeek-V3.2 masks sequences.

    A row is dropped if its advantage is negative *and* the mean of ``log μ − log π`` over its tokens exceeds the
    threshold. Pass the result as ``keep`` with ``renormalise=False``: in the paper a dropped row still counts in 1/G.

    Label: eq:off-policy-mask
    Source: DeepSeek-AI (2025), "DeepSeek-V3.2", off-policy sequence masking.
    Args:
        logps, behavior_logps, advantages, mask: ``(B, T)``, one advantage per response.
        off_policy_mask_threshold: δ > 0, nats per token.
    Returns:
        ``(B,)`` bool.
    Raises:
        ValueError: other shapes, an empty row, values that are not finite under the mask, advantages that differ within a row.
    """
    require_positive(off_policy_mask_threshold=off_policy_mask_threshold)
    require_mask(mask)
    require_shapes(mask=(mask, "B T"), logps=(logps, "B T"), behavior_logps=(behavior_logps, "B T"))
    require_finite_where(mask, logps=logps, behavior_logps=behavior_logps)
    drift = masked_mean(zero_where_masked(behavior_logps - logps, mask).detach(), mask, -1)  # (B,)
    return (sequence_advantage(advantages, mask).squeeze(-1) >= 0) | (drift <= off_policy_mask_threshold)
