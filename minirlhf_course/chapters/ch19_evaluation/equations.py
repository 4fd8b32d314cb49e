"""The equations that only chapter 19 needs: intervals, designs of a comparison, leaderboards, calibration.

Scores belong to items: the questions of a benchmark, a sample of the questions that the benchmark represents. Variances
are variances of means over items.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import NOT_NEGATIVE, at_least, finite, takes
from minirlhf.equations.reward_losses import bradley_terry

_CHANCE = finite("...", "[0, 1]")


# -- one proportion ----------------------------------------------------------------------------------------------


def _binomial_log_chances(trials: int, probability: Tensor) -> Tensor:
    """``(..., trials + 1)``: log-probabilities of 0 … trials successes."""
    counts = torch.arange(trials + 1, dtype=torch.float64)
    log_ways = math.lgamma(trials + 1) - torch.lgamma(counts + 1) - torch.lgamma(trials - counts + 1)
    probability = probability.double().unsqueeze(-1)
    return log_ways + torch.special.xlogy(counts, probability) + torch.special.xlogy(trials - counts, 1 - probability)


@torch.no_grad()
@takes(successes=at_least(0), trials=at_least(1))
@equation("eq:bootstrap-law", source='Efron (1979), "Bootstrap methods: another look at the jackknife".')
def resampling_law(successes: int, trials: int) -> Tensor:
    """Probability that a bootstrap resample of n items has s correct ones: Binomial(s; n, p̂), ``(trials + 1,)``."""
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
@equation(
    "eq:interval-coverage",
    source='Neyman (1937), "Outline of a theory of statistical estimation based on the classical theory of '
    'probability".',
    gradient=(),
)
def coverage(low: Tensor, high: Tensor, chance: Tensor) -> Tensor:
    """Coverage probability ``(...)`` of an interval: Σ_s Binomial(s; n, p) [low_s ≤ p ≤ high_s].

    Args:
        low, high: the ends for s = 0 … n successes, so that S = n + 1.
        chance: p, the true probability of success.
    """
    p = chance.double().unsqueeze(-1)
    covered = (low <= p) & (p <= high)
    return (_binomial_log_chances(len(low) - 1, chance).exp() * covered).sum(-1)


# -- variance components of a mean -------------------------------------------------------------------------------


@takes(size=finite("...", "[1, inf)"), correlation=finite("...", "[-1, 1]"))
@equation("eq:design-effect", source='Kish (1965), "Survey sampling", section 5.4.')
def design_effect(size: Tensor, correlation: Tensor) -> Tensor:
    """Factor by which clusters of m items with correlation ρ multiply the variance of a mean: 1 + (m − 1)ρ, ``(...)``."""
    return 1 + (size - 1) * correlation


@takes(ours="... N", theirs="... N")
@equation(
    "eq:paired-variance",
    source='Student (1908), "The probable error of a mean"; for benchmarks Miller (2024), "Adding error bars to '
    'evals".',
)
def paired_variance(ours: Tensor, theirs: Tensor) -> Tensor:
    """Estimated variance ``(...)`` of two models' mean difference on the same items: Σ_i (d_i − d̄)² / (n(n − 1)).

    It is (s_A² + s_B² − 2 s_AB)/n: the common part of both scores, the difficulty of the items, cancels.
    """
    if ours.shape[-1] < 2:
        raise ArgumentError(
            f"ours has shape {tuple(ours.shape)}; expected at least two items",
            argument="ours",
            value=tuple(ours.shape),
            problem="too few",
        )
    return (ours - theirs).var(-1) / ours.shape[-1]


# -- leaderboards ------------------------------------------------------------------------------------------------


@takes(games=finite("... K K", "[0, inf)"), rewards="... K")
@equation(
    "eq:leaderboard-information",
    source='Hunter (2004), "MM algorithms for generalized Bradley-Terry models", section 4; Chiang et al. (2024), '
    '"Chatbot Arena".',
)
def leaderboard_information(games: Tensor, rewards: Tensor) -> Tensor:
    """Fisher information ``(..., K, K)`` of Bradley–Terry rewards: −n_ab p_ab(1 − p_ab) off the diagonal, row sums 0.

    Args:
        games: n_ab, number of games of a against b; symmetric, the diagonal is ignored.
    """
    if not torch.equal(games.triu(1), games.mT.triu(1)):
        raise ArgumentError(
            f"games of shape {tuple(games.shape)}; expected a symmetric table",
            argument="games",
            problem="not symmetric",
        )
    p = bradley_terry(*torch.broadcast_tensors(rewards[..., :, None], rewards[..., None, :]))
    information = (games * p * (1 - p)).triu(1)
    information = information + information.mT
    return torch.diag_embed(information.sum(-1)) - information


@takes(games=finite("... K K", "[0, inf)"), rewards="... K")
@equation(
    "eq:leaderboard-variance",
    source="eq:leaderboard-information, inverted; the pseudo-inverse I⁺: Penrose (1955).",
)
def leaderboard_variance(games: Tensor, rewards: Tensor) -> Tensor:
    """Variance of every difference of two fitted rewards, for many games: (e_a − e_b)ᵀ I⁺ (e_a − e_b), ``(..., K, K)``.

    The variance of a single reward is undefined, because a common shift of all rewards changes nothing. The variance is
    infinite between models that no chain of games connects.
    """
    information = leaderboard_information(games, rewards)
    size = games.shape[-1]
    # (I + 11ᵀ/K)⁻¹ equals I⁺ except in the direction of a common shift, in which I is 0.
    inverse = torch.linalg.inv(information + information.new_full((), 1 / size))
    diagonal = inverse.diagonal(dim1=-2, dim2=-1)
    return diagonal[..., :, None] + diagonal[..., None, :] - 2 * inverse


# -- calibration and abstention ----------------------------------------------------------------------------------


@takes(probabilities=finite("... N", "[0, 1]"), outcomes=finite("... N", "[0, 1]"))
@equation(
    "eq:brier-score",
    source='Brier (1950), "Verification of forecasts expressed in terms of probability", halved.',
)
def brier_score(probabilities: Tensor, outcomes: Tensor) -> Tensor:
    """Mean of (p_i − o_i)², ``(...)``. Its expectation is lowest for the true probabilities."""
    return ((probabilities - outcomes) ** 2).mean(-1)


@torch.no_grad()
@takes(probabilities=finite("N", "[0, 1]"), outcomes=finite("N", "[0, 1]"))
@equation("eq:brier-parts", source='Murphy (1973), "A new vector partition of the probability score".', gradient=())
def brier_parts(probabilities: Tensor, outcomes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Reliability, resolution and uncertainty of predictions, grouped by probability. Scalars.

    They are Σ_v (n_v/N)(v − ō_v)², Σ_v (n_v/N)(ō_v − ō)² and ō(1 − ō). For outcomes of 0 or 1 the Brier score is
    reliability − resolution + uncertainty.
    """
    levels, level_ids, counts = probabilities.unique(return_inverse=True, return_counts=True)
    outcomes = outcomes.to(probabilities)
    frequencies = torch.zeros_like(levels).index_add(0, level_ids, outcomes) / counts
    weight, base_rate = counts / len(outcomes), outcomes.mean()
    reliability = (weight * (levels - frequencies) ** 2).sum()
    resolution = (weight * (frequencies - base_rate) ** 2).sum()
    return reliability, resolution, base_rate * (1 - base_rate)


