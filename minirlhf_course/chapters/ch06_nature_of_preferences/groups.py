"""Two groups of annotators with different preferences: one reward model for both groups, and the alternatives."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.equations.reward_losses import bradley_terry
from minirlhf.equations.rlhf import optimal_logps
from minirlhf.equations.social_choice import bradley_terry_fit, mixture_preference
from minirlhf_course.chapters.ch06_nature_of_preferences.equations import reward_spread

REPLIES = ("short", "middle", "long")
OPPOSITE = torch.tensor(
    [[1.0, 0.2, -1.0], [-1.0, 0.2, 1.0]], dtype=torch.float64
)  # (G, K): reward of each completion for each group
MILD_AND_STRONG = torch.tensor([[0.25, 0.1, -0.25], [-1.5, 0.1, 1.5]], dtype=torch.float64)
BETA = 0.5


def shares(first: float) -> Tensor:
    """Return the fractions ``(2,)`` of annotators in the first and in the second group."""
    return torch.tensor([first, 1 - first], dtype=torch.float64)


def pooled_reward(rewards: Tensor, weights: Tensor, *, noise: float) -> Tensor:
    """Fit one Bradley–Terry reward ``(K,)``, in units of ``rewards``, to the pooled labels of all annotators.

    Every annotator labels every pair and chooses with probability σ(difference / noise).
    """
    return noise * bradley_terry_fit(mixture_preference(rewards / noise, weights))


def policy_for(reward: Tensor) -> Tensor:
    """Return the optimal policy ``(..., K)`` of a reward under the KL penalty, with a uniform reference policy."""
    ref = torch.full_like(reward, 1 / reward.shape[-1])
    return optimal_logps(ref.log(), reward, beta=BETA).exp()


def best_for_the_worst_off(rewards: Tensor) -> Tensor:
    """Return the max–min policy ``(K,)`` of two groups: it maximises the smaller of their regularised objectives.

    It is the optimal policy of *some* weighted mean of the rewards. Bisection finds the weight: each step raises the
    weight of the group whose objective is smaller.
    """
    lower, upper = 0.0, 1.0
    for _ in range(60):
        weight = (lower + upper) / 2
        policy = policy_for(weight * rewards[0] + (1 - weight) * rewards[1])
        lower, upper = (weight, upper) if policy @ rewards[0] < policy @ rewards[1] else (lower, weight)
    return policy


def remedies(rewards: Tensor, weights: Tensor, *, noise: float) -> dict[str, Tensor]:
    """Return, for each method of serving two groups, the expected reward ``(2,)`` of each group."""
    mean, std = reward_spread(rewards, weights)
    group_policies = policy_for(rewards)  # (2, K)
    policies = {
        "one reward model for all labels": policy_for(pooled_reward(rewards, weights, noise=noise)),
        "the mean of the utilities": policy_for(mean),
        "mean minus standard deviation": policy_for(mean - std),
        "maximum of the worst group": best_for_the_worst_off(rewards),
        "the policy of a random person": weights @ group_policies,
    }
    group_rewards = {name: rewards @ policy for name, policy in policies.items()}
    return group_rewards | {"each their own": (group_policies * rewards).sum(-1)}


# -- groups without labels ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Labels:
    """Comparisons of N annotators: ``wins (N, K, K)``, and ``group (N,)``, which only a simulation knows."""

    wins: Tensor
    group: Tensor


def label(rewards: Tensor, people: int, each: int, generator: torch.Generator) -> Labels:
    """Simulate ``people`` annotators of two equally large groups, each with ``each`` random pairs of completions."""
    size = rewards.shape[-1]
    group = torch.arange(people) % 2
    first = torch.randint(size, (people, each), generator=generator)
    second = (first + torch.randint(1, size, (people, each), generator=generator)) % size
    own_rewards = rewards[group]  # (N, K)
    win_probs = bradley_terry(own_rewards.gather(1, first), own_rewards.gather(1, second))
    first_wins = torch.rand(people, each, generator=generator, dtype=torch.float64) < win_probs
    winner, loser = torch.where(first_wins, first, second), torch.where(first_wins, second, first)
    wins = torch.zeros(people, size, size, dtype=torch.float64)
    annotators = torch.arange(people)[:, None].expand_as(winner)
    return Labels(wins.index_put((annotators, winner, loser), torch.ones_like(win_probs), accumulate=True), group)


def fit_smoothed(wins: Tensor) -> Tensor:
    """Fit Bradley–Terry rewards ``(..., K)`` to win counts plus ½ each, so that the rewards are finite."""
    return bradley_terry_fit(wins + 0.5, tolerance=1e-5)


def find_groups(wins: Tensor, generator: torch.Generator, *, starts: int = 3, steps: int = 25) -> tuple[Tensor, Tensor]:
    """Expectation–maximisation for two groups: return the probability of group 0 ``(N,)`` and the rewards ``(2, K)``.

    E step: each annotator's probability of group 0, given their labels and both groups' rewards. M step: rewards fitted
    to all labels, weighted by these probabilities. The random start with the greatest likelihood is returned.
    """
    best: tuple[float, Tensor, Tensor] | None = None
    for _ in range(starts):
        in_group_0 = torch.rand(len(wins), generator=generator, dtype=torch.float64)
        for _ in range(steps):
            rewards = fit_smoothed(torch.einsum("gn,nab->gab", torch.stack([in_group_0, 1 - in_group_0]), wins))
            log_probs = torch.nn.functional.logsigmoid(rewards[:, :, None] - rewards[:, None, :])  # (2, K, K)
            prior = in_group_0.mean().clamp(0.01, 0.99)
            joint = torch.einsum("gab,nab->gn", log_probs, wins) + torch.stack([prior, 1 - prior]).log()[:, None]
            in_group_0 = joint.softmax(0)[0]
        log_likelihood = float(joint.logsumexp(0).sum())
        if best is None or log_likelihood > best[0]:
            best = log_likelihood, in_group_0, rewards
    assert best is not None
    return best[1], best[2]
