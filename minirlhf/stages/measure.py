"""Measure models on a file of problems: a table of numbers with intervals, each pair of models, also as JSON."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from minirlhf.core.errors import UserError
from minirlhf.core.masking import lengths
from minirlhf.core.statistics import holm, sign_test
from minirlhf.data.records import Problem
from minirlhf.equations.estimators import maj_at_k, pass_at_k, pass_hat_k
from minirlhf.equations.evaluation import clustered_variance, win_rate_interval
from minirlhf.evidence import t_distribution
from minirlhf.feedback.rewards import Reward
from minirlhf.models.reference import require_same_vocabulary
from minirlhf.models.sampling import Sampling
from minirlhf.stages.choices import MultipleChoiceResult
from minirlhf.trainers.evaluation import Estimate, candidates, divergence, names_of, pairwise_wins, wilson_interval

#: Degrees of freedom from which on Student's t is the normal distribution, to three digits of a quantile.
_MANY = 10_000


@dataclass(frozen=True)
class Measurement:
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
    def of(cls, name: str, found: Estimate, alone: float = math.inf) -> Measurement:
        """With the interval of a mean of so many values that do not depend on one another: standard errors, by Student's t.

        Where all values are alike, or there is only one, nothing is known of their spread, and of numbers without bounds nothing can
        be said: the ends are NaN.
        """
        errors = t_distribution.quantile(0.05, int(min(alone - 1, _MANY))) if found.stderr > 0 else math.nan
        reach = errors * found.stderr
        return cls(name, found.mean, found.mean - reach, found.mean + reach)

    @classmethod
    def share(cls, name: str, successes: float, trials: int) -> Measurement:
        """With Wilson's interval of a share."""
        return cls(name, successes / trials, *wilson_interval(successes, trials))

    @classmethod
    def of_shares(cls, name: str, found: Estimate, prompts: int, draws: int) -> Measurement:
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

    @classmethod
    def of_votes(cls, name: str, votes: Tensor) -> Measurement:
        """Of independent votes ``(N,)`` for 1, for 0 or, in a tie, ½: with the interval of a win rate."""
        if not len(votes):
            return cls(name, math.nan, math.nan, math.nan)
        counts = ((votes == value).sum() for value in (1.0, 0.5, 0.0))
        return cls(name, float(votes.double().mean()), *map(float, win_rate_interval(*counts)))

    @property
    def known(self) -> bool:
        """Whether there is an interval."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def __str__(self) -> str:
        ends = f"[{self.low:.3f}, {self.high:.3f}]" if self.known else "[no interval: nothing varies]"
        return f"{self.name:<26} {self.value:8.3f}   {ends}"


@dataclass(frozen=True)
class Replies:
    """What a model replied to all problems.

    Attributes:
        completions: ``P`` lists of ``G`` texts.
        rewards: ``(P, G)``, NaN where the grader failed.
        lengths: ``(P, G)`` tokens, EOS included.
        ended: ``(P, G)``, whether a reply ended by itself.
        kl: ``(P, G)`` nats against the reference, or None if there was none.
        clusters: ``(P,)`` integers; problems with the same one belong together. None: each is by itself.
        said: ``P`` lists of ``G`` answers, as extracted from the texts; None where there was none, or where nothing extracts.
        ways: of multiple choice, by each way of choosing ``(P,)``, how far it is right; the first is what ``rewards`` holds.
    """

    completions: list[list[str]]
    rewards: Tensor
    lengths: Tensor
    ended: Tensor
    kl: Tensor | None
    clusters: Tensor | None = None
    said: list[list[Hashable]] | None = None
    ways: Mapping[str, Tensor] | None = None

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
    extract: Callable[[str], Hashable] | None = None,
) -> Replies:
    """Sample ``num_generations`` replies to every problem, ``batch_size`` problems at once, and grade them.

    The size of a batch changes nothing, up to rounding in the model; problems that are alike get replies of their own.

    Args:
        extract: the answer that a text gives, or None; by it replies are counted as votes.
    """
    if not problems:
        raise UserError("no problems to answer", argument="problems", problem="empty")
    if ref_model is not None:
        require_same_vocabulary(model, ref_model)
    parts, names = [], names_of(problems, tokenizer)
    for start in range(0, len(problems), batch_size):
        part = slice(start, start + batch_size)
        found = candidates(
            model, problems[part], reward, tokenizer=tokenizer, sampling=sampling, num_generations=num_generations,
            seed=seed, prompt_keys=names[part],
        )  # fmt: skip
        rollout = found.rollout
        kl = None if ref_model is None else divergence(model, ref_model, rollout).view(-1, num_generations)
        shape = found.rewards.shape
        parts.append(
            Replies(
                found.completions, found.rewards, lengths(rollout.mask).view(shape), rollout.terminated.view(shape), kl
            )
        )
    completions = [texts for part in parts for texts in part.completions]
    return Replies(
        completions,
        torch.cat([part.rewards for part in parts]),
        torch.cat([part.lengths for part in parts]),
        torch.cat([part.ended for part in parts]),
        None if ref_model is None else torch.cat([part.kl for part in parts if part.kl is not None]),
        clusters_of(problems),
        None if extract is None else [[extract(text) for text in texts] for texts in completions],
    )


def chosen(found: MultipleChoiceResult, problems: Sequence[Problem], *, by: str) -> Replies:
    """Choices as replies of one draw, graded by one way of choosing.

    Raises:
        UserError: by letters that are the same tokens to the model.
    """
    if by not in found.right:
        raise UserError(
            f"--choose-by {by}: the letters are the same token to this model; expected another way of choosing",
            argument="--choose-by",
            value=by,
            expected=list(found.right),
        )
    rewards = found.right[by][:, None]
    return Replies(
        [[picked[by]] for picked in found.picked],
        rewards,
        found.tokens[:, None],
        torch.ones_like(rewards, dtype=torch.bool),
        None,
        clusters_of(problems),
        ways={by: found.right[by], **found.right},
    )


def majorities(found: Replies, k: int) -> Tensor:
    """``(P,)``: of each problem the chance that k of its replies vote for a right answer (maj@k).

    Right replies are one answer, however they are written; replies from which nothing could be extracted are one answer, too, and a wrong one.
    """
    said = found.said or []
    shares = []
    for answers_, grades in zip(said, found.rewards.tolist(), strict=True):
        wrong = Counter(answer for answer, grade in zip(answers_, grades, strict=True) if grade != 1)
        votes = [sum(grade == 1 for grade in grades), *wrong.values()]
        shares.append(maj_at_k(torch.tensor(votes), correct=0, k=k))
    return torch.tensor(shares, dtype=torch.float64)


def clusters_of(problems: Sequence[Problem]) -> Tensor | None:
    """``(P,)``: the number of each problem's cluster; None if none has one."""
    names = [problem.cluster for problem in problems]
    if all(name is None for name in names):
        return None
    places: dict[str, int] = {}
    alone = itertools.count(-1, -1)
    return torch.tensor([next(alone) if name is None else places.setdefault(name, len(places)) for name in names])


