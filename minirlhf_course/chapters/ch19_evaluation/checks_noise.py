"""The ledger of chapter 19: intervals, and where the noise of a mean comes from."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from minirlhf.core import exact, statistics
from minirlhf.equations import evaluation
from minirlhf_course.chapters.ch19_evaluation import equations, experiments
from minirlhf_course.ledger.registry import Comparison, Draw, check


def _root(f: Callable[[float], float], low: float, high: float) -> float:
    """Where a function that is negative at ``low`` and positive at ``high`` crosses 0."""
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if f(middle) < 0 else (low, middle)
    return (low + high) / 2


def _below(x: float) -> float:
    """The chance that a standard normal number is below x."""
    return math.erfc(-x / math.sqrt(2)) / 2


def _reach(tail: float) -> float:
    """What a standard normal number exceeds with this chance."""
    return _root(lambda x: tail - (1 - _below(x)), 0.0, 10.0)


def _variance(law: Sequence[tuple[float, float]]) -> float:
    """Of pairs (chance, value)."""
    mean = math.fsum(p * x for p, x in law)
    return math.fsum(p * (x - mean) ** 2 for p, x in law)


def _resampled_shares(successes: int, trials: int) -> list[float]:
    """The share of successes in every one of the n^n resamples of n items."""
    items = [1] * successes + [0] * (trials - successes)
    return [sum(again) / trials for again in itertools.product(items, repeat=trials)]


def _shift(ends: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    low, high = ends
    return low, low + 2 * (high - low)


# -- one share ---------------------------------------------------------------------------------------------------


@check(
    "eq:wald-interval",
    "value",
    "The fraction, plus and minus z standard deviations of the fraction of a resample.",
    of=evaluation.wald_interval,
    against="standard deviation of the fraction in all n^n resamples of the items",
    wrong={
        "Wilson's": evaluation.wilson_interval,
        "one-sided z": lambda successes, trials, *, alpha: evaluation.wald_interval(successes, trials, alpha=2 * alpha),
        "not divided by n": lambda successes, trials, *, alpha: tuple(
            successes / trials + (end - successes / trials) * trials.sqrt()
            for end in evaluation.wald_interval(successes, trials, alpha=alpha)
        ),
        "wider to one side": lambda *a, **o: _shift(evaluation.wald_interval(*a, **o)),
    },
)
def _(interval, draw: Draw) -> Iterator[Comparison]:
    counts = [draw.integer(1, 2), draw.integer(3, 4)]
    for alpha in (0.1, 0.3):
        low, high = interval(torch.tensor(counts).double(), torch.full((2,), 5.0).double(), alpha=alpha)
        shares = torch.tensor([_resampled_shares(c, 5) for c in counts], dtype=torch.float64)
        half = _reach(alpha / 2) * shares.std(-1, correction=0)
        yield low, shares.mean(-1) - half
        yield high, shares.mean(-1) + half


@check(
    "eq:wilson-interval",
    "value",
    "The ends are the two probabilities from which the observed fraction is z standard errors away.",
    of=evaluation.wilson_interval,
    against="the p that are z of their own standard errors away, by bisection",
    wrong={
        "Wald's": evaluation.wald_interval,
        "one-sided z": lambda successes, trials, *, alpha: evaluation.wilson_interval(
            successes, trials, alpha=2 * alpha
        ),
        "two successes and two failures added": lambda successes, trials, *, alpha: evaluation.wald_interval(
            successes + 2, trials + 4, alpha=alpha
        ),
        "wider to one side": lambda *a, **o: _shift(evaluation.wilson_interval(*a, **o)),
    },
)
def _(interval, draw: Draw) -> Iterator[Comparison]:
    for alpha in (0.1, 0.3):
        trials = draw.integer(6, 12)
        counts = torch.tensor([0, draw.integer(1, 5), trials])
        low, high = interval(counts.double(), torch.full((3,), float(trials)).double(), alpha=alpha)
        z = _reach(alpha / 2)
        for at, seen in enumerate((counts.double() / trials).tolist()):
            beyond = functools.partial(_beyond, seen=seen, trials=trials, z=z)
            inside = functools.partial(_beyond, seen=seen, trials=trials, z=z, sign=-1.0)
            yield low[at], 0.0 if seen == 0 else _root(inside, 0.0, seen)
            yield high[at], 1.0 if seen == 1 else _root(beyond, seen, 1.0)


def _beyond(p: float, *, seen: float, trials: int, z: float, sign: float = 1.0) -> float:
    """By how much a share that was seen is more than z standard errors of p away from it; squared, times the trials."""
    return sign * ((p - seen) ** 2 * trials - z * z * p * (1 - p))


# -- wins, ties, losses ------------------------------------------------------------------------------------------


def _votes(draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Three times some wins, ties and losses."""
    wins, ties, losses = (torch.tensor([draw.integer(2, 9) for _ in range(3)]).double() for _ in range(3))
    return wins, ties + 4, losses


