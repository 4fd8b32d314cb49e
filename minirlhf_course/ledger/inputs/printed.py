"""Inputs for the symbol definitions of several chapters: sequences that end, all completions of a small model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from minirlhf_course.ledger.inputs.rollouts import all_groups
from minirlhf_course.ledger.registry import Draw


def until(x: Tensor) -> Callable[[int], Tensor]:
    """The function ``t ↦ x[t]``, 0 behind the end of ``x``."""
    return lambda t: x[t] if t < len(x) else torch.zeros_like(x[0])


class AllCompletions(NamedTuple):
    """All completions of a small language model, on the last axis; tokens behind the end have probability 1.

    Attributes:
        logps, ref_logps: ``(N, T)``, of the model (differentiable) and of a reference, 0 at padding.
        probs: ``(N,)``, differentiable.
        mask: ``(N, T)``.
        rewards: ``(N,)``.
        legend: the symbol definitions that chapters share; ``t`` counts from 1.
    """

    logps: Tensor
    ref_logps: Tensor
    probs: Tensor
    mask: Tensor
    rewards: Tensor
    legend: dict[str, Any]


def world(draw: Draw) -> AllCompletions:
    """Seven completions of at most three tokens."""
    toy, ref = draw.toy(2, 3), draw.toy(2, 3)
    mask, logps, ref_logps = (
        toy.completions().mask,
        toy.completion_token_logps()[0],
        ref.completion_token_logps()[0].detach(),
    )
    probs, rewards, steps = toy.distribution()[0], draw.normal(len(mask)), range(1, mask.shape[1] + 1)
    legend = {r"\theta": toy.table, "t": steps, "k": steps, "r": rewards, "r(y)": rewards, "r(x,y)": rewards}
    legend |= {r"\pi": probs, r"\pi(y)": probs, r"\piref": ref_logps.sum(-1).exp(), r"\E_\pi": probs.detach()}
    for name, table in ((r"\pi", logps), (r"\piref", ref_logps)):
        legend |= {rf"{name}(y_t\mid s_t)": table.exp().T, rf"{name}(y_t\mid x,y_{{<t}})": table.exp().T}
    return AllCompletions(logps, ref_logps, probs, mask, rewards, legend)


class Groups(NamedTuple):
    """Every group of G completions, on the last axis, sampled by a differentiable policy over a few completions.

    Attributes:
        members: ``(P, G)``, the completions of each group.
        probs: ``(M,)``, of one completion.
        rewards: ``(P, G)``.
        legend: the symbol definitions that chapters share.
    """

    members: Tensor
    probs: Tensor
    rewards: Tensor
    legend: dict[str, Any]


def groups(draw: Draw, size: int = 3, num_generations: int = 3, binary: bool = False) -> Groups:
    """Groups of three out of three completions by default; with ``binary`` the rewards are 0 and 1."""
    theta = draw.normal(size).requires_grad_()
    values = (torch.arange(size) > 0).double() if binary else draw.normal(size)
    probs, index = theta.softmax(-1), all_groups(size, num_generations)
    legend = {r"\theta": theta, "i": range(num_generations), "j": range(num_generations), "G": num_generations}
    legend |= {r"\pi(y_i)": probs[index].T, r"\E": probs.detach()[index].prod(-1), "J": (probs * values).sum()}
    rewards = values[index]
    return Groups(index, probs, rewards, legend | {"r_i": rewards.T, r"\bar r": rewards.mean(-1)})


def clipped_tokens(draw: Draw) -> tuple[tuple[Tensor, Tensor, Tensor, Tensor], dict[str, Any]]:
    """Eight tokens on both sides of a clip range of .2 and .3, with advantages of both signs, and their symbols.

    The inputs are ``logps, old_logps, advantages, mask``, ``(1, 8)``; ``logps`` is differentiable.
    """
    ratios = torch.tensor([0.5, 0.9, 1.1, 1.6] * 2, dtype=torch.float64) * draw.uniform(8, low=0.95, high=1.05)
    A = draw.uniform(1, 8, low=0.5, high=2.0) * torch.tensor([1.0] * 4 + [-1.0] * 4)
    old = draw.logps(1, 8)
    theta = (old[0] + ratios.log()).requires_grad_()
    legend = {r"\theta": theta, "t": range(8), "A_t": A[0], r"\rho_t": (theta - old[0]).exp()}
    legend |= {r"\pi(y_t)": theta.exp(), r"\pi(y_t\mid s_t)": theta.exp(), r"\piold(y_t)": old[0].exp()}
    legend |= {r"\epsilon": 0.2, r"\epsilon_{\text{high}}": 0.3}
    return (theta[None], old, A, torch.ones(1, 8, dtype=torch.bool)), legend
