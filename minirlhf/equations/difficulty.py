"""Prompt difficulty: weights by pass rate, zero-variance groups, and the selection of completions within a group.

With rewards 0 and 1 every group method is ``w(p̂)·(r − p̂)``, where ``p̂`` is the pass rate of the group. Dr. GRPO has
``w = 1``, GRPO ``1/sqrt(p̂(1 − p̂))``, MaxRL ``1/p̂``: the methods differ in the weight of a hard prompt. Rewards and
``valid`` are ``(P, G)`` and treated as in :mod:`~minirlhf.equations.advantages`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import at_least, finite, require_range, takes
from minirlhf.equations.advantages import center, count, group_center, mean, relative, valid_mask


@relative
@equation(
    "eq:pass-rate-weighting",
    source="the common form of the methods below; for MaxRL see :func:`maxrl`.",
    gradient=(),
)
def pass_rate_weighting(rewards: Tensor, valid: Tensor | None = None, *, weight: Callable[[Tensor], Tensor]) -> Tensor:
    """Centred reward times a weight that depends on the group's mean reward: ``A_i = w(p̂)·(r_i − p̂)``.

    ``weight`` maps mean rewards ``(P, 1)`` to factors ``(P, 1)``. A group of equal rewards gets 0, and ``weight``
    never receives its mean.
    """
    centred = center(rewards)
    has_signal = (centred.abs() > 0).any(-1, keepdim=True)  # (P, 1)
    return torch.where(has_signal, weight(torch.where(has_signal, mean(rewards), 0.5)) * centred, 0.0)


@equation(
    "eq:maxrl-advantage",
    source='Tajwar et al. (2026), "Maximum Likelihood Reinforcement Learning".',
    gradient=(),
)
def maxrl(rewards: Tensor, valid: Tensor | None = None) -> Tensor:
    """Centred reward over the group's mean reward, as in MaxRL: ``A_i = (r_i − p̂) / p̂``; 0 if all fail.

    With G samples its expected gradient is that of ``−Σ_{k=1}^{G−1} (1 − p)^k / k``, the truncated
    expansion of ``log p``. No reward may be negative (they are 0 and 1 in the paper).
    """
    if bool((valid_mask(rewards, valid) & (rewards < 0)).any()):
        raise ArgumentError(
            f"rewards of shape {tuple(rewards.shape)} holds negative values; maxrl divides by a pass rate",
            argument="rewards",
            problem="negative",
        )
    return pass_rate_weighting(rewards, valid, weight=lambda rate: 1.0 / rate)


@equation(
    "eq:bnpo-advantage",
    source='Xiao, Zhang & Cao (2025), "BNPO: Beta Normalization Policy Optimization".',
    gradient=(),
)
def bnpo(rewards: Tensor, valid: Tensor | None = None, *, shape: tuple[float, float] | None = None) -> Tensor:
    """Centred reward over a Beta density at the pass rate, as in BNPO: ``A_i = (r_i − p̂) / Beta(p̂; α, β)``.

    ``(1, 1)`` is the plain centred reward, ``(3/2, 3/2)`` is GRPO (ddof 0) up to a constant.

    Args:
        rewards: in [0, 1].
        shape: ``(α, β)``, both > 0; None uses :func:`bnpo_shape` of this batch.
    """
    is_valid = valid_mask(rewards, valid)
    if bool((is_valid & ((rewards < 0) | (rewards > 1))).any()):
        raise ArgumentError(
            f"rewards of shape {tuple(rewards.shape)} holds values outside [0, 1]",
            argument="rewards",
            expected="[0, 1]",
        )
    if shape is None:
        r = torch.where(is_valid, rewards, torch.nan)
        shape = bnpo_shape(mean(r)[count(r) >= 2])
    if not (shape[0] > 0 and shape[1] > 0):
        raise ArgumentError(f"shape = {shape!r}; expected two positive numbers", argument="shape", value=shape)
    density = torch.distributions.Beta(rewards.new_tensor(shape[0]), rewards.new_tensor(shape[1]))
    return pass_rate_weighting(rewards, valid, weight=lambda rate: density.log_prob(rate).neg().exp())


@takes(pass_rates="P")
@equation("eq:bnpo-shape", source='Xiao, Zhang & Cao (2025), "BNPO: Beta Normalization Policy Optimization".')
def bnpo_shape(pass_rates: Tensor) -> tuple[float, float]:
    """``(1 + a/3, 1 + b/3)`` for pass rates that follow Beta(a, b): the shape that minimises BNPO's gradient variance.

    a and b are fitted to the mean and variance of the pass rates. If no Beta fits them (variance 0, or only the values
    0 and 1) the result is ``(1, 1)``: all weights are 1.
    """
    if len(pass_rates) < 2:
        return 1.0, 1.0
    mean, variance = float(pass_rates.mean()), float(pass_rates.var())
    # The variance is 0 up to rounding, or larger than the variance of any Beta.
    if not 1e-9 < variance / max(mean * (1.0 - mean), 1e-9) < 1.0:
        return 1.0, 1.0
    concentration = mean * (1.0 - mean) / variance - 1.0  # a + b
    return 1.0 + concentration * mean / 3.0, 1.0 + concentration * (1.0 - mean) / 3.0


@equation(
    "eq:dynamic-sampling",
    source='Yu et al. (2025), "DAPO: An Open-Source LLM Reinforcement Learning System at Scale".',
)
def nonzero_variance_groups(rewards: Tensor, valid: Tensor | None = None) -> Tensor:
    """Mask ``(P,)`` of the groups with at least two valid rewards that differ.

    DAPO's dynamic sampling keeps these groups and samples new prompts in place of the others.
    """
    return (group_center(rewards, valid) != 0).any(-1)


@takes(pass_rate=finite("...", "[0, 1]"), num_generations=at_least(1))
@equation("eq:dead-group", source="counted in Yu et al. (2025), DAPO; elementary.")
def zero_variance_group_probability(pass_rate: Tensor, *, num_generations: int) -> Tensor:
    """Probability that all G completions succeed or all fail: ``p^G + (1 − p)^G``. Such a group has no gradient."""
    return pass_rate**num_generations + (1 - pass_rate) ** num_generations


@equation(
    "eq:gfpo-filter",
    source='Shrivastava et al. (2025), "Sample More to Think Less: Group Filtered Policy Optimization for Concise '
    'Reasoning".',
)
def gfpo_filter(scores: Tensor, valid: Tensor | None = None, *, num_kept: int) -> Tensor:
    """Mask of the ``num_kept`` best completions of each group by a score, as in GFPO.

    GFPO samples more completions and learns from the concise ones: the score is minus the length, or the reward per
    token. Pass the result as ``valid`` to :func:`~.advantages.group_zscore`: the other completions get advantage 0 and
    do not enter the mean or the standard deviation. Ties go to the earlier sample.

    Args: scores ``(P, G)``, higher is better; invalid completions are never kept; num_kept from 2 to G.
    Returns: ``(P, G)`` bool with ``num_kept`` True per row, or fewer if fewer completions are valid.
    Raises: ValueError for other shapes, a valid score that is not finite, or ``num_kept`` out of range.
    """
    valid = valid_mask(scores, valid)
    require_range(2, scores.shape[1], num_kept=num_kept)
    order = torch.where(valid, scores, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    selected = torch.zeros_like(valid).scatter(-1, order[:, :num_kept], True)
    return selected & valid
