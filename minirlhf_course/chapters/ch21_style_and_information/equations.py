"""The equations that only chapter 21 needs: style against substance, its removal, and the remaining information.

*Style* s is a number for every completion, such as its length in words. ``probs (N,)`` are weights of N completions, ≥
0 with sum 1; slopes, residuals and correlations are weighted by them. KL and information are in nats.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import FINITE, POSITIVE, finite, shape, takes
from minirlhf.equations.overoptimization import tilt
from minirlhf.equations.reward_losses import bradley_terry_loss

_WEIGHTS = finite("N", "[0, 1]")


_CHANCE = finite("...", "[0, 1]")


def _mean(probs: Tensor, values: Tensor) -> Tensor:
    """The weighted mean: ``()`` for ``(N,)``, ``(F,)`` for ``(N, F)``."""
    return probs @ values / probs.sum()


def _covariance(probs: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The weighted covariance of ``a (N,)`` with ``b (N,)``, or with each column of ``b (N, F)``."""
    return (probs * (a - _mean(probs, a))) @ (b - _mean(probs, b)) / probs.sum()


def _varies(name: str, probs: Tensor, style: Tensor) -> Tensor:
    variance = _covariance(probs, style, style)
    if not float(variance) > 0:
        raise ArgumentError(
            f"{name} of shape {tuple(style.shape)} is the same for all completions; expected a style that varies",
            argument=name,
            problem="all equal",
        )
    return variance


# -- the cost of a style bias, and three ways to remove it -------------------------------------------------------


@takes(gold_std=POSITIVE, style_std=POSITIVE, covariance=FINITE, bias=FINITE)
@equation("eq:biased-correlation", source="the covariance of a sum.")
def biased_correlation(*, gold_std: float, style_std: float, covariance: float, bias: float) -> float:
    """Correlation of the gold reward with the biased reward g + b s: (σ_g² + b c)/(σ_g √(σ_g² + 2bc + b²σ_s²)).

    If both are Gaussian, eq:linear-gold makes it the fraction of the gold gain at a distance that remains with the
    bias.

    Args:
        covariance: c, of gold reward and style.
        bias: b, the bias per unit of style.
    """
    variance = gold_std**2 + 2 * bias * covariance + bias**2 * style_std**2
    if variance <= 0:
        raise ArgumentError(
            f"{covariance=} with {gold_std=}, {style_std=}; expected a sum with variance > 0",
            argument="covariance",
            value=covariance,
        )
    return (gold_std**2 + bias * covariance) / (gold_std * variance**0.5)


@takes(probs=_WEIGHTS, rewards=shape("N"), style=shape("N"))
@equation(
    "eq:residual-reward",
    "eq:residual-error",
    source='least squares; for rewards Huang et al. (2024), "Post-hoc reward calibration: a case study on length '
    'bias", with a local slope.',
)
def residual_reward(probs: Tensor, rewards: Tensor, style: Tensor) -> Tensor:
    """The part of a reward that style does not explain: r − E r − β_r (s − E s) with β_r = Cov(r, s)/Var(s), ``(N,)``.

    It is uncorrelated with style under ``probs``. It removes any bias b s of the labels, and also the slope of the gold
    reward itself on style.
    """
    slope = _covariance(probs, rewards, style) / _varies("style", probs, style)
    return rewards - _mean(probs, rewards) - slope * (style - _mean(probs, style))


def _residuals(probs: Tensor, values: Tensor, style: Tensor) -> Tensor:
    """The residuals of ``values (N, F)``, column by column."""
    slopes = _covariance(probs, style, values) / _varies("style", probs, style)
    return values - torch.outer(style - _mean(probs, style), slopes)


def _least_squares(probs: Tensor, target: Tensor, features: Tensor) -> Tensor:
    """``(F,)`` slopes of ``target (N,)`` on ``features (N, F)``, with an intercept that is not returned."""
    centred = features - _mean(probs, features)
    weighted = probs[:, None] * centred
    return torch.linalg.solve(weighted.T @ centred, weighted.T @ (target - _mean(probs, target)))


@takes(probs=_WEIGHTS, rewards=shape("N"), features=finite("N F"), style=shape("N"))
@equation(
    "eq:frisch-waugh",
    source='Frisch and Waugh (1933), "Partial time regressions as compared with individual trends"; Lovell (1963).',
)
def partialled_weights(probs: Tensor, rewards: Tensor, features: Tensor, style: Tensor) -> Tensor:
    """Weights ``(F,)`` of the features, controlled for style: slopes of rewards on the features' residuals on style.

    They equal the weights of the features in a regression on features and style together.
    """
    return _least_squares(probs, rewards, _residuals(probs, features, style))


@takes(probs=_WEIGHTS, features=finite("N F"), style=shape("N"))
@equation(
    "eq:omitted-variable",
    source='Theil (1957), "Specification errors and the estimation of economic relationships".',
)
def omitted_style_slopes(probs: Tensor, features: Tensor, style: Tensor) -> Tensor:
    """The slopes δ of style on all features together, ``(F,)``, which give the omitted-variable bias.

    If a reward w · x + γ s is fitted without s, the fitted weights are w + γ δ.
    """
    return _least_squares(probs, style, features)