def _seen_spread(wins: Tensor, ties: Tensor, losses: Tensor, *, alpha: float) -> tuple[Tensor, Tensor]:
    """The interval with the variance of the votes as they were seen."""
    n = wins + ties + losses
    mean = (wins + ties / 2) / n
    half = _reach(alpha / 2) * ((wins + losses - (wins - losses) ** 2 / n) / 4).sqrt() / n
    return mean - half, mean + half


TIED: dict[str, Callable[..., Any]] = {
    "Wilson's, of so many votes": lambda wins, ties, losses, *, alpha: evaluation.wilson_interval(
        wins + ties / 2, wins + ties + losses, alpha=alpha
    ),
    "the spread that was seen": _seen_spread,
    "one-sided z": lambda *votes, alpha: evaluation.win_rate_interval(*votes, alpha=2 * alpha),
    "ties are losses": lambda wins, ties, losses, *, alpha: evaluation.win_rate_interval(
        wins, 0 * ties, losses + ties, alpha=alpha
    ),
    "of losses": lambda wins, ties, losses, *, alpha: evaluation.win_rate_interval(losses, ties, wins, alpha=alpha),
}


@check(
    "eq:win-rate-interval",
    "value", "The ends are the two win rates from which the observed one is z standard errors away.",
    of=evaluation.win_rate_interval,
    against=(
        "the maximum-likelihood fractions with this mean, by Lagrange's multiplier: z standard errors from the "
        "observation"
    ),
    wrong={**TIED, "ties thrown away": lambda wins, ties, losses, *, alpha: evaluation.wilson_interval(
        wins, wins + losses, alpha=alpha
    )},
)  # fmt: skip
def _(interval, draw: Draw) -> Iterator[Comparison]:
    for alpha in (0.1, 0.3):
        votes = _votes(draw)
        low, high = interval(*votes, alpha=alpha)
        for at, counts in enumerate(torch.stack(votes, -1).tolist()):
            n, seen = sum(counts), (counts[0] + counts[1] / 2) / sum(counts)
            for end, side in ((float(low[at]), -1), (float(high[at]), 1)):
                error = math.sqrt(_likeliest_variance(end, counts) / n)
                yield side * (end - seen) / error, _reach(alpha / 2)


def _likeliest_variance(mean: float, counts: Sequence[float]) -> float:
    """Of a vote for 1, ½ or 0, if these counts were seen and ``mean`` is the truth.

    The likelihood under Σ p_j (x_j − mean) = 0 has its maximum at p_j = n_j / (n (1 + m (x_j − mean))), with m for which that holds.
    """
    apart = [1.0 - mean, 0.5 - mean, -mean]
    share = lambda m: [c / sum(counts) / (1 + m * d) for c, d in zip(counts, apart, strict=True)]
    m = _root(lambda m: -math.fsum(p * d for p, d in zip(share(m), apart, strict=True)), -1 / (1 - mean), 1 / mean)
    return math.fsum(p * d * d for p, d in zip(share(m), apart, strict=True))


