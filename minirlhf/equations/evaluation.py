"""How sure a measured number is: intervals, pairs, how many items and seeds, leaderboards, calibration, leaks.

Scores are of items: the questions of a benchmark, drawn from all the questions that it stands for. Variances are those of
means over items.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Sequence
from statistics import NormalDist

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import FINITE, NOT_NEGATIVE, POSITIVE, at_least, finite, number, shape, takes
from minirlhf.equations.reward_losses import bradley_terry

_LEVEL = number("(0, 1)")
_COUNTED = finite("...", "[0, inf)")
_CHANCE = finite("...", "[0, 1]")


def _two_sided(alpha: float) -> float:
    """How many standard errors an interval at this level reaches to each side; 1.96 for 0.05."""
    return NormalDist().inv_cdf(1 - alpha / 2)


def _share(successes: Tensor, trials: Tensor) -> Tensor:
    if not bool(((trials >= 1) & (successes <= trials)).all()):
        raise ArgumentError(
            f"successes of shape {tuple(successes.shape)}; expected 0 ≤ successes ≤ trials and trials ≥ 1",
            argument="successes",
            problem="out of range",
        )
    return successes / trials


# -- one share ---------------------------------------------------------------------------------------------------


@takes(successes=_COUNTED, trials=_COUNTED, alpha=_LEVEL)
def wald_interval(successes: Tensor, trials: Tensor, *, alpha: float = 0.05) -> tuple[Tensor, Tensor]:
    """The interval p̂ ± z √(p̂(1 − p̂)/n) of a share, both ends ``(...)``. Empty of width where all or none succeed.

    Label: eq:wald-interval
    Source: Brown, Cai and DasGupta (2001), "Interval estimation for a binomial proportion", who show how it fails.
    """
    p = _share(successes, trials)
    half = _two_sided(alpha) * (p * (1 - p) / trials).sqrt()
    return p - half, p + half


@takes(successes=_COUNTED, trials=_COUNTED, alpha=_LEVEL)
def wilson_interval(successes: Tensor, trials: Tensor, *, alpha: float = 0.05) -> tuple[Tensor, Tensor]:
    """All p that are within z of *their own* standard errors √(p(1 − p)/n) of the share p̂; both ends ``(...)``, inside [0, 1].

    Label: eq:wilson-interval
    Source: Wilson (1927), "Probable inference, the law of succession, and statistical inference".
    """
    p = _share(successes, trials)
    spread = _two_sided(alpha) ** 2 / trials
    centre = (p + spread / 2) / (1 + spread)
    half = (spread * p * (1 - p) + spread**2 / 4).sqrt() / (1 + spread)
    return (centre - half).clamp(min=0.0), (centre + half).clamp(max=1.0)


@torch.no_grad()
@takes(wins=_COUNTED, ties=_COUNTED, losses=_COUNTED, alpha=_LEVEL)
def win_rate_interval(wins: Tensor, ties: Tensor, losses: Tensor, *, alpha: float = 0.05) -> tuple[Tensor, Tensor]:
    """All win rates μ, ties counted one half, that are within z of *their own* standard errors of what was seen; both ends ``(...)``.

    With shares w of wins and l of losses a vote has the mean μ = ½ + (w − l)/2 and the variance (w + l − (w − l)²)/4; of the shares that
    have this mean the likeliest are taken. Without ties it is Wilson's interval, with ties narrower. No gradient flows.

    Label: eq:win-rate-interval
    Source: Tango (1998), "Equivalence test and confidence interval for the difference in proportions for the paired-sample design": his
        difference is w − l.
    Args:
        wins, ties, losses: how many of each, at least one in all.
    """
    wins, ties, losses = wins.double(), ties.double(), losses.double()
    if not bool((wins + ties + losses >= 1).all()):
        raise ArgumentError(
            f"wins of shape {tuple(wins.shape)}; expected at least one vote", argument="wins", problem="empty"
        )
    z = _two_sided(alpha)
    return 1 - _highest_win_rate(losses, ties, wins, z), _highest_win_rate(wins, ties, losses, z)


def _highest_win_rate(wins: Tensor, ties: Tensor, losses: Tensor, z: float) -> Tensor:
    """Upper end of :func:`win_rate_interval`, by halving; of w − l, then of the mean."""
    votes = wins + ties + losses
    seen = (wins - losses) / votes
    low, high = seen, torch.ones_like(seen)
    for _ in range(60):
        middle = (low + high) / 2
        # The likelihood of w = l + middle, l and 1 − w − l has its maximum where 2 n l² − b l − L·middle (1 − middle) = 0.
        b = wins + losses - middle * (2 * votes - wins + losses)
        root = (b**2 + 8 * votes * losses * middle * (1 - middle)).clamp(min=0.0).sqrt()
        spread = (b + root) / (2 * votes) + middle - middle**2  # w + l − (w − l)²
        within = (middle - seen) ** 2 * votes <= z**2 * spread
        low, high = torch.where(within, middle, low), torch.where(within, high, middle)
    return (1 + low) / 2


def _binomial_log_chances(trials: int, chance: Tensor) -> Tensor:
    """``(..., trials + 1)``: log-probabilities of 0 … trials successes."""
    counts = torch.arange(trials + 1, dtype=torch.float64)
    ways = math.lgamma(trials + 1) - torch.lgamma(counts + 1) - torch.lgamma(trials - counts + 1)
    chance = chance.double().unsqueeze(-1)
    return ways + torch.special.xlogy(counts, chance) + torch.special.xlogy(trials - counts, 1 - chance)


@torch.no_grad()
@takes(successes=at_least(0), trials=at_least(1))
def resampling_law(successes: int, trials: int) -> Tensor:
    """How likely a resample of the items, n drawn of n with replacement, has s right ones: Binomial(s; n, p̂), ``(trials + 1,)``.

    Label: eq:bootstrap-law
    Source: Efron (1979), "Bootstrap methods: another look at the jackknife".
    """
    if successes > trials:
        raise ArgumentError(
            f"{successes=} of {trials=}; expected successes ≤ trials",
            argument="successes",
            value=successes,
            expected=trials,
        )
    return _binomial_log_chances(trials, torch.tensor(successes / trials, dtype=torch.float64)).exp()


@torch.no_grad()
@takes(low=finite("S"), high=finite("S"), chance=_CHANCE)
def coverage(low: Tensor, high: Tensor, chance: Tensor) -> Tensor:
    """How often an interval holds the truth: Σ_s Binomial(s; n, p) [low_s ≤ p ≤ high_s], ``(...)``. No gradient flows.

    Label: eq:interval-coverage
    Source: Neyman (1937), "Outline of a theory of statistical estimation based on the classical theory of probability".
    Args:
        low, high: the ends for s = 0 … n successes, so that S = n + 1.
        chance: p, the truth.
    """
    p = chance.double().unsqueeze(-1)
    holds = (low <= p) & (p <= high)
    return (_binomial_log_chances(len(low) - 1, chance).exp() * holds).sum(-1)


# -- where the noise of a mean comes from ------------------------------------------------------------------------


@torch.no_grad()
@takes(scores="N", clusters=shape("N"))
def clustered_variance(scores: Tensor, clusters: Tensor) -> Tensor:
    """Variance of a mean whose items come in clusters: Σ_c (Σ_{i∈c} (s_i − s̄))² / n². Scalar. No gradient flows.

    What the bootstrap that draws whole clusters has, if all are of one size. With clusters of one item it is the ordinary one.

    Label: eq:clustered-variance
    Source: Liang and Zeger (1986), "Longitudinal data analysis using generalized linear models"; for benchmarks Miller (2024), "Adding
        error bars to evals".
    Args:
        clusters: the number of each item's cluster, such as the passage that its question is about; any integers.
    """
    _, place = clusters.unique(return_inverse=True)
    sums = scores.new_zeros(int(place.max()) + 1).index_add(0, place, scores - scores.mean())
    return (sums**2).sum() / len(scores) ** 2


@takes(size=finite("...", "[1, inf)"), correlation=finite("...", "[-1, 1]"))
def design_effect(size: Tensor, correlation: Tensor) -> Tensor:
    """By how much clusters multiply the variance of a mean: 1 + (m − 1)ρ, for m items that correlate by ρ in each. ``(...)``

    Label: eq:design-effect
    Source: Kish (1965), "Survey sampling", section 5.4.
    """
    return 1 + (size - 1) * correlation


@takes(ours="... N", theirs="... N")
def paired_variance(ours: Tensor, theirs: Tensor) -> Tensor:
    """Estimated variance of the mean difference of two models on the same items: Σ_i (d_i − d̄)² / (n(n − 1)). ``(...)``

    It is (s_A² + s_B² − 2 s_AB)/n: what the two share, the difficulty of the items, drops out.

    Label: eq:paired-variance
    Source: Student (1908), "The probable error of a mean"; for benchmarks Miller (2024), "Adding error bars to evals".
    """
    if ours.shape[-1] < 2:
        raise ArgumentError(
            f"ours has shape {tuple(ours.shape)}; expected at least two items",
            argument="ours",
            value=tuple(ours.shape),
            problem="too few",
        )
    return (ours - theirs).var(-1) / ours.shape[-1]


@takes(seed=_COUNTED, item=_COUNTED, reply=_COUNTED, seeds=at_least(1), items=at_least(1), replies=at_least(1))
def difference_variance(seed: Tensor, item: Tensor, reply: Tensor, *, seeds: int, items: int, replies: int) -> Tensor:
    """Variance of a measured difference: τ²/S + ω²/n + σ²/(SnK), ``(...)``.

    Each of S seeds is trained (for both recipes), asked the same n items, K replies to each.

    Label: eq:three-sources
    Source: Searle, Casella and McCulloch (1992), "Variance components"; without seeds Miller (2024), "Adding error bars to evals".
    Args:
        seed: τ², variance of the true difference between seeds.
        item: ω², variance between items of the difference in the two chances of being right.
        reply: σ², what is left: for right or wrong answers the mean of p(1 − p), of the two models together.
    """
    return seed / seeds + item / items + reply / (seeds * items * replies)


@takes(effect=POSITIVE, seed=NOT_NEGATIVE, item=NOT_NEGATIVE, reply=NOT_NEGATIVE, seeds=at_least(1), replies=at_least(1),
       alpha=_LEVEL, power=_LEVEL)  # fmt: skip
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
    """Items from which on a difference is found with this probability: (ω² + σ²/(SK)) / (δ²/(z_{1−α/2} + z_power)² − τ²/S).

    Infinite where the seeds alone hide the difference; then only more seeds help. 0 for a power of at most α/2, which a test has
    of no difference at all. A normal approximation: for many items, and with a τ² that is known. Round up.

    Label: eq:items-needed
    Source: eq:smallest-effect of eq:three-sources, solved; without seeds Miller (2024), "Adding error bars to evals", section 5.
    """
    reach = _two_sided(alpha) + NormalDist().inv_cdf(power)
    if reach <= 0:
        return 0.0
    room = (effect / reach) ** 2 - seed / seeds
    return (item + reply / (seeds * replies)) / room if room > 0 else math.inf


# -- leaderboards ------------------------------------------------------------------------------------------------


@takes(games=finite("... K K", "[0, inf)"), rewards="... K")
def leaderboard_information(games: Tensor, rewards: Tensor) -> Tensor:
    """What all games tell about Bradley–Terry rewards, ``(..., K, K)``: −n_ab p_ab(1 − p_ab) off the diagonal, rows of sum 0.

    Label: eq:leaderboard-information
    Source: Hunter (2004), "MM algorithms for generalized Bradley-Terry models", section 4; Chiang et al. (2024), "Chatbot Arena".
    Args:
        games: n_ab, how often the two have met; symmetric, the diagonal is not read.
    """
    if not torch.equal(games.triu(1), games.mT.triu(1)):
        raise ArgumentError(
            f"games of shape {tuple(games.shape)}; expected a symmetric table",
            argument="games",
            problem="not symmetric",
        )
    p = bradley_terry(*torch.broadcast_tensors(rewards[..., :, None], rewards[..., None, :]))
    told = (games * p * (1 - p)).triu(1)
    told = told + told.mT
    return torch.diag_embed(told.sum(-1)) - told


@takes(games=finite("... K K", "[0, inf)"), rewards="... K")
def leaderboard_variance(games: Tensor, rewards: Tensor) -> Tensor:
    """Variance of every difference of two fitted rewards, for many games: (e_a − e_b)ᵀ I⁺ (e_a − e_b), ``(..., K, K)``.

    A single reward has none: all may be shifted. Infinite between models that no chain of games connects.

    Label: eq:leaderboard-variance
    Source: eq:leaderboard-information, inverted; the pseudo-inverse I⁺: Penrose (1955).
    """
    information = leaderboard_information(games, rewards)
    size = games.shape[-1]
    # Away from the direction of a common shift, where I says nothing, (I + 11ᵀ/K)⁻¹ is I⁺.
    inverse = torch.linalg.inv(information + information.new_full((), 1 / size))
    own = inverse.diagonal(dim1=-2, dim2=-1)
    return own[..., :, None] + own[..., None, :] - 2 * inverse


# -- what is said about one's own answer -------------------------------------------------------------------------


@takes(probabilities=finite("... N", "[0, 1]"), outcomes=finite("... N", "[0, 1]"))
def brier_score(probabilities: Tensor, outcomes: Tensor) -> Tensor:
    """Mean of (p_i − o_i)², ``(...)``. Lowest, on average, for whoever says the true probability.

    Label: eq:brier-score
    Source: Brier (1950), "Verification of forecasts expressed in terms of probability", halved.
    """
    return ((probabilities - outcomes) ** 2).mean(-1)


@torch.no_grad()
@takes(probabilities=finite("N", "[0, 1]"), outcomes=finite("N", "[0, 1]"))
def brier_parts(probabilities: Tensor, outcomes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Reliability, resolution and uncertainty of answers of known outcome, grouped by what was said. Scalars. No gradient flows.

    Σ_v (n_v/N)(v − ō_v)², Σ_v (n_v/N)(ō_v − ō)², ō(1 − ō): the Brier score is the first − the second + the third, for outcomes of
    0 or 1.

    Label: eq:brier-parts
    Source: Murphy (1973), "A new vector partition of the probability score".
    """
    said, place, counts = probabilities.unique(return_inverse=True, return_counts=True)
    outcomes = outcomes.to(probabilities)
    happened = torch.zeros_like(said).index_add(0, place, outcomes) / counts
    weight, overall = counts / len(outcomes), outcomes.mean()
    reliability = (weight * (said - happened) ** 2).sum()
    resolution = (weight * (happened - overall) ** 2).sum()
    return reliability, resolution, overall * (1 - overall)


