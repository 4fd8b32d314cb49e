"""Aggregation: how the tokens of a batch become one number. The only file that reduces over the batch.

A rule is a weight matrix ``(B, T)``, float64 and 0 outside the mask, computed from the ``mask`` of the *whole* optimizer
batch; the loss is ``−(weights · objective).sum()``. Split the batch into micro-batches as you like: their losses add up
to the same number.

``keep (B,)`` bool drops rows (overlong filtering, off-policy sequence masking); None keeps all. The denominator then
counts the kept rows only (``renormalise=True``), or still all of them (False). If nothing is kept all weights are 0: skip
the step.
"""

from __future__ import annotations

import math

from torch import Tensor

from minirlhf.core.masking import zero_where_masked
from minirlhf.core.validate import (
    MASK,
    POSITIVE,
    number,
    require_finite_where,
    require_shapes,
    sampled,
    shape,
    takes,
)

_batch = takes(mask=MASK, keep=shape("B"))


@_batch
def sequence_mean(mask: Tensor, *, keep: Tensor | None = None, renormalise: bool = True) -> Tensor:
    """Mean over sequences of each one's mean over tokens: weight ``1 / (B·|o_i|)``, as in GRPO.

    A token of a long response counts less than one of a short response: the length bias.

    Label: eq:sequence-mean, eq:length-bias
    Source: Shao et al. (2024), "DeepSeekMath", the GRPO objective.
    """
    kept, counted = _rows(mask, keep, renormalise)
    rows = counted.any(-1).sum().clamp(min=1)
    return kept.double() / (rows * mask.bool().sum(-1, keepdim=True))


@_batch
def token_mean(mask: Tensor, *, keep: Tensor | None = None, renormalise: bool = True) -> Tensor:
    """Mean over all tokens of the batch: weight ``1 / Σ_j |o_j|``, as in DAPO. Every token counts the same.

    Label: eq:token-mean
    Source: Yu et al. (2025), "DAPO: An Open-Source LLM Reinforcement Learning System at Scale".
    """
    kept, counted = _rows(mask, keep, renormalise)
    return kept.double() / counted.sum().clamp(min=1)


@takes(max_completion_length=POSITIVE)
def fixed_length(
    mask: Tensor, *, max_completion_length: int, keep: Tensor | None = None, renormalise: bool = True
) -> Tensor:
    """Sum over tokens over a constant: weight ``1 / (B·max_completion_length)``, as in Dr. GRPO.

    The divisor depends on no response, so every token counts the same and longer batches weigh more.

    Label: eq:fixed-length
    Source: Liu et al. (2025), "Understanding R1-Zero-Like Training: A Critical Perspective" (Dr. GRPO).
    Args:
        max_completion_length: the generation budget in tokens, ≥ 1.
    """
    return sequence_sum(mask, keep=keep, renormalise=renormalise) / max_completion_length


@_batch
def sequence_sum(mask: Tensor, *, keep: Tensor | None = None, renormalise: bool = True) -> Tensor:
    """Mean over sequences of each sequence's sum over tokens: weight ``1 / B``.

    With token log-probabilities this is the plain policy gradient of whole responses.

    Label: eq:sequence-sum
    Source: Williams (1992), "Simple statistical gradient-following algorithms" (the sum over an episode).
    """
    kept, counted = _rows(mask, keep, renormalise)
    return kept.double() / counted.any(-1).sum().clamp(min=1)


@takes(
    mask=MASK, weights=sampled(gradient=False), entropies=sampled(gradient=False), top_entropy_quantile=number("(0, 1]")
)
def high_entropy_mask(weights: Tensor, entropies: Tensor, mask: Tensor, *, top_entropy_quantile: float) -> Tensor:
    """Only the share ω of the tokens at which the policy was least sure: ``w_t · 1[H_t ≥ τ]``, scaled to the sum of ``w``.

    τ is the ⌈ωN⌉-th largest of the N entropies of tokens that have a weight. With :func:`token_mean` this is the mean
    over the tokens that are left. No gradient flows.

    Label: eq:most-uncertain
    Source: Wang et al. (2025), "Beyond the 80/20 Rule: High-Entropy Minority Tokens Drive Effective Reinforcement
        Learning for LLM Reasoning", eq. 6.
    Args:
        weights: ``(B, T)`` of an optimizer batch.
        entropies: ``(B, T)``, nats, of the distributions that the tokens were sampled from.
        top_entropy_quantile: ω, in (0, 1].
    """
    counted = entropies[weights > 0]
    if not len(counted):
        return weights
    threshold = counted.topk(math.ceil(top_entropy_quantile * len(counted))).values[-1]
    left = weights * (entropies >= threshold)
    return left * (weights.sum() / left.sum())


@takes(mask=MASK, weights=shape("B T"))
def aggregate(objective: Tensor, weights: Tensor, mask: Tensor) -> Tensor:
    """``Σ weights · objective``, a scalar to be maximised; the loss is minus this.

    Label: eq:aggregate
    Source: elementary; linear in the rows, hence the same for every split of the batch.
    Args:
        objective: ``(B, T)`` per token, or ``(B, 1)`` per sequence, whose weight is then the sum of its
            tokens' weights; finite under the mask.
        weights: the rows of the whole batch's weights that belong to this micro-batch.
    """
    weights = zero_where_masked(weights, mask).to(objective.dtype)
    if objective.dim() == 2 and objective.shape[1] == 1:
        weights, mask = weights.sum(-1, keepdim=True), mask.bool().any(-1, keepdim=True)  # (B, 1)
    require_shapes(mask=(mask, "B T"), objective=(objective, "B T"))
    require_finite_where(mask, objective=objective)
    return (weights * zero_where_masked(objective, mask)).sum()


def _rows(mask: Tensor, keep: Tensor | None, renormalise: bool) -> tuple[Tensor, Tensor]:
    """The tokens that get a weight and those that the denominator counts, both ``(B, T)`` bool."""
    kept = mask.bool() if keep is None else mask.bool() & keep.bool()[:, None]
    return kept, kept if renormalise else mask.bool()
