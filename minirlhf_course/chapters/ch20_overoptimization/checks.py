"""The ledger of chapter 20: over-optimisation."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import overoptimization as over
from minirlhf_course.chapters.ch20_overoptimization import equations
from minirlhf_course.ledger.registry import Comparison, Draw, check

# -- functional forms --------------------------------------------------------------------------------------------


def _coefficients(draw: Draw) -> tuple[float, float]:
    """α and β, different from each other."""
    return float(draw.uniform(low=1.0, high=1.4)), float(draw.uniform(low=0.3, high=0.7))


@check(
    "eq:gold-best-of-n",
    "value",
    "The curve starts at 0 with derivative α, has its second zero at d = α/β, and the second derivative −2β.",
    of=equations.gold_best_of_n,
    against="the parabola through its value and derivative at 0 and its second zero α/β",
    wrong={
        "linear in KL instead of √KL": lambda distance, *, alpha, beta: distance**2 * (alpha - beta * distance**2),
        "the form of reinforcement learning": equations.gold_rl,
    },
)
def _(form, draw: Draw) -> Iterator[Comparison]:
    alpha, beta = _coefficients(draw)
    at = lambda d: form(torch.as_tensor(d, dtype=torch.float64), alpha=alpha, beta=beta)
    roots = torch.tensor([0.0, alpha / beta], dtype=torch.float64)
    yield at(roots), torch.zeros(2)
    middle = draw.uniform(low=0.5, high=1.5)
    yield at(middle + 0.1) - 2 * at(middle) + at(middle - 0.1), -2 * beta * 0.01
    yield exact.finite_difference(at, torch.tensor(1e-3, dtype=torch.float64)), alpha - 2e-3 * beta


@check(
    "eq:gold-best-of-n-peak",
    "value",
    "The derivative of d (α − β d) vanishes at the peak, and the curve has the stated height.",
    of=equations.gold_best_of_n_peak,
    against="derivative 0 and value of the curve at the peak, by finite differences",
    wrong={
        "second root instead of the peak": lambda *, alpha, beta: (alpha / beta, alpha**2 / (4 * beta)),
        "2 lost in the height": lambda *, alpha, beta: (alpha / (2 * beta), alpha**2 / (2 * beta)),
    },
)
def _(peak, draw: Draw) -> Iterator[Comparison]:
    alpha, beta = _coefficients(draw)
    place, height = peak(alpha=alpha, beta=beta)
    curve = lambda d: equations.gold_best_of_n(d, alpha=alpha, beta=beta)
    where = torch.tensor(place, dtype=torch.float64)
    yield exact.finite_difference(curve, where), 0.0
    yield height, curve(where)


@check(
    "eq:gold-rl",
    "value",
    "c times the distance multiplies the gain by c, minus a penalty that grows with log c.",
    of=equations.gold_rl,
    against="its scaling law f(c d) = c f(d) − β c log c · d, its value α at d = 1, and 0 at d = 0",
    wrong={
        "logarithm of the KL, not of its root": lambda distance, *, alpha, beta: (
            distance * alpha - 2 * beta * torch.special.xlogy(distance, distance)
        ),
        "the form of best-of-n": equations.gold_best_of_n,
        "sign of β": lambda distance, *, alpha, beta: equations.gold_rl(distance, alpha=alpha, beta=-beta),
    },
)
def _(form, draw: Draw) -> Iterator[Comparison]:
    alpha, beta = _coefficients(draw)
    d, c = draw.uniform(4, low=0.2, high=3.0), float(draw.uniform(low=1.5, high=2.5))
    yield (
        form(c * d, alpha=alpha, beta=beta),
        c * form(d, alpha=alpha, beta=beta) - beta * c * math.log(c) * d,
    )
    ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
    yield form(ends, alpha=alpha, beta=beta), torch.tensor([0.0, alpha], dtype=torch.float64)


@check(
    "eq:gold-rl-peak",
    "value",
    "The derivative of d (α − β log d) vanishes at the peak, and the curve has the stated height.",
    of=equations.gold_rl_peak,
    against="derivative 0 and value of the curve at the peak, by finite differences",
    wrong={
        "root instead of the peak": lambda *, alpha, beta: (math.exp(alpha / beta), beta * math.exp(alpha / beta - 1)),
        "height without β": lambda *, alpha, beta: (math.exp(alpha / beta - 1), math.exp(alpha / beta - 1)),
    },
)
def _(peak, draw: Draw) -> Iterator[Comparison]:
    alpha, beta = _coefficients(draw)
    place, height = peak(alpha=alpha, beta=beta)
    curve = lambda d: equations.gold_rl(d, alpha=alpha, beta=beta)
    where = torch.tensor(place, dtype=torch.float64)
    yield exact.finite_difference(curve, where), 0.0
    yield height, curve(where)


# -- tilted policies ---------------------------------------------------------------------------------------------


def _tilted(ref: Tensor, rewards: Tensor, strength: Tensor | float) -> Tensor:
    weights = ref * (strength * rewards).exp()
    return weights / weights.sum(-1, keepdim=True)


@check(
    "eq:tilt",
    "value",
    "Among all policies with the same KL from the reference, the tilted one has the largest proxy reward.",
    of=over.tilt,
    against="numerical maximisation of λ E[r] − KL(π‖π_ref)",
    tolerance=1e-7,
    wrong={
        "strength divided, as β is": lambda ref_logps, rewards, *, strength: over.tilt(
            ref_logps, rewards, strength=1 / strength
        ),
        "reference tilted as well": lambda ref_logps, rewards, *, strength: (
            strength * (ref_logps + rewards)
        ).log_softmax(-1),
    },
)
def _(tilt, draw: Draw) -> Comparison:
    ref, strength = draw.distribution(4), float(draw.uniform(low=1.5, high=3.0))
    rewards = draw.permutation(4).double() / 2 + draw.uniform(4, high=0.1)
    best = exact.maximise(lambda p: exact.regularised_value(p, ref, strength * rewards, 1.0), 4)
    return tilt(ref.log(), rewards, strength=strength).exp(), best


def _proxy_and_gold(draw: Draw) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """π_ref, proxy, three gold rewards ``(3, 4)``, and a strength."""
    proxy = draw.permutation(4).double() / 2 + draw.uniform(4, high=0.1)
    return draw.distribution(4), proxy, draw.normal(3, 4), draw.uniform(low=0.5, high=1.5)


@check(
    "eq:tilt-slope",
    "value",
    "The derivative of the gold reward is its covariance with the proxy under the current policy.",
    of=over.tilt_slope,
    against="finite differences of E[gold] in the strength",
    wrong={
        "means not taken away": lambda logps, values, rewards: (logps.exp() * values * rewards).sum(-1),
        "variance of the proxy": lambda logps, values, rewards: over.tilt_slope(logps, rewards, rewards),
        "covariance over responses, not under the policy": lambda logps, values, rewards: (
            (values - values.mean(-1, keepdim=True)) * (rewards - rewards.mean(-1, keepdim=True))
        ).mean(-1),
    },
)
def _(tilt_slope, draw: Draw) -> Comparison:
    ref, proxy, gold, strength = _proxy_and_gold(draw)
    logps = _tilted(ref, proxy, strength).log()

    def slope(values: Tensor) -> Tensor:
        return exact.finite_difference(lambda s: exact.expectation(_tilted(ref, proxy, s), values), strength)

    return tilt_slope(logps.expand(3, 4), gold, proxy.expand(3, 4)), torch.stack([slope(values) for values in gold])


@check(
    "eq:tilt-kl-slope",
    "value",
    "The derivative of the KL with respect to the strength λ is λ times the variance of the proxy.",
    of=equations.tilt_kl_slope,
    against="finite differences of the KL in the strength",
    wrong={
        "variance without the strength": lambda logps, rewards, *, strength: over.tilt_slope(logps, rewards, rewards),
        "strength squared": lambda logps, rewards, *, strength: strength**2 * over.tilt_slope(logps, rewards, rewards),
    },
)
def _(tilt_kl_slope, draw: Draw) -> Comparison:
    ref, proxy, _, _ = _proxy_and_gold(draw)
    strength = draw.uniform(low=1.2, high=1.8)
    expected = exact.finite_difference(lambda s: exact.divergence(_tilted(ref, proxy, s), ref), strength)
    return tilt_kl_slope(_tilted(ref, proxy, strength).log(), proxy, strength=float(strength)), expected


# -- Gaussian features -------------------------------------------------------------------------------------------


def _tilted_normal(push: float) -> Tensor:
    """N(0, 1) tilted by e^(push · x): its mean, its second moment and its KL to N(0, 1), by quadrature ``(3,)``."""
    moment = lambda f: exact.gaussian_expectation(lambda x: f(x) * (push * x).exp(), nodes=16)
    normaliser = moment(torch.ones_like)
    mean = moment(lambda x: x) / normaliser
    return torch.stack([mean, moment(torch.square) / normaliser, push * mean - normaliser.log()])


@check(
    "eq:linear-gold",
    "value",
    "If proxy = gold + independent noise, tilting by it increases gold linearly in √KL.",
    of=over.linear_gold,
    against="Gauss–Hermite quadrature of the tilted Gaussian",
    wrong={
        "√2 forgotten": lambda distance, *, correlation, gold_std: correlation * gold_std * distance,
        "correlation squared": lambda distance, *, correlation, gold_std: over.linear_gold(
            distance, correlation=correlation**2, gold_std=gold_std
        ),
        "linear in KL": lambda distance, *, correlation, gold_std: over.linear_gold(
            distance**2, correlation=correlation, gold_std=gold_std
        ),
    },
)
def _(linear_gold, draw: Draw) -> Comparison:
    gold_std, noise_std = (float(draw.uniform(low=0.5, high=1.5)) for _ in range(2))
    strength = float(draw.uniform(low=0.3, high=0.6))

    # Gold and noise are independent, so a tilt by their sum tilts each on its own.
    gold, noise = (_tilted_normal(strength * std) for std in (gold_std, noise_std))
    proxy_std = math.hypot(gold_std, noise_std)
    distance = (gold[2] + noise[2]).sqrt()
    return linear_gold(distance, correlation=gold_std / proxy_std, gold_std=gold_std), gold_std * gold[0]


@check(
    "eq:quadratic-gold",
    "value",
    "The gold reward is exactly d (α − β d), for any strength of the tilt.",
    of=equations.quadratic_gold_coefficients,
    against="Gauss–Hermite quadrature over two features",
    wrong={
        "direction not normalised": lambda direction, slope, curvature: (
            math.sqrt(2) * float(direction @ slope),
            float(direction @ curvature @ direction),
        ),
        "√2 forgotten": lambda direction, slope, curvature: equations.quadratic_gold_coefficients(
            direction, slope / math.sqrt(2), curvature
        ),
        "½ in the curvature twice": lambda direction, slope, curvature: equations.quadratic_gold_coefficients(
            direction, slope, curvature / 2
        ),
    },
)
def _(coefficients, draw: Draw) -> Iterator[Comparison]:
    direction = draw.uniform(2, low=1.2, high=2.0)
    slope, root = draw.uniform(2, low=0.5, high=1.5), draw.normal(2, 2)
    curvature = root @ root.T + 0.5 * torch.eye(2, dtype=torch.float64)
    alpha, beta = coefficients(direction, slope, curvature)
    for strength in (0.3, 0.6):
        # The two features are independent, and stay so under a tilt by a sum of one term in each.
        mean, square, spent = torch.stack([_tilted_normal(push) for push in (strength * direction).tolist()], -1)
        second = torch.outer(mean, mean) - torch.diag(mean**2) + torch.diag(square)  # E[x xᵀ]
        gain = mean @ slope - 0.5 * (curvature * (second - torch.eye(2))).sum()
        distance = spent.sum().sqrt()
        yield distance * (alpha - beta * distance), gain


# -- ensembles ---------------------------------------------------------------------------------------------------


@check(
    "eq:ensemble-worst-case",
    "value",
    "The smallest reward of all members.",
    of=over.worst_case,
    against="the largest threshold that every member's reward reaches, by bisection",
    wrong={
        "best case": lambda rewards: rewards.amax(0),
        "worst response instead of worst member": lambda rewards: rewards.amin(-1)[: rewards.shape[-1]],
        "mean": lambda rewards: rewards.mean(0),
    },
)
def _(worst_case, draw: Draw) -> Comparison:
    rewards = draw.normal(4, 4)
    low, high = torch.full((4,), -10.0, dtype=torch.float64), torch.full((4,), 10.0, dtype=torch.float64)
    for _ in range(50):
        middle = (low + high) / 2
        reached = (rewards >= middle).all(0)
        low, high = torch.where(reached, middle, low), torch.where(reached, high, middle)
    return worst_case(rewards), low


@check(
    "eq:ensemble-uncertainty",
    "value",
    "The mean reward of the members minus a multiple of their variance.",
    of=over.uncertainty_weighted,
    against="mean minus half the mean squared difference of two members, over all pairs",
    wrong={
        "standard deviation instead of variance": lambda rewards, *, coef: (
            rewards.mean(0) - coef * rewards.std(0, correction=0)
        ),
        "divisor M − 1": lambda rewards, *, coef: rewards.mean(0) - coef * rewards.var(0),
        "uncertainty rewarded": lambda rewards, *, coef: rewards.mean(0) + coef * rewards.var(0, correction=0),
        "variance over responses": lambda rewards, *, coef: rewards.mean(0) - coef * rewards.var(-1, correction=0),
    },
)
def _(uncertainty_weighted, draw: Draw) -> Iterator[Comparison]:
    rewards, coef = draw.normal(4, 4), float(draw.uniform(low=0.5, high=2.0))
    differences = rewards[:, None] - rewards[None, :]  # (M, M, responses)
    yield uncertainty_weighted(rewards, coef=coef), rewards.mean(0) - coef * 0.5 * (differences**2).mean((0, 1))
    yield uncertainty_weighted(rewards[:1].expand(4, 4), coef=coef), rewards[0]
