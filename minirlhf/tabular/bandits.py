"""Bandits: one state, several arms, and the cost of exploration.

``N`` players play the same arms in parallel. An arm pays 1 with its own probability, else 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from minirlhf.core.validate import require_positive, require_range, require_shapes
from minirlhf.equations.value_learning import beta_posterior, epsilon_greedy, ucb_scores


@dataclass(frozen=True)
class Tally:
    """The players' counts.

    Attributes:
        pulls: how often each player pulled each arm, ``(N, K)``.
        wins: how often the arm paid, ``(N, K)``.
        step: number of pulls per player so far.
    """

    pulls: Tensor
    wins: Tensor
    step: int

    @property
    def means(self) -> Tensor:
        """Fraction of pulls that paid, ``(N, K)``; 0 for an arm that was never pulled."""
        return self.wins / self.pulls.clamp(min=1)


#: A strategy: (counts, random generator) -> one arm per player ``(N,)``.
Strategy = Callable[[Tally, np.random.Generator], Tensor]


def play(means: Tensor, strategy: Strategy, *, steps: int, players: int, rng: np.random.Generator) -> Tensor:
    """Simulate the players and return the arms that they pulled, ``(N, T)``.

    Args:
        means: ``(K,)``, the probability with which each arm pays; the players do not know it.

    Raises:
        ValueError: means is not ``(K,)`` or holds a number outside [0, 1], or a count is not positive.
    """
    require_shapes(means=(means, "K"))
    require_range(0.0, 1.0, **{"the least of means": float(means.min()), "the largest of means": float(means.max())})
    require_positive(steps=steps, players=players)
    pulls, wins = (torch.zeros(players, len(means), dtype=torch.float64) for _ in range(2))
    rows, history = torch.arange(players), []
    for t in range(steps):
        arms = strategy(Tally(pulls, wins, t), rng)
        pulls[rows, arms] += 1
        wins[rows, arms] += (torch.from_numpy(rng.random(players)) < means[arms]).double()
        history.append(arms)
    return torch.stack(history, 1)


def greedy_with_noise(epsilon: float) -> Strategy:
    """ε-greedy: the arm with the best mean so far, with probability ``epsilon`` a random arm.

    An arm that was never pulled is preferred to all others, and ties are broken at random. So the order in which the
    arms are listed has no effect.
    """

    def strategy(tally: Tally, rng: np.random.Generator) -> Tensor:
        scores = torch.where(tally.pulls > 0, tally.means, 2.0)  # no mean exceeds 1
        order = torch.from_numpy(rng.random(tuple(scores.shape))).argsort(-1)  # a random listing for each player
        cumulative = epsilon_greedy(scores.gather(-1, order), epsilon=epsilon).cumsum(-1)
        u = torch.from_numpy(rng.random((len(cumulative), 1)))
        position = torch.searchsorted(cumulative, u, right=True).clamp(max=cumulative.shape[1] - 1)
        return order.gather(-1, position)[:, 0]

    return strategy


def upper_confidence(c: float = math.sqrt(2)) -> Strategy:
    """UCB: the arm with the highest upper confidence bound; each arm once at first."""

    def strategy(tally: Tally, rng: np.random.Generator) -> Tensor:
        return ucb_scores(tally.means, tally.pulls, step=max(1, tally.step), c=c).argmax(-1)

    return strategy


def thompson(prior: tuple[float, float] = (1.0, 1.0)) -> Strategy:
    """Thompson sampling: sample each arm's probability from its posterior and pull the arm with the largest sample."""

    def strategy(tally: Tally, rng: np.random.Generator) -> Tensor:
        a, b = beta_posterior(tally.wins, tally.pulls - tally.wins, prior=prior)
        return torch.from_numpy(rng.beta(a.numpy(), b.numpy())).argmax(-1)

    return strategy
