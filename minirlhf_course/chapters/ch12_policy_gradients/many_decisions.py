"""Completions of many independent decisions with one final reward: the exact benefit of a critic, and a run.

A completion has ``T`` tokens, each sampled from its own logits. Token ``t`` contributes ``q_t(a)`` to the reward. The
sum is paid after the last token.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.randomness import generator
from minirlhf.equations import advantages, returns
from minirlhf.equations.policy_gradient import decision_noise

__all__ = ["LinearCritic", "decision_noise", "train", "whole_reward", "with_exact_critic"]

VOCABULARY, REPLIES = 4, 64


def whole_reward(tokens: int) -> Tensor:
    """Return the weights of the whole reward, ``(T, T)``."""
    return torch.ones(tokens, tokens, dtype=torch.float64)


def with_exact_critic(tokens: int, lam: float) -> Tensor:
    """Return the weights of GAE with exact values, ``(T, T)``."""
    gap = (torch.arange(tokens) - torch.arange(tokens)[:, None]).double()
    return torch.where(gap >= 0, lam ** gap.clamp(min=0), 0.0)


class LinearCritic:
    """A critic that sees only final rewards.

    It estimates one value for each token at each position, by ridge regression on all completions so far.
    """

    def __init__(self, tokens: int, ridge: float = 1.0) -> None:
        self.size = tokens * VOCABULARY
        self.moments = ridge * torch.eye(self.size, dtype=torch.float64)
        self.products = torch.zeros(self.size, dtype=torch.float64)

    def learn(self, chosen: Tensor, rewards: Tensor) -> None:
        """Add completions ``chosen (B, T, V)``, one-hot, and their rewards ``(B,)`` to the regression."""
        x = chosen.flatten(1)
        self.moments += x.T @ x
        self.products += x.T @ rewards

    def values(self, chosen: Tensor, rewards: Tensor) -> Tensor:
        """Return the value before each token ``(B, T)``: the tokens so far, plus the rollout's mean of the rest."""
        token_values = torch.linalg.solve(self.moments, self.products).view(-1, VOCABULARY)  # (T, V)
        cumulative = (chosen * token_values).sum(-1).cumsum(-1)  # (B, T)
        prefix_values = torch.cat([torch.zeros(len(chosen), 1, dtype=torch.float64), cumulative[:, :-1]], 1)
        return prefix_values + (rewards[:, None] - prefix_values).mean(0)


def train(
    tokens: int, lam: float | None, *, seed: int, rollouts: int = 30, rate: float = 0.1, memory: bool = True
) -> list[float]:
    """Return the expected reward per token after each rollout of 64 completions.

    If ``lam`` is None there is no critic, and the baseline is the mean reward of the other completions. The critic is fitted
    to all rollouts so far. Without ``memory`` it is fitted to the last rollout alone.
    """
    rng = generator("many decisions", seed, tokens)
    best_tokens = torch.randint(VOCABULARY, (tokens,), generator=rng)
    quality = torch.nn.functional.one_hot(best_tokens, VOCABULARY).double()
    logits = torch.randn(tokens, VOCABULARY, dtype=torch.float64, generator=rng).mul(0.5).requires_grad_()
    optimiser, critic = torch.optim.Adam([logits], lr=rate), LinearCritic(tokens)
    mask, expected_rewards = torch.ones(REPLIES, tokens, dtype=torch.bool), []
    for _ in range(rollouts):
        logps = logits.log_softmax(-1)
        actions = torch.multinomial(logps.detach().exp(), REPLIES, replacement=True, generator=rng).T  # (B, T)
        chosen = torch.nn.functional.one_hot(actions, VOCABULARY).double()
        rewards = (chosen * quality).sum((1, 2))
        if lam is None:
            credit = advantages.leave_one_out(rewards[None])[0][:, None].expand(-1, tokens)
        else:
            token_rewards = torch.zeros(REPLIES, tokens, dtype=torch.float64)
            token_rewards[:, -1] = rewards
            credit = returns.gae(token_rewards, critic.values(chosen, rewards), mask, lam=lam)
            critic = critic if memory else LinearCritic(tokens)
            critic.learn(chosen, rewards)
        optimiser.zero_grad()
        (-(credit * (chosen * logps).sum(-1)).sum(1).mean()).backward()
        optimiser.step()
        expected_rewards.append(float((logits.detach().softmax(-1) * quality).sum(-1).mean()))
    return expected_rewards
