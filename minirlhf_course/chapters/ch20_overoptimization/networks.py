"""Reward models with a hidden layer, and the value of ensembles of them whose members share more or less.

The linear proxies of :mod:`~minirlhf.feedback.proxies` come from a convex loss: five fits to the same comparisons are
identical. A network depends on its initial weights, as a large reward model depends on its pretraining. So the members
of an ensemble may differ only in the order of the comparisons, in the initial weights as well, or in the comparisons.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.randomness import generator
from minirlhf.data.seven_words import Outcomes
from minirlhf.equations.overoptimization import uncertainty_weighted, worst_case
from minirlhf.equations.reward_losses import bradley_terry_loss
from minirlhf.feedback.proxies import ProxyComparisons, rescale_to_gold, standardised
from minirlhf_course.chapters.ch20_overoptimization.remedies import Evidence

HIDDEN, STEPS, BATCH, LEARNING_RATE = 32, 300, 32, 0.01

#: What the members of an ensemble do not share.
DIFFERENCES = ("order of the data", "initial weights", "comparisons")


def network(world: Outcomes, pairs: ProxyComparisons, *, start: tuple[int, ...], order: tuple[int, ...]) -> Tensor:
    """Train a reward model of one tanh layer over the word counts; return its rewards ``(N,)``, in units of gold.

    Args:
        start: keys of the initial weights.
        order: keys of the order of the comparisons.
    """
    inputs = standardised(world, "counts")
    rng = generator("network", *start)
    first = torch.randn(inputs.shape[1], HIDDEN, dtype=torch.float64, generator=rng) / inputs.shape[1] ** 0.5
    bias = 0.1 * torch.randn(HIDDEN, dtype=torch.float64, generator=rng)
    last = torch.randn(HIDDEN, dtype=torch.float64, generator=rng) / HIDDEN**0.5
    weights = [first.requires_grad_(), bias.requires_grad_(), last.requires_grad_()]
    optimiser = torch.optim.Adam(weights, lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 1 / STEPS, STEPS)
    reward = lambda x: torch.tanh(x @ first + bias) @ last
    rng = generator("order of the data", *order)
    for _ in range(STEPS):
        batch = pairs.select(torch.randint(len(pairs), (BATCH,), generator=rng))
        optimiser.zero_grad()
        bradley_terry_loss(reward(inputs[batch.chosen]), reward(inputs[batch.rejected])).mean().backward()
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        return rescale_to_gold(reward(inputs), world)


def members(evidence: Evidence, differ_in: str, count: int = 5) -> Tensor:
    """Return ``(count, N)``: networks that differ in one of :data:`DIFFERENCES`; the first network is the same in
    the first two kinds."""
    seed = evidence.seed
    return torch.stack(
        [
            network(
                evidence.world,
                evidence.pairs.resampled(seed, m) if differ_in == "comparisons" else evidence.pairs,
                start=(seed, m if differ_in == "initial weights" else 0),
                order=(seed, m),
            )
            for m in range(count)
        ]
    )


def ensembles(evidence: Evidence) -> dict[str, Tensor]:
    """Return one network, and three combinations of five networks for each kind of ensemble: name -> ``(N,)``."""
    rewards: dict[str, Tensor] = {}
    for kind in DIFFERENCES:
        networks = members(evidence, kind)
        rewards.setdefault("one network", networks[0])
        rewards[f"other {kind}: mean"] = networks.mean(0)
        rewards[f"other {kind}: worst case"] = worst_case(networks)
        rewards[f"other {kind}: mean − variance"] = uncertainty_weighted(networks, coef=1.0)
    return rewards
