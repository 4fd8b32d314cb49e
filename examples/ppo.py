"""Proximal policy optimisation (PPO): a critic says what to expect, and what turns out better becomes likelier.

A step samples completions and has them graded. The reward stands on a completion's last token; every token is charged
β (log π − log π_ref), which keeps the policy near where it started. A critic, a second model with one number per
token, predicts what is still to come; generalised advantage estimation (GAE) compares with it. Policy and critic then
take a few passes over the samples in minibatches: the policy on min(ρA, clip(ρ, 1−ε, 1+ε)A) with ρ = π/π_old, the
critic on its squared error.

    python examples/ppo.py                             # a tiny model, made and fine-tuned here, on a CPU
    python examples/ppo.py --model FOLDER_OR_HUB_NAME  # a model of yours

Sources: Schulman et al. (2017), "Proximal Policy Optimization Algorithms", arXiv:1707.06347; for language models
Ouyang et al. (2022), "Training language models to follow instructions with human feedback", arXiv:2203.02155.
Deviations: the gold reward of the tiny world grades, for their reward model; the critic starts as a copy of the
policy with a head of zeros, theirs as the reward model; two passes over the samples, Ouyang et al. make one; a
clipped value loss and whitened advantages, as in most implementations but in neither paper; no entropy bonus, no
pretraining gradients, no moving average of the weights; the critic learns three times as fast as the policy; AdamW
without weight decay, gradient clipped to 1.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from grpo import grade, logps_of, sample
from sft import WORLD, arguments, load, show
from torch import Tensor, nn
from tqdm import tqdm

from minirlhf import ppo_loss
from minirlhf.core.masking import masked_mean
from minirlhf.data.chat import conversation, encode_prompt
from minirlhf.equations.advantages import whiten
from minirlhf.equations.diagnostics import explained_variance
from minirlhf.equations.kl import k1
from minirlhf.equations.returns import gae, lambda_returns
from minirlhf.equations.shaping import kl_shaped_token_rewards


class Critic(nn.Module):
    """The policy's transformer, copied, with one number per token in place of the logits; 0 everywhere at first."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.backbone = copy.deepcopy(model.base_model)
        self.head = nn.Linear(model.config.get_text_config().hidden_size, 1).to(model.device, model.dtype)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """What is expected before each token but the first: ``(B, S) -> (B, S-1)``, as the log-probabilities stand."""
        hidden = self.backbone(input_ids, attention_mask=attention_mask).last_hidden_state  # (B, S, D)
        return self.head(hidden).squeeze(-1)[:, :-1]  # (B, S-1): what stands at t has not seen the token at t + 1


def credit(
    rewards: Tensor, old_logps: Tensor, ref_logps: Tensor, old_values: Tensor, mask: Tensor, *, beta: float, lam: float
) -> tuple[Tensor, Tensor]:
    """Advantages and the critic's targets, both ``(B, S-1)``, from rewards ``(B,)``; the others are ``(B, S-1)``."""
    token_rewards = kl_shaped_token_rewards(rewards, old_logps, ref_logps, mask, beta=beta, estimator=k1)  # (B, S-1)
    advantages = gae(token_rewards, old_values, mask, gamma=1.0, lam=lam)  # (B, S-1)
    return whiten(advantages, mask), lambda_returns(advantages, old_values, mask)


def ppo(
    model: Any,
    tokenizer: Any,
    *,
    steps: int,
    learning_rate: float,
    critic_learning_rate_ratio: float = 3.0,
    batch_size: int = 64,
    num_iterations: int = 2,
    num_minibatches: int = 2,
    epsilon: float = 0.2,
    cliprange_value: float = 0.2,
    vf_coef: float = 0.5,
    beta: float = 0.05,
    lam: float = 0.95,
) -> None:
    """Train ``model`` in place."""
    ref_model, critic = copy.deepcopy(model).requires_grad_(False), Critic(model)
    rates = [(model, learning_rate), (critic, learning_rate * critic_learning_rate_ratio)]
    optimizer = torch.optim.AdamW([{"params": m.parameters(), "lr": lr} for m, lr in rates], weight_decay=0.0)
    questions = WORLD.prompts("train")
    for _ in (bar := tqdm(range(steps), desc="ppo")):
        asked = [questions[i] for i in torch.randint(len(questions), (batch_size,))]
        prompts = [encode_prompt(tokenizer, conversation(question)) for question in asked]
        input_ids, attention_mask, mask = sample(model, prompts, WORLD.max_completion_length, tokenizer)
        rewards = grade(input_ids, mask, asked, tokenizer)  # (B,)
        with torch.no_grad():
            old_logps = logps_of(model, input_ids, attention_mask)  # (B, S-1)
            ref_logps = logps_of(ref_model, input_ids, attention_mask)  # (B, S-1)
            old_values = critic(input_ids, attention_mask)  # (B, S-1)
        advantages, targets = credit(rewards, old_logps, ref_logps, old_values, mask, beta=beta, lam=lam)
        for _ in range(num_iterations):
            for rows in torch.randperm(batch_size).chunk(num_minibatches):  # (b,)
                seen = input_ids[rows], attention_mask[rows]
                loss = ppo_loss(
                    logps_of(model, *seen), old_logps[rows], advantages[rows],
                    critic(*seen), old_values[rows], targets[rows], mask[rows],
                    epsilon=epsilon, cliprange_value=cliprange_value, vf_coef=vf_coef,
                )  # fmt: skip
                optimizer.zero_grad()
                loss.backward()
                for part, _ in rates:
                    nn.utils.clip_grad_norm_(part.parameters(), 1.0)
                optimizer.step()
        known = explained_variance(old_values, targets, mask)  # 1: a perfect critic, 0: no better than a constant
        kl = masked_mean(k1(old_logps, ref_logps), mask)
        bar.set_postfix(reward=f"{rewards.mean():+.2f}", kl_per_token=f"{kl:.3f}", critic=f"{known:.2f}", refresh=False)


def main(argv: Sequence[str] | None = None) -> tuple[float, float]:
    """Train and print; returns the mean gold reward before and after."""
    args = arguments(argv, __doc__, steps=60, learning_rate=5e-4)
    model, tokenizer = load(args)
    before = show("before", model, tokenizer)
    ppo(model, tokenizer, steps=args.steps, learning_rate=args.learning_rate)
    after = show("after", model, tokenizer)
    if args.out:
        model.save_pretrained(args.out)
        tokenizer.save_pretrained(args.out)
    return before, after


if __name__ == "__main__":
    main()