@check(
    "eq:win-rate-interval",
    "limits",
    "The cases without ties, and with only wins, losses or ties.",
    of=evaluation.win_rate_interval,
    against="Wilson's interval without ties; ½ ± z²/(2(n + z²)) for ties only",
    wrong={name: TIED[name] for name in ("the spread that was seen", "one-sided z", "ties are losses")},
)
def _(interval, draw: Draw) -> Iterator[Comparison]:
    n = float(draw.integer(5, 12))
    wins = torch.tensor([0.0, draw.integer(1, 4), n, 0.0], dtype=torch.float64)
    ties = torch.tensor([0.0, 0.0, 0.0, n], dtype=torch.float64)
    for alpha in (0.1, 0.49):
        low, high = interval(wins, ties, n - wins - ties, alpha=alpha)
        z2 = _reach(alpha / 2) ** 2
        expected = evaluation.wilson_interval(wins[:3], torch.full((3,), n, dtype=torch.float64), alpha=alpha)
        half = torch.tensor([z2 / (2 * (n + z2))], dtype=torch.float64)
        yield low, torch.cat([expected[0], 0.5 - half])
        yield high, torch.cat([expected[1], 0.5 + half])


@check(
    "eq:bootstrap-law",
    "law",
    "The number of correct items in a resample.",
    of=equations.resampling_law,
    against="all n^n resamples of the items, counted",
    wrong={
        "without replacement": lambda successes, trials: torch.eye(trials + 1, dtype=torch.float64)[successes],
        "failures counted": lambda successes, trials: equations.resampling_law(successes, trials).flip(0),
        "one success added": lambda successes, trials: equations.resampling_law(successes + 1, trials),
        "all counts equally likely": lambda successes, trials: torch.full((trials + 1,), 1 / (trials + 1)).double(),
    },
)
def _(law, draw: Draw) -> Iterator[Comparison]:
    for trials in (4, 5):
        successes = draw.integer(1, 2)
        shares = _resampled_shares(successes, trials)
        counted = [sum(round(share * trials) == s for share in shares) for s in range(trials + 1)]
        yield law(successes, trials), torch.tensor(counted).double() / len(shares)


@check(
    "eq:bootstrap-law",
    "value",
    "The ends are quantiles of the fractions in all resamples, which are equally probable.",
    of=experiments.bootstrap_interval,
    against="sorted fractions of all n^n resamples of the items",
    wrong={
        "both tails of the whole level": lambda successes, trials, *, alpha: experiments.bootstrap_interval(
            successes, trials, alpha=min(2 * alpha, 0.99)
        ),
        "one item fewer": lambda successes, trials, *, alpha: experiments.bootstrap_interval(
            successes - 1, trials - 1, alpha=alpha
        ),
        "reflected at the share": lambda successes, trials, *, alpha: tuple(
            2 * successes / trials - end for end in experiments.bootstrap_interval(successes, trials, alpha=alpha)
        ),
    },
)
def _(interval, draw: Draw) -> Iterator[Comparison]:
    first = float(draw.uniform(low=0.11, high=0.13))
    for successes, alpha in ((1, first), (2, first), (3, 0.4), (4, 0.4)):
        shares = sorted(_resampled_shares(successes, 5))
        low, high = interval(successes, 5, alpha=alpha)
        yield low, shares[math.ceil(alpha / 2 * len(shares)) - 1]
        yield high, shares[math.ceil((1 - alpha / 2) * len(shares)) - 1]


@check(
    "eq:interval-coverage",
    "value",
    "The probability of an outcome whose interval contains the true value.",
    of=equations.coverage,
    against="all 2^n outcomes of the items, of which those count whose interval contains the true value",
    wrong={
        "all counts equally likely": lambda low, high, chance: (
            ((low <= chance[..., None]) & (chance[..., None] <= high)).double().mean(-1)
        ),
        "how often it misses": lambda low, high, chance: 1 - equations.coverage(low, high, chance),
        "upper end only": lambda low, high, chance: equations.coverage(torch.zeros_like(low), high, chance),
        "failures counted": lambda low, high, chance: equations.coverage(low, high, 1 - chance),
    },
)
def _(coverage, draw: Draw) -> Comparison:
    n, truths = 5, draw.uniform(3, low=0.45, high=0.55)
    low = torch.tensor([0.0, 0.0, 0.1, 0.6, 0.7, 0.8], dtype=torch.float64) + draw.uniform(6, low=0.0, high=0.05)
    high = torch.tensor([0.2, 0.3, 0.7, 0.8, 0.9, 0.95], dtype=torch.float64) + draw.uniform(6, low=0.0, high=0.05)
    low[3], high[1] = truths[0], truths[1]  # an end belongs to its interval
    expected = []
    for p in truths.tolist():
        held = 0.0
        for outcome in itertools.product([0, 1], repeat=n):
            s = sum(outcome)
            if float(low[s]) <= p <= float(high[s]):
                held += math.prod(p if right else 1 - p for right in outcome)
        expected.append(held)
    return coverage(low, high, truths), torch.tensor(expected, dtype=torch.float64)


