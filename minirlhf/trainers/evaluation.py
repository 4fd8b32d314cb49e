"""Measure a policy on held-out prompts: reward, win rate, KL to a reference, length; each with its standard error.

A sample that could not be graded has the reward NaN. Mean rewards and win rates leave it out; the fraction of these
samples is reported.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from minirlhf.core.calling import evaluating
from minirlhf.core.errors import ArgumentError, UserError
from minirlhf.core.masking import lengths, masked_sum
from minirlhf.data.chat import encode_prompt, end_tokens
from minirlhf.data.formats import Problem
from minirlhf.data.types import Rollout
from minirlhf.equations import evaluation
from minirlhf.equations.kl import reverse_kl
from minirlhf.feedback.rewards import Reward, score_completions, with_generation_prompts
from minirlhf.models.forward import completion_logits
from minirlhf.models.sampling import Sampling, default_prompt_keys, sample
from minirlhf.models.texts import completion_texts

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Estimate:
    """A mean and its standard error."""

    mean: float
    stderr: float

    @classmethod
    def of(cls, values: Tensor) -> Estimate:
        """Estimate from independent values ``(N,)``. The mean is NaN without values, the error with fewer than two."""
        values = values.double()
        stderr = float(values.std(correction=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
        return cls(float(values.mean()), stderr)

    def __str__(self) -> str:
        return f"{self.mean:z.2f} ± {self.stderr:.2f}"


@dataclass(frozen=True)
class Evaluation:
    """The result of a policy on a set of prompts.

    Attributes:
        problems, completions: one problem and one completion per sample.
        rewards: ``(N,)``, NaN where the grader failed.
        lengths: ``(N,)`` tokens, EOS included.
        terminated: ``(N,)``, whether the completion ended with an EOS token.
        kl: ``(N,)`` nats per completion against the reference, or None without a reference.
    """

    problems: list[Problem]
    completions: list[str]
    rewards: Tensor
    lengths: Tensor
    terminated: Tensor
    kl: Tensor | None

    @property
    def reward(self) -> Estimate:
        """Mean reward of the completions that could be graded."""
        return Estimate.of(self.rewards[self.rewards.isfinite()])

    @property
    def frac_invalid(self) -> float:
        """Fraction of the completions that could not be graded."""
        return _frac_invalid(self.rewards)

    @property
    def length(self) -> Estimate:
        """Mean length in tokens."""
        return Estimate.of(self.lengths)

    @property
    def divergence(self) -> Estimate:
        """KL(policy ‖ reference) in nats per completion; NaN without a reference."""
        return Estimate(math.nan, math.nan) if self.kl is None else Estimate.of(self.kl)


@dataclass(frozen=True)
class Candidates:
    """Several completions of each prompt, with their rewards: the reward matrix of best-of-N.

    Attributes:
        rollout: ``P·G`` rows, prompt-major.
        completions: ``P`` lists of ``G`` texts.
        rewards: ``(P, G)``, NaN where the grader failed. Statistics of a prompt use its graded completions; a prompt
            without a graded completion is left out.
    """

    rollout: Rollout
    completions: list[list[str]]
    rewards: Tensor

    @property
    def best(self) -> Estimate:
        """Reward of the best of the ``G`` completions, mean over the prompts."""
        return self._over_prompts(self._highest())

    @property
    def average(self) -> Estimate:
        """Mean reward; its standard error is over prompts, because completions of one prompt are not independent."""
        return self._over_prompts(self.rewards.nanmean(-1))

    @property
    def gap(self) -> Estimate:
        """Reward difference between the best and the worst of the ``G``, which could form a preference pair."""
        lowest = self.rewards.nan_to_num(nan=math.inf).amin(-1)
        return self._over_prompts(self._highest() - lowest)

    @property
    def frac_invalid(self) -> float:
        """Fraction of the ``P·G`` completions that could not be graded."""
        return _frac_invalid(self.rewards)

    @property
    def distinct(self) -> Estimate:
        """Number of different texts among the ``G``, divided by ``G``."""
        return Estimate.of(torch.tensor([len(set(texts)) / len(texts) for texts in self.completions]))

    def _highest(self) -> Tensor:
        """Return the highest reward of each prompt, ``(P,)``."""
        return self.rewards.nan_to_num(nan=-math.inf).amax(-1)

    def _over_prompts(self, values: Tensor) -> Estimate:
        """Estimate from ``(P,)`` values, without the prompts that have no graded completion."""
        return Estimate.of(values[self.rewards.isfinite().any(-1)])


def names_of(problems: Sequence[Problem], tokenizer: Any) -> list[str]:
    """Return a key of each problem for ``prompt_keys`` of :func:`candidates`.

    With these keys, completions do not depend on the batch size, and identical problems get different completions.
    """
    return default_prompt_keys([encode_prompt(tokenizer, p.prompt) for p in problems])


@torch.no_grad()
def candidates(
    policy: nn.Module,
    problems: Sequence[Problem],
    reward: Reward,
    *,
    tokenizer: Any,
    sampling: Sampling,
    num_generations: int,
    seed: int = 0,
    prompt_keys: Sequence[str] | None = None,
    batch_size: int | None = None,
) -> Candidates:
    """Sample ``num_generations`` completions of every problem and grade them. Two policies with the same seed use the
    same random numbers.

    Args:
        prompt_keys: as for :func:`~minirlhf.models.sampling.sample`; if the problems are one batch of several, use
            :func:`names_of`.
        batch_size: problems sampled at once; None: all. The completions do not depend on it.

    Raises:
        UserError: not one completion could be graded; it says what happened first.
    """
    prompts = [encode_prompt(tokenizer, p.prompt) for p in problems]
    keys = default_prompt_keys(prompts) if prompt_keys is None else prompt_keys
    size = batch_size or len(prompts) or 1
    parts = [
        sample(
            policy,
            prompts[first : first + size],
            sampling=sampling,
            num_generations=num_generations,
            eos_token_id=end_tokens(tokenizer, policy).ids,
            pad_token_id=tokenizer.pad_token_id,
            seed=seed,
            prompt_keys=keys[first : first + size],
        )
        for first in range(0, len(prompts) or 1, size)
    ]
    rollout = parts[0] if len(parts) == 1 else Rollout.concatenate(parts, tokenizer.pad_token_id)
    texts = completion_texts(rollout, tokenizer)
    asked = with_generation_prompts(tokenizer, problems)
    repeated_problems = [problem for problem in asked for _ in range(num_generations)]
    rewards = _graded(reward, repeated_problems, texts).view(-1, num_generations)
    rows = [texts[i : i + num_generations] for i in range(0, len(texts), num_generations)]
    return Candidates(rollout, rows, rewards)


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
    batch_size: int | None = None,
) -> Evaluation:
    """Sample one completion per problem and measure it. Two policies with the same seed use the same random numbers.

    The KL is the sum over the sampled prefix of the exact divergence between the two next-token distributions (at
    temperature 1): it has the same expectation as the log-ratio, with less variance.

    Args:
        batch_size: as for :func:`candidates`.

    Raises:
        UserError: not one completion could be graded; it says what happened first.
    """
    options: dict[str, Any] = {"tokenizer": tokenizer, "sampling": sampling, "num_generations": 1, "seed": seed}
    sampled = candidates(policy, problems, reward, **options, batch_size=batch_size)
    rollout, texts = sampled.rollout, [text for (text,) in sampled.completions]
    kl = None
    if ref_model is not None:
        kl = divergence(policy, ref_model, rollout)
    return Evaluation(list(problems), texts, sampled.rewards.flatten(), lengths(rollout.mask), rollout.terminated, kl)


@torch.no_grad()
def divergence(policy: nn.Module, ref_model: nn.Module, rollout: Rollout) -> Tensor:
    """Return ``(B,)`` nats: the exact KL(policy ‖ reference) per token (temperature 1), summed over each completion."""
    inputs = rollout.input_ids, rollout.attention_mask, rollout.mask.shape[1]
    with evaluating(policy), evaluating(ref_model):
        policy_logits, ref_logits = (completion_logits(model, *inputs) for model in (policy, ref_model))
    return masked_sum(reverse_kl(policy_logits[:, :-1], ref_logits[:, :-1]), rollout.mask, -1)


def pairwise_wins(candidate: Tensor, baseline: Tensor) -> Tensor:
    """Return ``(N,)``: 1 where ``candidate`` is higher than ``baseline``, ½ for a tie, NaN where either is ungraded."""
    if candidate.shape != baseline.shape:
        raise ArgumentError(
            f"candidate has shape {tuple(candidate.shape)} and baseline {tuple(baseline.shape)}; expected the same",
            argument="candidate",
            value=tuple(candidate.shape),
            expected=tuple(baseline.shape),
            problem="shape",
        )
    scores = (candidate > baseline).double() + 0.5 * (candidate == baseline).double()
    return scores.masked_fill(candidate.isnan() | baseline.isnan(), math.nan)


def win_rate(candidate: Tensor, baseline: Tensor) -> Estimate:
    """Return the fraction of prompts on which ``candidate`` is higher than ``baseline``, both ``(N,)``; a tie counts ½.

    A prompt with a NaN (ungraded) reward is left out; if no prompt remains, the result is NaN.
    """
    scores = pairwise_wins(candidate, baseline)
    return Estimate.of(scores[~scores.isnan()])


def _graded(reward: Reward, problems: Sequence[Problem], completions: Sequence[str]) -> Tensor:
    """Return the rewards ``(N,)``, NaN where the grader failed."""
    values, failure = score_completions(reward, problems, completions)
    rewards = torch.tensor(values)
    failed = ~rewards.isfinite()
    if failure is not None:
        if bool(failed.all()):
            raise UserError(
                f"none of {len(rewards)} completions could be graded; first: {failure}",
                argument="rewards",
                value=failure,
                problem="not graded",
            )
        log.warning("%d of %d completions could not be graded; first: %s", int(failed.sum()), len(rewards), failure)
    return rewards.masked_fill(failed, math.nan)


def _frac_invalid(rewards: Tensor) -> float:
    return float((~rewards.isfinite()).double().mean())


def wilson_interval(successes: float, trials: float) -> tuple[float, float]:
    """Return the 95 % interval of :func:`minirlhf.equations.evaluation.wilson_interval` as two floats."""
    if not 0 <= successes <= trials or trials < 1:
        raise ArgumentError(
            f"{successes=} of {trials=}; expected 0 ≤ successes ≤ trials and trials ≥ 1",
            argument="successes",
            value=successes,
            expected=trials,
        )
    bounds = evaluation.wilson_interval(*(torch.tensor(x, dtype=torch.float64) for x in (successes, trials)))
    low, high = (float(bound) for bound in bounds)
    return low, high