@takes(first=_CHANCE, second=_CHANCE)
@equation(
    "eq:product-of-experts",
    source='Hinton (2002), "Training products of experts by minimizing contrastive divergence"; for length Shen et '
    'al. (2023), "Loose lips sink ships: mitigating length bias in RLHF".',
)
def product_of_experts(first: Tensor, second: Tensor) -> Tensor:
    """Combined probability of two experts, p q/(p q + (1 − p)(1 − q)), ``(...)``: log-odds add up."""
    both = first * second
    return both / (both + (1 - first) * (1 - second))


def _correlation(a: Tensor, b: Tensor) -> Tensor:
    """Pearson correlation of all numbers in two tensors of one shape."""
    a, b = a - a.mean(), b - b.mean()
    return (a * b).sum() / ((a * a).sum() * (b * b).sum()).sqrt()


@takes(quality="B 2", style_head=shape("B 2"), style=shape("B 2"), coef=FINITE)
@equation(
    "eq:two-heads",
    source='Chen et al. (2024), "ODIN: disentangled reward mitigates hacking in RLHF", with its orthogonality loss '
    "left out.",
)
def two_heads_loss(quality: Tensor, style_head: Tensor, style: Tensor, *, coef: float) -> Tensor:
    """Loss of a reward model with heads for quality and style: ranking loss + coef (|ρ(r_Q, s)| − ρ(r_S, s)). Scalar.

    The ranking loss uses the sum of the heads. ρ is the correlation over all completions of the batch. The style head
    is discarded after training.

    Args:
        quality, style_head: the outputs of each head for the chosen and the rejected completion.
        style: the style of the same completions.
    """
    total = quality + style_head
    ranking_loss = bradley_terry_loss(total[:, 0], total[:, 1]).mean()
    return ranking_loss + coef * (_correlation(quality, style).abs() - _correlation(style_head, style))


# -- win rates at equal length -----------------------------------------------------------------------------------


@takes(margins="N", differences=shape("N"))
@equation("eq:controlled-gap", source="least squares; derived in the text.")
def controlled_gap(margins: Tensor, differences: Tensor) -> Tensor:
    """The intercept of a judge's margins on differences of style: E Δr − Cov(Δr, Δs)/Var(Δs) · E Δs. Scalar.

    It is the result of a linear control for style. It removes any bias b Δs in the margins, and also the part of
    quality that is linear in style.
    """
    uniform = torch.full_like(margins, 1 / len(margins))
    slope = _covariance(uniform, margins, differences) / _varies("differences", uniform, differences)
    return margins.mean() - slope * differences.mean()


# -- style and information ---------------------------------------------------------------------------------------


@takes(logps="N", ref_logps=shape("N"), style=shape("N"))
@equation(
    "eq:style-content-kl",
    source='the chain rule of KL, Cover and Thomas (2006), "Elements of information theory", theorem 2.5.3.',
)
def style_and_content(logps: Tensor, ref_logps: Tensor, style: Tensor) -> tuple[Tensor, Tensor]:
    """KL(π‖π_ref) in two parts: the KL of the style, and the mean KL of completions given their style. Scalars.

    The mean is taken under the policy.

    Args:
        style: the style of each completion; equal numbers are one style.
    """
    _, index = style.unique(return_inverse=True)
    groups = torch.nn.functional.one_hot(index).bool()  # (N, S)
    style_logps, ref_style_logps = (
        torch.logsumexp(x[:, None].expand_as(groups).masked_fill(~groups, -torch.inf), 0) for x in (logps, ref_logps)
    )
    total_kl = (logps.exp() * (logps - ref_logps)).sum()
    style_kl = (style_logps.exp() * (style_logps - ref_style_logps)).sum()
    return style_kl, total_kl - style_kl


@takes(prior=finite("W", "[0, 1]"), logps="W N")
@equation(
    "eq:reply-information",
    "eq:information-budget",
    source='Cover and Thomas (2006), "Elements of information theory", section 2.3; the sum is Topsøe\'s (1967) '
    "identity.",
)
def completion_information(prior: Tensor, logps: Tensor) -> Tensor:
    """Mutual information of request and completion: Σ_w p(w) KL(π(·|w)‖π̄) with π̄ = Σ_w p(w) π(·|w). Scalar, nats.

    With one reference for all requests w, the mean KL to the reference is I(W; Y) + KL(π̄‖π_ref).

    Args:
        prior: p(w), the frequency of each request; all > 0.
        logps: log π(y | w).
    """
    mean = torch.logsumexp(prior.log()[:, None] + logps, 0)
    return (prior[:, None] * logps.exp() * (logps - mean)).sum()


@takes(ref_logps="N", rewards=shape("N"), marked=shape("N"), liking=FINITE, strength=FINITE)
@equation("eq:markup-odds", source="the tilt of eq:tilt, summed over the two groups.")
def markup_odds(ref_logps: Tensor, rewards: Tensor, marked: Tensor, *, liking: float, strength: float) -> Tensor:
    """Odds of markup under the tilt by r + m·[marked]: odds_ref · e^{λm} · E_ref[e^{λr} | marked]/E_ref[e^{λr} | plain]. Scalar.

    Args:
        marked: 1 if a completion has the markup, else 0.
        liking: m, the bonus in the reward for markup.
        strength: λ.
    """
    has_markup = marked > 0
    if bool(has_markup.all()) or not bool(has_markup.any()):
        raise ArgumentError(
            f"marked of shape {tuple(marked.shape)}; expected completions with and without markup",
            argument="marked",
            problem="all equal",
        )
    logps = tilt(ref_logps, rewards + liking * marked, strength=strength)
    return (torch.logsumexp(logps[has_markup], 0) - torch.logsumexp(logps[~has_markup], 0)).exp()
