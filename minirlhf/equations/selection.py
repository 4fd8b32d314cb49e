"""Rejection sampling: which of the sampled replies are kept, and what a model that imitates them learns.

A *reward matrix* ``(M, N)`` holds the rewards of N replies to each of M prompts.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import at_least, finite, takes
from minirlhf.equations.estimators import best_of_n_distribution


@takes(rewards="M N")
def select_top_per_prompt(rewards: Tensor) -> Tensor:
    """The best reply to each prompt: ``(M,)`` columns of the reward matrix, of several best ones the first.

    Label: eq:top-per-prompt
    Source: Touvron et al. (2023), "Llama 2", section 3.2.3; counted from 0.
    """
    if rewards.shape[1] == 0:
        raise ArgumentError(
            f"rewards has shape {tuple(rewards.shape)}; expected at least one reply to each prompt",
            argument="rewards",
            value=tuple(rewards.shape),
            problem="empty",
        )
    return (rewards == rewards.amax(-1, keepdim=True)).byte().argmax(-1)  # argmax alone promises no order among ties


@takes(rewards="M N", k=at_least(1))
def top_overall(rewards: Tensor, *, k: int) -> Tensor:
    """The k best of all replies, whichever prompt they answer: ``(k,)`` places in ``rewards.flatten()``, best first.

    Of equal ones the first comes first. Prompt and reply of a place ``i`` are ``divmod(i, N)``.

    Label: eq:top-overall
    Source: Dong et al. (2023), "RAFT", algorithm 1 (its "local ranking" is :func:`select_top_per_prompt`); places are counted from 0.
    Raises: ValueError too if there are fewer than k replies.
    """
    if k > rewards.numel():
        raise ArgumentError(
            f"k = {k}, but rewards of shape {tuple(rewards.shape)} has {rewards.numel()} replies",
            argument="k",
            value=k,
            expected=rewards.numel(),
        )
    return rewards.flatten().argsort(descending=True, stable=True)[:k]


@takes(quantile=finite("...", "[0, 1]"), n=at_least(1), k=at_least(1))
def top_k_density_ratio(quantile: Tensor, *, n: int, k: int) -> Tensor:
    """How much likelier a reply is among the k best of n than among all: n/k · Σ C(n−1, i−1) u^(n−i) (1−u)^(i−1), i = 1 … k.

    Without ties. With k = 1 it is :func:`~minirlhf.equations.estimators.best_of_n_density_ratio`, with k = n it is 1.

    Label: eq:top-k-density
    Source: the mean density of the k highest order statistics of n uniform draws; derived in chapter 11.
    Args:
        quantile: u = F(r_y).
    Raises: ValueError too if k > n.
    """
    if k > n:
        raise ArgumentError(f"k = {k}, but there are n = {n} replies", argument="k", value=k, expected=n)
    place = torch.arange(1, k + 1, device=quantile.device)  # the i-th best has i − 1 of the others above it
    ways = torch.tensor([math.comb(n - 1, i) for i in range(k)]).to(quantile)
    u = quantile.unsqueeze(-1)
    return n / k * (ways * u ** (n - place) * (1 - u) ** (place - 1)).sum(-1)


@takes(cdfs=finite("S N", "[0, 1]"))
def best_of_several_cdf(cdfs: Tensor, *, counts: tuple[int, ...]) -> Tensor:
    """The distribution function of the best of n₁ draws from one model, n₂ from the next, …: F₁(x)^n₁ · F₂(x)^n₂ ⋯. ``(N,)``

    Label: eq:best-of-several
    Source: independence, as in :func:`~minirlhf.equations.estimators.best_of_n_cdf`.
    Args:
        cdfs: each model's F at N rewards.
        counts: draws from each model, 0 or more.
    """
    if len(counts) != len(cdfs) or min(counts) < 0 or sum(counts) == 0:
        raise ArgumentError(
            f"counts = {counts}; expected {len(cdfs)} integers ≥ 0, not all 0",
            argument="counts",
            value=counts,
            expected=len(cdfs),
        )
    return (cdfs ** torch.tensor(counts, device=cdfs.device).unsqueeze(-1)).prod(0)


@takes(logps="N", probs="N", rewards="N", n=at_least(1))
def rejection_loss(logps: Tensor, probs: Tensor, rewards: Tensor, *, n: int) -> Tensor:
    """−Σ π_n(y) log π_θ(y): the loss of a model that imitates the best of n replies of π, over all that could be drawn. Scalar.

    Gradients run through ``logps`` only. It is smallest at π_θ = π_n. Where π_θ still is π, its gradient is the policy gradient with the advantage π_n/π − 1.

    Label: eq:rejection-loss, eq:rejection-gradient
    Source: Dong et al. (2023), "RAFT", for one reply kept of n; the gradient is derived in chapter 11.
    Args:
        logps: log π_θ(y) of every reply.
        probs: π(y), the policy that was sampled from.
        rewards: r(y).
    """
    return -(best_of_n_distribution(probs, rewards, n=n).detach() * logps).sum()
