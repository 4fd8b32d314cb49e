"""Reward models with a hidden layer, and what ensembles of them are worth when their members share more or less.

The linear proxies of :mod:`~minirlhf.feedback.proxies` come from a convex loss: five fits to the same comparisons are one and
the same. A network remembers where it started, as a large reward model remembers its pretraining. So members may differ in the order
in which they see the comparisons and in nothing else, in their initial weights as well, or in the comparisons.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.chapters.ch20_overoptimization.remedies import Evidence
from minirlhf.core.randomness import generator
from minirlhf.data.seven_words import Outcomes
from minirlhf.equations.overoptimization import uncertainty_weighted, worst_case
from minirlhf.equations.reward_losses import bradley_terry_loss
from minirlhf.feedback.proxies import ProxyComparisons, rescale_to_gold, standardised

HIDDEN, STEPS, BATCH, LEARNING_RATE = 32, 300, 32, 0.01

#: What the members of an ensemble do not share.
DIFFERENCES = ("order of the data", "initial weights", "comparisons")


def network(world: Outcomes, pairs: ProxyComparisons, *, start: tuple[int, ...], order: tuple[int, ...]) -> Tensor:
    """``(N,)``: a reward model of one tanh layer over the word counts, in units of gold.

    Args:
        start: keys of the initial weights.
        order: keys of the order in which the comparisons come.
    """
    known = standardised(world, "counts")
    rng = generator("network", *start)
    first = torch.randn(known.shape[1], HIDDEN, dtype=torch.float64, generator=rng) / known.shape[1] ** 0.5
    bias = 0.1 * torch.randn(HIDDEN, dtype=torch.float64, generator=rng)
    last = torch.randn(HIDDEN, dtype=torch.float64, generator=rng) / HIDDEN**0.5
    weights = [first.requires_grad_(), bias.requires_grad_(), last.requires_grad_()]
    optimiser = torch.optim.Adam(weights, lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 1 / STEPS, STEPS)
    reward = lambda x: torch.tanh(x @ first + bias) @ last
    rng = generator("order of the data", *order)
    for _ in range(STEPS):
        rows = pairs.select(torch.randint(len(pairs), (BATCH,), generator=rng))
        optimiser.zero_grad()
        bradley_terry_loss(reward(known[rows.chosen]), reward(known[rows.rejected])).mean().backward()
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        return rescale_to_gold(reward(known), world)


def members(evidence: Evidence, differ_in: str, count: int = 5) -> Tensor:
    """``(count, N)``: networks that differ in one of :data:`DIFFERENCES`; the first is the same in the first two kinds."""
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
    """One network, and what each kind of ensemble makes of five: name -> ``(N,)``."""
    found: dict[str, Tensor] = {}
    for kind in DIFFERENCES:
        five = members(evidence, kind)
        found.setdefault("one network", five[0])
        found[f"other {kind}: mean"] = five.mean(0)
        found[f"other {kind}: worst case"] = worst_case(five)
        found[f"other {kind}: mean − variance"] = uncertainty_weighted(five, coef=1.0)
    return found
