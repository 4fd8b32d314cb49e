"""The ledger of chapter 19: what k tries are worth."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from minirlhf.equations import estimators
from minirlhf_course.ledger.registry import Comparison, Draw, check


def _over_subsets(results: list[int], k: int, judge: Callable[[list[int]], float]) -> float:
    """Mean of ``judge`` over all subsets of k of the results."""
    judged = [judge([results[i] for i in subset]) for subset in itertools.combinations(range(len(results)), k)]
    return sum(judged) / len(judged)


def _over_binomial(estimate: Callable[..., Tensor], n: int, p: float, k: int) -> Tensor:
    """Expectation of an estimate when each of n samples is correct with probability p."""
    correct = torch.arange(n + 1)
    chance = [math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
    return (torch.tensor(chance, dtype=torch.float64) * estimate(torch.full_like(correct, n), correct, k=k)).sum()


def _plug_in(n: Tensor, c: Tensor, *, k: int) -> Tensor:
    return 1 - (1 - c.double() / n) ** k


@check(
    "eq:pass-at-k",
    "value",
    "The fraction of subsets with at least one correct sample, for every number of correct ones.",
    of=estimators.pass_at_k,
    against="all subsets of k of the n samples",
    wrong={
        "plug-in 1 − (1 − c/n)^k": _plug_in,
        "all k correct": estimators.pass_hat_k,
        "share of correct samples": lambda n, c, *, k: c.double() / n,
    },
)
def _(pass_at_k, draw: Draw) -> Iterator[Comparison]:
    n, k = draw.integer(5, 7), draw.integer(2, 3)
    correct = torch.arange(n + 1)
    expected = [_over_subsets([1] * c + [0] * (n - c), k, lambda s: float(any(s))) for c in range(n + 1)]
    yield pass_at_k(torch.full_like(correct, n), correct, k=k), torch.tensor(expected, dtype=torch.float64)
    yield pass_at_k(n, correct, k=k), torch.tensor(expected, dtype=torch.float64)


@check(
    "eq:pass-at-k",
    "unbiased",
    "The expectation of the estimate is the probability that k new samples contain a correct one.",
    of=estimators.pass_at_k,
    against="1 − (1−p)^k, over the binomial distribution of correct samples",
    wrong={"plug-in 1 − (1 − c/n)^k": _plug_in, "all k correct": estimators.pass_hat_k},
)
def _(pass_at_k, draw: Draw) -> Comparison:
    n, k, p = draw.integer(5, 10), draw.integer(2, 4), float(draw.uniform(low=0.2, high=0.8))
    return _over_binomial(pass_at_k, n, p, k), 1 - (1 - p) ** k


@check(
    "eq:pass-hat-k",
    "value",
    "The fraction of subsets that are all correct, for every number of correct samples.",
    of=estimators.pass_hat_k,
    against="all subsets of k of the n samples",
    wrong={
        "plug-in (c/n)^k": lambda n, c, *, k: (c.double() / n) ** k,
        "at least one correct": estimators.pass_at_k,
    },
)
def _(pass_hat_k, draw: Draw) -> Iterator[Comparison]:
    n, k = draw.integer(5, 7), draw.integer(2, 3)
    correct = torch.arange(n + 1)
    expected = [_over_subsets([1] * c + [0] * (n - c), k, lambda s: float(all(s))) for c in range(n + 1)]
    yield pass_hat_k(torch.full_like(correct, n), correct, k=k), torch.tensor(expected, dtype=torch.float64)
    yield pass_hat_k(n, correct, k=k), torch.tensor(expected, dtype=torch.float64)


@check(
    "eq:pass-hat-k",
    "unbiased",
    "The expectation of the estimate is the probability that k new samples are all correct.",
    of=estimators.pass_hat_k,
    against="p^k, over the binomial distribution of correct samples",
    wrong={
        "plug-in (c/n)^k": lambda n, c, *, k: (c.double() / n) ** k,
        "at least one correct": estimators.pass_at_k,
    },
)
def _(pass_hat_k, draw: Draw) -> Comparison:
    n, k, p = draw.integer(5, 10), draw.integer(2, 4), float(draw.uniform(low=0.2, high=0.8))
    return _over_binomial(pass_hat_k, n, p, k), p**k


def _vote(answers: list[int]) -> float:
    """Chance that answer 0 wins the vote, ties broken at random."""
    counts = {answer: answers.count(answer) for answer in answers}
    leaders = [answer for answer, count in counts.items() if count == max(counts.values())]
    return (0 in leaders) / len(leaders)


def _samples(counts: Tensor) -> list[int]:
    return [answer for answer, count in enumerate(counts.tolist()) for _ in range(count)]


@check(
    "eq:maj-at-k",
    "value",
    "The fraction of subsets whose most frequent answer is correct; a tie counts one over the number of leaders.",
    of=estimators.maj_at_k,
    against="the vote of all subsets of k of the n samples",
    wrong={
        "more than half of the votes needed": lambda counts, *, correct, k: _over_subsets(
            _samples(counts), k, lambda s: float(2 * s.count(correct) > k)
        ),
        "a tie counts as lost": lambda counts, *, correct, k: _over_subsets(
            _samples(counts), k, lambda s: float(_vote(s) == 1)
        ),
        "most frequent of all n, whatever k": lambda counts, *, correct, k: float(counts.argmax() == correct),
    },
)
def _(maj_at_k, draw: Draw) -> Iterator[Comparison]:
    counts = torch.tensor([3, draw.integer(2, 3), 2, 1])
    for k in (1, 2, 3, 4, int(counts.sum())):
        expected = _over_subsets(_samples(counts), k, _vote)
        yield maj_at_k(counts, correct=0, k=k), expected
        yield maj_at_k(counts.flip(0), correct=3, k=k), expected


@check(
    "eq:maj-at-k",
    "unbiased",
    "The expectation of the estimate is the probability that the vote of k new samples is correct.",
    of=estimators.maj_at_k,
    against="the vote of all sequences of k new samples",
    wrong={
        "more than half of the votes needed": lambda counts, *, correct, k: _over_subsets(
            _samples(counts), k, lambda s: float(2 * s.count(correct) > k)
        ),
        "the vote of all n, whatever k": lambda counts, *, correct, k: _over_subsets(
            _samples(counts), int(counts.sum()), lambda s: _vote([x != correct for x in s])
        ),
    },
)
def _(maj_at_k, draw: Draw) -> Iterator[Comparison]:
    probs, n = draw.distribution(3, scale=0.5), 5
    for k in (2, 3):
        found = 0.0
        for counts in itertools.product(range(n + 1), repeat=3):
            if sum(counts) == n:
                ways = math.factorial(n) // math.prod(map(math.factorial, counts))
                chance = ways * math.prod(float(p) ** c for p, c in zip(probs, counts, strict=True))
                found += chance * maj_at_k(torch.tensor(counts), correct=0, k=k)
        fresh = sum(
            _vote(list(votes)) * math.prod(float(probs[v]) for v in votes)
            for votes in itertools.product(range(3), repeat=k)
        )
        yield found, fresh
