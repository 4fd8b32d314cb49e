"""Chapter 21: a liking for length in rewards, and what each cure takes out, against sums, normal equations and numerical minima."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations.overoptimization import linear_gold
from minirlhf_course.chapters.ch21_style_and_information import equations
from minirlhf_course.ledger.registry import Comparison, Draw, chain, check

chain(
    "taking-length-out",
    "From a slope that is removed to a coefficient that is dropped",
    ["eq:residual-reward", "eq:frisch-waugh", "eq:omitted-variable"],
    module=__name__,
)


class StyledReplies(NamedTuple):
    """Nine replies: their probabilities, gold, two features and a style that goes with the first of them."""

    probs: Tensor
    gold: Tensor
    features: Tensor
    style: Tensor


def replies(draw: Draw) -> StyledReplies:
    """Random ones; gold is no linear function of the features."""
    features = draw.normal(9, 2)
    return StyledReplies(draw.distribution(9), draw.normal(9), features, 0.8 * features[:, 0] + draw.normal(9))


def correlation(probs: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """From raw moments."""
    mean = partial(exact.expectation, probs)
    spread = lambda x: (mean(x * x) - mean(x) ** 2).sqrt()
    return (mean(a * b) - mean(a) * mean(b)) / (spread(a) * spread(b))


def joint(probs: Tensor, target: Tensor, *columns: Tensor) -> Tensor:
    """Weights of an intercept and of columns, by the normal equations of the weighted system."""
    table = torch.cat([torch.ones_like(target)[:, None], *(c.reshape(len(target), -1) for c in columns)], -1)
    weighted = (probs[:, None] * table)[:, :, None]
    return torch.linalg.solve((weighted * table[:, None]).sum(0), (weighted[..., 0] * target[:, None]).sum(0))


EVEN = lambda probs: torch.full_like(probs, 1 / len(probs))


# -- what a liking costs -----------------------------------------------------------------------------------------

BIASED_MISTAKES = {
    "the covariance left out": lambda *, gold_std, style_std, covariance, bias: (
        gold_std / (gold_std**2 + bias**2 * style_std**2) ** 0.5
    ),
    "the bias not squared": lambda *, gold_std, style_std, covariance, bias: (
        (gold_std**2 + bias * covariance)
        / (gold_std * (gold_std**2 + 2 * bias * covariance + bias * style_std**2) ** 0.5)
    ),
    "gold's own deviation forgotten": lambda *, gold_std, **rest: (
        gold_std * equations.biased_correlation(gold_std=gold_std, **rest)
    ),
}


@check(
    "eq:biased-correlation",
    "value",
    "The correlation of gold with gold plus b times style.",
    of=equations.biased_correlation,
    against="the correlation of two columns over nine replies",
    wrong=BIASED_MISTAKES,
)
def _(biased_correlation, draw: Draw) -> Iterator[Comparison]:
    world, bias = replies(draw), float(draw.uniform(low=0.3, high=0.8))
    mean = partial(exact.expectation, world.probs)
    centred = [x - mean(x) for x in (world.gold, world.style)]
    gold_std, style_std = (float(mean(x**2) ** 0.5) for x in centred)
    moments = {"gold_std": gold_std, "style_std": style_std, "covariance": float(mean(centred[0] * centred[1]))}
    yield (
        biased_correlation(**moments, bias=bias),
        correlation(world.probs, world.gold, world.gold + bias * world.style),
    )


@check(
    "eq:biased-correlation",
    "gold that is left",
    "For Gaussian gold and style, the tilt by the biased reward has this fraction of the gold gain of the tilt "
    "by gold at the same KL.",
    of=equations.biased_correlation,
    against="the mean shift of Gaussian gold under a tilt of known KL, by quadrature",
    tolerance=1e-6,
    wrong=BIASED_MISTAKES,
)
def _(biased_correlation, draw: Draw) -> Comparison:
    a, b, bias = (float(draw.uniform(low=lo, high=hi)) for lo, hi in ((0.6, 1.4), (0.6, 1.4), (0.3, 0.8)))
    spread = 1.3  # gold = spread·x, style = a·x + b·z with x and z standard normal
    rewards = torch.tensor(
        [spread + bias * a, bias * b], dtype=torch.float64
    )  # weights of x and z in the biased reward
    strength = 0.7
    # The tilt of a standard normal x by weight w: the ratio of two integrals; so is E[x²] and with it the KL.
    weight = float(strength * rewards[0])
    mass = exact.gaussian_expectation(lambda x: (weight * x).exp())
    moved = exact.gaussian_expectation(lambda x: x * (weight * x).exp()) / mass
    distance = (strength * rewards).norm() / 2**0.5  # √KL = ‖λw‖/√2
    moments = {"gold_std": spread, "style_std": (a**2 + b**2) ** 0.5, "covariance": spread * a}
    whole = linear_gold(distance, correlation=1.0, gold_std=spread)
    return biased_correlation(**moments, bias=bias) * whole, spread * moved


# -- the slope removed -------------------------------------------------------------------------------------------

RESIDUAL_MISTAKES = {
    "style regressed on the reward": lambda probs, rewards, style: (
        rewards - probs @ rewards - joint(probs, style, rewards)[1] * (style - probs @ style)
    ),
    "replies not weighted": lambda probs, rewards, style: equations.residual_reward(EVEN(probs), rewards, style),
    "without an intercept": lambda probs, rewards, style: (
        rewards - probs @ rewards - style * (probs @ (rewards * style)) / (probs @ style**2)
    ),
}


@check(
    "eq:residual-reward",
    "value",
    "The residual of a least-squares fit on style, which is uncorrelated with style.",
    of=equations.residual_reward,
    against="the fitted values of the weighted normal equations",
    wrong=RESIDUAL_MISTAKES,
)
def _(residual_reward, draw: Draw) -> Iterator[Comparison]:
    world = replies(draw)
    intercept, slope = joint(world.probs, world.gold, world.style)
    left = residual_reward(world.probs, world.gold, world.style)
    yield left, world.gold - intercept - slope * world.style
    yield correlation(world.probs, left, world.style), 0.0


@check(
    "eq:residual-error",
    "value",
    "The residual of gold plus b times style is the same for every b; it differs from centred gold by the part "
    "that is linear in style.",
    of=equations.residual_reward,
    against="gold minus its own least-squares fit",
    wrong=RESIDUAL_MISTAKES
    | {
        "gold's slope spared": lambda probs, rewards, style: (
            equations.residual_reward(probs, rewards, style) + 0.3 * (style - probs @ style)
        ),
        "only a part of the slope": lambda probs, rewards, style: (
            (equations.residual_reward(probs, rewards, style) + rewards) / 2
        ),
    },
)
def _(residual_reward, draw: Draw) -> Iterator[Comparison]:
    world = replies(draw)
    slope = joint(world.probs, world.gold, world.style)[1]
    error = -slope * (world.style - world.probs @ world.style)
    for bias in (0.0, 0.5, -2.0):
        left = residual_reward(world.probs, world.gold + bias * world.style, world.style)
        yield left - (world.gold - world.probs @ world.gold), error


@check(
    "eq:frisch-waugh",
    "step",
    "The weights of the features in the joint regression; it makes no difference whether style is also regressed "
    "out of the rewards.",
    of=equations.partialled_weights,
    against="the regression on features and style together",
    follows="eq:residual-reward",
    wrong={
        "rewards residualised, features not": lambda probs, rewards, features, style: joint(
            probs, equations.residual_reward(probs, rewards, style), features
        )[1:],
        "style left out": lambda probs, rewards, features, style: joint(probs, rewards, features)[1:],
        "replies not weighted": lambda probs, *rest: equations.partialled_weights(EVEN(probs), *rest),
    },
)
def _(partialled_weights, draw: Draw) -> Iterator[Comparison]:
    world = replies(draw)
    full = joint(world.probs, world.gold, world.features, world.style)[1:-1]
    yield partialled_weights(world.probs, world.gold, world.features, world.style), full
    left = equations.residual_reward(world.probs, world.gold, world.style)
    yield partialled_weights(world.probs, left, world.features, world.style), full


@check(
    "eq:omitted-variable",
    "step",
    "Without style in the fit, the weights of the features change by the weight of style times the regression of "
    "style on the features.",
    of=equations.omitted_style_slopes,
    against="the difference of two regressions, with style and without it",
    follows="eq:frisch-waugh",
    wrong={
        "each feature by itself": lambda probs, features, style: torch.stack(
            [joint(probs, style, column)[1] for column in features.T]
        ),
        "features on style": lambda probs, features, style: torch.stack(
            [joint(probs, column, style)[1] for column in features.T]
        ),
        "replies not weighted": lambda probs, features, style: equations.omitted_style_slopes(
            EVEN(probs), features, style
        ),
    },
)
def _(omitted_style_slopes, draw: Draw) -> Comparison:
    world = replies(draw)
    full = joint(world.probs, world.gold, world.features, world.style)
    short = joint(world.probs, world.gold, world.features)[1:]
    return full[-1] * omitted_style_slopes(world.probs, world.features, world.style), short - full[1:-1]


# -- two experts, two heads --------------------------------------------------------------------------------------


@check(
    "eq:product-of-experts",
    "value",
    "For two independent experts, the probability of the first reply given that they agree. Log-odds add.",
    of=equations.product_of_experts,
    against="two independent verdicts, counted where they agree; and log-odds",
    wrong={
        "the mean of the two": lambda first, second: (first + second) / 2,
        "not normalised": lambda first, second: first * second,
        "at least one says so": lambda first, second: 1 - (1 - first) * (1 - second),
    },
)
def _(product_of_experts, draw: Draw) -> Iterator[Comparison]:
    a, b = draw.normal(3, 4), draw.normal(3, 4)
    first, second = a.sigmoid(), b.sigmoid()
    agree = [p * q for p, q in ((first, second), (1 - first, 1 - second))]
    yield product_of_experts(first, second), agree[0] / (agree[0] + agree[1])
    yield product_of_experts(first, second), (a + b).sigmoid()


def _rho(a: Tensor, b: Tensor) -> Tensor:
    """The correlation of all numbers of two tensors."""
    return torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1]


def _two_heads(quality: Tensor, head: Tensor, style: Tensor, coef: float, *, absolute: bool, sign: float) -> Tensor:
    """The loss with pieces of its penalty changed."""
    about = _rho(quality, style).abs() if absolute else _rho(quality, style)
    return equations.two_heads_loss(quality, head, style, coef=0.0) + coef * (about + sign * _rho(head, style))


@check(
    "eq:two-heads",
    "value",
    "The ranking loss of the sum of the heads, with a penalty on the correlation of one head with style and a "
    "bonus for the other's.",
    of=equations.two_heads_loss,
    against="the correlation matrix of the heads and the style, and softplus",
    wrong={
        "correlation without its absolute value": lambda q, h, s, *, coef: _two_heads(
            q, h, s, coef, absolute=False, sign=-1
        ),
        "the style head pushed away from style": lambda q, h, s, *, coef: _two_heads(
            q, h, s, coef, absolute=True, sign=1
        ),
        "the rejected replies do not count in the correlations": lambda q, h, s, *, coef: (
            equations.two_heads_loss(q, h, s, coef=0.0) + coef * (_rho(q[:, 0], s[:, 0]).abs() - _rho(h[:, 0], s[:, 0]))
        ),
        "the quality head ranks alone": lambda q, h, s, *, coef: (
            equations.two_heads_loss(q, 0 * h + s, s, coef=coef)
            + coef * (1 - _rho(h, s))
            - equations.two_heads_loss(q, 0 * h + s, s, coef=0.0)
            + torch.nn.functional.softplus(q[:, 1] - q[:, 0]).mean()
        ),
    },
)
def _(two_heads_loss, draw: Draw) -> Iterator[Comparison]:
    head, style = draw.normal(6, 2), draw.normal(6, 2)
    noise, even = draw.normal(6, 2), torch.full((12,), 1 / 12, dtype=torch.float64)
    slope = joint(even, noise.flatten(), style.flatten())[1]
    quality = noise - (slope + 0.7) * style  # below 0 in correlation, whatever the noise
    for coef in (0.4, 1.7):
        gap = (quality + head)[:, 1] - (quality + head)[:, 0]
        rho = torch.corrcoef(torch.stack([quality.flatten(), head.flatten(), style.flatten()]))[:2, 2]
        expected = torch.nn.functional.softplus(gap).mean() + coef * (rho[0].abs() - rho[1])
        yield two_heads_loss(quality, head, style, coef=coef), expected


@check(
    "eq:two-heads",
    "limit",
    "The residual and the slope times style have the smallest loss of all heads with this sum: coef below the "
    "ranking loss.",
    of=equations.two_heads_loss,
    against="the residual of the sum",
    tolerance=1e-6,
    wrong={
        "the style head pushed away from style": lambda q, h, s, *, coef: _two_heads(
            q, h, s, coef, absolute=True, sign=1
        ),
        "no pressure on the style head": lambda q, h, s, *, coef: (
            equations.two_heads_loss(q, h, s, coef=0.0) + coef * _rho(q, s).abs()
        ),
    },
)
def _(two_heads_loss, draw: Draw) -> Comparison:
    style, noise = draw.normal(5, 2), draw.normal(5, 2)
    even = torch.full((10,), 0.1, dtype=torch.float64)
    intercept, slope = joint(even, noise.flatten(), style.flatten())
    total = (
        1.1 * style + noise - intercept - slope * style
    )  # its slope on style is 1.1, whatever the noise: it has to be > 0
    quality = equations.residual_reward(even, total.flatten(), style.flatten()).reshape(5, 2)
    ranked = torch.nn.functional.softplus(total[:, 1] - total[:, 0]).mean()
    # No split is lower, for |ρ| ≥ 0 and −ρ ≥ −1.
    return two_heads_loss(quality, total - quality, style, coef=0.9), ranked - 0.9
