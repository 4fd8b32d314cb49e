"""Statistics of evaluation: intervals, paired comparisons, sample sizes, choices among answers, contamination.

Scores belong to items: the questions of a benchmark, a sample of the questions that the benchmark represents. Variances
are variances of means over items.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Sequence
from statistics import NormalDist

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import FINITE, NOT_NEGATIVE, POSITIVE, at_least, finite, number, shape, takes

_LEVEL = number("(0, 1)")
_COUNTED = finite("...", "[0, inf)")


def _two_sided(alpha: float) -> float:
    """Half-width of a two-sided interval at this level, in standard errors; 1.96 for 0.05."""
    return NormalDist().inv_cdf(1 - alpha / 2)


def _share(successes: Tensor, trials: Tensor) -> Tensor:
    if not bool(((trials >= 1) & (successes <= trials)).all()):
        raise ArgumentError(
            f"successes of shape {tuple(successes.shape)}; expected 0 ≤ successes ≤ trials and trials ≥ 1",
            argument="successes",
            problem="out of range",
        )
    return successes / trials


# -- one proportion ----------------------------------------------------------------------------------------------


@takes(successes=_COUNTED, trials=_COUNTED, alpha=_LEVEL)
@equation(
    "eq:wald-interval",
    source='Brown, Cai and DasGupta (2001), "Interval estimation for a binomial proportion", who show how it fails.',
)
def wald_interval(successes: Tensor, trials: Tensor, *, alpha: float = 0.05) -> tuple[Tensor, Tensor]:
    """The interval p̂ ± z √(p̂(1 − p̂)/n) of a proportion, both ends ``(...)``. Its width is 0 if all or none succeed."""
    p = _share(successes, trials)
    half_width = _two_sided(alpha) * (p * (1 - p) / trials).sqrt()
    return p - half_width, p + half_width


@takes(successes=_COUNTED, trials=_COUNTED, alpha=_LEVEL)
@equation(
    "eq:wilson-interval",
    source='Wilson (1927), "Probable inference, the law of succession, and statistical inference".',
)
def wilson_interval(successes: Tensor, trials: Tensor, *, alpha: float = 0.05) -> tuple[Tensor, Tensor]:
    """All p within z of *their own* standard errors √(p(1 − p)/n) of the proportion p̂; both ends ``(...)``, in [0, 1]."""
    p = _share(successes, trials)
    z2_over_n = _two_sided(alpha) ** 2 / trials
    center = (p + z2_over_n / 2) / (1 + z2_over_n)
    half_width = (z2_over_n * p * (1 - p) + z2_over_n**2 / 4).sqrt() / (1 + z2_over_n)
    return (center - half_width).clamp(min=0.0), (center + half_width).clamp(max=1.0)


@torch.no_grad()
@takes(wins=_COUNTED, ties=_COUNTED, losses=_COUNTED, alpha=_LEVEL)
@equation(
    "eq:win-rate-interval",
    source='Tango (1998), "Equivalence test and confidence interval for the difference in proportions for the '
    'paired-sample design": his difference is w − l.',
    gradient=(),
)
def win_rate_interval(wins: Tensor, ties: Tensor, losses: Tensor, *, alpha: float = 0.05) -> tuple[Tensor, Tensor]:
    """All win rates μ within z of *their own* standard errors of the observed rate, ties count ½; both ends ``(...)``.

    With fractions w of wins and l of losses, a vote has the mean μ = ½ + (w − l)/2 and the variance
    (w + l − (w − l)²)/4. The variance at each μ uses the maximum-likelihood fractions w and l with this mean. Without
    ties it is Wilson's interval, with ties it is narrower.

    Args:
        wins, ties, losses: number of each, at least one in total.
    """
    wins, ties, losses = wins.double(), ties.double(), losses.double()
    if not bool((wins + ties + losses >= 1).all()):
        raise ArgumentError(
            f"wins of shape {tuple(wins.shape)}; expected at least one vote", argument="wins", problem="empty"
        )
    z = _two_sided(alpha)
    return 1 - _highest_win_rate(losses, ties, wins, z), _highest_win_rate(wins, ties, losses, z)


def _highest_win_rate(wins: Tensor, ties: Tensor, losses: Tensor, z: float) -> Tensor:
    """Upper end of :func:`win_rate_interval`: bisection on w − l, then conversion to the mean."""
    votes = wins + ties + losses
    observed = (wins - losses) / votes
    low, high = observed, torch.ones_like(observed)
    for _ in range(60):
        middle = (low + high) / 2
        # The likelihood of w = l + middle, l and 1 − w − l is maximal where 2 n l² − b l − L·middle (1 − middle) = 0.
        b = wins + losses - middle * (2 * votes - wins + losses)
        root = (b**2 + 8 * votes * losses * middle * (1 - middle)).clamp(min=0.0).sqrt()
        variance = (b + root) / (2 * votes) + middle - middle**2  # w + l − (w − l)²
        within = (middle - observed) ** 2 * votes <= z**2 * variance
        low, high = torch.where(within, middle, low), torch.where(within, high, middle)
    return (1 + low) / 2


# -- variance components of a mean -------------------------------------------------------------------------------


@torch.no_grad()
@takes(scores="N", clusters=shape("N"))
@equation(
    "eq:clustered-variance",
    source='Liang and Zeger (1986), "Longitudinal data analysis using generalized linear models"; for benchmarks '
    'Miller (2024), "Adding error bars to evals".',
    gradient=(),
)
def clustered_variance(scores: Tensor, clusters: Tensor) -> Tensor:
    """Variance of a mean whose items come in clusters: Σ_c (Σ_{i∈c} (s_i − s̄))² / n². Scalar.

    It is the variance of the bootstrap that resamples whole clusters, if all clusters have the same size. With clusters
    of one item it is the ordinary variance of a mean.

    Args:
        clusters: the cluster id of each item, for example of the passage that its question is about; any integers.
    """
    _, cluster_ids = clusters.unique(return_inverse=True)
    sums = scores.new_zeros(int(cluster_ids.max()) + 1).index_add(0, cluster_ids, scores - scores.mean())
    return (sums**2).sum() / len(scores) ** 2


@takes(seed=_COUNTED, item=_COUNTED, reply=_COUNTED, seeds=at_least(1), items=at_least(1), replies=at_least(1))
@equation(
    "eq:three-sources",
    source='Searle, Casella and McCulloch (1992), "Variance components"; without seeds Miller (2024), "Adding '
    'error bars to evals".',
)
def difference_variance(seed: Tensor, item: Tensor, reply: Tensor, *, seeds: int, items: int, replies: int) -> Tensor:
    """Variance of a measured difference: τ²/S + ω²/n + σ²/(SnK), ``(...)``.

    Both recipes are trained with each of S seeds. Each model gives K completions for each of the same n items.

    Args:
        seed: τ², variance of the true difference between seeds.
        item: ω², variance between items of the difference in the two probabilities of a correct answer.
        reply: σ², residual variance of a completion: for correct or wrong answers the mean of p(1 − p), summed over the
            two models.
    """
    return seed / seeds + item / items + reply / (seeds * items * replies)


@takes(effect=POSITIVE, seed=NOT_NEGATIVE, item=NOT_NEGATIVE, reply=NOT_NEGATIVE, seeds=at_least(1), replies=at_least(1),
       alpha=_LEVEL, power=_LEVEL)  # fmt: skip
@equation(
    "eq:items-needed",
    source='eq:smallest-effect of eq:three-sources, solved; without seeds Miller (2024), "Adding error bars to '
    'evals", section 5.',
)
def items_needed(
    effect: float,
    *,
    seed: float = 0.0,
    item: float,
    reply: float,
    seeds: int = 1,
    replies: int = 1,
    alpha: float = 0.05,
    power: float = 0.8,
) -> float:
    """Number of items for a test of this power: (ω² + σ²/(SK)) / (δ²/(z_{1−α/2} + z_power)² − τ²/S).

    Infinite if the variance between seeds alone hides the difference; then only more seeds help. 0 for a power of at
    most α/2, which a test reaches without any difference. A normal approximation for many items and a known τ². Round
    up.
    """
    z_sum = _two_sided(alpha) + NormalDist().inv_cdf(power)
    if z_sum <= 0:
        return 0.0
    variance_budget = (effect / z_sum) ** 2 - seed / seeds
    return (item + reply / (seeds * replies)) / variance_budget if variance_budget > 0 else math.inf


# -- choosing among given answers --------------------------------------------------------------------------------


@takes(logps="... A", lengths=finite("... A", "[1, inf)"), exponent=FINITE)
@equation(
    "eq:normalised-score",
    source='Brown et al. (2020), "Language models are few-shot learners", section 2.4; in characters it is '
    "``acc_norm`` of the LM Evaluation Harness, in bytes ``acc_bytes``.",
)
def normalised_scores(logps: Tensor, lengths: Tensor, *, exponent: float = 1.0) -> Tensor:
    """Scores of answers of different lengths: log π(a | x) / |a|^κ, ``(..., A)``. κ = 0 is the plain sum.

    The lengths are in tokens, or in bytes to compare models with different tokenizers.
    """
    return logps / lengths**exponent


@takes(logps="... A", prior_logps="... A")
@equation(
    "eq:pointwise-information",
    source='Holtzman et al. (2021), "Surface form competition", section 3; ``acc_mutual_info`` of the LM '
    "Evaluation Harness.",
)
def pointwise_information(logps: Tensor, prior_logps: Tensor) -> Tensor:
    """Gain in an answer's log-probability from its question, ``(..., A)``: log π(a | x) − log π(a | x₀).

    The prompt x₀ has no question.
    """
    return logps - prior_logps


# -- contamination and selection ---------------------------------------------------------------------------------


def ngrams(tokens: Sequence[Hashable], *, n: int) -> list[tuple[Hashable, ...]]:
    """Return all n-grams of the tokens, in order; an empty list for fewer than n tokens."""
    return [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]


@takes(n=at_least(1))
@equation(
    "eq:ngram-overlap",
    source='Brown et al. (2020), "Language models are few-shot learners", appendix C, who take n from 8 to 13 by '
    "the length of the items, and flag any hit.",
)
def ngram_overlap(tokens: Sequence[Hashable], seen: Collection[tuple[Hashable, ...]], *, n: int) -> float:
    """Fraction of an item's n-grams that occur in the training data: (1/M) Σ_j [g_j ∈ G]; 0 for fewer than n tokens.

    Args:
        seen: the n-grams of the training data, preferably as a set.
    """
    grams = ngrams(tokens, n=n)
    return sum(gram in seen for gram in grams) / len(grams) if grams else 0.0
