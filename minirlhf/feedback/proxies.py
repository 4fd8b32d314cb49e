"""Proxies: linear Bradley–Terry reward models of the seven-word world, from few comparisons or from all there could be.

What a proxy can express is its *class*: counts of words, counts and products of two, and of three. Every proxy here is
given in units of gold: its mean and standard deviation under the reference are gold's own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError, unknown
from minirlhf.core.randomness import generator
from minirlhf.data.seven_words import Outcomes
from minirlhf.equations.reward_losses import bradley_terry, bradley_terry_loss

TEMPERATURE = 0.5  # of the labeller, in units of gold
L2 = 3e-3  # weight decay of a fit, on standardised features

#: How many words a feature of each class may multiply: 7, 35 and 119 features.
CLASSES = {"counts": 1, "pairs": 2, "triples": 3}


def features(counts: Tensor, proxy_class: str) -> Tensor:
    """``(N, F)``: all products of up to 1, 2 or 3 word counts.

    Raises:
        UserError: there is no such class.
    """
    if proxy_class not in CLASSES:
        raise unknown("proxy class", proxy_class, CLASSES)
    columns = [
        counts[:, list(picked)].prod(-1)
        for degree in range(1, CLASSES[proxy_class] + 1)
        for picked in itertools.combinations_with_replacement(range(counts.shape[1]), degree)
    ]
    return torch.stack(columns, -1)


def _moments(probs: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation under ``probs (N,)`` of ``(N,)`` or of each column of ``(N, F)``."""
    weights = probs if values.dim() == 1 else probs[:, None]
    mean = (weights * values).sum(0)
    return mean, (weights * (values - mean) ** 2).sum(0).sqrt()


def rescale_to_gold(rewards: Tensor, world: Outcomes) -> Tensor:
    """``(N,)``: shifted and scaled so that mean and standard deviation under the reference are gold's."""
    mean, deviation = _moments(world.probs, rewards)
    gold_mean, gold_deviation = _moments(world.probs, world.gold)
    if float(deviation) < 1e-12:
        raise ArgumentError(
            f"rewards of shape {tuple(rewards.shape)} are all alike; a proxy has to prefer something",
            argument="rewards",
            problem="all alike",
        )
    return gold_mean + gold_deviation * (rewards - mean) / deviation


def labelled_better(a: Tensor, b: Tensor) -> Tensor:
    """Chance that the labeller prefers outcomes of score ``a`` to those of score ``b``; any shape, the same."""
    return bradley_terry(a / TEMPERATURE, b / TEMPERATURE)


@dataclass(frozen=True)
class ProxyComparisons:
    """Labelled pairs: outcome ``chosen[i]`` was preferred to ``rejected[i]``. Both ``(M,)`` long."""

    chosen: Tensor
    rejected: Tensor

    def __len__(self) -> int:
        return len(self.chosen)

    def select(self, rows: Tensor) -> ProxyComparisons:
        """Some of the pairs."""
        return ProxyComparisons(self.chosen[rows], self.rejected[rows])

    def and_(self, others: ProxyComparisons) -> ProxyComparisons:
        """These and the others."""
        return ProxyComparisons(torch.cat([self.chosen, others.chosen]), torch.cat([self.rejected, others.rejected]))

    def resampled(self, *keys: int | str) -> ProxyComparisons:
        """A bootstrap sample: as many, drawn with replacement."""
        return self.select(torch.randint(len(self), (len(self),), generator=generator("bootstrap", *keys)))


def compare(
    world: Outcomes,
    count: int,
    *,
    probs: Tensor | None = None,
    bias: Tensor | None = None,
    seed: int = 0,
) -> ProxyComparisons:
    """``count`` pairs drawn from the reference (or from ``probs (N,)``), labelled with σ(Δgold / TEMPERATURE).

    Args:
        bias: ``(N,)``, what the labeller adds to gold.
        seed: more pairs of one seed begin with the same ones.
    """
    law = world.probs if probs is None else probs
    draws = torch.rand(count, 3, dtype=torch.float64, generator=generator("comparisons", seed))
    pair = torch.searchsorted(law.cumsum(0), draws[:, :2].contiguous()).clamp(max=len(world) - 1)  # (count, 2)
    score = world.gold if bias is None else world.gold + bias
    first = draws[:, 2] < labelled_better(score[pair[:, 0]], score[pair[:, 1]])
    return ProxyComparisons(
        torch.where(first, pair[:, 0], pair[:, 1]),
        torch.where(first, pair[:, 1], pair[:, 0]),
    )


def minimise(loss: Callable[[Tensor], Tensor], size: int) -> Tensor:
    """The weights ``(size,)`` that minimise a smooth convex function, by L-BFGS."""
    weights = torch.zeros(size, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [weights], max_iter=300, tolerance_grad=1e-8, tolerance_change=1e-12, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = loss(weights)
        value.backward()
        return value

    optimiser.step(closure)
    return weights.detach()


def standardised(world: Outcomes, proxy_class: str) -> Tensor:
    """``(N, F)``: the features of a class, each with mean 0 and standard deviation 1 under the reference."""
    raw = features(world.counts, proxy_class)
    mean, deviation = _moments(world.probs, raw)
    return (raw - mean) / deviation


def fit(world: Outcomes, pairs: ProxyComparisons, proxy_class: str) -> Tensor:
    """``(N,)``: the proxy of a class that fits the pairs best (Bradley–Terry with weight decay), in units of gold."""
    known = standardised(world, proxy_class)

    def loss(weights: Tensor) -> Tensor:
        rewards = known @ weights
        return bradley_terry_loss(rewards[pairs.chosen], rewards[pairs.rejected]).mean() + L2 * weights.square().sum()

    return rescale_to_gold(known @ minimise(loss, known.shape[1]), world)


def fit_everything(world: Outcomes, proxy_class: str) -> Tensor:
    """``(N,)``: the proxy that a class would learn from infinitely many pairs, by summing over all of them; in units of gold.

    Needs the bags, not the single replies: it looks at all pairs of outcomes.
    """
    known = standardised(world, proxy_class)
    i, j = torch.triu_indices(len(world), len(world), offset=1)
    weight = world.probs[i] * world.probs[j]
    weight = weight / weight.sum()
    wins = labelled_better(world.gold[i], world.gold[j])

    def loss(weights: Tensor) -> Tensor:
        rewards = known @ weights
        difference = rewards[i] - rewards[j]
        nothing = torch.zeros_like(difference)
        of_pair = wins * bradley_terry_loss(difference, nothing) + (1 - wins) * bradley_terry_loss(nothing, difference)
        return (weight * of_pair).sum()

    return rescale_to_gold(known @ minimise(loss, known.shape[1]), world)


# -- controls: proxies with known errors -------------------------------------------------------------------------


def with_noise(world: Outcomes, *, std: float, seed: int = 0) -> Tensor:
    """``(N,)``: gold plus independent Gaussian error on every outcome. Tilting by it must not lose gold."""
    noise = torch.randn(len(world), dtype=torch.float64, generator=generator("noise", seed))
    return rescale_to_gold(world.gold + std * noise, world)


def with_flipped_tail(world: Outcomes, *, share: float = 0.01) -> Tensor:
    """``(N,)``: gold, but for the worst replies, which hold ``share`` of the reference's mass and have their sign turned round."""
    order = world.gold.argsort()
    worst = torch.zeros(len(world), dtype=torch.bool)
    worst[order] = world.probs[order].cumsum(0) <= share
    return rescale_to_gold(torch.where(worst, -world.gold, world.gold), world)
