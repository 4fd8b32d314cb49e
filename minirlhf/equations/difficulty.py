"""How much a prompt counts: weights by pass rate, groups without a signal, and which responses of a group to learn from.

With rewards 0 and 1 every group method is ``w(p̂)·(r − p̂)``, ``p̂`` the pass rate of the group. Dr. GRPO has ``w = 1``,
GRPO ``1/sqrt(p̂(1 − p̂))``, MaxRL ``1/p̂``: they differ in what a hard prompt is worth.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from minirlhf.core.masking import zero_where_masked
from minirlhf.core.validate import require_range, require_shapes
from minirlhf.equations.advantages import group_center, groups, valid_mask


def pass_rate_weighting(rewards: Tensor, valid: Tensor | None = None, *, weight: Callable[[Tensor], Tensor]) -> Tensor:
    """Centred reward times a weight of the group's mean reward: ``A_i = w(p̂)·(r_i − p̂)``.

    Groups of equal rewards get 0 and never reach ``weight``.

    Label: eq:pass-rate-weighting
    Source: the common form of the methods below; for MaxRL see :func:`maxrl`.
    Args:
        rewards: ``(P, G)``, ``G ≥ 2``.
        valid: ``(P, G)`` bool; None means all.
        weight: from the mean rewards ``(P, 1)`` to factors ``(P, 1)``.
    Returns:
        ``(P, G)``.
    Raises:
        ValueError: other shapes, a group size of one, a valid reward that is not finite.
    """
    rate = _mean(rewards, valid)  # (P, 1)
    centred = group_center(rewards, valid)
    alive = (centred != 0).any(-1, keepdim=True)
    return torch.where(alive, weight(torch.where(alive, rate, 0.5)) * centred, 0.0)


def maxrl(rewards: Tensor, valid: Tensor | None = None) -> Tensor:
    """Centred reward over the mean reward of the group, the advantage of MaxRL: ``A_i = (r_i − p̂) / p̂``; 0 if none succeeds.

    With G samples its expected gradient is that of ``−Σ_{k=1}^{G−1} (1 − p)^k / k``, the expansion of ``log p`` cut off.

    Label: eq:maxrl-advantage
    Source: Tajwar et al. (2026), "Maximum Likelihood Reinforcement Learning".
    Args:
        rewards: ``(P, G)``, ``G ≥ 2``, none negative (0 and 1 in the paper).
        valid: ``(P, G)`` bool; None means all.
    Returns:
        ``(P, G)``.
    Raises:
        ValueError: as :func:`pass_rate_weighting`; a negative reward.
    """
    if bool((valid_mask(rewards, valid) & (rewards < 0)).any()):
        raise ValueError(f"rewards of shape {tuple(rewards.shape)} holds negative values; maxrl divides by a pass rate")
    return pass_rate_weighting(rewards, valid, weight=lambda rate: 1.0 / rate)


def bnpo(rewards: Tensor, valid: Tensor | None = None, *, shape: tuple[float, float] | None = None) -> Tensor:
    """Centred reward over a Beta density at the pass rate, the advantage of BNPO: ``A_i = (r_i − p̂) / Beta(p̂; α, β)``.

    ``(1, 1)`` is the plain centred reward, ``(3/2, 3/2)`` is GRPO (ddof 0) up to a constant.

    Label: eq:bnpo-advantage
    Source: Xiao, Zhang & Cao (2025), "BNPO: Beta Normalization Policy Optimization".
    Args:
        rewards: ``(P, G)`` in [0, 1], ``G ≥ 2``.
        valid: ``(P, G)`` bool; None means all.
        shape: ``(α, β)``; None takes :func:`bnpo_shape` of this batch.
    Returns:
        ``(P, G)``.
    Raises:
        ValueError: as :func:`pass_rate_weighting`; rewards outside [0, 1]; a shape that is not positive.
    """
    counted = valid_mask(rewards, valid)
    if bool((counted & ((rewards < 0) | (rewards > 1))).any()):
        raise ValueError(f"rewards of shape {tuple(rewards.shape)} holds values outside [0, 1]")
    alpha, beta = bnpo_shape(_mean(rewards, valid)[groups(rewards, valid)[1].any(-1), 0]) if shape is None else shape
    if not (alpha > 0 and beta > 0):
        raise ValueError(f"shape = {shape!r}; expected two positive numbers")
    density = torch.distributions.Beta(
        torch.tensor(alpha, dtype=rewards.dtype, device=rewards.device),
        torch.tensor(beta, dtype=rewards.dtype, device=rewards.device),
    )
    return pass_rate_weighting(rewards, valid, weight=lambda rate: density.log_prob(rate).neg().exp())


def bnpo_shape(pass_rates: Tensor) -> tuple[float, float]:
    """``(1 + a/3, 1 + b/3)`` for pass rates that follow Beta(a, b): the shape that makes BNPO's gradient variance smallest.

    a and b come from the mean and variance of the pass rates. Where these fit no Beta (no spread, or only 0 and 1) the
    result is ``(1, 1)``: nothing is reweighted.

    Label: eq:bnpo-shape
    Source: Xiao, Zhang & Cao (2025), "BNPO: Beta Normalization Policy Optimization".
    Args:
        pass_rates: ``(P,)`` in [0, 1].
    """
    require_shapes(pass_rates=(pass_rates, "P"))
    if len(pass_rates) < 2:
        return 1.0, 1.0
    mean, variance = float(pass_rates.mean()), float(pass_rates.var())
    if (
        not 1e-9 < variance / max(mean * (1.0 - mean), 1e-9) < 1.0
    ):  # no spread but rounding, or more than a Beta can have
        return 1.0, 1.0
    total = mean * (1.0 - mean) / variance - 1.0  # a + b
    return 1.0 + total * mean / 3.0, 1.0 + total * (1.0 - mean) / 3.0


def mixed_groups(rewards: Tensor, valid: Tensor | None = None) -> Tensor:
    """Which groups have a signal: at least two valid rewards that differ. DAPO's dynamic sampling keeps these and refills.

    Label: eq:dynamic-sampling
    Source: Yu et al. (2025), "DAPO: An Open-Source LLM Reinforcement Learning System at Scale".
    Args:
        rewards: ``(P, G)``, ``G ≥ 2``.
        valid: ``(P, G)`` bool; None means all.
    Returns:
        ``(P,)`` bool.
    Raises:
        ValueError: as :func:`pass_rate_weighting`.
    """
    return (group_center(rewards, valid) != 0).any(-1)


def dead_group_probability(pass_rate: Tensor, *, num_generations: int) -> Tensor:
    """Chance that all G responses to a prompt succeed or all fail: ``p^G + (1 − p)^G``. Such a group has no gradient.

    Label: eq:dead-group
    Source: counted in Yu et al. (2025), DAPO; elementary.
    Args:
        pass_rate: any shape, in [0, 1].
        num_generations: ``G ≥ 1``.
    Returns:
        The shape of ``pass_rate``.
    Raises:
        ValueError: a rate outside [0, 1], or ``num_generations`` below 1.
    """
    require_range(1, float("inf"), num_generations=num_generations)
    if not bool(((pass_rate >= 0) & (pass_rate <= 1)).all()):
        raise ValueError(f"pass_rate of shape {tuple(pass_rate.shape)} holds values outside [0, 1]")
    return pass_rate**num_generations + (1 - pass_rate) ** num_generations


def gfpo_filter(scores: Tensor, valid: Tensor | None = None, *, num_kept: int) -> Tensor:
    """The ``num_kept`` best responses of each group by some score, as GFPO retains them: sample more, learn from the concise.

    Scores are minus the length, or the reward per token. The result is the ``valid`` of :func:`~.advantages.group_zscore`: the
    others get advantage 0 and are no part of mean or deviation. Ties go to the earlier sample.

    Label: eq:gfpo-filter
    Source: Shrivastava et al. (2025), "Sample More to Think Less: Group Filtered Policy Optimization for Concise Reasoning".
    Args:
        scores: ``(P, G)``, higher is better.
        valid: ``(P, G)`` bool; None means all. The others are never kept.
        num_kept: from 2 to G.
    Returns:
        ``(P, G)`` bool with ``num_kept`` True per row, or fewer where fewer are valid.
    Raises:
        ValueError: other shapes, a valid score that is not finite, ``num_kept`` out of range.
    """
    valid = valid_mask(scores, valid)
    require_range(2, scores.shape[1], num_kept=num_kept)
    ranked = torch.where(valid, scores, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    kept = torch.zeros_like(valid).scatter(-1, ranked[:, :num_kept], True)
    return kept & valid


def _mean(rewards: Tensor, valid: Tensor | None) -> Tensor:
    """Mean of each group over what counts: ``(P, 1)``, 0 for a group that drops out."""
    kept, counted = groups(rewards, valid)
    return zero_where_masked(kept, counted).sum(-1, keepdim=True) / counted.sum(-1, keepdim=True).clamp(min=1)
