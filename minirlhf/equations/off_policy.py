"""Corrections for samples of another policy: a truncated or older sampler (``behavior_logps``), a stale batch."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.masking import masked_mean, masked_sum, zero_where_masked
from minirlhf.core.validate import MASK, POSITIVE, takes, under_mask
from minirlhf.equations.policy_losses import ONE_PER_RESPONSE, policy_ratio


@takes(importance_sampling_cap=POSITIVE)
@equation(
    "eq:truncated-importance-weight",
    source='Ionides (2008), "Truncated Importance Sampling"; per token in Yao et al. (2025), "Your Efficient RL '
    'Framework Secretly Brings You Off-Policy RL Training".',
    gradient=(),
)
def truncated_importance_weight(
    old_logps: Tensor, behavior_logps: Tensor, mask: Tensor, *, importance_sampling_cap: float = 2.0
) -> Tensor:
    """``min(π_old / μ, C)`` per token ``(B, T)``, the weight of truncated importance sampling.

    Multiply the objective by it; no gradient flows. μ is the distribution that the tokens were really sampled from. The
    cap C reduces the variance of the exact weight but adds bias: tokens with π_old/μ > C get too small a weight.
    """
    return policy_ratio(old_logps.detach(), behavior_logps, mask).clamp(max=importance_sampling_cap)


@takes(mask=MASK, old_logps=under_mask(), behavior_logps=under_mask(), importance_sampling_cap=POSITIVE)
@equation(
    "eq:sequence-importance-weight",
    source='Ionides (2008), "Truncated Importance Sampling", on whole responses.',
    gradient=(),
)
def sequence_importance_weight(
    old_logps: Tensor, behavior_logps: Tensor, mask: Tensor, *, importance_sampling_cap: float = 2.0
) -> Tensor:
    """``min(Π_t π_old / μ, C)`` of whole completions ``(B, 1)``, no gradient.

    Below the cap it is the exact weight. Its variance grows with the length, so many long completions are capped.
    """
    log_ratio = masked_sum((old_logps - behavior_logps).detach(), mask, -1)[:, None]  # (B, 1)
    return log_ratio.clamp(max=math.log(importance_sampling_cap)).exp()


@takes(importance_sampling_cap=POSITIVE, importance_sampling_floor=POSITIVE)
@equation(
    "eq:masked-importance-weight",
    source='Ling Team (2025), "Every Step Evolves: Scaling Reinforcement Learning for Trillion-Scale Thinking '
    'Model" (IcePop), arXiv:2510.18855.',
    gradient=(),
)
def masked_importance_weight(
    old_logps: Tensor,
    behavior_logps: Tensor,
    mask: Tensor,
    *,
    importance_sampling_cap: float = 5.0,
    importance_sampling_floor: float = 0.5,
) -> Tensor:
    """``π_old / μ`` per token ``(B, T)`` if it lies between floor and cap, otherwise 0; no gradient.

    A token with a ratio outside the interval contributes nothing, whereas truncation would give it a capped weight.
    """
    if importance_sampling_floor > importance_sampling_cap:
        raise ArgumentError(
            f"{importance_sampling_floor=} lies above {importance_sampling_cap=}; expected a floor of at most the cap",
            argument="importance_sampling_floor",
            value=importance_sampling_floor,
            expected=importance_sampling_cap,
        )
    ratio = policy_ratio(old_logps.detach(), behavior_logps, mask)
    in_range = (ratio >= importance_sampling_floor) & (ratio <= importance_sampling_cap)
    return torch.where(in_range, ratio, 0.0)


@takes(
    mask=MASK,
    logps=under_mask(),
    behavior_logps=under_mask(),
    advantages=ONE_PER_RESPONSE,
    off_policy_mask_threshold=POSITIVE,
)
@equation("eq:off-policy-mask", source='DeepSeek-AI (2025), "DeepSeek-V3.2", off-policy sequence masking.')
def off_policy_keep(
    logps: Tensor, behavior_logps: Tensor, advantages: Tensor, mask: Tensor, *, off_policy_mask_threshold: float
) -> Tensor:
    """Which rows ``(B,)`` to keep: all except strongly off-policy completions with a negative advantage.

    This is the sequence masking of DeepSeek-V3.2: a row is dropped if its advantage is negative *and* the mean of
    ``log μ − log π`` over its tokens exceeds the threshold δ, in nats per token. Pass the result as ``keep`` with
    ``renormalise=False``: in the paper a dropped row still counts in 1/G.
    """
    drift = masked_mean(zero_where_masked(behavior_logps - logps, mask).detach(), mask, -1)  # (B,)
    return (advantages.squeeze(-1) >= 0) | (drift <= off_policy_mask_threshold)
