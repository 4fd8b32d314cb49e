"""Two groups of people with different tastes: what one reward model makes of them, and what can be done instead."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.equations.reward_losses import bradley_terry
from minirlhf.equations.rlhf import optimal_logps
from minirlhf.equations.social_choice import bradley_terry_fit, mixture_preference, reward_spread

REPLIES = ("short", "middle", "long")
OPPOSITE = torch.tensor(
    [[1.0, 0.2, -1.0], [-1.0, 0.2, 1.0]], dtype=torch.float64
)  # (G, K): what a reply is worth to a group
MILD_AND_STRONG = torch.tensor([[0.25, 0.1, -0.25], [-1.5, 0.1, 1.5]], dtype=torch.float64)
BETA = 0.5


def shares(first: float) -> Tensor:
    """``(2,)``: the share of the first group, and that of the second."""
    return torch.tensor([first, 1 - first], dtype=torch.float64)


def pooled_reward(rewards: Tensor, weights: Tensor, *, noise: float) -> Tensor:
    """Reward ``(K,)`` that Bradley–Terry fits to the labels of all people together, in the units of ``rewards``.

    Everybody labels every pair, with choices by σ(difference / noise).
    """
    return noise * bradley_terry_fit(mixture_preference(rewards / noise, weights))


def policy_for(reward: Tensor) -> Tensor:
    """The best policy ``(..., K)`` of a reward under the KL penalty, from a uniform reference."""
    ref = torch.full_like(reward, 1 / reward.shape[-1])
    return optimal_logps(ref.log(), reward, beta=BETA).exp()


def best_for_the_worst_off(rewards: Tensor) -> Tensor:
    """The policy ``(K,)`` with the largest regularised objective for the group that has the least of it, two groups.

    It is the best policy of *some* weighted mean of the rewards: the weight is found by bisection on whose objective is smaller.
    """
    low, high = 0.0, 1.0
    for _ in range(60):
        weight = (low + high) / 2
        policy = policy_for(weight * rewards[0] + (1 - weight) * rewards[1])
        low, high = (weight, high) if policy @ rewards[0] < policy @ rewards[1] else (low, weight)
    return policy


def remedies(rewards: Tensor, weights: Tensor, *, noise: float) -> dict[str, Tensor]:
    """What each way of serving two groups is worth to each of them ``(2,)``."""
    mean, spread = reward_spread(rewards, weights)
    own = policy_for(rewards)  # (2, K)
    served = {
        "one reward model for all labels": policy_for(pooled_reward(rewards, weights, noise=noise)),
        "the mean of the utilities": policy_for(mean),
        "mean less spread": policy_for(mean - spread),
        "the best for the worst off": best_for_the_worst_off(rewards),
        "somebody's own policy, by lot": weights @ own,
    }
    found = {name: rewards @ policy for name, policy in served.items()}
    return found | {"everybody their own": (own * rewards).sum(-1)}


# -- groups that nobody has named --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Labels:
    """Comparisons of N people: ``wins (N, K, K)`` and the group ``(N,)`` of each, which only a simulation knows."""

    wins: Tensor
    group: Tensor


def label(rewards: Tensor, people: int, each: int, generator: torch.Generator) -> Labels:
    """People of two equally large groups label ``each`` pairs of answers, drawn by lot."""
    size = rewards.shape[-1]
    group = torch.arange(people) % 2
    first = torch.randint(size, (people, each), generator=generator)
    second = (first + torch.randint(1, size, (people, each), generator=generator)) % size
    mine = rewards[group]  # (N, K)
    chance = bradley_terry(mine.gather(1, first), mine.gather(1, second))
    won = torch.rand(people, each, generator=generator, dtype=torch.float64) < chance
    winner, loser = torch.where(won, first, second), torch.where(won, second, first)
    wins = torch.zeros(people, size, size, dtype=torch.float64)
    who = torch.arange(people)[:, None].expand_as(winner)
    return Labels(wins.index_put((who, winner, loser), torch.ones_like(chance), accumulate=True), group)


def fit_smoothed(wins: Tensor) -> Tensor:
    """Bradley–Terry rewards ``(..., K)`` of win counts to each of which half a win is added, so that they are finite."""
    return bradley_terry_fit(wins + 0.5, tolerance=1e-5)


def find_groups(wins: Tensor, generator: torch.Generator, *, starts: int = 3, steps: int = 25) -> tuple[Tensor, Tensor]:
    """Expectation–maximisation for two groups, each with rewards of its own: ``(N,)`` chance of group 0, ``(2, K)`` rewards.

    E: how likely each person's labels are under either group's rewards. M: rewards fitted to everybody's labels, weighted by
    that. Of several random starts the one of greatest likelihood is kept.
    """
    best: tuple[float, Tensor, Tensor] | None = None
    for _ in range(starts):
        belongs = torch.rand(len(wins), generator=generator, dtype=torch.float64)
        for _ in range(steps):
            rewards = fit_smoothed(torch.einsum("gn,nab->gab", torch.stack([belongs, 1 - belongs]), wins))
            log_odds = torch.nn.functional.logsigmoid(rewards[:, :, None] - rewards[:, None, :])  # (2, K, K)
            share = belongs.mean().clamp(0.01, 0.99)
            joint = torch.einsum("gab,nab->gn", log_odds, wins) + torch.stack([share, 1 - share]).log()[:, None]
            belongs = joint.softmax(0)[0]
        likelihood = float(joint.logsumexp(0).sum())
        if best is None or likelihood > best[0]:
            best = likelihood, belongs, rewards
    assert best is not None
    return best[1], best[2]