# -- pairs -------------------------------------------------------------------------------------------------------


@check(
    "eq:sign-test",
    "value",
    "The fraction of all swaps with a difference at least as large as the observed one.",
    of=statistics.sign_test,
    against="all ways to swap the two models on the items on which they differ",
    wrong={
        "one tail": lambda more, less: statistics.sign_test(more, less) / 2,
        "the observed split alone": lambda more, less: 2 * math.comb(more + less, less) / 2 ** (more + less),
        "ties kept as halves": lambda more, less: statistics.sign_test(more + 1, less + 1),
    },
)
def _(sign_test, draw: Draw) -> Iterator[Comparison]:
    for more, less in ((5 + draw.integer(0, 2), 1), (draw.integer(4, 5), 2), (0, 3)):
        seen, n = abs(more - less), more + less
        swaps = [abs(sum(signs)) >= seen for signs in itertools.product([-1, 1], repeat=n)]
        yield sign_test(more, less), sum(swaps) / 2**n


@check(
    "eq:paired-variance",
    "unbiased", "The expectation of the estimate is the variance of the mean difference.",
    of=equations.paired_variance,
    against="the variance of the mean difference, over all samples of three items from a population of four",
    wrong={
        "as if the models saw other items": lambda ours, theirs: (ours.var(-1) + theirs.var(-1)) / ours.shape[-1],
        "divided by n twice": lambda ours, theirs: (ours - theirs).var(-1, correction=0) / ours.shape[-1],
        "of one item": lambda ours, theirs: (ours - theirs).var(-1),
        "covariance once": lambda ours, theirs: (
            ours.var(-1) + theirs.var(-1)
            - ((ours - ours.mean(-1, keepdim=True)) * (theirs - theirs.mean(-1, keepdim=True))).sum(-1) / (ours.shape[-1] - 1)
        ) / ours.shape[-1],
    },
)  # fmt: skip
def _(variance, draw: Draw) -> Comparison:
    chances = draw.distribution(4, scale=0.5).tolist()
    difficulty = draw.uniform(4, low=0.0, high=3.0)
    ours, theirs = difficulty + draw.uniform(4), difficulty + draw.uniform(4)
    samples = list(itertools.product(range(4), repeat=3))
    chance = [math.prod(chances[i] for i in sample) for sample in samples]
    rows = torch.tensor(samples)
    means = (ours[rows].mean(-1) - theirs[rows].mean(-1)).tolist()
    found = (torch.tensor(chance, dtype=torch.float64) * variance(ours[rows], theirs[rows])).sum()
    return found, _variance(list(zip(chance, means, strict=True)))


# -- clusters ----------------------------------------------------------------------------------------------------


def _of_independent_items(scores: Tensor, clusters: Tensor) -> Tensor:
    return scores.var(correction=0) / len(scores)


def _of_cluster_means(scores: Tensor, clusters: Tensor) -> Tensor:
    means = torch.stack([scores[clusters == c].mean() for c in clusters.unique()])
    return means.var(correction=0) / len(means)


