"""Over-optimisation: what a proxy reward does to the gold reward as the policy moves away from its reference.

Distance is d = √KL(π‖π_ref) ≥ 0, KL in nats, any shape; gold gained is above the reference's, in that shape. Functions of
whole distributions take normalised log-probabilities and rewards ``(..., N)``.

"Gao et al. (2023)" is Gao, Schulman and Hilton, "Scaling laws for reward model overoptimization".
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import FINITE, NOT_NEGATIVE, POSITIVE, Arguments, Rule, finite, number, shape, takes

# -- functional forms that are fitted ----------------------------------------------------------------------------


def _distance(name: str, distance: Tensor, seen: Arguments) -> Tensor:
    if not bool((distance >= 0).all()):
        raise ArgumentError(
            f"{name} of shape {tuple(distance.shape)} holds negative numbers or NaN; clip the KL at 0",
            argument=name,
            problem="negative",
        )
    return distance


DISTANCE = Rule("√KL ≥ 0", _distance)


@takes(distance=DISTANCE)
def gold_best_of_n(distance: Tensor, *, alpha: float, beta: float) -> Tensor:
    """Gold reward gained by best-of-n against a proxy, d (α − β d), α and β fitted: a parabola.

    Label: eq:gold-best-of-n
    Source: Gao et al. (2023).
    """
    return distance * (alpha - beta * distance)


@takes(alpha=POSITIVE, beta=POSITIVE)
def gold_best_of_n_peak(*, alpha: float, beta: float) -> tuple[float, float]:
    """At which distance the parabola d (α − β d) peaks and how high: α/(2β) and α²/(4β).

    With beta ≤ 0 nothing ever falls.

    Label: eq:gold-best-of-n-peak
    Source: Gao et al. (2023); by differentiation.
    """
    return alpha / (2 * beta), alpha**2 / (4 * beta)


@takes(distance=DISTANCE)
def gold_rl(distance: Tensor, *, alpha: float, beta: float) -> Tensor:
    """Gold reward gained by reinforcement learning against a proxy, d (α − β log d), fitted; 0 at d = 0.

    Label: eq:gold-rl
    Source: Gao et al. (2023).
    """
    return alpha * distance - beta * torch.special.xlogy(distance, distance)


@takes(beta=POSITIVE)
def gold_rl_peak(*, alpha: float, beta: float) -> tuple[float, float]:
    """At which distance d (α − β log d) peaks and how high: d = exp(α/β − 1), and β d there.

    With beta ≤ 0 nothing ever falls.

    Label: eq:gold-rl-peak
    Source: Gao et al. (2023); by differentiation.
    """
    peak = math.exp(alpha / beta - 1)
    return peak, beta * peak


# -- exact: the family of tilted policies ------------------------------------------------------------------------


@takes(rewards="... N", ref_logps=shape("... N"), strength=FINITE)
def tilt(ref_logps: Tensor, rewards: Tensor, *, strength: float) -> Tensor:
    """The tilted policy π_λ ∝ π_ref exp(λ r), as log-probabilities ``(..., N)``: the RLHF optimum at β = 1/λ.

    The strength λ = 0 is the reference; it grows with the optimisation pressure, and no policy with the same
    KL has more of r.

    Label: eq:tilt
    Source: exponential families, e.g. Brown (1986), "Fundamentals of statistical exponential families".
    """
    return torch.log_softmax(ref_logps + strength * rewards, -1)


@takes(logps=shape("... N"), values="... N", rewards="... N")
def tilt_slope(logps: Tensor, values: Tensor, rewards: Tensor) -> Tensor:
    """dE[values]/dλ along the tilted family: Cov(values, rewards) under the policy π_λ itself, ``(...)``.

    With values = rewards it is the variance of the proxy, so the proxy always rises. With values = gold it is
    the covariance of gold and proxy *where the policy is now*: gold turns down where that becomes negative.

    Label: eq:tilt-slope
    Source: exponential families, e.g. Brown (1986), "Fundamentals of statistical exponential families".
    """
    probs = logps.exp()
    centred = rewards - (probs * rewards).sum(-1, keepdim=True)
    return (probs * values * centred).sum(-1)


def tilt_kl_slope(logps: Tensor, rewards: Tensor, *, strength: float) -> Tensor:
    """dKL(π_λ‖π_ref)/dλ = λ Var(r) under π_λ, ``(...)``. With :func:`tilt_slope`: gold gained per nat spent.

    Label: eq:tilt-kl-slope
    Source: exponential families, e.g. Brown (1986), "Fundamentals of statistical exponential families".
    """
    return strength * tilt_slope(logps, rewards, rewards)


# -- exact: Gaussian features ------------------------------------------------------------------------------------


@takes(distance=DISTANCE, correlation=number("[-1, 1]"), gold_std=POSITIVE)
def linear_gold(distance: Tensor, *, correlation: float, gold_std: float) -> Tensor:
    """Gold gained by tilting with a proxy that is jointly Gaussian with it: √2 ρ σ_gold d. It never falls.

    Correlation ρ and deviation are those under π_ref. A proxy with independent Gaussian error has
    ρ = σ_gold/σ_proxy: the error costs a constant factor, and no amount of optimisation makes it worse.
    Over-optimisation needs more than noise: misspecification or heavy tails.

    Label: eq:linear-gold
    Source: the mean shift of a tilted Gaussian; compare Gao et al. (2023) on regressional Goodhart.
    """
    return math.sqrt(2.0) * correlation * gold_std * distance


@takes(direction="F", slope="F", curvature="F F")
def quadratic_gold_coefficients(direction: Tensor, slope: Tensor, curvature: Tensor) -> tuple[float, float]:
    """α and β of d (α − β d) when features are N(0, I), the proxy is linear and the gold quadratic: then it is exact.

    With proxy v·x (the direction, not 0) and gold w·x − ½ xᵀCx (slope and curvature), tilting moves the mean to
    λv at KL = ½ λ²‖v‖². So gold changes by √2 (w·u) d − (uᵀCu) d² with u = v/‖v‖: diminishing returns that a
    linear proxy cannot see.

    Label: eq:quadratic-gold
    Source: derived here; the form is that of Gao et al. (2023).
    """
    length = direction.norm()
    if length == 0:
        raise ArgumentError(
            f"direction of shape {tuple(direction.shape)} is 0; expected a proxy that wants something",
            argument="direction",
            problem="zero",
        )
    unit = direction / length
    return math.sqrt(2.0) * float(unit @ slope), float(unit @ curvature @ unit)


# -- ensembles of proxies: rewards (M, ...) of M reward models on one scale, results (...) -----------------------


def _ensemble(name: str, rewards: Tensor, seen: Arguments) -> Tensor:
    if rewards.dim() < 2 or rewards.shape[0] == 0:
        raise ArgumentError(
            f"{name} has shape {tuple(rewards.shape)}; expected (M, ...) with M ≥ 1 members",
            argument=name,
            value=tuple(rewards.shape),
            problem="shape",
        )
    return finite("...").apply(name, rewards, seen)


ENSEMBLE = Rule("(M, ...), finite", _ensemble)


@takes(rewards=ENSEMBLE)
def worst_case(rewards: Tensor) -> Tensor:
    """Worst-case ensemble: the smallest reward among the members. What all of them like is hard to fake.

    Label: eq:ensemble-worst-case
    Source: Coste et al. (2024), "Reward model ensembles help mitigate overoptimization".
    """
    return rewards.amin(0)


@takes(rewards=ENSEMBLE, coef=NOT_NEGATIVE)
def uncertainty_weighted(rewards: Tensor, *, coef: float) -> Tensor:
    """Uncertainty-weighted ensemble: mean − coef · variance among the members (divisor M); 0 is the mean.

    Label: eq:ensemble-uncertainty
    Source: Coste et al. (2024), "Reward model ensembles help mitigate overoptimization".
    """
    return rewards.mean(0) - coef * rewards.var(0, correction=0)


# -- constraints in place of a price -----------------------------------------------------------------------------


@takes(rewards="N", ref_logps=shape("N"), costs="K N", limits="K", strength=POSITIVE)
def constraint_multipliers(
    ref_logps: Tensor, rewards: Tensor, costs: Tensor, limits: Tensor, *, strength: float
) -> Tensor:
    """The prices μ ≥ 0, ``(K,)``, at which the best policy with E[cost_k] ≤ limit_k is the tilt by r − Σ_k μ_k cost_k.

    The best policy maximises E[r] − KL(π‖π_ref)/strength under the limits, each above the smallest cost that
    the reference allows. At it a limit either holds with equality or has price 0 (complementary slackness).
    The dual is convex; projected Newton steps descend it.

    Label: eq:constrained-tilt
    Source: Lagrangian duality, Boyd and Vandenberghe (2004), "Convex optimization", chapter 5; in RLHF
        Moskovitz et al. (2024), "Confronting reward model overoptimization with constrained RLHF".
    """
    least = costs[:, ref_logps > -math.inf].amin(-1)
    if not bool((limits > least).all()):
        raise ArgumentError(
            f"limits of shape {tuple(limits.shape)}: no policy spends less than {least.tolist()}",
            argument="limits",
            expected=least.tolist(),
            problem="infeasible",
        )
    prices = torch.zeros_like(limits)

    def dual(prices: Tensor) -> float:
        return float(torch.logsumexp(ref_logps + strength * (rewards - prices @ costs), 0) / strength + prices @ limits)

    for _ in range(200):
        probs = tilt(ref_logps, rewards - prices @ costs, strength=strength).exp()
        spent = costs @ probs
        slope = limits - spent  # of the dual, which is minimised
        free = (prices > 0) | (slope < 0)
        if not bool(free.any()) or float((torch.minimum(prices, slope.abs()) + (-slope).clamp(min=0)).max()) < 1e-12:
            break
        held = costs[free] - spent[free, None]
        curvature = strength * (held * probs) @ held.T
        curvature = curvature + 1e-12 * (1 + curvature.diagonal().max()) * torch.eye(len(curvature)).to(curvature)
        step = torch.zeros_like(prices)
        step[free] = torch.linalg.solve(curvature, slope[free])
        share, here = 1.0, dual(prices)
        while dual((prices - share * step).clamp(min=0)) > here + 1e-15 and share > 1e-300:
            share /= 2  # far from the optimum the curvature can be nearly nothing, and the step nearly without end
        prices = (prices - share * step).clamp(min=0)
    return prices


# -- tampering with the approval: a scalar to be maximised; its gradient is the expected policy gradient, its value
#    has no meaning. feedback[a, b] is the grade that b is given in a world where a has been carried out ----------

_approval = takes(logps=shape("N"), feedback="N N")


@_approval
def coupled_approval(logps: Tensor, feedback: Tensor) -> Tensor:
    """What ordinary policy gradient climbs when actions can touch their own grade: Σ_a sg[π(a) F(a, a)] log π(a).

    The policy that carries out a asks for the grade of a. The gradient is that of Σ_a π(a) F(a, a): touching
    the grade pays.

    Label: eq:coupled-approval
    Source: Uesato et al. (2020), "Avoiding tampering incentives in deep RL via decoupled approval".
    """
    return (logps.detach().exp() * feedback.diagonal() * logps).sum()


@_approval
def decoupled_approval(logps: Tensor, feedback: Tensor) -> Tensor:
    """Decoupled approval (DA-PG): carry out a, ask for the grade of an independent draw b.

    Σ_ab sg[π(a) π(b) F(a, b)] log π(b): what a does to the grades reaches the gradient only as its mean over
    π(a), the same for every b: if it adds one number to all grades, that number multiplies Σ_b ∇π(b) = 0.
    Nothing is left to gain by touching them.

    Label: eq:decoupled-approval
    Source: Uesato et al. (2020), "Avoiding tampering incentives in deep RL via decoupled approval".
    """
    probs = logps.detach().exp()
    return (probs * (probs @ feedback) * logps).sum()


# -- detectors ---------------------------------------------------------------------------------------------------


@takes(scores="N", positives="N", negatives="N")
def roc_auc(scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """Area under the ROC curve: the chance that a positive scores higher than a negative, ties counting one half.

    ``positives`` and ``negatives`` say how much of either class each of N outcomes holds, ≥ 0. ½ is guessing.

    Label: eq:roc-auc
    Source: Hanley and McNeil (1982), "The meaning and use of the area under a receiver operating
        characteristic curve".
    """
    for name, mass in (("positives", positives), ("negatives", negatives)):
        if bool((mass < 0).any()) or float(mass.sum()) == 0:
            raise ArgumentError(
                f"{name} of shape {tuple(mass.shape)}; expected numbers ≥ 0 that do not all vanish",
                argument=name,
                problem="empty",
            )
    order = scores.argsort()
    ascending = scores[order]
    below = torch.nn.functional.pad((negatives[order] / negatives.sum()).cumsum(0), (1, 0))  # (N+1,)
    strictly = below[torch.searchsorted(ascending, scores)]
    upto = below[torch.searchsorted(ascending, scores, right=True)]
    return (positives / positives.sum() * (strictly + upto) / 2).sum()
