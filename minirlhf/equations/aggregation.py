"""Aggregation: how the tokens of a batch become one number. Only this file reduces losses of tokens over the batch.

An aggregation rule returns a weight matrix ``(B, T)``, float64 and 0 outside the mask, computed from the ``mask`` of
the *whole* optimizer batch. The loss is ``−(weights · objective).sum()``. You can split the batch into any
micro-batches: their losses add up to the same number.

``keep (B,)`` bool drops rows (overlong filtering, off-policy sequence masking); None keeps all rows. With
``renormalise=True`` the denominator counts the kept rows only, with False it still counts all rows. If no row is kept,
all weights are 0: skip the step.
"""

from __future__ import annotations

import math
from fractions import Fraction

from torch import Tensor

from minirlhf.core.equation import equation
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
@equation("eq:sequence-mean", "eq:length-bias", source='Shao et al. (2024), "DeepSeekMath", the GRPO objective.')
def sequence_mean(mask: Tensor, *, keep: Tensor | None = None, renormalise: bool = True) -> Tensor:
    """Mean over sequences of each sequence's mean over tokens: weight ``1 / (B·|o_i|)``, as in GRPO.

    A token of a long completion has less weight than a token of a short completion: the length bias.
    """
    loss_mask, denominator_mask = _rows(mask, keep, renormalise)
    num_sequences = denominator_mask.any(-1).sum().clamp(min=1)
    return loss_mask.double() / (num_sequences * mask.bool().sum(-1, keepdim=True))


@_batch
@equation(
    "eq:token-mean",
    source='Yu et al. (2025), "DAPO: An Open-Source LLM Reinforcement Learning System at Scale".',
)
def token_mean(mask: Tensor, *, keep: Tensor | None = None, renormalise: bool = True) -> Tensor:
    """Mean over all tokens of the batch: weight ``1 / Σ_j |o_j|``, as in DAPO. Every token has the same weight."""
    loss_mask, denominator_mask = _rows(mask, keep, renormalise)
    return loss_mask.double() / denominator_mask.sum().clamp(min=1)


@takes(max_completion_length=POSITIVE)
@equation(
    "eq:fixed-length",
    source='Liu et al. (2025), "Understanding R1-Zero-Like Training: A Critical Perspective" (Dr. GRPO).',
)
def fixed_length(
    mask: Tensor, *, max_completion_length: int, keep: Tensor | None = None, renormalise: bool = True
) -> Tensor:
    """Sum over tokens, divided by a constant: weight ``1 / (B·max_completion_length)``, as in Dr. GRPO.

    The divisor does not depend on the completions. So every token has the same weight, and a batch with more tokens has
    a larger total weight.

    Args:
        max_completion_length: the generation budget in tokens, ≥ 1.
    """
    return sequence_sum(mask, keep=keep, renormalise=renormalise) / max_completion_length


@_batch
@equation(
    "eq:sequence-sum",
    source='Williams (1992), "Simple statistical gradient-following algorithms" (the sum over an episode).',
)
def sequence_sum(mask: Tensor, *, keep: Tensor | None = None, renormalise: bool = True) -> Tensor:
    """Mean over sequences of each sequence's sum over tokens: weight ``1 / B``.

    With token log-probabilities this is the plain policy gradient of whole completions.
    """
    loss_mask, denominator_mask = _rows(mask, keep, renormalise)
    return loss_mask.double() / denominator_mask.any(-1).sum().clamp(min=1)


@takes(
    mask=MASK, weights=sampled(gradient=False), entropies=sampled(gradient=False), top_entropy_quantile=number("(0, 1]")
)
@equation(
    "eq:most-uncertain",
    source='Wang et al. (2025), "Beyond the 80/20 Rule: High-Entropy Minority Tokens Drive Effective Reinforcement '
    'Learning for LLM Reasoning", eq. 6.',
    gradient=(),
)
def high_entropy_weights(weights: Tensor, entropies: Tensor, mask: Tensor, *, top_entropy_quantile: float) -> Tensor:
    """Weights of the fraction ω of tokens with the highest entropy: ``w_t · 1[H_t ≥ τ]``, scaled to the sum of ``w``.

    τ is the ⌈ωN⌉-th largest of the N entropies of tokens with a positive weight. With the weights of :func:`token_mean`
    the result is the mean over the selected tokens.

    Args:
        weights: ``(B, T)`` of an optimizer batch.
        entropies: ``(B, T)``, nats, of the current policy's distribution at each token.
        top_entropy_quantile: ω, in (0, 1].
    """
    weighted_entropies = entropies[weights > 0]
    if not len(weighted_entropies):
        return weights
    omega = Fraction(repr(float(top_entropy_quantile)))  # as it is written: 0.55 · 100 is 55, and not a little more
    threshold = weighted_entropies.topk(math.ceil(omega * len(weighted_entropies))).values[-1]
    selected = weights * (entropies >= threshold)
    return selected * (weights.sum() / selected.sum())


@takes(mask=MASK, weights=shape("B T"))
@equation("eq:aggregate", source="elementary; linear in the rows, hence the same for every split of the batch.")
def aggregate(objective: Tensor, weights: Tensor, mask: Tensor) -> Tensor:
    """``Σ weights · objective``, a scalar to be maximised; the loss is minus this.

    Args:
        objective: ``(B, T)`` per token, or ``(B, 1)`` per sequence; the weight of a sequence is then the sum of the
            weights of its tokens. Finite under the mask.
        weights: the rows of this micro-batch, taken from the weights of the whole batch.
    """
    weights = zero_where_masked(weights, mask).to(objective.dtype)
    if objective.dim() == 2 and objective.shape[1] == 1:
        weights, mask = weights.sum(-1, keepdim=True), mask.bool().any(-1, keepdim=True)  # (B, 1)
    require_shapes(mask=(mask, "B T"), objective=(objective, "B T"))
    require_finite_where(mask, objective=objective)
    return (weights * zero_where_masked(objective, mask)).sum()


def _rows(mask: Tensor, keep: Tensor | None, renormalise: bool) -> tuple[Tensor, Tensor]:
    """Masks of the tokens that get a weight and of the tokens that the denominator counts, both ``(B, T)`` bool."""
    loss_mask = mask.bool() if keep is None else mask.bool() & keep.bool()[:, None]
    return loss_mask, loss_mask if renormalise else mask.bool()
