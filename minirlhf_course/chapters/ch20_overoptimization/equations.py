"""The equations that only chapter 20 needs: scaling laws of over-optimisation, tilts, constraints.

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
from minirlhf.core.validate import POSITIVE, shape, takes
from minirlhf.equations.overoptimization import DISTANCE, tilt, tilt_slope

# -- fitted functional forms -------------------------------------------------------------------------------------


@takes(distance=DISTANCE)
@equation("eq:gold-best-of-n", source="Gao et al. (2023).")
def gold_best_of_n(distance: Tensor, *, alpha: float, beta: float) -> Tensor:
    """Gain of gold reward by best-of-n on a proxy, d (α − β d), α and β fitted: a parabola."""
    return distance * (alpha - beta * distance)


@takes(alpha=POSITIVE, beta=POSITIVE)
@equation("eq:gold-best-of-n-peak", source="Gao et al. (2023); by differentiation.")
def gold_best_of_n_peak(*, alpha: float, beta: float) -> tuple[float, float]:
    """The distance at which the parabola d (α − β d) peaks, and its maximum: α/(2β) and α²/(4β).

    With beta ≤ 0 there is no peak.
    """
    return alpha / (2 * beta), alpha**2 / (4 * beta)


@takes(distance=DISTANCE)
@equation("eq:gold-rl", source="Gao et al. (2023).")
def gold_rl(distance: Tensor, *, alpha: float, beta: float) -> Tensor:
    """Gain of gold reward by reinforcement learning on a proxy, d (α − β log d), fitted; 0 at d = 0."""
    return alpha * distance - beta * torch.special.xlogy(distance, distance)


@takes(beta=POSITIVE)
@equation("eq:gold-rl-peak", source="Gao et al. (2023); by differentiation.")
def gold_rl_peak(*, alpha: float, beta: float) -> tuple[float, float]:
    """The distance at which d (α − β log d) peaks, and its maximum: d = exp(α/β − 1), and β d there.

    With beta ≤ 0 there is no peak.
    """
    peak = math.exp(alpha / beta - 1)
    return peak, beta * peak


# -- exact: the family of tilted policies ------------------------------------------------------------------------


@equation(
    "eq:tilt-kl-slope",
    source='exponential families, e.g. Brown (1986), "Fundamentals of statistical exponential families".',
)
def tilt_kl_slope(logps: Tensor, rewards: Tensor, *, strength: float) -> Tensor:
    """dKL(π_λ‖π_ref)/dλ = λ Var(r) under π_λ, ``(...)``. With :func:`~minirlhf.equations.overoptimization.tilt_slope` it gives the gold gain per nat of KL."""
    return strength * tilt_slope(logps, rewards, rewards)


# -- exact: Gaussian features ------------------------------------------------------------------------------------


@takes(direction="F", slope="F", curvature="F F")
@equation("eq:quadratic-gold", source="derived here; the form is that of Gao et al. (2023).")
def quadratic_gold_coefficients(direction: Tensor, slope: Tensor, curvature: Tensor) -> tuple[float, float]:
    """α and β of d (α − β d), which is exact for N(0, I) features, a linear proxy and a quadratic gold reward.

    The proxy is v·x (``direction`` v ≠ 0), the gold reward w·x − ½ xᵀCx (``slope`` w, ``curvature`` C). Tilting moves
    the mean to λv at KL = ½ λ²‖v‖², so the gold reward changes by √2 (w·u) d − (uᵀCu) d² with u = v/‖v‖. A linear proxy
    cannot represent these diminishing returns.
    """
    norm = direction.norm()
    if norm == 0:
        raise ArgumentError(
            f"direction of shape {tuple(direction.shape)} is 0; expected a nonzero vector",
            argument="direction",
            problem="zero",
        )
    unit = direction / norm
    return math.sqrt(2.0) * float(unit @ slope), float(unit @ curvature @ unit)


# -- constraints in place of a coefficient -----------------------------------------------------------------------


@takes(rewards="N", ref_logps=shape("N"), costs="K N", limits="K", strength=POSITIVE)
@equation(
    "eq:constrained-tilt",
    source='Lagrangian duality, Boyd and Vandenberghe (2004), "Convex optimization", chapter 5; in RLHF Moskovitz '
    'et al. (2024), "Confronting reward model overoptimization with constrained RLHF".',
)
def constraint_multipliers(
    ref_logps: Tensor, rewards: Tensor, costs: Tensor, limits: Tensor, *, strength: float
) -> Tensor:
    """Multipliers μ ≥ 0, ``(K,)``, for which the optimum under E[cost_k] ≤ limit_k is the tilt by r − Σ_k μ_k cost_k.

    The optimum maximises E[r] − KL(π‖π_ref)/strength under the limits. Each limit must exceed the smallest cost in the
    support of the reference. At the optimum a limit holds with equality or its multiplier is 0 (complementary
    slackness). The dual is convex; projected Newton steps minimise it.
    """
    min_costs = costs[:, ref_logps > -math.inf].amin(-1)
    if not bool((limits > min_costs).all()):
        raise ArgumentError(
            f"limits of shape {tuple(limits.shape)}: no policy has costs below {min_costs.tolist()}",
            argument="limits",
            expected=min_costs.tolist(),
            problem="infeasible",
        )
    mu = torch.zeros_like(limits)

    def dual(mu: Tensor) -> float:
        return float(torch.logsumexp(ref_logps + strength * (rewards - mu @ costs), 0) / strength + mu @ limits)

    for _ in range(200):
        probs = tilt(ref_logps, rewards - mu @ costs, strength=strength).exp()
        mean_costs = costs @ probs
        slope = limits - mean_costs  # gradient of the dual, which is minimised
        free = (mu > 0) | (slope < 0)
        if not bool(free.any()) or float((torch.minimum(mu, slope.abs()) + (-slope).clamp(min=0)).max()) < 1e-12:
            break
        centred = costs[free] - mean_costs[free, None]
        curvature = strength * (centred * probs) @ centred.T
        curvature = curvature + 1e-12 * (1 + curvature.diagonal().max()) * torch.eye(len(curvature)).to(curvature)
        step = torch.zeros_like(mu)
        step[free] = torch.linalg.solve(curvature, slope[free])
        scale, current = 1.0, dual(mu)
        while dual((mu - scale * step).clamp(min=0)) > current + 1e-15 and scale > 1e-300:
            scale /= 2  # far from the optimum the curvature can be almost 0, which makes the Newton step far too long
        mu = (mu - scale * step).clamp(min=0)
    return mu
