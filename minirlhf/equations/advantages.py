"""Advantages: how much better a response was than what it is compared with.

Rewards come as ``(P, G)``: ``G`` responses to each of ``P`` prompts. ``valid (P, G)`` marks the ones that could be graded;
the others get advantage 0 and touch no statistic, and a group with fewer than two valid responses drops out (all 0).
Baselines are data, never a path for gradients.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.masking import zero_where_masked
from minirlhf.core.validate import require_finite_where, require_mask, require_shapes


def group_center(rewards: Tensor, valid: Tensor | None = None) -> Tensor:
    """Reward minus the mean of its group, the advantage of Dr. GRPO: ``A_i = r_i − mean(r)``.

    The own reward is part of the mean, so the expected gradient is (G − 1)/G of the true one.

    Label: eq:drgrpo-advantage
    Source: Liu et al. (2025), "Understanding R1-Zero-Like Training: A Critical Perspective" (Dr. GRPO).
    Args:
        rewards: ``(P, G)``, ``G ≥ 2``.
        valid: ``(P, G)`` bool; None means all.
    Returns:
        ``(P, G)``.
    Raises:
        ValueError: other shapes, a group size of one, a valid reward that is not finite.
    """
    kept, counted = _groups(rewards, valid)
    return _center(kept, counted)


def group_zscore(rewards: Tensor, valid: Tensor | None = None, *, ddof: int = 1, eps: float = 1e-4) -> Tensor:
    """Group-centred reward over the group's standard deviation, the advantage of GRPO: ``A_i = (r_i − mean(r)) / (std(r) + eps)``.

    A group of equal rewards gets exact zeros. Practice disagrees on ``ddof``: 1 is the sample deviation, 0 the population's.

    Label: eq:grpo-advantage
    Source: Shao et al. (2024), "DeepSeekMath" (GRPO with outcome supervision).
    Args:
        rewards: ``(P, G)``, ``G ≥ 2``.
        valid: ``(P, G)`` bool; None means all.
        ddof: the divisor of the variance is ``n − ddof``; 0 or 1.
        eps: added to the standard deviation, ≥ 0.
    Returns:
        ``(P, G)``.
    Raises:
        ValueError: other shapes, a group size of one, a valid reward that is not finite, ``ddof`` or ``eps`` out of range.
    """
    _require_scaling(ddof, eps)
    kept, counted = _groups(rewards, valid)
    centred = _center(kept, counted)
    degrees = (counted.sum(-1, keepdim=True) - ddof).clamp(min=1)  # (P, 1)
    std = (centred.square().sum(-1, keepdim=True) / degrees).sqrt()  # (P, 1)
    return _divide(centred, std, eps)


def leave_one_out(rewards: Tensor, valid: Tensor | None = None) -> Tensor:
    """Reward minus the mean of the *others* in its group, the advantage of RLOO: ``A_i = r_i − Σ_{j≠i} r_j / (G − 1)``.

    The baseline does not depend on the own response, so the expected gradient is the true one. Equal to G/(G − 1) times
    :func:`group_center`; computed that way.

    Label: eq:rloo-advantage
    Source: Kool, van Hoof & Welling (2019), "Buy 4 REINFORCE Samples, Get a Baseline for Free!"; Ahmadian et al. (2024),
        "Back to Basics" (RLOO).
    Args:
        rewards: ``(P, G)``, ``G ≥ 2``.
        valid: ``(P, G)`` bool; None means all.
    Returns:
        ``(P, G)``.
    Raises:
        ValueError: other shapes, a group size of one, a valid reward that is not finite.
    """
    kept, counted = _groups(rewards, valid)
    size = counted.sum(-1, keepdim=True)  # (P, 1)
    return _center(kept, counted) * size / (size - 1).clamp(min=1)


def broadcast_to_tokens(advantages: Tensor, mask: Tensor) -> Tensor:
    """Give every sampled token the advantage of its response: ``(P, G), (B, T) -> (B, T)`` with ``B = P·G``, prompt-major.

    Raises:
        ValueError: ``advantages`` is not ``(P, G)`` or ``P·G`` is not the number of rows of ``mask``.
    """
    require_mask(mask)
    require_shapes(advantages=(advantages, "P G"))
    if advantages.numel() != mask.shape[0]:
        raise ValueError(
            f"advantages has shape {tuple(advantages.shape)}; expected P·G = {mask.shape[0]}, the rows of mask {tuple(mask.shape)}"
        )
    return zero_where_masked(advantages.reshape(-1, 1).expand(mask.shape), mask)


# -- shared steps ------------------------------------------------------------------------------------------------


def _valid(rewards: Tensor, valid: Tensor | None) -> Tensor:
    require_shapes(rewards=(rewards, "P G"))
    if valid is None:
        valid = torch.ones_like(rewards, dtype=torch.bool)
    require_shapes(rewards=(rewards, "P G"), valid=(valid, "P G"))
    require_finite_where(valid, rewards=rewards)
    return valid.bool()


def _groups(rewards: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
    """Rewards with zeros where they do not count, and where they do: valid, in a group with at least two valid."""
    valid = _valid(rewards, valid)
    if rewards.shape[1] < 2:
        raise ValueError(f"rewards has shape {tuple(rewards.shape)}; a group baseline needs G ≥ 2 responses per prompt")
    counted = valid & (valid.sum(-1, keepdim=True) >= 2)
    return zero_where_masked(rewards.detach(), counted), counted


def _center(kept: Tensor, counted: Tensor) -> Tensor:
    """Deviations from the group mean. Measured from a member first, so that equal rewards give exact zeros."""
    first = kept.gather(-1, counted.int().argmax(-1, keepdim=True))  # (P, 1)
    shifted = zero_where_masked(kept - first, counted)
    mean = shifted.sum(-1, keepdim=True) / counted.sum(-1, keepdim=True).clamp(min=1)
    return zero_where_masked(shifted - mean, counted)


def _divide(centred: Tensor, scale: Tensor, eps: float) -> Tensor:
    """``centred / (scale + eps)``, 0 where the scale is 0: without a spread there is no signal."""
    spread = scale > 0
    return torch.where(spread, centred / torch.where(spread, scale + eps, 1.0), 0.0)


def _require_scaling(ddof: int, eps: float) -> None:
    if ddof not in (0, 1):
        raise ValueError(f"ddof = {ddof!r}; expected 0 or 1")
    if not 0.0 <= eps < float("inf"):
        raise ValueError(f"eps = {eps!r}; expected a finite number ≥ 0")
