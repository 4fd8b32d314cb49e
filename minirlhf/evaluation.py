"""Layer 7: measure a policy on held-out prompts: reward, win rate, KL to a reference, length; each with its standard error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from minirlhf.core.masking import lengths, masked_sum
from minirlhf.data.chat import encode_prompt
from minirlhf.data.formats import Problem
from minirlhf.equations.kl import reverse_kl
from minirlhf.feedback.rewards import Reward
from minirlhf.models.forward import completion_logits
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.texts import completion_texts
from minirlhf.trainers.online import grade


@dataclass(frozen=True)
class Measured:
    """A mean and its standard error."""

    mean: float
    stderr: float

    @classmethod
    def of(cls, values: Tensor) -> Measured:
        """Of independent values ``(N,)``; the error is NaN for fewer than two."""
        values = values.double()
        stderr = float(values.std(correction=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
        return cls(float(values.mean()), stderr)

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.stderr:.2f}"


@dataclass(frozen=True)
class Evaluation:
    """How a policy does on some prompts.

    Attributes:
        problems, completions: one of each per sample.
        rewards: ``(N,)``.
        lengths: ``(N,)`` tokens, EOS included.
        terminated: ``(N,)``, whether the completion ended by itself.
        kl: ``(N,)`` nats per completion against the reference, or None if there was none.
    """

    problems: list[Problem]
    completions: list[str]
    rewards: Tensor
    lengths: Tensor
    terminated: Tensor
    kl: Tensor | None

    @property
    def reward(self) -> Measured:
        """Mean reward."""
        return Measured.of(self.rewards)

    @property
    def length(self) -> Measured:
        """Mean length in tokens."""
        return Measured.of(self.lengths)

    @property
    def divergence(self) -> Measured:
        """KL(policy ‖ reference) in nats per completion; NaN without a reference."""
        return Measured(math.nan, math.nan) if self.kl is None else Measured.of(self.kl)


@torch.no_grad()
def evaluate(
    policy: nn.Module,
    problems: Sequence[Problem],
    reward: Reward,
    *,
    tokenizer: Any,
    sampling: Sampling,
    ref_model: nn.Module | None = None,
    seed: int = 0,
) -> Evaluation:
    """Sample one completion per problem and measure it. Two policies with one seed see the same random numbers.

    The KL is the sum over the sampled prefix of the exact divergence between the two next-token distributions (at
    temperature 1): the same expectation as the log-ratio's, with less noise.
    """
    policy.eval()
    rollout = sample(
        policy,
        [encode_prompt(tokenizer, p.prompt) for p in problems],
        sampling=sampling,
        num_generations=1,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        seed=seed,
    )
    texts = completion_texts(rollout, tokenizer)
    rewards, _ = grade(reward, problems, texts, 1)
    kl = None
    if ref_model is not None:
        width = rollout.mask.shape[1]
        ours, theirs = (
            completion_logits(m, rollout.input_ids, rollout.attention_mask, width) for m in (policy, ref_model)
        )
        kl = masked_sum(reverse_kl(ours[:, :-1], theirs[:, :-1]), rollout.mask, -1)
    return Evaluation(list(problems), texts, rewards.flatten(), lengths(rollout.mask), rollout.terminated, kl)


def win_rate(ours: Tensor, theirs: Tensor) -> Measured:
    """Share of prompts on which ``ours`` earns more than ``theirs``; a tie counts one half. Both ``(N,)``."""
    if ours.shape != theirs.shape:
        raise ValueError(f"ours has shape {tuple(ours.shape)} and theirs {tuple(theirs.shape)}; expected the same")
    return Measured.of((ours > theirs).double() + 0.5 * (ours == theirs).double())


def wilson_interval(successes: float, trials: int, z: float = 1.96) -> tuple[float, float]:
    """Interval for a proportion that stays inside [0, 1]; 95 % by default.

    Source: Wilson (1927), Probable inference, the law of succession, and statistical inference.
    """
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"{successes=} of {trials=}; expected 0 ≤ successes ≤ trials and trials ≥ 1")
    p, spread = successes / trials, z * z / trials
    centre = (p + spread / 2) / (1 + spread)
    half = z * math.sqrt(p * (1 - p) / trials + spread / (4 * trials)) / (1 + spread)
    return max(0.0, centre - half), min(1.0, centre + half)