@check(
    "eq:clustered-variance",
    "bootstrap", "For clusters of equal size it is the variance of the bootstrap that resamples whole clusters.",
    of=evaluation.clustered_variance,
    against="the variance of the mean over all ways to draw three of three clusters, with replacement",
    wrong={
        "items independent": _of_independent_items,
        "clusters counted as items": lambda s, c: evaluation.clustered_variance(s, c) * len(s) ** 2 / len(c.unique()) ** 2,
        "one more in the denominator": lambda s, c: evaluation.clustered_variance(s, c) * len(s) / (len(s) - 1),
    },
)  # fmt: skip
def _(variance, draw: Draw) -> Comparison:
    scores = draw.uniform(3, 1, low=0.0, high=3.0) + draw.uniform(3, 2)
    means = [float(scores[list(again)].mean()) for again in itertools.product(range(3), repeat=3)]
    got = variance(scores.flatten(), torch.tensor([4, 4, 0, 0, 9, 9]))
    return got, _variance([(1 / 27, mean) for mean in means])


@check(
    "eq:clustered-variance",
    "pairs",
    "Every pair of items of one cluster contributes the product of its deviations; other pairs contribute 0.",
    of=evaluation.clustered_variance,
    against="products of deviations, over all pairs of items of one cluster",
    wrong={
        "items independent": _of_independent_items,
        "mean of the cluster means": _of_cluster_means,
    },
)
def _(variance, draw: Draw) -> Comparison:
    clusters = torch.tensor([2, 7, 2, 2, 7, 5])
    scores = draw.uniform(6) + torch.tensor([2.0, 0.0, 2.0, 2.0, 0.0, 1.0], dtype=torch.float64)
    mean = sum(scores.tolist()) / 6
    total = sum(
        (float(scores[i]) - mean) * (float(scores[j]) - mean)
        for i, j in itertools.product(range(6), repeat=2)
        if clusters[i] == clusters[j]
    )
    return variance(scores, clusters), total / 36


@check(
    "eq:design-effect",
    "value",
    "Items that copy one common coin with probability ρ and are independent otherwise, against as many "
    "independent items.",
    of=equations.design_effect,
    against="the exact variance of a cluster's sum, over all of its outcomes",
    wrong={
        "1 + mρ": lambda size, correlation: 1 + size * correlation,
        "correlation squared": lambda size, correlation: 1 + (size - 1) * correlation**2,
        "of the standard error": lambda size, correlation: equations.design_effect(size, correlation).sqrt(),
    },
)
def _(effect, draw: Draw) -> Comparison:
    sizes, rho, p = [2, 3, 4], draw.uniform(3, low=0.2, high=0.8), float(draw.uniform(low=0.2, high=0.8))
    expected = []
    for m, r in zip(sizes, rho.tolist(), strict=True):
        law = []
        for outcome in itertools.product([0, 1], repeat=m):
            alone = math.prod(p if x else 1 - p for x in outcome)
            together = {0: 1 - p, m: p}.get(sum(outcome), 0.0)
            law.append((r * together + (1 - r) * alone, float(sum(outcome))))
        expected.append(_variance(law) / (m * p * (1 - p)))
    return effect(torch.tensor(sizes).double(), rho), torch.tensor(expected, dtype=torch.float64)


# -- seeds, items, replies ---------------------------------------------------------------------------------------

_WRONG_SOURCES = {
    "everything divided by the number of items": lambda seed, item, reply, *, seeds, items, replies: (
        (seed + item + reply / replies) / items
    ),
    "more seeds are more items": lambda seed, item, reply, *, seeds, items, replies: (
        seed / seeds + item / (items * seeds) + reply / (seeds * items * replies)
    ),
    "more replies are more items": lambda seed, item, reply, *, seeds, items, replies: (
        seed / seeds + item / (items * replies) + reply / (seeds * items * replies)
    ),
    "replies do not help": lambda seed, item, reply, *, seeds, items, replies: (
        seed / seeds + item / items + reply / (seeds * items)
    ),
}