@takes(confidence=_CHANCE, penalty=NOT_NEGATIVE)
def answering_gain(confidence: Tensor, *, penalty: float) -> Tensor:
    """What answering is worth on average against "I do not know" at 0: p − λ(1 − p), above 0 where p > λ/(1 + λ). ``(...)``

    Label: eq:answering-gain, eq:abstention-threshold
    Source: Kalai et al. (2025), "Why language models hallucinate", section 4.2, with λ = t/(1 − t); Chow (1970).
    Args:
        confidence: p, the probability that the answer is right.
        penalty: λ, what a wrong answer costs; a right one earns 1.
    """
    return confidence - penalty * (1 - confidence)


# -- choosing among given answers --------------------------------------------------------------------------------


@takes(logps="... A", lengths=finite("... A", "[1, inf)"), exponent=FINITE)
def normalised_scores(logps: Tensor, lengths: Tensor, *, exponent: float = 1.0) -> Tensor:
    """Scores of answers of different lengths: log π(a | x) / |a|^κ, ``(..., A)``. κ = 0 is the plain sum.

    The lengths are in tokens or, so that models with other tokenizers can be compared, in bytes.

    Label: eq:normalised-score
    Source: Brown et al. (2020), "Language models are few-shot learners", section 2.4; in characters it is ``acc_norm`` of the LM Evaluation
        Harness, in bytes ``acc_bytes``.
    """
    return logps / lengths**exponent


