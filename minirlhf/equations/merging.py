"""Merging K models: the mean of their weights, and its effect on the distributions of models with linear logits."""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import Arguments, Rule, finite, takes


def _shares(name: str, weights: Tensor, arguments: Arguments) -> Tensor:
    finite("K").apply(name, weights, arguments)
    total = float(weights.sum())
    if abs(total - 1.0) > 1e-6:
        raise ArgumentError(
            f"{name} of shape {tuple(weights.shape)} sums to {total:.6g}; expected 1",
            argument=name,
            value=total,
            expected=1,
        )
    return weights


SHARES = Rule("(K,), one per model, summing to 1", _shares)


@takes(parameters="K ...", weights=SHARES)
@equation(
    "eq:weight-average",
    source='Wortsman et al. (2022), "Model soups: averaging weights of multiple fine-tuned models improves '
    'accuracy without increasing inference time".',
)
def weight_average(parameters: Tensor, weights: Tensor) -> Tensor:
    """Merged parameters θ = Σ_k w_k θ_k. A negative weight subtracts a model's influence."""
    return torch.tensordot(weights.to(parameters.dtype), parameters, dims=1)


@takes(logps="K ... V", weights=SHARES)
@equation(
    "eq:merged-distribution",
    source='Genest and Zidek (1986), "Combining probability distributions: a critique and an annotated '
    'bibliography", the logarithmic opinion pool.',
)
def merged_logps(logps: Tensor, weights: Tensor) -> Tensor:
    """Weighted geometric mean of distributions, π(y) ∝ Π_k π_k(y)^{w_k}, as log-probabilities ``(..., V)``.

    For models whose logits are linear in the weights, averaging the weights gives this distribution. It is the
    distribution with the smallest Σ_k w_k KL(π ‖ π_k). A token that is impossible under one model stays impossible.
    """
    return torch.tensordot(weights.to(logps.dtype), logps, dims=1).log_softmax(-1)
