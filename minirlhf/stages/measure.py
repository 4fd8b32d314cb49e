"""Measure models on a file of problems: a table of numbers with intervals, each pair of models, also as JSON."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from minirlhf.core.errors import UserError
from minirlhf.core.masking import lengths
from minirlhf.core.statistics import holm, sign_test
from minirlhf.data.records import Problem
from minirlhf.equations.estimators import pass_at_k
from minirlhf.equations.evaluation import paired_variance
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


@dataclass(frozen=True)
class Replies:
    """What a model replied to all problems.

    Attributes:
        completions: ``P`` lists of ``G`` texts.
        rewards: ``(P, G)``, NaN where the grader failed.
        lengths: ``(P, G)`` tokens, EOS included.
        ended: ``(P, G)``, whether a reply ended by itself.
        kl: ``(P, G)`` nats against the reference, or None if there was none.
    """

    completions: list[list[str]]
    rewards: Tensor
    lengths: Tensor
    ended: Tensor
    kl: Tensor | None

    @property
    def right_or_wrong(self) -> bool:
        """Whether every reward that there is is 0 or 1."""
        rewards = self.rewards[self.rewards.isfinite()]
        return bool(((rewards == 0) | (rewards == 1)).all())


def answers(
    model: Any,
    tokenizer: Any,
    problems: Sequence[Problem],
    reward: Reward,
    sampling: Sampling,
    *,
    num_generations: int = 1,
    ref_model: Any = None,
    seed: int = 0,
    batch_size: int = 64,
) -> Replies:
    """Sample ``num_generations`` replies to every problem, ``batch_size`` problems at once, and grade them."""
    if not problems:
        raise UserError("no problems to answer")
    if ref_model is not None:
        require_same_vocabulary(model, ref_model)
    parts = []
    for start in range(0, len(problems), batch_size):
        some = problems[start : start + batch_size]
        found = candidates(
            model, some, reward, tokenizer=tokenizer, sampling=sampling, num_generations=num_generations, seed=seed
        )
        rollout = found.rollout
        kl = None if ref_model is None else divergence(model, ref_model, rollout).view(-1, num_generations)
        shape = found.rewards.shape
        parts.append(
            Replies(
                found.completions, found.rewards, lengths(rollout.mask).view(shape), rollout.terminated.view(shape), kl
            )
        )
    return Replies(
        [texts for part in parts for texts in part.completions],
        torch.cat([part.rewards for part in parts]),
        torch.cat([part.lengths for part in parts]),
        torch.cat([part.ended for part in parts]),
        None if ref_model is None else torch.cat([part.kl for part in parts if part.kl is not None]),
    )


def measure(found: Replies, *, against: Replies | None = None) -> list[Number]:
    """The numbers of one model.

    Args:
        against: what another one replied to the same problems.

    Returns:
        ``accuracy`` where every reward is 0 or 1, else ``reward``; with more than one reply and rewards of 0 and 1
        ``pass@k`` for k = 1, 2, 4, ...; ``win rate`` and its partner's reward with ``against``; ``KL`` (nats per reply) where
        there was a reference; ``length`` (tokens), ``ended`` and, if there are any, ``not graded`` (shares of the replies).
    """
    rewards, num_generations = found.rewards, found.rewards.shape[1]
    graded = rewards.isfinite()
    over_prompts = lambda values: Measured.of(values.double().mean(1))
    share = lambda name, said: Number.of_shares(name, over_prompts(said), len(said), said.numel())
    numbers = []
    if found.right_or_wrong and num_generations == 1:
        numbers.append(Number.share("accuracy", float(rewards[graded].sum()), int(graded.sum())))
    elif found.right_or_wrong:
        shares = Measured.of(rewards.nanmean(1)[graded.any(1)])
        numbers.append(Number.of_shares("accuracy", shares, int(graded.any(1).sum()), int(graded.sum())))
    else:
        numbers.append(Number.of("reward", Measured.of(rewards.nanmean(1)[graded.any(1)])))
    if found.right_or_wrong and num_generations > 1:
        whole = graded.all(1)  # pass@k is about all of the replies
        for k in (2**i for i in range(num_generations.bit_length()) if whole.any()):
            passed = pass_at_k(num_generations, rewards[whole].sum(1).long(), k=k)
            count = int(whole.sum())
            numbers.append(Number.of_shares(f"pass@{k}", Measured.of(passed), count, count * (num_generations // k)))
    if against is not None:
        other = against.rewards
        numbers.append(Number.of("reward of the other", Measured.of(other.nanmean(1)[other.isfinite().any(1)])))
        both = int((graded.any(1) & other.isfinite().any(1)).sum())
        won = win_rate(rewards.nanmean(1), other.nanmean(1))
        numbers.append(Number.of_shares("win rate", won, both, both * num_generations))
    if found.kl is not None:
        numbers.append(Number.of("KL to the reference (nats)", over_prompts(found.kl)))
    numbers.append(Number.of("length (tokens)", over_prompts(found.lengths)))
    numbers.append(share("ended", found.ended))
    if not graded.all():
        numbers.append(share("not graded", ~graded))
    return numbers


@dataclass(frozen=True)
class ModelPair:
    """Two models on the same problems.

    Attributes:
        difference: of the mean rewards, with its interval over problems, in pairs.
        better, worse: on how many problems the first, the second model has the higher mean reward.
        chance: p-value of the sign test on these, corrected for all pairs that were looked at (Holm).
    """

    first: str
    second: str
    difference: Number
    better: int
    worse: int
    chance: float

    def __str__(self) -> str:
        return f"{self.difference}   better on {self.better}, worse on {self.worse}, p = {self.chance:.3f}"


def compare(found: Mapping[str, Replies]) -> list[ModelPair]:
    """Every two of these models, on the problems of which both have a graded reply.

    Where no two rewards differ the interval is that of as many problems none of which differs: ± the upper end of Wilson's.

    Raises:
        UserError: two models without two such problems.
    """
    pairs = []
    for first, second in itertools.combinations(found, 2):
        ours, theirs = (found[name].rewards.double().nanmean(1) for name in (first, second))
        both = ours.isfinite() & theirs.isfinite()
        if int(both.sum()) < 2:
            raise UserError(
                f"{first}, {second}: less than two problems were graded for both; expected more to compare them"
            )
        ours, theirs = ours[both], theirs[both]
        mean, spread = float((ours - theirs).mean()), 1.96 * float(paired_variance(ours, theirs).sqrt())
        if bool((ours == theirs).all()):
            spread = wilson_interval(0, len(ours))[1]
        number = Number(f"{first} − {second}", mean, mean - spread, mean + spread)
        better, worse = int((ours > theirs).sum()), int((ours < theirs).sum())
        pairs.append(ModelPair(first, second, number, better, worse, sign_test(better, worse)))
    corrected = holm([pair.chance for pair in pairs])
    return [dataclasses.replace(pair, chance=chance) for pair, chance in zip(pairs, corrected, strict=True)]


@dataclass(frozen=True)
class Evaluated:
    """A task that models have answered.

    Attributes:
        name, grader: which task, and what graded the replies.
        problems: what was asked.
        answers, numbers: of each model, by its name.
        pairs: every two models.
        on: for each model what exactly was measured: digests of data and model, settings, versions.
    """

    name: str
    grader: str
    problems: list[Problem]
    answers: dict[str, Replies]
    numbers: dict[str, list[Number]]
    pairs: list[ModelPair]
    on: dict[str, dict[str, Any]]

    @property
    def replies(self) -> int:
        """How many there are to each problem."""
        return next(iter(self.answers.values())).rewards.shape[1]

    def as_json(self) -> dict[str, Any]:
        """The numbers, and every grade, from which ``minirlhf power`` plans the next comparison."""
        models = {
            name: {
                "numbers": as_json(numbers),
                "grades": _known(self.answers[name].rewards),
                "measured on": self.on[name],
            }
            for name, numbers in self.numbers.items()
        }
        pairs = [
            {**as_json([pair.difference]), "better": pair.better, "worse": pair.worse, "p": pair.chance}
            for pair in self.pairs
        ]
        return {"models": models, "pairs": pairs}


def _known(rewards: Tensor) -> list[list[float | None]]:
    return [[value if math.isfinite(value) else None for value in row] for row in rewards.tolist()]


def as_json(numbers: Sequence[Number]) -> dict[str, Any]:
    """``{name: {"value": ..., "low": ..., "high": ...}}``; what cannot be known is null."""
    known = lambda value: value if math.isfinite(value) else None
    return {n.name: {"value": known(n.value), "low": known(n.low), "high": known(n.high)} for n in numbers}
