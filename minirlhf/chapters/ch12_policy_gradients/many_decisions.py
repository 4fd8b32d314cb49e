"""Layer 8: replies of many independent decisions with one reward at their end: what a critic can save, exactly, and a run in which it does.

A reply has ``T`` tokens, each chosen by logits of its own; token ``t`` is worth ``q_t(a)``, and what is paid, after the last one, is the sum.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.randomness import generator
from minirlhf.equations import advantages, returns

VOCABULARY, REPLIES = 4, 64


def decision_noise(logits: Tensor, quality: Tensor, carried: Tensor) -> Tensor:
    """Variance over squared length of the mean of ``Σ_t A_t ∇log π(y_t)`` for one reply, exactly.

    ``A_t = δ_t + Σ_{k≠t} c_tk δ_k``, where ``δ_k = q_k(y_k) − E[q_k]`` is what token k really added: with ``c = 1`` everywhere ``A_t`` is the
    whole reward minus its mean, with ``c_tk = λ^(k−t)`` for later tokens and 0 for earlier ones it is GAE with exact values.

    Args:
        logits, quality: ``(T, V)``.
        carried: ``(T, T)``, the weights ``c``; the diagonal is not used.
    """
    probs = logits.softmax(-1)
    added = quality - (probs * quality).sum(-1, keepdim=True)  # (T, V)
    scores = torch.eye(logits.shape[1], dtype=logits.dtype) - probs[:, None, :]  # (T, V, V): ∇log π of each choice
    sizes = scores.square().sum(-1)  # (T, V)
    means = (probs * added)[..., None].mul(scores).sum(1)  # (T, V): the gradient
    own = (probs * added.square() * sizes).sum(-1) - means.square().sum(-1)  # (T,)
    others = carried.square().fill_diagonal_(0.0) @ (probs * added.square()).sum(-1)  # (T,)
    return (own + others * (probs * sizes).sum(-1)).sum() / means.square().sum()


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
