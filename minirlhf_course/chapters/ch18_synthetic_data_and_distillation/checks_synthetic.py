"""Chapter 18: filters, errors that feed on themselves, and generations of models that learn from each other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf_course.chapters.ch18_synthetic_data_and_distillation import equations
from minirlhf_course.ledger.registry import Comparison, Draw, check

# -- choosing what to keep -----------------------------------------------------------------------------------------


def _subsequences(words: Sequence[int]) -> set[tuple[int, ...]]:
    return {found for size in range(len(words) + 1) for found in itertools.combinations(words, size)}


def _longest_block(a: Sequence[int], b: Sequence[int]) -> int:
    """The longest run of words without a gap that both have."""
    runs = lambda words: {tuple(words[i:j]) for i in range(len(words)) for j in range(i, len(words) + 1)}
    return max(map(len, runs(a) & runs(b)))


@check(
    "eq:rouge-l",
    "value",
    "The longest sequence that is a subsequence of both, relative to the mean of their lengths.",
    of=equations.rouge_l,
    against="all subsequences of both texts",
    wrong={
        "recall instead of the F-measure": lambda a, b: equations.rouge_l(a, b) * (len(a) + len(b)) / (2 * len(b)),
        "the longest run without a gap": lambda a, b: torch.tensor(
            2 * _longest_block(a.tolist(), b.tolist()) / (len(a) + len(b))
        ),
        "words in common, in any order": lambda a, b: torch.tensor(
            2 * sum(min(a.tolist().count(w), b.tolist().count(w)) for w in set(a.tolist())) / (len(a) + len(b))
        ),
    },
)
def _(rouge_l, draw: Draw) -> Iterator[Comparison]:
    drawn = [torch.tensor([draw.integer(0, 3) for _ in range(size)]) for size in (6, 4)]
    order = draw.permutation(4)  # of four different words: here a gap, an order and a length matter
    gap = order[torch.tensor([0, 1, 2, 3, 0, 2])], order[torch.tensor([1, 3, 2, 0])]
    for a, b in (drawn, gap):
        both = _subsequences(a.tolist()) & _subsequences(b.tolist())
        yield rouge_l(a, b), max(map(len, both)) / (0.5 * (len(a) + len(b)))


@check(
    "eq:filter-precision",
    "value",
    "The fraction of good texts among those kept; the filter multiplies the odds by recall over the false "
    "positive rate.",
    of=equations.filter_precision,
    against="a table of good and bad, kept and dropped, and the odds",
    wrong={
        "recall taken for precision": lambda share, recall, false_alarms: recall + 0 * share,
        "the shares before the filter forgotten": lambda share, recall, false_alarms: recall / (recall + false_alarms),
        "false alarms as a share of all": lambda share, recall, false_alarms: (
            share * recall / (share * recall + false_alarms)
        ),
    },
)
def _(precision, draw: Draw) -> Iterator[Comparison]:
    share, recall, alarms = (draw.uniform(3, low=0.1, high=0.9) for _ in range(3))
    good = torch.stack([1 - share, share])  # (2, 3): bad, good
    keeps = torch.stack([alarms, recall])
    table = good * keeps
    yield precision(share, recall, alarms), table[1] / table.sum(0)
    found = precision(share, recall, alarms)
    yield found / (1 - found), share / (1 - share) * recall / alarms


def _normal(q: Tensor) -> Tensor:
    return (-(q**2) / 2).exp() / math.sqrt(2 * math.pi)


@check(
    "eq:filter-gain",
    "value",
    "The mean quality of the texts with the highest scores, where a score is ρ times quality plus independent noise.",
    of=equations.filter_gain,
    against="the mean quality above the threshold, by quadrature",
    wrong={
        "a perfect filter": lambda correlation, share: equations.filter_gain(torch.ones_like(share), share),
        "correlation squared": lambda correlation, share: equations.filter_gain(correlation**2, share),
        "quality of the bar, not above it": lambda correlation, share: correlation * -torch.special.ndtri(share),
    },
)
def _(gain, draw: Draw) -> Iterator[Comparison]:
    for _ in range(2):
        rho, share = draw.uniform(low=0.2, high=0.85), draw.uniform(low=0.1, high=0.7)
        bar = torch.special.ndtri(1 - share)

        def part(q: Tensor, rho: Tensor = rho, bar: Tensor = bar) -> Tensor:
            return q * torch.special.ndtr((rho * q - bar) / (1 - rho**2).sqrt()) * _normal(q)

        yield gain(rho, share), exact.integrate(part, -10.0, 10.0) / share


# -- errors that feed on themselves --------------------------------------------------------------------------------


@check(
    "eq:exposure-errors",
    "value",
    "The expected number of wrong tokens, where a wrong token is followed by a correct one with probability δ, "
    "and a correct one by a wrong one with probability ε.",
    of=equations.compounded_errors,
    against="all sequences of correct and wrong tokens",
    wrong={
        "errors that do not feed on themselves": lambda error, recovery, *, length: error * length,
        "the share in the long run, at once": lambda error, recovery, *, length: error / (error + recovery) * length,
        "the first token always right": lambda error, recovery, *, length: equations.compounded_errors(
            error, recovery, length=length - 1
        ),
    },
)
def _(errors, draw: Draw) -> Iterator[Comparison]:
    for length in (3, 5):
        error, recovery = draw.uniform(low=0.1, high=0.4), draw.uniform(low=0.05, high=0.4)
        total = torch.zeros((), dtype=torch.float64)
        for wrong in itertools.product((False, True), repeat=length):
            chance, before = torch.ones((), dtype=torch.float64), False
            for now in wrong:
                goes_wrong = 1 - recovery if before else error
                chance = chance * (goes_wrong if now else 1 - goes_wrong)
                before = now
            total = total + chance * sum(wrong)
        yield errors(error, recovery, length=length), total


# -- learning from one's own samples -------------------------------------------------------------------------------


def _draws(probs: Sequence[float], n: int) -> Iterator[tuple[float, list[float], int]]:
    """Every sample of n: its probability, the shares in it, and how many different outcomes it has."""
    for sample in itertools.product(range(len(probs)), repeat=n):
        shares = [sample.count(v) / n for v in range(len(probs))]
        yield math.prod(probs[v] for v in sample), shares, len(set(sample))


def _diversity(probs: Sequence[float]) -> float:
    """That two draws differ."""
    return sum(p * q for i, p in enumerate(probs) for j, q in enumerate(probs) if i != j)


def _after(
    truth: Sequence[float],
    pool: Sequence[float],
    n: int,
    generations: range,
    learned: Callable[[Sequence[float], Sequence[float], int], Sequence[float]],
) -> float:
    """Expected diversity after these generations; ``learned(pool, sample, generation)`` is the next pool."""
    if not generations:
        return _diversity(pool)
    now, rest = generations[0], generations[1:]
    return sum(chance * _after(truth, learned(pool, s, now), n, rest, learned) for chance, s, _ in _draws(pool, n))


@check(
    "eq:collapse-replace",
    "value",
    "Each generation consists of n draws from the previous one.",
    of=equations.diversity_retained,
    against="all samples of all generations",
    wrong={
        "one generation more": lambda *, n, generation, fresh=0.0: (1 - 1 / n) ** (generation + 1),
        "linear in the generations": lambda *, n, generation, fresh=0.0: 1 - generation / n,
        "two copies of everything": lambda *, n, generation, fresh=0.0: (1 - 1 / (2 * n)) ** generation,
    },
)
def _(kept, draw: Draw) -> Iterator[Comparison]:
    truth = draw.distribution(3).tolist()
    for n, generation in ((2, 3), (3, 2)):
        found = _after(truth, truth, n, range(generation), lambda pool, sample, j: sample)
        yield kept(n=n, generation=generation) * _diversity(truth), found


@check(
    "eq:collapse-fresh",
    "value",
    "Each generation is drawn from a mixture of the previous one and real data.",
    of=equations.diversity_retained,
    against="all samples of all generations",
    wrong={
        "no fresh data": lambda *, n, generation, fresh: equations.diversity_retained(n=n, generation=generation),
        "the share not squared": lambda *, n, generation, fresh: equations.diversity_retained(
            n=n, generation=generation, fresh=1 - math.sqrt(1 - fresh)
        ),
        "what is left of it in the end": lambda *, n, generation, fresh: equations.diversity_retained(
            n=n, generation=10_000, fresh=fresh
        ),
    },
)
def _(kept, draw: Draw) -> Iterator[Comparison]:
    truth = draw.distribution(3).tolist()
    for n, generation in ((2, 3), (3, 2)):
        fresh = float(draw.uniform(low=0.2, high=0.6))
        mix = lambda shares, fresh=fresh: [fresh * t + (1 - fresh) * p for t, p in zip(truth, shares, strict=True)]
        last = lambda pool, n=n: sum(chance * _diversity(s) for chance, s, _ in _draws(pool, n))
        levels = [[(1.0, truth)]]
        for _ in range(generation - 1):  # pools that are drawn from, with their probabilities
            levels.append([(p * c, mix(s)) for p, pool in levels[-1] for c, s, _ in _draws(pool, n)])
        found = sum(p * last(pool) for p, pool in levels[-1])
        yield kept(n=n, generation=generation, fresh=fresh) * _diversity(truth), found


@check(
    "eq:collapse-accumulate",
    "value",
    "The j-th n draws come from the pool of all earlier data and are added to it.",
    of=equations.diversity_accumulated,
    against="all samples of all generations",
    wrong={
        "everything replaced": lambda *, n, generation: equations.diversity_retained(n=n, generation=generation),
        "1/j instead of 1/j²": lambda *, n, generation: math.prod(1 - 1 / (n * j) for j in range(1, generation + 1)),
        "n j draws from the last generation": lambda *, n, generation: math.prod(
            1 - 1 / (n * j) for j in range(2, generation + 1)
        ),
    },
)
def _(accumulated, draw: Draw) -> Iterator[Comparison]:
    truth = draw.distribution(3).tolist()
    join = lambda pool, sample, j: [p + (s - p) / (j + 1) for p, s in zip(pool, sample, strict=True)]
    for n, generation in ((2, 3), (3, 2)):
        yield (
            accumulated(n=n, generation=generation) * _diversity(truth),
            _after(truth, truth, n, range(generation), join),
        )


@check(
    "eq:collapse-limit",
    "limit",
    "What accumulation preserves after infinitely many generations.",
    of=equations.diversity_limit,
    against="two thousand generations, and the sum of the remaining terms",
    tolerance=1e-6,
    wrong={
        "nothing is left": lambda *, n: 0.0,
        "to first order in 1/n": lambda *, n: 1 - math.pi**2 / (6 * n),
        "as if the factors were exponentials": lambda *, n: math.exp(-(math.pi**2) / (6 * n)),
    },
)
def _(limit, draw: Draw) -> Iterator[Comparison]:
    last = 2000
    for n in {2, draw.integer(2, 6)}:
        # Σ 1/j² over j > J is 1/(J + ½) but for a third order.
        rest = math.exp(-1 / (n * (last + 0.5)))
        yield limit(n=n), equations.diversity_accumulated(n=n, generation=last) * rest


@check(
    "eq:support-kept",
    "value",
    "The expected number of distinct outcomes.",
    of=equations.support_retained,
    against="all samples, and the outcomes in each of them",
    wrong={
        "as many as draws": lambda probs, *, n: torch.full_like(probs[:, 0], min(n, probs.shape[-1])),
        "outcomes that are missing": lambda probs, *, n: ((1 - probs) ** n).sum(-1),
        "expected number of draws of each, at most one": lambda probs, *, n: (n * probs).clamp(max=1).sum(-1),
    },
)
def _(support, draw: Draw) -> Iterator[Comparison]:
    probs = draw.distribution(2, 4)
    for n in (2, 3):
        found = [sum(chance * seen for chance, _, seen in _draws(row, n)) for row in probs.tolist()]
        yield support(probs, n=n), torch.tensor(found, dtype=torch.float64)


DRIFTS: dict[str, Callable[..., Any]] = {
    "the mean's drift, which is none": lambda *, n: 0.0,
    "n draws, not n − 1 degrees of freedom": lambda *, n: equations.log_variance_drift(n=n + 1),
    "to first order": lambda *, n: -1 / (n - 1),
}


@check(
    "eq:gaussian-collapse",
    "value",
    "E log(s²/σ²) for the unbiased sample variance s² of n draws.",
    of=equations.log_variance_drift,
    against="the mean of log s² over the density of the sample variance, by quadrature",
    wrong=DRIFTS,
)
def _(drift, draw: Draw) -> Iterator[Comparison]:
    for n in {2 + draw.integer(1, 4), 10}:
        free = n - 1

        def weighted(u: Tensor, free: int = free) -> Tensor:
            """Of u = log χ² with ``free`` degrees of freedom, times u."""
            return u * (u * free / 2 - u.exp() / 2 - math.lgamma(free / 2) - free / 2 * math.log(2)).exp()

        mean = exact.integrate(weighted, -40.0, 8.0, nodes=600)
        yield drift(n=n), mean - math.log(free)
