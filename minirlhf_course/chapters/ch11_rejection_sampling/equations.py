"""The equations that only chapter 11 needs: best of n, and training on selected completions.

A *reward matrix* ``(M, N)`` holds the rewards of N completions of each of M prompts.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import at_least, finite, takes
from minirlhf.equations.estimators import best_of_n_distribution

# -- best of n ---------------------------------------------------------------------------------------------------


@takes(n=at_least(1))
@equation(
    "eq:best-of-n-win-rate",
    source='Gui et al. (2024), "BoNBoN alignment for large language models and the sweetness of best-of-n sampling".',
)
def best_of_n_win_rate(n: int) -> float:
    """n/(n+1): how often best-of-n beats a single sample by the reward that it selects with, without ties."""
    return n / (n + 1)


# -- selection ---------------------------------------------------------------------------------------------------


@takes(quantile=finite("...", "[0, 1]"), n=at_least(1), k=at_least(1))
@equation(
    "eq:top-k-density",
    source="the mean density of the k highest order statistics of n uniform draws; derived in chapter 11.",
)
def top_k_density_ratio(quantile: Tensor, *, n: int, k: int) -> Tensor:
    """Density ratio of the k best of n to all completions: n/k · Σ C(n−1, i−1) u^(n−i) (1−u)^(i−1), i = 1 … k.

    Without ties. With k = 1 it is :func:`~minirlhf.equations.estimators.best_of_n_density_ratio`, with k = n it is 1.

    Args:
        quantile: u = F(r_y).
    Raises: ValueError too if k > n.
    """
    if k > n:
        raise ArgumentError(f"k = {k}, but there are n = {n} completions", argument="k", value=k, expected=n)
    rank = torch.arange(1, k + 1, device=quantile.device)  # the i-th best has i − 1 better completions
    coefficients = torch.tensor([math.comb(n - 1, i) for i in range(k)]).to(quantile)
    u = quantile.unsqueeze(-1)
    return n / k * (coefficients * u ** (n - rank) * (1 - u) ** (rank - 1)).sum(-1)


@takes(logps="N", probs="N", rewards="N", n=at_least(1))
@equation(
    "eq:rejection-loss",
    "eq:rejection-gradient",
    source='Dong et al. (2023), "RAFT", for one reply kept of n; the gradient is derived in chapter 11.',
    gradient=("logps",),
)
def rejection_loss(logps: Tensor, probs: Tensor, rewards: Tensor, *, n: int) -> Tensor:
    """−Σ π_n(y) log π_θ(y): the expected loss of training on the best of n completions of π. Scalar. The minimum is at π_θ = π_n. At π_θ = π the negative gradient is the policy
    gradient with the advantage π_n/π − 1.

    Args:
        logps: log π_θ(y) of every completion.
        probs: π(y), the policy that was sampled from.
        rewards: r(y).
    """
    return -(best_of_n_distribution(probs, rewards, n=n).detach() * logps).sum()
