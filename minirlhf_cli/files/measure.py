"""Measure models on a file of problems: a table of numbers with intervals, all pairs of models, also as JSON."""

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
from minirlhf.feedback.rewards import Reward
from minirlhf.models.reference import require_same_vocabulary
from minirlhf.models.sampling import Sampling
from minirlhf.trainers.evaluation import Estimate, candidates, divergence, names_of, pairwise_wins, wilson_interval
from minirlhf_cli.files.choices import MultipleChoiceResult
from minirlhf_course.evidence import t_distribution

#: From this number of degrees of freedom, quantiles of Student's t equal the normal ones to three digits.
_MANY = 10_000


@dataclass(frozen=True)
class Measurement:
    """One measured number.

    Attributes:
        name: what it is.
        value: an estimate.
        low, high: its 95 % interval. Completions of one prompt are not independent, so the unit is the prompt.
    """

    name: str
    value: float
    low: float
    high: float

    @classmethod
    def of(cls, name: str, found: Estimate, alone: float = math.inf) -> Measurement:
        """Return a mean with its Student's t interval; ``alone`` is the number of independent values.

        If all values are equal, or there is only one, their standard deviation is unknown. For values without bounds no
        interval exists then: ``low`` and ``high`` are NaN.
        """
        critical_value = t_distribution.quantile(0.05, int(min(alone - 1, _MANY))) if found.stderr > 0 else math.nan
        half_width = critical_value * found.stderr
        return cls(name, found.mean, found.mean - half_width, found.mean + half_width)

    @classmethod
    def share(cls, name: str, successes: float, trials: int) -> Measurement:
        """Return a fraction with its Wilson interval."""
        return cls(name, successes / trials, *wilson_interval(successes, trials))

    @classmethod
    def of_shares(cls, name: str, found: Estimate, prompts: int, draws: int) -> Measurement:
        """Return a mean of fractions, one of each prompt, from ``draws`` samples of 0 or 1, with its interval.

        It is the Wilson interval for the number of independent samples that would have this standard error (Dean and
        Pagano, 2015, Evaluating confidence interval methods for binomial proportions in clustered surveys). It stays in
        [0, 1]. If all fractions are 0 or all are 1, the standard error is 0; the interval is then that of one sample
        per prompt.
        """
        if not prompts:
            return cls(name, math.nan, math.nan, math.nan)
        no_variance = not found.stderr > 0
        effective_trials = prompts if no_variance else min(draws, found.mean * (1 - found.mean) / found.stderr**2)
        return cls(name, found.mean, *wilson_interval(found.mean * max(effective_trials, 1), max(effective_trials, 1)))

    @classmethod
    def of_votes(cls, name: str, votes: Tensor) -> Measurement:
        """Return the mean of independent votes ``(N,)`` of 1, 0 or ½ (a tie), with the interval of a win rate."""
        if not len(votes):
            return cls(name, math.nan, math.nan, math.nan)
        counts = ((votes == value).sum() for value in (1.0, 0.5, 0.0))
        return cls(name, float(votes.double().mean()), *map(float, win_rate_interval(*counts)))

    @property
    def known(self) -> bool:
        """Whether the number has an interval."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def __str__(self) -> str:
        interval = f"[{self.low:.3f}, {self.high:.3f}]" if self.known else "[no interval: nothing varies]"
        return f"{self.name:<26} {self.value:8.3f}   {interval}"


@dataclass(frozen=True)
class SampledCompletions:
    """The completions of a model for all problems.

    Attributes:
        completions: ``P`` lists of ``G`` texts.
        rewards: ``(P, G)``, NaN where the grader failed.
        lengths: ``(P, G)`` tokens, EOS included.
        ended: ``(P, G)``, whether a completion ended with an end token (not truncated).
        kl: ``(P, G)`` KL to the reference in nats; None without a reference.
        clusters: ``(P,)`` integers; problems with the same integer form a cluster. None: every problem is independent.
        answers: ``P`` lists of ``G`` answers extracted from the texts, None where a text has none. None: no extractor.
        ways: for multiple choice: scoring method -> ``(P,)`` accuracies; ``rewards`` holds the first.
    """

    completions: list[list[str]]
    rewards: Tensor
    lengths: Tensor
    ended: Tensor
    kl: Tensor | None
    clusters: Tensor | None = None
    answers: list[list[Hashable]] | None = None
    ways: Mapping[str, Tensor] | None = None

    @property
    def right_or_wrong(self) -> bool:
        """Whether every finite reward is 0 or 1."""
        rewards = self.rewards[self.rewards.isfinite()]
        return bool(((rewards == 0) | (rewards == 1)).all())


def sample_completions(
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
) -> SampledCompletions:
    """Sample ``num_generations`` completions for every problem, ``batch_size`` problems at once, and grade them.

    The batch size does not change the result, up to rounding in the model. Equal problems get different completions.

    Args:
        extract: returns the answer in a text, or None; these answers are the votes of maj@k.
    """
    if not problems:
        raise UserError("no problems to answer", argument="problems", problem="empty")
    if ref_model is not None:
        require_same_vocabulary(model, ref_model)
    batches, prompt_keys = [], names_of(problems, tokenizer)
    for start in range(0, len(problems), batch_size):
        batch = slice(start, start + batch_size)
        samples = candidates(
            model, problems[batch], reward, tokenizer=tokenizer, sampling=sampling, num_generations=num_generations,
            seed=seed, prompt_keys=prompt_keys[batch],
        )  # fmt: skip
        rollout = samples.rollout
        kl = None if ref_model is None else divergence(model, ref_model, rollout).view(-1, num_generations)
        shape = samples.rewards.shape
        batches.append(
            SampledCompletions(
                samples.completions,
                samples.rewards,
                lengths(rollout.mask).view(shape),
                rollout.terminated.view(shape),
                kl,
            )
        )
    completions = [texts for batch in batches for texts in batch.completions]
    return SampledCompletions(
        completions,
        torch.cat([batch.rewards for batch in batches]),
        torch.cat([batch.lengths for batch in batches]),
        torch.cat([batch.ended for batch in batches]),
        None if ref_model is None else torch.cat([batch.kl for batch in batches if batch.kl is not None]),
        clusters_of(problems),
        None if extract is None else [[extract(text) for text in texts] for texts in completions],
    )


def chosen(found: MultipleChoiceResult, problems: Sequence[Problem], *, by: str) -> SampledCompletions:
    """Return multiple-choice results as one completion per problem, graded by the scoring method ``by``.

    Raises:
        UserError: the method is not available: "letter" for a tokenizer with one token for several letters.
    """
    if by not in found.right:
        raise UserError(
            f"--scoring {by}: several letters are the same token for this model; choose another scoring method",
            argument="--scoring",
            value=by,
            expected=list(found.right),
        )
    rewards = found.right[by][:, None]
    return SampledCompletions(
        [[choices[by]] for choices in found.picked],
        rewards,
        found.tokens[:, None],
        torch.ones_like(rewards, dtype=torch.bool),
        None,
        clusters_of(problems),
        ways={by: found.right[by], **found.right},
    )


def majorities(found: SampledCompletions, k: int) -> Tensor:
    """Return ``(P,)``: for each problem, the probability that the majority of k completions is right (maj@k).

    All right completions count as the same answer, in whatever form it is written. Completions without an extracted
    answer count as one common wrong answer.
    """
    answer_rows = found.answers or []
    probabilities = []
    for row, grades in zip(answer_rows, found.rewards.tolist(), strict=True):
        wrong = Counter(answer for answer, grade in zip(row, grades, strict=True) if grade != 1)
        votes = [sum(grade == 1 for grade in grades), *wrong.values()]
        probabilities.append(maj_at_k(torch.tensor(votes), correct=0, k=k))
    return torch.tensor(probabilities, dtype=torch.float64)


def clusters_of(problems: Sequence[Problem]) -> Tensor | None:
    """Return ``(P,)``: the cluster index of each problem; None if no problem has a cluster."""
    names = [problem.cluster for problem in problems]
    if all(name is None for name in names):
        return None
    ids: dict[str, int] = {}
    single = itertools.count(-1, -1)
    return torch.tensor([next(single) if name is None else ids.setdefault(name, len(ids)) for name in names])


def over_clusters(values: Tensor, clusters: Tensor | None) -> Estimate:
    """Return the mean of ``(P,)`` values and its cluster-robust standard error.

    The variance of C clusters is multiplied by C/(C − 1), as n − 1 replaces n for independent values. With one cluster
    the standard error is NaN.
    """
    if clusters is None:
        return Estimate.of(values)
    num_clusters = len(clusters.unique())
    if num_clusters < 2:
        return Estimate(float(values.double().mean()), math.nan)
    return Estimate(
        float(values.double().mean()),
        math.sqrt(float(clustered_variance(values.double(), clusters)) * num_clusters / (num_clusters - 1)),
    )


def measure(found: SampledCompletions, *, against: SampledCompletions | None = None) -> list[Measurement]:
    """Compute the measurements of one model.

    Args:
        against: the completions of another model for the same problems.

    Returns:
        ``accuracy`` if every reward is 0 or 1, else ``reward``. With more than one completion and rewards of 0 and 1:
        ``pass@k`` for k = 1, 2, 4, ..., ``pass^k`` from k = 2 and, if answers were extracted, ``maj@k`` from k = 4 and
        for all completions (a vote of two, with ties broken at random, equals one completion). For multiple choice only
        the accuracy of each scoring method. With ``against`` also ``win rate`` and the other model's reward; with a
        reference ``KL`` (nats per completion). ``length`` (tokens), ``ended`` and, if any, ``not graded`` (fractions of
        the completions).
    """
    rewards, num_generations = found.rewards, found.rewards.shape[1]
    graded = rewards.isfinite()
    any_graded, complete = graded.any(1), graded.all(1)

    def mean(values: Tensor, rows: Tensor | None = None) -> tuple[Estimate, int]:
        """Return the mean over these problems, and the number of independent units: clusters, else problems."""
        mask = torch.ones(len(values), dtype=torch.bool) if rows is None else rows
        clusters = None if found.clusters is None else found.clusters[mask]
        return over_clusters(values[mask], clusters), int(mask.sum()) if clusters is None else len(clusters.unique())

    def fraction(name: str, values: Tensor, draws: int, rows: Tensor | None = None) -> Measurement:
        estimate, num_units = mean(values, rows)
        return Measurement.of_shares(name, estimate, num_units, draws)

    if found.ways is not None:
        rows = []
        for method, right in found.ways.items():
            estimate, num_units = mean(right)
            unclustered = found.clusters is None
            rows.append(
                Measurement.share(f"accuracy ({method})", float(right.sum()), num_units)
                if unclustered
                else Measurement.of_shares(f"accuracy ({method})", estimate, num_units, len(right))
            )
        return rows
    numbers = []
    if found.right_or_wrong and num_generations == 1 and found.clusters is None:
        numbers.append(Measurement.share("accuracy", float(rewards[graded].sum()), int(graded.sum())))
    elif found.right_or_wrong:
        numbers.append(fraction("accuracy", rewards.nanmean(1), int(graded.sum()), any_graded))
    else:
        numbers.append(Measurement.of("reward", *mean(rewards.nanmean(1), any_graded)))
    if found.right_or_wrong and num_generations > 1:
        for k in (2**i for i in range(num_generations.bit_length()) if complete.any()):  # all completions graded
            right = rewards.nan_to_num().sum(1).long()
            passed = pass_at_k(num_generations, right, k=k)
            numbers.append(fraction(f"pass@{k}", passed, int(complete.sum()) * (num_generations // k), complete))
            if k > 1:
                reliable = pass_hat_k(num_generations, right, k=k)
                numbers.append(fraction(f"pass^{k}", reliable, int(complete.sum()) * (num_generations // k), complete))
    if found.right_or_wrong and found.answers is not None and num_generations > 2 and complete.any():
        for k in sorted({2**i for i in range(2, num_generations.bit_length())} | {num_generations}):
            draws = int(complete.sum()) * (num_generations // k)
            numbers.append(fraction(f"maj@{k}", majorities(found, k), draws, complete))
    if against is not None:
        baseline = against.rewards
        numbers.append(Measurement.of("reward of the other", *mean(baseline.nanmean(1), baseline.isfinite().any(1))))
        both = any_graded & baseline.isfinite().any(1)
        wins = pairwise_wins(rewards.nanmean(1), baseline.nanmean(1))
        if found.clusters is None:  # one vote per problem: the mean rewards of its completions
            numbers.append(Measurement.of_votes("win rate", wins[both]))
        else:
            numbers.append(fraction("win rate", wins, int(both.sum()) * num_generations, both))
    if found.kl is not None:
        numbers.append(Measurement.of("KL to the reference (nats)", *mean(found.kl.double().mean(1))))
    numbers.append(Measurement.of("length (tokens)", *mean(found.lengths.double().mean(1))))
    numbers.append(fraction("ended", found.ended.double().mean(1), found.ended.numel()))
    if not graded.all():
        numbers.append(fraction("not graded", (~graded).double().mean(1), graded.numel()))
    return numbers


@dataclass(frozen=True)
class ModelPair:
    """Two models on the same problems.

    Attributes:
        difference: of the mean rewards, with its paired interval over problems.
        better, worse: number of problems, or clusters, on which the first, the second model has the higher mean reward.
        p_value: of the sign test on these counts, corrected for all tested pairs (Holm); the interval is uncorrected.
            With several completions per problem, rewards between 0 and 1, or clusters, two models of equal mean reward
            may differ in this test: one is slightly better on many problems or clusters and much worse on few.
    """

    first: str
    second: str
    difference: Measurement
    better: int
    worse: int
    p_value: float

    def __str__(self) -> str:
        return f"{self.difference}   better on {self.better}, worse on {self.worse}, {p_text(self.p_value)}"


def p_text(p: float) -> str:
    """``p = 0.012``; ``p < 0.001`` for what three decimals would show as 0."""
    return "p < 0.001" if p < 0.0005 else f"p = {p:.3f}"


def compare(found: Mapping[str, SampledCompletions]) -> list[ModelPair]:
    """Compare all pairs of these models, on the problems for which both have a graded completion.

    A cluster is one observation of the sign test: the sign of the sum of its differences. If all differences are equal,
    the interval for rewards between 0 and 1 assumes that at most Wilson's upper limit of the problems have another
    difference, which may be −1 or 1. For rewards without bounds the ends are NaN.

    Raises:
        UserError: two models share fewer than two such problems.
    """
    pairs = []
    for first, second in itertools.combinations(found, 2):
        candidate, baseline = (found[name].rewards.double().nanmean(1) for name in (first, second))
        both = candidate.isfinite() & baseline.isfinite()
        if int(both.sum()) < 2:
            raise UserError(
                f"{first}, {second}: fewer than two problems were graded for both; a comparison needs at least two",
                argument="rewards",
                expected=2,
                problem="too few",
            )
        clusters = found[first].clusters
        differences, clusters = (candidate - baseline)[both], None if clusters is None else clusters[both]
        bounded = found[first].right_or_wrong and found[second].right_or_wrong
        difference = _difference(f"{first} − {second}", differences, clusters, bounded)
        sums = differences if clusters is None else _sums(differences, clusters)
        better, worse = int((sums > 0).sum()), int((sums < 0).sum())
        pairs.append(ModelPair(first, second, difference, better, worse, sign_test(better, worse)))
    p_values = holm([pair.p_value for pair in pairs])
    return [dataclasses.replace(pair, p_value=p) for pair, p in zip(pairs, p_values, strict=True)]


def _sums(values: Tensor, clusters: Tensor) -> Tensor:
    """Return ``(C,)``: the sum of each cluster."""
    indices = clusters.unique(return_inverse=True)[1]
    return values.new_zeros(int(indices.max()) + 1).index_add(0, indices, values)


def _difference(name: str, differences: Tensor, clusters: Tensor | None, bounded: bool) -> Measurement:
    """Return the mean of these differences; ``bounded``: they are differences of rewards in [0, 1]."""
    num_units = len(differences) if clusters is None else len(clusters.unique())
    if bool((differences == differences[0]).all()) and bounded:
        upper, value = wilson_interval(0, num_units)[1], float(differences[0])
        return Measurement(name, value, value - upper * (1 + value), value + upper * (1 - value))
    return Measurement.of(name, over_clusters(differences, clusters), num_units)


@dataclass(frozen=True)
class EvaluationResult:
    """The results of several models on one task.

    Attributes:
        name, grader: the task, and the grader of the completions.
        problems: the problems of the task.
        answers, numbers: model name -> its completions, its measurements.
        pairs: all pairs of models.
        on: model name -> what was measured: digests of data and model, settings, versions.
    """

    name: str
    grader: str
    problems: list[Problem]
    answers: dict[str, SampledCompletions]
    numbers: dict[str, list[Measurement]]
    pairs: list[ModelPair]
    on: dict[str, dict[str, Any]]

    @property
    def replies(self) -> int:
        """The number of completions per problem."""
        return next(iter(self.answers.values())).rewards.shape[1]

    def as_json(self) -> dict[str, Any]:
        """Return the measurements, and all grades; ``minirlhf evaluate power`` plans the next comparison from the grades."""
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
    """``{name: {"value": ..., "low": ..., "high": ...}}``; an unknown value is null."""
    finite = lambda value: value if math.isfinite(value) else None
    return {n.name: {"value": finite(n.value), "low": finite(n.low), "high": finite(n.high)} for n in numbers}
