"""Merging models: the mean of their weights, and what it does to their distributions where the model is linear."""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.validate import require_finite, require_shapes


def weight_average(parameters: Tensor, weights: Tensor) -> Tensor:
    """Merged parameters θ = Σ_k w_k θ_k, with Σ_k w_k = 1. A negative weight takes a model's influence away.

    Label: eq:weight-average
    Source: Wortsman et al. (2022), "Model soups: averaging weights of multiple fine-tuned models improves accuracy without
        increasing inference time".
    Args: parameters ``(K, ...)``, the same tensor of K models; weights ``(K,)``.
    Returns: ``(...)``.
    Raises: ValueError if there are not as many weights as models, a value is not finite, or the weights do not sum to 1.
    """
    require_shapes(weights=(weights, "K"))
    if parameters.dim() == 0 or len(parameters) != len(weights):
        raise ValueError(f"parameters has shape {tuple(parameters.shape)}; expected (K, ...) with K = {len(weights)}")
    require_finite(parameters=parameters)
    _require_affine(weights)
    return torch.tensordot(weights.to(parameters.dtype), parameters, dims=1)


def merged_logps(logps: Tensor, weights: Tensor) -> Tensor:
    """Weighted geometric mean of distributions, π(y) ∝ Π_k π_k(y)^{w_k}, as log-probabilities.

    This is what averaging weights does to models whose logits are linear in them. It is the distribution with the smallest
    Σ_k w_k KL(π ‖ π_k), and what one model thinks impossible stays impossible.

    Label: eq:merged-distribution
    Source: Genest and Zidek (1986), "Combining probability distributions: a critique and an annotated bibliography", the
        logarithmic opinion pool.
    Args: logps ``(K, ..., V)``; weights ``(K,)``, summing to 1.
    Returns: ``(..., V)``, normalised.
    Raises: ValueError if there are not as many weights as models, a value is not finite, or the weights do not sum to 1.
    """
    require_shapes(weights=(weights, "K"))
    if logps.dim() < 2 or len(logps) != len(weights):
        raise ValueError(f"logps has shape {tuple(logps.shape)}; expected (K, ..., V) with K = {len(weights)}")
    require_finite(logps=logps)
    _require_affine(weights)
    return torch.tensordot(weights.to(logps.dtype), logps, dims=1).log_softmax(-1)


def _require_affine(weights: Tensor) -> None:
    require_finite(weights=weights)
    total = float(weights.sum())
    if abs(total - 1.0) > 1e-6:
        raise ValueError(f"weights of shape {tuple(weights.shape)} sum to {total:.6g}; expected 1")