@takes(confidence=_CHANCE, penalty=NOT_NEGATIVE)
@equation(
    "eq:answering-gain",
    "eq:abstention-threshold",
    source='Kalai et al. (2025), "Why language models hallucinate", section 4.2, with λ = t/(1 − t); Chow (1970).',
)
def answering_gain(confidence: Tensor, *, penalty: float) -> Tensor:
    """Expected score ``(...)`` of answering, where "I do not know" scores 0: p − λ(1 − p), above 0 if p > λ/(1 + λ).

    Args:
        confidence: p, the probability that the answer is correct.
        penalty: λ, subtracted for a wrong answer; a correct answer scores 1.
    """
    return confidence - penalty * (1 - confidence)


# -- contamination and selection ---------------------------------------------------------------------------------


@takes(chance=_CHANCE, items=at_least(1), tries=at_least(1))
@equation("eq:selected-score", source='order statistics; for leaderboards Blum and Hardt (2015), "The Ladder".')
def selected_score(chance: Tensor, *, items: int, tries: int) -> Tensor:
    """Expected score ``(...)`` of the best of K equally good submissions: (1/n) Σ_{s=1}^{n} 1 − F(s − 1)^K.

    F is the distribution function of Binomial(n, p), the number of correct items of one submission. The K submissions
    are independent.
    """
    cdf = _binomial_log_chances(items, chance).exp().cumsum(-1)[..., :-1]
    return (1 - cdf.clamp(max=1.0) ** tries).mean(-1)
