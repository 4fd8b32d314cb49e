"""Policy objectives: what one step of each algorithm maximises, per token or per sequence.

All take ``logps, old_logps, advantages, mask``, each ``(B, T)``, and return ``(B, T)``, or ``(B, 1)`` where a whole
sequence has one ratio; :mod:`~minirlhf.equations.aggregation` makes one number of it. They are *maximised*.
Gradients run through ``logps`` only.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.masking import zero_where_masked
from minirlhf.core.validate import require_finite_where, require_mask, require_shapes

# exp(±30) ≈ 10^±13: a ratio beyond is a broken run, and clamping keeps values and gradients finite.
LOG_RATIO_LIMIT = 30.0


def reinforce(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """``A_t · log π(a_t)``: its gradient is the policy gradient when the batch is fresh. ``old_logps`` plays no part.

    Label: eq:reinforce-objective
    Source: Williams (1992), "Simple statistical gradient-following algorithms for connectionist reinforcement learning".
    Args:
        logps, old_logps, advantages, mask: ``(B, T)``.
    Returns:
        ``(B, T)``, 0 outside the mask.
    Raises:
        ValueError: other shapes, an empty row, values that are not finite under the mask.
    """
    logps, _, advantages = _inputs(logps, old_logps, advantages, mask)
    return advantages * logps


def ppo_clip(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    epsilon: float = 0.2,
    epsilon_high: float | None = None,
    delta: float | None = None,
) -> Tensor:
    """``min(ρA, clip(ρ, 1 − ε, 1 + ε_high)·A)`` with ``ρ = π(a_t)/π_old(a_t)``: no reward for leaving the interval.

    The clip removes a gradient, it does not bound the ratio. ``epsilon_high > epsilon`` is DAPO's clip-higher. With
    ``A < 0`` the term ``ρA`` has no bound; ``delta`` gives it one (two-sided or dual clip): the first ρ becomes ``min(ρ, δ)``.

    Label: eq:ppo-clip
    Source: Schulman et al. (2017), "Proximal Policy Optimization Algorithms", eq. 7; ``epsilon_high``: Yu et al. (2025), DAPO;
        ``delta``: Ye et al. (2020), "Mastering Complex Control in MOBA Games with Deep Reinforcement Learning" (dual clip).
    Args:
        logps, old_logps, advantages, mask: ``(B, T)``.
        epsilon: lower clip range, in (0, 1]; the upper one too unless ``epsilon_high`` is given.
        epsilon_high: upper clip range, > 0.
        delta: upper bound of the ratio where the advantage is negative, > 1 + ``epsilon_high``.
    Returns:
        ``(B, T)``, 0 outside the mask.
    Raises:
        ValueError: other shapes, an empty row, values that are not finite under the mask, a clip range that makes no sense.
    """
    low, high = clip_interval(epsilon, epsilon_high)
    if delta is not None and not delta > high:
        raise ValueError(f"delta = {delta!r}; expected more than 1 + epsilon_high = {high}")
    logps, old_logps, advantages = _inputs(logps, old_logps, advantages, mask)
    ratio = ratio_of(logps - old_logps)
    bounded = ratio if delta is None else ratio.clamp(max=delta)
    return torch.minimum(bounded * advantages, ratio.clamp(low, high) * advantages)


# -- shared steps ------------------------------------------------------------------------------------------------


def ratio_of(log_ratio: Tensor) -> Tensor:
    """``exp(log_ratio)``, finite for every log-ratio. Any shape."""
    return log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


def clip_interval(epsilon: float, epsilon_high: float | None) -> tuple[float, float]:
    """``(1 − epsilon, 1 + epsilon_high)``; raises ``ValueError`` where that makes no sense."""
    high = epsilon if epsilon_high is None else epsilon_high
    if not 0.0 < epsilon <= 1.0:
        raise ValueError(f"epsilon = {epsilon!r}; expected a number in (0, 1]")
    if not high > 0.0:
        raise ValueError(f"epsilon_high = {epsilon_high!r}; expected a number > 0")
    return 1.0 - epsilon, 1.0 + high


def _inputs(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The three tensors with zeros outside the mask; only ``logps`` keeps its gradient."""
    require_mask(mask)
    require_shapes(
        mask=(mask, "B T"), logps=(logps, "B T"), old_logps=(old_logps, "B T"), advantages=(advantages, "B T")
    )
    require_finite_where(mask, logps=logps, old_logps=old_logps, advantages=advantages)
    return (
        zero_where_masked(logps, mask),
        zero_where_masked(old_logps.detach(), mask),
        zero_where_masked(advantages.detach(), mask),
    )
