"""Layer 8: replies of many independent decisions with one reward at their end: what a critic can save, exactly, and a run in which it does.

A reply has ``T`` tokens, each chosen by logits of its own; token ``t`` is worth ``q_t(a)``, and what is paid, after the last one, is the sum.
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
    """The weights of the whole reward, ``(T, T)``."""
    return torch.ones(tokens, tokens, dtype=torch.float64)


def with_exact_critic(tokens: int, lam: float) -> Tensor:
    """The weights of GAE with exact values, ``(T, T)``."""
    gap = (torch.arange(tokens) - torch.arange(tokens)[:, None]).double()
    return torch.where(gap >= 0, lam ** gap.clamp(min=0), 0.0)


class LinearCritic:
    """A critic that knows nothing but rewards at the end: a number for every token at every place, by ridge regression on all replies so far."""

    def __init__(self, tokens: int, ridge: float = 1.0) -> None:
        self.size = tokens * VOCABULARY
        self.moments = ridge * torch.eye(self.size, dtype=torch.float64)
        self.products = torch.zeros(self.size, dtype=torch.float64)

    def learn(self, chosen: Tensor, rewards: Tensor) -> None:
        """See replies ``chosen (B, T, V)``, one-hot, and what was paid for them ``(B,)``."""
        x = chosen.flatten(1)
        self.moments += x.T @ x
        self.products += x.T @ rewards

    def values(self, chosen: Tensor, rewards: Tensor) -> Tensor:
        """Value before each token ``(B, T)``: what the tokens so far are worth, plus the mean of what came after them in this rollout."""
        worth = torch.linalg.solve(self.moments, self.products).view(-1, VOCABULARY)  # (T, V)
        so_far = (chosen * worth).sum(-1).cumsum(-1)  # (B, T)
        before = torch.cat([torch.zeros(len(chosen), 1, dtype=torch.float64), so_far[:, :-1]], 1)
        return before + (rewards[:, None] - before).mean(0)


def train(tokens: int, lam: float | None, *, seed: int, rollouts: int = 30, rate: float = 0.1) -> list[float]:
    """Expected reward per token after each rollout of 64 replies; ``lam`` None: no critic, the mean of the others is the baseline."""
    rng = generator("many decisions", seed, tokens)
    right = torch.randint(VOCABULARY, (tokens,), generator=rng)
    quality = torch.nn.functional.one_hot(right, VOCABULARY).double()
    logits = torch.randn(tokens, VOCABULARY, dtype=torch.float64, generator=rng).mul(0.5).requires_grad_()
    optimiser, critic = torch.optim.Adam([logits], lr=rate), LinearCritic(tokens)
    everything, earned = torch.ones(REPLIES, tokens, dtype=torch.bool), []
    for _ in range(rollouts):
        logps = logits.log_softmax(-1)
        picked = torch.multinomial(logps.detach().exp(), REPLIES, replacement=True, generator=rng).T  # (B, T)
        chosen = torch.nn.functional.one_hot(picked, VOCABULARY).double()
        rewards = (chosen * quality).sum((1, 2))
        if lam is None:
            credit = advantages.leave_one_out(rewards[None])[0][:, None].expand(-1, tokens)
        else:
            paid = torch.zeros(REPLIES, tokens, dtype=torch.float64)
            paid[:, -1] = rewards
            credit = returns.gae(paid, critic.values(chosen, rewards), everything, lam=lam)
            critic.learn(chosen, rewards)
        optimiser.zero_grad()
        (-(credit * (chosen * logps).sum(-1)).sum(1).mean()).backward()
        optimiser.step()
        earned.append(float((logits.detach().softmax(-1) * quality).sum(-1).mean()))
    return earned
