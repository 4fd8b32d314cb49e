"""Inputs of the policy-gradient checks: expectations over every group of completions, and ratios in every clip case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.core.exact import ToyLM
from minirlhf_course.ledger.registry import Draw


def all_groups(size: int, num_generations: int) -> Tensor:
    """Every group of ``num_generations`` completions out of ``size``: ``(size^G, G)`` indices."""
    return torch.cartesian_prod(*[torch.arange(size)] * num_generations).view(-1, num_generations)


def expected_gradient(
    lm: ToyLM, rewards: Tensor, num_generations: int, coefficient: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Gradient, in the table of ``lm``, of ``Σ_i coefficient_i · log π(y_i)``, averaged over all groups of ``lm``.

    Args:
        rewards: ``(N,)``, one per completion of ``lm.completions()``.
        coefficient: maps the rewards ``(P, G)`` and completions ``(P, G)`` of all groups to the factors ``(P, G)``.
    """
    probs = lm.distribution()[0]
    index = all_groups(len(rewards), num_generations)  # (P, G)
    probability = probs.detach()[index].prod(-1)  # (P,)
    factors = coefficient(rewards[index], index).detach()
    return exact.gradient((probability[:, None] * factors * probs.log()[index]).sum(), lm.table)


def mean_over_group(advantage: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """The coefficient ``A_i / G`` of an advantage function on ``(P, G)``."""
    return lambda rewards, index: advantage(rewards) / rewards.shape[-1]


def reward_gradient(lm: ToyLM, rewards: Tensor) -> Tensor:
    """∇J for ``J = Σ_y π(y) r(y)``, from the definition."""
    return exact.gradient(exact.expectation(lm.distribution()[0], rewards), lm.table)


@dataclass(frozen=True)
class Cases:
    """Two rows, advantage positive and negative: seven tokens around the bounds in ``clip``, one padding of NaN."""

    logps: Tensor
    old_logps: Tensor
    advantages: Tensor
    mask: Tensor
    ratios: Tensor
    clip: dict[str, float]

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """``logps, old_logps, advantages, mask``, as objectives take them."""
        return self.logps, self.old_logps, self.advantages, self.mask

    def gradient(self, objective: Callable[..., Tensor], **options: float | None) -> Tensor:
        """Derivative of the summed objective by every log-probability: ``(2, 8)``."""
        logps = self.logps.clone().requires_grad_()
        value = objective(logps, self.old_logps, self.advantages, self.mask, **options)
        return torch.autograd.grad(value.sum(), logps)[0]

    def table(self, entry: Callable[[float, float], float]) -> Tensor:
        """``entry(ratio, advantage)`` for every token, 0 on the padding: ``(2, 8)``, by plain Python."""
        rows = zip(self.ratios.tolist(), self.advantages.tolist(), strict=True)
        return torch.tensor(
            [[entry(ratio, a) for ratio, a in zip(r, row, strict=False)] + [0.0] for r, row in rows],
            dtype=torch.float64,
        )


def clip_cases(draw: Draw) -> Cases:
    """A clip range without default values, and ratios close to its bounds and far from them, yet away from the kinks.

    Its upper bound is above the inverse of its lower bound. A range that is symmetric about ``log ρ = 0`` therefore
    differs from it on every draw.
    """
    clip = {
        "epsilon": float(draw.away_from([0.2], low=0.12, high=0.35, margin=0.04)),
        "epsilon_high": float(draw.uniform(low=0.6, high=0.8)),
        "delta": float(draw.uniform(low=2.5, high=4.0)),
    }
    low, high, delta = 1 - clip["epsilon"], 1 + clip["epsilon_high"], clip["delta"]
    centres = torch.tensor([low - 0.3, low - 0.03, low + 0.03, high - 0.03, high + 0.03, delta - 0.1, delta + 1.0])
    ratios = centres + draw.uniform(2, 7, low=-0.02, high=0.02)
    padding = torch.full((2, 1), torch.nan, dtype=torch.float64)
    old_logps = draw.logps(2, 7)
    advantages = draw.uniform(2, 7, low=0.5, high=2.0) * torch.tensor([[1.0], [-1.0]])
    mask = torch.tensor([[True] * 7 + [False]] * 2)
    return Cases(
        torch.cat([old_logps + ratios.log(), padding], 1),
        torch.cat([old_logps, padding], 1),
        torch.cat([advantages, padding], 1),
        mask,
        ratios,
        clip,
    )
