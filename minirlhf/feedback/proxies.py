"""Proxy rewards: linear Bradley–Terry reward models of the seven-word task, fitted to a few comparisons or to all
possible ones.

The *class* of a proxy fixes its features: word counts, also products of two counts, or also products of three. Every
proxy here is rescaled to the units of the gold reward: under the reference it has the mean and the standard deviation
of the gold reward.
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

TEMPERATURE = 0.5  # of the annotator, in units of the gold reward
L2 = 3e-3  # weight decay of a fit, on standardised features

#: The maximum number of word counts that a feature of each class multiplies: 7, 35 and 119 features.
CLASSES = {"counts": 1, "pairs": 2, "triples": 3}


def features(counts: Tensor, proxy_class: str) -> Tensor:
    """Return all products of up to 1, 2 or 3 word counts: ``(N, F)``.

    Raises:
        UserError: the proxy class is unknown.
    """
    if proxy_class not in CLASSES:
        raise unknown("proxy class", proxy_class, CLASSES)
    columns = [
        counts[:, list(words)].prod(-1)
        for degree in range(1, CLASSES[proxy_class] + 1)
        for words in itertools.combinations_with_replacement(range(counts.shape[1]), degree)
    ]
    return torch.stack(columns, -1)


def _moments(probs: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation, under ``probs (N,)``, of values ``(N,)`` or of each column of ``(N, F)``."""
    weights = probs if values.dim() == 1 else probs[:, None]
    mean = (weights * values).sum(0)
    return mean, (weights * (values - mean) ** 2).sum(0).sqrt()


def rescale_to_gold(rewards: Tensor, world: Outcomes) -> Tensor:
    """Shift and scale rewards ``(N,)`` to the mean and standard deviation of the gold reward under the reference."""
    mean, std = _moments(world.probs, rewards)
    gold_mean, gold_std = _moments(world.probs, world.gold)
    if float(std) < 1e-12:
        raise ArgumentError(
            f"rewards of shape {tuple(rewards.shape)} are all equal; expected a proxy that prefers some outcomes",
            argument="rewards",
            problem="all alike",
        )
    return gold_mean + gold_std * (rewards - mean) / std


def labelled_better(a: Tensor, b: Tensor) -> Tensor:
    """Probability that the annotator prefers outcomes of score ``a`` to outcomes of score ``b``; both of one shape."""
    return bradley_terry(a / TEMPERATURE, b / TEMPERATURE)


@dataclass(frozen=True)
class ProxyComparisons:
    """Labelled pairs: outcome ``chosen[i]`` was preferred to ``rejected[i]``. Both have shape ``(M,)``."""

    chosen: Tensor
    rejected: Tensor

    def __len__(self) -> int:
        return len(self.chosen)

    def select(self, rows: Tensor) -> ProxyComparisons:
        """Return the pairs in these rows."""
        return ProxyComparisons(self.chosen[rows], self.rejected[rows])

    def and_(self, others: ProxyComparisons) -> ProxyComparisons:
        """Return these pairs followed by the others."""
        return ProxyComparisons(torch.cat([self.chosen, others.chosen]), torch.cat([self.rejected, others.rejected]))

    def resampled(self, *keys: int | str) -> ProxyComparisons:
        """Return a bootstrap sample: the same number of pairs, sampled with replacement."""
        return self.select(torch.randint(len(self), (len(self),), generator=generator("bootstrap", *keys)))


def compare(
    world: Outcomes,
    count: int,
    *,
    probs: Tensor | None = None,
    bias: Tensor | None = None,
    seed: int = 0,
) -> ProxyComparisons:
    """Sample ``count`` pairs from the reference (or ``probs (N,)``); label with probability σ(Δgold / TEMPERATURE).

    Args:
        bias: ``(N,)``, the annotator's bias, added to the gold reward.
        seed: with the same seed, a larger ``count`` begins with the same pairs.
    """
    dist = world.probs if probs is None else probs
    u = torch.rand(count, 3, dtype=torch.float64, generator=generator("comparisons", seed))
    pair = torch.searchsorted(dist.cumsum(0), u[:, :2].contiguous()).clamp(max=len(world) - 1)  # (count, 2)
    score = world.gold if bias is None else world.gold + bias
    first_wins = u[:, 2] < labelled_better(score[pair[:, 0]], score[pair[:, 1]])
    return ProxyComparisons(
        torch.where(first_wins, pair[:, 0], pair[:, 1]),
        torch.where(first_wins, pair[:, 1], pair[:, 0]),
    )


def minimise(loss: Callable[[Tensor], Tensor], size: int) -> Tensor:
    """Return the weights ``(size,)`` that minimise a smooth convex function, by L-BFGS."""
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
    """Return the features of a class, each with mean 0 and standard deviation 1 under the reference: ``(N, F)``."""
    raw = features(world.counts, proxy_class)
    mean, std = _moments(world.probs, raw)
    return (raw - mean) / std


def fit(world: Outcomes, pairs: ProxyComparisons, proxy_class: str) -> Tensor:
    """Fit a proxy ``(N,)`` to the pairs by Bradley–Terry with weight decay, and rescale it to the gold reward."""
    inputs = standardised(world, proxy_class)

    def loss(weights: Tensor) -> Tensor:
        rewards = inputs @ weights
        return bradley_terry_loss(rewards[pairs.chosen], rewards[pairs.rejected]).mean() + L2 * weights.square().sum()

    return rescale_to_gold(inputs @ minimise(loss, inputs.shape[1]), world)


def fit_everything(world: Outcomes, proxy_class: str) -> Tensor:
    """Return the proxy ``(N,)`` that a class would learn from infinitely many pairs, in units of the gold reward.

    The loss sums over all pairs of outcomes, so ``world`` must hold the bags of words, not the single completions.
    """
    inputs = standardised(world, proxy_class)
    i, j = torch.triu_indices(len(world), len(world), offset=1)
    weight = world.probs[i] * world.probs[j]
    weight = weight / weight.sum()
    wins = labelled_better(world.gold[i], world.gold[j])

    def loss(weights: Tensor) -> Tensor:
        rewards = inputs @ weights
        difference = rewards[i] - rewards[j]
        zero = torch.zeros_like(difference)
        losses = wins * bradley_terry_loss(difference, zero) + (1 - wins) * bradley_terry_loss(zero, difference)
        return (weight * losses).sum()

    return rescale_to_gold(inputs @ minimise(loss, inputs.shape[1]), world)


# -- controls: proxies with known errors -------------------------------------------------------------------------


def with_noise(world: Outcomes, *, std: float, seed: int = 0) -> Tensor:
    """Return gold reward plus independent Gaussian noise, ``(N,)``. Tilting by it must not lower the gold reward."""
    noise = torch.randn(len(world), dtype=torch.float64, generator=generator("noise", seed))
    return rescale_to_gold(world.gold + std * noise, world)


def with_flipped_tail(world: Outcomes, *, share: float = 0.01) -> Tensor:
    """Return the gold reward ``(N,)`` with its sign flipped on the worst ``share`` of the reference's mass."""
    order = world.gold.argsort()
    worst = torch.zeros(len(world), dtype=torch.bool)
    worst[order] = world.probs[order].cumsum(0) <= share
    return rescale_to_gold(torch.where(worst, -world.gold, world.gold), world)
