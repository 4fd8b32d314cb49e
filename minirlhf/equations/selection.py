"""Rejection sampling: the selection of sampled completions.

A *reward matrix* ``(M, N)`` holds the rewards of N completions of each of M prompts.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import at_least, finite, takes


@takes(rewards="M N")
@equation("eq:top-per-prompt", source='Touvron et al. (2023), "Llama 2", section 3.2.3; counted from 0.')
def select_top_per_prompt(rewards: Tensor) -> Tensor:
    """The best completion of each prompt: ``(M,)`` column indices of the reward matrix, the first one if tied."""
    if rewards.shape[1] == 0:
        raise ArgumentError(
            f"rewards has shape {tuple(rewards.shape)}; expected at least one completion of each prompt",
            argument="rewards",
            value=tuple(rewards.shape),
            problem="empty",
        )
    return (rewards == rewards.amax(-1, keepdim=True)).byte().argmax(-1)  # argmax alone does not define ties


@takes(rewards="M N", k=at_least(1))
@equation(
    "eq:top-overall",
    source='Dong et al. (2023), "RAFT", algorithm 1 (its "local ranking" is :func:`select_top_per_prompt`); places '
    "are counted from 0.",
)
def top_overall(rewards: Tensor, *, k: int) -> Tensor:
    """The k best completions over all prompts: ``(k,)`` indices into ``rewards.flatten()``, best first.

    Ties keep their order. The prompt and the completion of an index ``i`` are ``divmod(i, N)``.

    Raises: ValueError too if there are fewer than k completions.
    """
    if k > rewards.numel():
        raise ArgumentError(
            f"k = {k}, but rewards of shape {tuple(rewards.shape)} has {rewards.numel()} completions",
            argument="k",
            value=k,
            expected=rewards.numel(),
        )
    return rewards.flatten().argsort(descending=True, stable=True)[:k]


@takes(cdfs=finite("S N", "[0, 1]"))
@equation("eq:best-of-several", source="independence, as in :func:`~minirlhf.equations.estimators.best_of_n_cdf`.")
def best_of_several_cdf(cdfs: Tensor, *, counts: tuple[int, ...]) -> Tensor:
    """CDF of the best of n₁ samples of one model, n₂ of the next, …: F₁(x)^n₁ · F₂(x)^n₂ ⋯. ``(N,)``

    Args:
        cdfs: each model's F at N rewards.
        counts: the number of samples of each model, 0 or more.
    """
    if len(counts) != len(cdfs) or min(counts) < 0 or sum(counts) == 0:
        raise ArgumentError(
            f"counts = {counts}; expected {len(cdfs)} integers ≥ 0, not all 0",
            argument="counts",
            value=counts,
            expected=len(cdfs),
        )
    return (cdfs ** torch.tensor(counts, device=cdfs.device).unsqueeze(-1)).prod(0)
