"""Over-optimisation: how the gold reward changes when a policy is optimised for a proxy reward.

Distance is d = √KL(π‖π_ref) ≥ 0, KL in nats, any shape. Gains of gold reward are relative to the reference policy and
have the shape of d. Functions of whole distributions take normalised log-probabilities and rewards ``(..., N)``.

"Gao et al. (2023)" is Gao, Schulman and Hilton, "Scaling laws for reward model overoptimization".
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import FINITE, NOT_NEGATIVE, POSITIVE, Arguments, Rule, finite, number, shape, takes


def _distance(name: str, distance: Tensor, arguments: Arguments) -> Tensor:
    if not bool((distance >= 0).all()):
        raise ArgumentError(
            f"{name} of shape {tuple(distance.shape)} contains negative numbers or NaN; clip the KL at 0",
            argument=name,
            problem="negative",
        )
    return distance


DISTANCE = Rule("√KL ≥ 0", _distance)


# -- exact: the family of tilted policies ------------------------------------------------------------------------


@takes(rewards="... N", ref_logps=shape("... N"), strength=FINITE)
@equation(
    "eq:tilt",
    source='exponential families, e.g. Brown (1986), "Fundamentals of statistical exponential families".',
)
def tilt(ref_logps: Tensor, rewards: Tensor, *, strength: float) -> Tensor:
    """The tilted policy π_λ ∝ π_ref exp(λ r), as log-probabilities ``(..., N)``: the RLHF optimum at β = 1/λ.

    λ = 0 gives the reference; a larger λ means more optimisation pressure. For λ ≥ 0 no policy with the same KL has
    a larger E[r].
    """
    return torch.log_softmax(ref_logps + strength * rewards, -1)


@takes(logps=shape("... N"), values="... N", rewards="... N")
@equation(
    "eq:tilt-slope",
    source='exponential families, e.g. Brown (1986), "Fundamentals of statistical exponential families".',
)
def tilt_slope(logps: Tensor, values: Tensor, rewards: Tensor) -> Tensor:
    """dE[values]/dλ along the tilted family: Cov(values, rewards) under the policy π_λ itself, ``(...)``.

    With values = rewards it is the variance of the proxy, so the proxy always rises. With values = gold rewards it is
    the covariance of gold and proxy reward *under the current policy*: the gold reward starts to fall where this
    covariance becomes negative.
    """
    probs = logps.exp()
    centred = rewards - (probs * rewards).sum(-1, keepdim=True)
    return (probs * values * centred).sum(-1)


# -- exact: Gaussian features ------------------------------------------------------------------------------------


@takes(distance=DISTANCE, correlation=number("[-1, 1]"), gold_std=POSITIVE)
@equation(
    "eq:linear-gold",
    source="the mean shift of a tilted Gaussian; compare Gao et al. (2023) on regressional Goodhart.",
)
def linear_gold(distance: Tensor, *, correlation: float, gold_std: float) -> Tensor:
    """Gain of gold reward by tilting with a proxy, if they are jointly Gaussian: √2 ρ σ_gold d. It never falls if ρ ≥ 0.

    Correlation ρ and standard deviation σ_gold are taken under π_ref. A proxy with independent Gaussian error has
    ρ = σ_gold/σ_proxy: the error costs a constant factor at every distance. Over-optimisation requires more than such
    noise: misspecification or heavy tails.
    """
    return math.sqrt(2.0) * correlation * gold_std * distance


# -- ensembles of proxies: rewards (M, ...) of M reward models on one scale, results (...) -----------------------


def _ensemble(name: str, rewards: Tensor, arguments: Arguments) -> Tensor:
    if rewards.dim() < 2 or rewards.shape[0] == 0:
        raise ArgumentError(
            f"{name} has shape {tuple(rewards.shape)}; expected (M, ...) with M ≥ 1 members",
            argument=name,
            value=tuple(rewards.shape),
            problem="shape",
        )
    return finite("...").apply(name, rewards, arguments)


ENSEMBLE = Rule("(M, ...), finite", _ensemble)


@takes(rewards=ENSEMBLE)
@equation(
    "eq:ensemble-worst-case",
    source='Coste et al. (2024), "Reward model ensembles help mitigate overoptimization".',
)
def worst_case(rewards: Tensor) -> Tensor:
    """Worst-case ensemble: the smallest reward among the members. It is hard to hack all of them at once."""
    return rewards.amin(0)


@takes(rewards=ENSEMBLE, coef=NOT_NEGATIVE)
@equation(
    "eq:ensemble-uncertainty",
    source='Coste et al. (2024), "Reward model ensembles help mitigate overoptimization".',
)
def uncertainty_weighted(rewards: Tensor, *, coef: float) -> Tensor:
    """Uncertainty-weighted ensemble: mean − coef · variance among the members (divisor M); coef = 0 is the mean."""
    return rewards.mean(0) - coef * rewards.var(0, correction=0)


# -- tampering with the approval: scalar objectives, to be maximised; the gradient is the expected policy gradient, the
#    value has no meaning. feedback[a, b] is the score that b receives after action a has been executed -----------

_approval = takes(logps=shape("N"), feedback="N N")


@_approval
@equation(
    "eq:coupled-approval",
    source='Uesato et al. (2020), "Avoiding tampering incentives in deep RL via decoupled approval".',
    stop_gradient=True,
)
def coupled_approval(logps: Tensor, feedback: Tensor) -> Tensor:
    """Policy-gradient objective when actions can tamper with their own score: Σ_a sg[π(a) F(a, a)] log π(a).

    The policy executes a and receives the score of a. The gradient is the gradient of Σ_a π(a) F(a, a), so tampering is
    rewarded.
    """
    return (logps.detach().exp() * feedback.diagonal() * logps).sum()


@_approval
@equation(
    "eq:decoupled-approval",
    source='Uesato et al. (2020), "Avoiding tampering incentives in deep RL via decoupled approval".',
    stop_gradient=True,
)
def decoupled_approval(logps: Tensor, feedback: Tensor) -> Tensor:
    """Decoupled approval (DA-PG): execute a, but receive the score of an independent sample b.

    The objective is Σ_ab sg[π(a) π(b) F(a, b)] log π(b). The effect of a on the scores enters only as a mean over π(a).
    If a adds the same number to all scores, this number multiplies Σ_b ∇π(b) = 0, so the policy gains nothing from
    tampering.
    """
    probs = logps.detach().exp()
    return (probs * (probs @ feedback) * logps).sum()


# -- detectors ---------------------------------------------------------------------------------------------------


@takes(scores="N", positives="N", negatives="N")
@equation(
    "eq:roc-auc",
    source='Hanley and McNeil (1982), "The meaning and use of the area under a receiver operating characteristic '
    'curve".',
)
def roc_auc(scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """Area under the ROC curve: the probability that a positive scores higher than a negative; ties count ½.

    ``positives`` and ``negatives`` are the weights, ≥ 0, of each class at each of N outcomes. ½ is chance level.
    """
    for name, mass in (("positives", positives), ("negatives", negatives)):
        if bool((mass < 0).any()) or float(mass.sum()) == 0:
            raise ArgumentError(
                f"{name} of shape {tuple(mass.shape)}; expected numbers ≥ 0, not all 0",
                argument=name,
                problem="empty",
            )
    order = scores.argsort()
    ascending = scores[order]
    below = torch.nn.functional.pad((negatives[order] / negatives.sum()).cumsum(0), (1, 0))  # (N+1,)
    strictly_below = below[torch.searchsorted(ascending, scores)]
    at_most = below[torch.searchsorted(ascending, scores, right=True)]
    return (positives / positives.sum() * (strictly_below + at_most) / 2).sum()