@check(
    "eq:three-sources",
    "value",
    "The variance of a mean over seeds, items and replies with independent contributions.",
    of=evaluation.difference_variance,
    against="all outcomes of coins for each seed, item and reply",
    wrong=_WRONG_SOURCES,
)
def _(variance, draw: Draw) -> Iterator[Comparison]:
    deviations = draw.uniform(3, low=0.5, high=1.5)
    tau, omega, sigma = deviations.tolist()
    for seeds, items, replies in ((2, 2, 2), (1, 3, 2), (3, 2, 1)):
        law = []
        coins = [-1, 1]
        # Given the coins of seeds and items, those of the replies add up to a binomial number, which spares most outcomes.
        cells = seeds * items * replies
        for ups in range(cells + 1):
            chance = math.comb(cells, ups) / 2**cells
            noise = sigma * (2 * ups - cells) / cells
            for t in itertools.product(coins, repeat=seeds):
                for d in itertools.product(coins, repeat=items):
                    law.append((chance / 2 ** (seeds + items), tau * sum(t) / seeds + omega * sum(d) / items + noise))
        yield variance(*(deviations**2), seeds=seeds, items=items, replies=replies), _variance(law)


@check(
    "eq:three-sources",
    "right or wrong",
    "For binary outcomes ω² is the variance of the items' probabilities and σ² the mean of p(1 − p).",
    of=evaluation.difference_variance,
    against="all draws of two items, and all outcomes of their replies",
    wrong={name: _WRONG_SOURCES[name] for name in ("more replies are more items", "replies do not help")},
)
def _(variance, draw: Draw) -> Iterator[Comparison]:
    weights = draw.distribution(3, scale=0.5)
    chances = draw.uniform(3, low=0.0, high=0.2) + torch.tensor([0.1, 0.4, 0.7])
    mean = (weights * chances).sum()
    item, reply = (weights * (chances - mean) ** 2).sum(), (weights * chances * (1 - chances)).sum()
    for replies in (2, 3):
        law = []
        for pair in itertools.product(range(3), repeat=2):
            for outcome in itertools.product([0, 1], repeat=2 * replies):
                ps = [float(chances[pair[at // replies]]) for at in range(2 * replies)]
                chance = math.prod(p if right else 1 - p for p, right in zip(ps, outcome, strict=True))
                law.append((chance * float(weights[pair[0]] * weights[pair[1]]), sum(outcome) / (2 * replies)))
        yield variance(torch.zeros_like(item), item, reply, seeds=1, items=2, replies=replies), _variance(law)


@check(
    "eq:items-needed",
    "power",
    "With this number of items the difference is significant, with the correct sign, with the requested probability.",
    of=evaluation.items_needed,
    against="the normal density of the measured difference, integrated beyond the test's threshold",
    wrong={
        "power forgotten": lambda effect, *, power, **o: evaluation.items_needed(effect, power=0.5, **o),
        "one-sided": lambda effect, *, alpha, **o: evaluation.items_needed(effect, alpha=2 * alpha, **o),
        "seeds forgotten": lambda effect, *, seed, **o: evaluation.items_needed(effect, **o),
        "replies are items": lambda effect, *, item, replies, **o: evaluation.items_needed(
            effect, item=item / replies, replies=replies, **o
        ),
        "unpaired items": lambda effect, *, item, **o: evaluation.items_needed(effect, item=2 * item, **o),
    },
)
def _(needed, draw: Draw) -> Iterator[Comparison]:
    tau, omega, sigma = draw.uniform(3, low=0.5, high=1.5).tolist()
    for seeds, replies, alpha, power, share in ((2, 3, 0.1, 0.7, 0.3), (5, 2, 0.02, 0.9, 0.1)):
        effect = float(draw.uniform(low=1.0, high=2.0)) * (_reach(alpha / 2) + 1.5) * math.sqrt(tau / (seeds * share))
        tau, omega, sigma, effect = tau / 100, omega / 100, sigma / 100, effect / 10  # of scores between 0 and 1
        options = {"seed": tau, "item": omega, "reply": sigma, "seeds": seeds, "replies": replies}
        n = needed(effect, **options, alpha=alpha, power=power)
        deviation = math.sqrt(tau / seeds + (omega + sigma / (seeds * replies)) / n)
        density = lambda x, at=effect / deviation: (-0.5 * (x - at) ** 2).exp() / math.sqrt(2 * math.pi)
        threshold, centre = _reach(alpha / 2), effect / deviation
        yield exact.integrate(density, threshold, max(threshold, centre) + 9.0, nodes=200), power
