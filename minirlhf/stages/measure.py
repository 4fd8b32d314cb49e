"""Measure a saved model on a file of problems: one table of numbers with intervals, also as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from minirlhf.core.errors import UserError
from minirlhf.core.masking import lengths
from minirlhf.data.records import Problem
from minirlhf.equations.estimators import pass_at_k
from minirlhf.feedback.rewards import Reward
from minirlhf.models.reference import require_same_vocabulary
from minirlhf.models.sampling import Sampling
from minirlhf.trainers.evaluation import Measured, candidates, divergence, wilson_interval, win_rate


@dataclass(frozen=True)
class Number:
    """One measured number.

    Attributes:
        name: what it is.
        value: an estimate.
        low, high: its 95 % interval; replies to one prompt are not independent, so prompts are counted.
    """

    name: str
    value: float
    low: float
    high: float

    @classmethod
    def of(cls, name: str, found: Measured) -> Number:
        """With the interval of a mean, ± 1.96 standard errors."""
        return cls(name, found.mean, found.mean - 1.96 * found.stderr, found.mean + 1.96 * found.stderr)

    @classmethod
    def share(cls, name: str, successes: float, trials: int) -> Number:
        """With Wilson's interval of a share."""
        return cls(name, successes / trials, *wilson_interval(successes, trials))

    @classmethod
    def of_shares(cls, name: str, found: Measured, prompts: int, draws: int) -> Number:
        """Of a mean of shares, one of each prompt, from so many draws of 0 or 1.

        With Wilson's interval of as many independent draws as would have this standard error (Dean and Pagano, 2015, Evaluating
        confidence interval methods for binomial proportions in clustered surveys): it stays in [0, 1], and where all shares are 0
        or all are 1, so that there is no error to be seen, it is that of one draw from each prompt.
        """
        if not prompts:
            return cls(name, math.nan, math.nan, math.nan)
        alike = not found.stderr > 0
        alone = prompts if alike else min(draws, found.mean * (1 - found.mean) / found.stderr**2)
        return cls(name, found.mean, *wilson_interval(found.mean * max(alone, 1), max(alone, 1)))

    def __str__(self) -> str:
        return f"{self.name:<26} {self.value:8.3f}   [{self.low:.3f}, {self.high:.3f}]"


def measure(
    model: Any,
    tokenizer: Any,
    problems: Sequence[Problem],
    reward: Reward,
    sampling: Sampling,
    *,
    num_generations: int = 1,
    against: Any = None,
    ref_model: Any = None,
    seed: int = 0,
    batch_size: int = 64,
) -> list[Number]:
    """Sample ``num_generations`` replies to every problem and measure them.

    Args:
        against: another policy, which answers the same prompts with the same random numbers.
        ref_model: what the KL of a reply is measured to.
        batch_size: prompts that are sampled at once.

    Returns:
        ``accuracy`` where every reward is 0 or 1, else ``reward``; with more than one reply and rewards of 0 and 1
        ``pass@k`` for k = 1, 2, 4, ...; ``win rate`` and its partner's reward with ``against``; ``KL`` (nats per reply) with
        ``ref_model``; ``length`` (tokens), ``ended`` and, if there are any, ``not graded`` (shares of the replies).
    """
    for other in (against, ref_model):
        if other is not None:
            require_same_vocabulary(model, other)

    def drawn(policy: Any, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Rewards ``(P, G)``, lengths ``(P, G)``, whether replies ended ``(P, G)``, KL ``(P, G)`` of all problems."""
        parts: list[tuple[Tensor, Tensor, Tensor, Tensor | None]] = []
        for start in range(0, len(problems), batch_size):
            some = problems[start : start + batch_size]
            found = candidates(
                policy, some, reward, tokenizer=tokenizer, sampling=sampling, num_generations=count, seed=seed
            )
            rollout = found.rollout
            kl = None if ref_model is None else divergence(policy, ref_model, rollout).view(-1, count)
            parts.append((found.rewards, lengths(rollout.mask).view(-1, count), rollout.terminated.view(-1, count), kl))
        first, *rest = zip(*parts, strict=True)
        joined = [torch.cat(first), *(torch.cat(column) for column in rest[:2])]
        return joined[0], joined[1], joined[2], None if ref_model is None else torch.cat(rest[2])

    if not problems:
        raise UserError("no problems to answer")
    rewards, tokens, ended, kl = drawn(model, num_generations)
    graded = rewards.isfinite()
    over_prompts = lambda values: Measured.of(values.double().mean(1))
    share = lambda name, said: Number.of_shares(name, over_prompts(said), len(said), said.numel())
    numbers = []
    right_or_wrong = bool(((rewards == 0) | (rewards == 1))[graded].all())
    if right_or_wrong and num_generations == 1:
        numbers.append(Number.share("accuracy", float(rewards[graded].sum()), int(graded.sum())))
    elif right_or_wrong:
        shares = Measured.of(rewards.nanmean(1)[graded.any(1)])
        numbers.append(Number.of_shares("accuracy", shares, int(graded.any(1).sum()), int(graded.sum())))
    else:
        numbers.append(Number.of("reward", Measured.of(rewards.nanmean(1)[graded.any(1)])))
    if right_or_wrong and num_generations > 1:
        whole = graded.all(1)  # pass@k is about all of the replies
        for k in (2**i for i in range(num_generations.bit_length()) if whole.any()):
            found = pass_at_k(num_generations, rewards[whole].sum(1).long(), k=k)
            count = int(whole.sum())
            numbers.append(Number.of_shares(f"pass@{k}", Measured.of(found), count, count * (num_generations // k)))
    if against is not None:
        other = drawn(against, num_generations)[0]
        numbers.append(Number.of("reward of the other", Measured.of(other.nanmean(1)[other.isfinite().any(1)])))
        both = int((graded.any(1) & other.isfinite().any(1)).sum())
        won = win_rate(rewards.nanmean(1), other.nanmean(1))
        numbers.append(Number.of_shares("win rate", won, both, both * num_generations))
    if kl is not None:
        numbers.append(Number.of("KL to the reference (nats)", over_prompts(kl)))
    numbers.append(Number.of("length (tokens)", over_prompts(tokens)))
    numbers.append(share("ended", ended))
    if not graded.all():
        numbers.append(share("not graded", ~graded))
    return numbers


def as_json(numbers: Sequence[Number]) -> dict[str, Any]:
    """``{name: {"value": ..., "low": ..., "high": ...}}``; what cannot be known is null."""
    known = lambda value: value if math.isfinite(value) else None
    return {n.name: {"value": known(n.value), "low": known(n.low), "high": known(n.high)} for n in numbers}