@takes(logps="... A", prior_logps="... A")
def pointwise_information(logps: Tensor, prior_logps: Tensor) -> Tensor:
    """What the question adds to an answer's likelihood: log π(a | x) − log π(a | x₀), ``(..., A)``, x₀ a prompt without question.

    Label: eq:pointwise-information
    Source: Holtzman et al. (2021), "Surface form competition", section 3; ``acc_mutual_info`` of the LM Evaluation Harness.
    """
    return logps - prior_logps


# -- what the training data gives away, and what a public score does ---------------------------------------------


def ngrams(tokens: Sequence[Hashable], *, n: int) -> list[tuple[Hashable, ...]]:
    """All runs of n tokens, in order; of fewer than n tokens there is none."""
    return [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]


@takes(n=at_least(1))
def ngram_overlap(tokens: Sequence[Hashable], seen: Collection[tuple[Hashable, ...]], *, n: int) -> float:
    """Share of an item's runs of n tokens that occur in the training data: (1/M) Σ_j [g_j ∈ G]. 0 for an item of fewer tokens.

    Label: eq:ngram-overlap
    Source: Brown et al. (2020), "Language models are few-shot learners", appendix C, who take n from 8 to 13 by the length
        of the items, and flag any hit.
    Args:
        seen: the n-grams of the training data, best as a set.
    """
    runs = ngrams(tokens, n=n)
    return sum(run in seen for run in runs) / len(runs) if runs else 0.0


@takes(chance=_CHANCE, items=at_least(1), tries=at_least(1))
def selected_score(chance: Tensor, *, items: int, tries: int) -> Tensor:
    """Mean score of the best of several submissions that are all equally good: (1/n) Σ_{s=1}^{n} 1 − F(s − 1)^K. ``(...)``

    F is the distribution function of Binomial(n, p), the number of items that one of the K gets right; they are independent.

    Label: eq:selected-score
    Source: order statistics; for leaderboards Blum and Hardt (2015), "The Ladder".
    """
    upto = _binomial_log_chances(items, chance).exp().cumsum(-1)[..., :-1]
    return (1 - upto.clamp(max=1.0) ** tries).mean(-1)
