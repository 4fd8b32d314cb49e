"""The information in one label: probabilities and Fisher information of comparisons, rankings, scales and noisy labels.

Rewards are in nats. A *difference* is the reward of the first completion minus the reward of the second. Information is
about the difference. It is the inverse variance per label of the best estimate of the difference, for many labels.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import finite, number, shape, takes

# -- noise -------------------------------------------------------------------------------------------------------


@takes(probability=finite("...", "[0, 1]"), flip=number("[0, 1]"))
@equation("eq:flipped-label", source='Angluin and Laird (1988), "Learning from noisy examples".')
def flipped_label(probability: Tensor, *, flip: float) -> Tensor:
    """Probability that a label prefers the first completion if a fraction ``flip`` of labels is flipped: p + ε(1 − 2p)."""
    return probability + flip * (1 - 2 * probability)


# -- scales ------------------------------------------------------------------------------------------------------


@takes(difference="...", cuts="M")
@equation(
    "eq:graded-preference",
    source='McCullagh (1980), "Regression models for ordinal data"; Rao and Kupper (1967), "Ties in '
    'paired-comparison experiments".',
)
def graded_preference(difference: Tensor, cuts: Tensor) -> Tensor:
    """Probabilities ``(..., M + 1)`` of the levels of a scale, from "the second is much better" to "the first is".

    The annotator perceives the difference with logistic noise, and M increasing cuts divide the perceived difference
    into levels: P(level > l) = σ(difference − c_l). One cut at 0 is Bradley–Terry; two cuts, at −log θ and log θ, are
    Rao and Kupper's model with ties.
    """
    if not bool((cuts.diff() > 0).all()):
        raise ArgumentError(
            f"cuts of shape {tuple(cuts.shape)}; expected increasing numbers", argument="cuts", problem="order"
        )
    above = torch.sigmoid(difference.unsqueeze(-1) - cuts)  # (..., M)
    ends = torch.ones_like(above[..., :1])
    return torch.cat([ends, above], -1) - torch.cat([above, 0 * ends], -1)


@takes(difference="...", cuts="M")
@equation(
    "eq:graded-information",
    source='Fisher (1925), "Theory of statistical estimation", applied to eq:graded-preference.',
)
def graded_information(difference: Tensor, cuts: Tensor) -> Tensor:
    """Fisher information ``(...)`` of one label on a scale: Σ_l (p′_l)² / p_l, with p′ = dp/d(difference)."""
    above = torch.sigmoid(difference.unsqueeze(-1) - cuts)
    derivatives = above * (1 - above)
    zeros = torch.zeros_like(derivatives[..., :1])
    level_derivatives = torch.cat([zeros, derivatives], -1) - torch.cat([derivatives, zeros], -1)
    return (level_derivatives**2 / graded_preference(difference, cuts)).sum(-1)


# -- rankings ----------------------------------------------------------------------------------------------------


def _counted(num_ranked: Tensor) -> Tensor:
    if num_ranked.is_floating_point() or not bool((num_ranked >= 2).all()):
        raise ArgumentError(
            f"num_ranked of shape {tuple(num_ranked.shape)}; expected integers ≥ 2", argument="num_ranked", expected=2
        )
    return num_ranked.double()


@takes(num_ranked=shape("..."))
@equation(
    "eq:ranking-worth",
    source='derived in the text; the information of Plackett–Luce: Hunter (2004), "MM algorithms for generalized '
    'Bradley–Terry models".',
)
def ranking_worth(num_ranked: Tensor) -> Tensor:
    """Number of independent comparisons with the same information as one ranking of K completions: 2 (K − Σ_{m≤K} 1/m).

    The ranking follows the Plackett–Luce model (eq:plackett-luce), and the completions are equally good. The number is
    a quotient of Fisher informations. K holds integers ≥ 2, the result is float64.
    """
    k = _counted(num_ranked)
    harmonic = torch.digamma(k + 1) - torch.digamma(torch.ones_like(k))
    return 2 * (k - harmonic)


@takes(num_ranked=shape("..."))
@equation(
    "eq:all-pairs-worth",
    source='derived in the text; the variance of a composite likelihood: Godambe (1960), "An optimum property of '
    'regular maximum likelihood estimation".',
)
def all_pairs_worth(num_ranked: Tensor) -> Tensor:
    """The value of :func:`ranking_worth` if all C(K, 2) pairs are fitted as if independent: 3K(K − 1) / (2(K + 1)).

    K holds integers ≥ 2, the result is float64.
    """
    k = _counted(num_ranked)
    return 3 * k * (k - 1) / (2 * (k + 1))


@takes(num_ranked=shape("..."))
@equation("eq:error-bar-factor", source="derived in the text; see eq:all-pairs-worth.")
def error_bar_factor(num_ranked: Tensor) -> Tensor:
    """Factor by which error bars are too small if the pairs of a ranking are taken as independent: √((K + 1) / 3).

    A ranking of K equally good completions has C(K, 2) pairs. The factor needs no model, because all orders are equally
    probable. K holds integers ≥ 2, the result is float64.
    """
    return ((_counted(num_ranked) + 1) / 3).sqrt()


# -- tests -------------------------------------------------------------------------------------------------------


def _quantile(probability: float) -> float:
    return math.sqrt(2.0) * float(torch.erfinv(torch.tensor(2 * probability - 1, dtype=torch.float64)))


@takes(effect="...", information=finite("...", "[0, inf)"), alpha=number("(0, 1)"))
@equation(
    "eq:detection-power",
    source='Wald (1943), "Tests of statistical hypotheses concerning several parameters when the number of '
    'observations is large".',
)
def detection_power(effect: Tensor, information: Tensor, *, alpha: float = 0.05) -> Tensor:
    """Probability that a two-sided test at level ``alpha`` finds an effect: Φ(e√I − z) + Φ(−e√I − z), z = Φ⁻¹(1 − α/2).

    The estimate of the effect is normal with variance 1/I, as for many labels. Without an effect the power is
    ``alpha``.
    """
    z = _quantile(1 - alpha / 2)
    shift = effect * information.sqrt()
    return torch.special.ndtr(shift - z) + torch.special.ndtr(-shift - z)


@takes(information=finite("...", "(0, inf)"), alpha=number("(0, 1)"), power=number("(0, 1)"))
@equation(
    "eq:smallest-effect",
    source="eq:detection-power, solved; the other tail, below 10⁻⁵ at the usual values, is left out.",
)
def smallest_effect(information: Tensor, *, alpha: float = 0.05, power: float = 0.8) -> Tensor:
    """Minimum detectable effect of the two-sided test at this power: (Φ⁻¹(1 − α/2) + Φ⁻¹(power)) / √I."""
    return (_quantile(1 - alpha / 2) + _quantile(power)) / information.sqrt()