def over_clusters(values: Tensor, clusters: Tensor | None) -> Estimate:
    """Mean of ``(P,)`` values and its standard error, in which those of one cluster may deviate together.

    As with independent values, where n − 1 divides the sum of squares and not n, the variance of C clusters is multiplied by
    C/(C − 1); one cluster alone says nothing of the error.
    """
    if clusters is None:
        return Estimate.of(values)
    many = len(clusters.unique())
    if many < 2:
        return Estimate(float(values.double().mean()), math.nan)
    return Estimate(
        float(values.double().mean()),
        math.sqrt(float(clustered_variance(values.double(), clusters)) * many / (many - 1)),
    )


def measure(found: Replies, *, against: Replies | None = None) -> list[Measurement]:
    """The numbers of one model.

    Args:
        against: what another one replied to the same problems.

    Returns:
        ``accuracy`` where every reward is 0 or 1, else ``reward``; with more than one reply and rewards of 0 and 1
        ``pass@k`` for k = 1, 2, 4, ..., ``pass^k`` from 2 on and, where answers were extracted, ``maj@k`` from 4 on (a vote of two, ties
        tossed, is one reply) and for all replies; of multiple choice the accuracy by each way of choosing; ``win rate`` and its partner's reward with ``against``; ``KL`` (nats per reply) where
        there was a reference; ``length`` (tokens), ``ended`` and, if there are any, ``not graded`` (shares of the replies).
    """
    rewards, num_generations = found.rewards, found.rewards.shape[1]
    graded = rewards.isfinite()
    some, whole = graded.any(1), graded.all(1)

    def over(values: Tensor, rows: Tensor | None = None) -> tuple[Estimate, int]:
        """The mean over these problems, and how many of them there are that may differ: the clusters."""
        kept = torch.ones(len(values), dtype=torch.bool) if rows is None else rows
        clusters = None if found.clusters is None else found.clusters[kept]
        return over_clusters(values[kept], clusters), int(kept.sum()) if clusters is None else len(clusters.unique())

    def share(name: str, values: Tensor, draws: int, rows: Tensor | None = None) -> Measurement:
        measured, alone = over(values, rows)
        return Measurement.of_shares(name, measured, alone, draws)

    if found.ways is not None:
        rows = []
        for way, right in found.ways.items():
            measured, alone = over(right)
            plain = found.clusters is None
            rows.append(
                Measurement.share(f"accuracy ({way})", float(right.sum()), alone)
                if plain
                else Measurement.of_shares(f"accuracy ({way})", measured, alone, len(right))
            )
        return rows
    numbers = []
    if found.right_or_wrong and num_generations == 1 and found.clusters is None:
        numbers.append(Measurement.share("accuracy", float(rewards[graded].sum()), int(graded.sum())))
    elif found.right_or_wrong:
        numbers.append(share("accuracy", rewards.nanmean(1), int(graded.sum()), some))
    else:
        numbers.append(Measurement.of("reward", *over(rewards.nanmean(1), some)))
    if found.right_or_wrong and num_generations > 1:
        for k in (2**i for i in range(num_generations.bit_length()) if whole.any()):  # about all of the replies
            right = rewards.nan_to_num().sum(1).long()
            passed = pass_at_k(num_generations, right, k=k)
            numbers.append(share(f"pass@{k}", passed, int(whole.sum()) * (num_generations // k), whole))
            if k > 1:
                reliable = pass_hat_k(num_generations, right, k=k)
                numbers.append(share(f"pass^{k}", reliable, int(whole.sum()) * (num_generations // k), whole))
    if found.right_or_wrong and found.said is not None and num_generations > 2 and whole.any():
        for k in sorted({2**i for i in range(2, num_generations.bit_length())} | {num_generations}):
            draws = int(whole.sum()) * (num_generations // k)
            numbers.append(share(f"maj@{k}", majorities(found, k), draws, whole))
    if against is not None:
        other = against.rewards
        numbers.append(Measurement.of("reward of the other", *over(other.nanmean(1), other.isfinite().any(1))))
        both = some & other.isfinite().any(1)
        won = pairwise_wins(rewards.nanmean(1), other.nanmean(1))
        if found.clusters is None:  # one vote of each problem, by the means of its replies
            numbers.append(Measurement.of_votes("win rate", won[both]))
        else:
            numbers.append(share("win rate", won, int(both.sum()) * num_generations, both))
    if found.kl is not None:
        numbers.append(Measurement.of("KL to the reference (nats)", *over(found.kl.double().mean(1))))
    numbers.append(Measurement.of("length (tokens)", *over(found.lengths.double().mean(1))))
    numbers.append(share("ended", found.ended.double().mean(1), found.ended.numel()))
    if not graded.all():
        numbers.append(share("not graded", (~graded).double().mean(1), graded.numel()))
    return numbers


@dataclass(frozen=True)
class ModelPair:
    """Two models on the same problems.

    Attributes:
        difference: of the mean rewards, with its interval over problems, in pairs.
        better, worse: on how many problems, or clusters, the first, the second model has the higher mean reward.
        p_value: of of the sign test on these, corrected for all pairs that were looked at (Holm); the interval is not. With several
            replies to a problem, rewards between 0 and 1, or problems in clusters, two models that are equally good on average may well
            differ in it: better by a little on many problems or clusters, worse by much on few.
    """

    first: str
    second: str
    difference: Measurement
    better: int
    worse: int
    p_value: float

    def __str__(self) -> str:
        return f"{self.difference}   better on {self.better}, worse on {self.worse}, p = {self.p_value:.3f}"


def compare(found: Mapping[str, Replies]) -> list[ModelPair]:
    """Every two of these models, on the problems of which both have a graded reply.

    Problems of one cluster are one toss of the sign test, by the sign of the sum of their differences. Where all differences are alike:
    of rewards between 0 and 1, at most Wilson's upper end of the problems would have another, which may be −1 or 1; of rewards
    without bounds nothing is known, and the ends are NaN.

    Raises:
        UserError: two models without two such problems.
    """
    pairs = []
    for first, second in itertools.combinations(found, 2):
        ours, theirs = (found[name].rewards.double().nanmean(1) for name in (first, second))
        both = ours.isfinite() & theirs.isfinite()
        if int(both.sum()) < 2:
            raise UserError(
                f"{first}, {second}: less than two problems were graded for both; expected more to compare them",
                argument="rewards",
                expected=2,
                problem="too few",
            )
        clusters = found[first].clusters
        apart, clusters = (ours - theirs)[both], None if clusters is None else clusters[both]
        bounded = found[first].right_or_wrong and found[second].right_or_wrong
        number = _difference(f"{first} − {second}", apart, clusters, bounded)
        sums = apart if clusters is None else _sums(apart, clusters)
        better, worse = int((sums > 0).sum()), int((sums < 0).sum())
        pairs.append(ModelPair(first, second, number, better, worse, sign_test(better, worse)))
    corrected = holm([pair.p_value for pair in pairs])
    return [dataclasses.replace(pair, p_value=p) for pair, p in zip(pairs, corrected, strict=True)]


def _sums(values: Tensor, clusters: Tensor) -> Tensor:
    """``(C,)``: the sum of each cluster."""
    places = clusters.unique(return_inverse=True)[1]
    return values.new_zeros(int(places.max()) + 1).index_add(0, places, values)


def _difference(name: str, apart: Tensor, clusters: Tensor | None, bounded: bool) -> Measurement:
    """The mean of these differences, of numbers between 0 and 1 if they are ``bounded``."""
    alone = len(apart) if clusters is None else len(clusters.unique())
    if bool((apart == apart[0]).all()) and bounded:
        other, value = wilson_interval(0, alone)[1], float(apart[0])
        return Measurement(name, value, value - other * (1 + value), value + other * (1 - value))
    return Measurement.of(name, over_clusters(apart, clusters), alone)


@dataclass(frozen=True)
class EvaluationResult:
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
    numbers: dict[str, list[Measurement]]
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
            {**as_json([pair.difference]), "better": pair.better, "worse": pair.worse, "p": pair.p_value}
            for pair in self.pairs
        ]
        return {"models": models, "pairs": pairs}


def _known(rewards: Tensor) -> list[list[float | None]]:
    return [[value if math.isfinite(value) else None for value in row] for row in rewards.tolist()]


def as_json(numbers: Sequence[Measurement]) -> dict[str, Any]:
    """``{name: {"value": ..., "low": ..., "high": ...}}``; what cannot be known is null."""
    known = lambda value: value if math.isfinite(value) else None
    return {n.name: {"value": known(n.value), "low": known(n.low), "high": known(n.high)} for n in numbers}
