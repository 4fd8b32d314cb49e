"""The ledger of chapter 06: how one decider chooses."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from minirlhf_course.chapters.ch06_nature_of_preferences import equations
from minirlhf_course.ledger.registry import Comparison, Draw, chain, check

chain(
    "off-switch",
    "Why an uncertain machine does not touch its off switch",
    ["eq:off-switch", "eq:off-switch-doubt"],
    module=__name__,
)


@check(
    "eq:expected-utility",
    "value",
    "By independence each coin toss of a lottery may be replaced by a certain outcome of equal utility, one "
    "after another.",
    of=equations.expected_utility,
    against="the lottery as a sequence of coin tosses, each replaced by an equivalent certain outcome",
    wrong={
        "the likeliest outcome": lambda probs, utilities: utilities.gather(-1, probs.argmax(-1, keepdim=True))[..., 0],
        "chances ignored": lambda probs, utilities: utilities.mean(-1),
        "weights that do not sum to 1": lambda probs, utilities: (probs.sqrt() * utilities).sum(-1),
    },
)
def _(expected_utility, draw: Draw) -> Comparison:
    probs, utilities = draw.distribution(4), draw.normal(4) + torch.arange(4.0, dtype=torch.float64)
    worth, chance = float(utilities[0]), float(probs[0])
    for p, u in zip(probs[1:].tolist(), utilities[1:].tolist(), strict=True):
        chance += p
        worth += (u - worth) * p / chance
    return expected_utility(probs, utilities), worth


@check(
    "eq:prospect-value",
    "value",
    "A power function of gains and of losses, where losses count λ times as much.",
    of=equations.prospect_value,
    against="its defining properties: v(1) = 1, v(cz) = c^α v(z) for c > 0, and v(−z) = −λ v(z) for z > 0",
    wrong={
        "losses hurt more and more": lambda gains, *, alpha, loss_aversion: torch.where(
            gains >= 0, gains.abs() ** alpha, -loss_aversion * gains.abs() ** (1 / alpha)
        ),
        "gains and losses alike": lambda gains, *, alpha, loss_aversion: equations.prospect_value(
            gains, alpha=alpha, loss_aversion=1.0
        ),
        "λ inside the power": lambda gains, *, alpha, loss_aversion: torch.where(
            gains >= 0, gains.abs() ** alpha, -((loss_aversion * gains.abs()) ** alpha)
        ),
    },
)
def _(prospect_value, draw: Draw):
    alpha, loss_aversion = float(draw.uniform(low=0.4, high=0.8)), float(draw.uniform(low=1.4, high=2.0))
    z, c = draw.uniform(4, low=0.5, high=3.0), 1.5 + float(draw.uniform())

    def v(gains: Tensor) -> Tensor:
        return prospect_value(gains, alpha=alpha, loss_aversion=loss_aversion)

    yield v(torch.ones(2, dtype=torch.float64)), torch.ones(2)
    yield v(c * z), c**alpha * v(z)
    yield v(-c * z), c**alpha * v(-z)
    yield v(-z), -loss_aversion * v(z)
    yield v(0 * z), torch.zeros(4)


@check(
    "eq:probability-weighting",
    "value",
    "At γ = 1 the weight is the probability itself; at γ = ½ it is √p/(√p + √q)².",
    of=equations.probability_weight,
    against="p^γ over the γ-norm of (p, 1−p); and the odds of the two weights, which are those of p to the power γ",
    wrong={
        "normalised to sum to 1": lambda probs, *, gamma: torch.sigmoid(gamma * (probs.log() - (1 - probs).log())),
        "a plain power": lambda probs, *, gamma: probs**gamma,
        "1/γ forgotten": lambda probs, *, gamma: probs**gamma / (probs**gamma + (1 - probs) ** gamma) ** gamma,
    },
)
def _(probability_weight, draw: Draw):
    gamma = float(draw.uniform(low=0.62, high=0.8))
    p = draw.uniform(5, low=0.05, high=0.95)
    both = torch.stack([p, 1 - p], -1)
    norm = torch.linalg.vector_norm(both, ord=gamma, dim=-1)
    yield (
        probability_weight(p, gamma=gamma),
        torch.tensor([math.pow(x, gamma) for x in p.tolist()], dtype=torch.float64) / norm,
    )
    yield (
        probability_weight(p, gamma=gamma) / probability_weight(1 - p, gamma=gamma),
        (gamma * torch.logit(p)).exp(),
    )
    yield probability_weight(p, gamma=0.5), p.sqrt() / (1 + 2 * (p * (1 - p)).sqrt())
    yield probability_weight(p, gamma=1.0), p


def _played(probs: Tensor, utilities: Tensor, noise: float) -> float:
    """The best of acting, switching off and deferring, less the best of the first two, from the tree of the game."""
    act = sum(p * u for p, u in zip(probs.tolist(), utilities.tolist(), strict=True))
    defer = 0.0
    for (p, u), passes in itertools.product(zip(probs.tolist(), utilities.tolist(), strict=True), (True, False)):
        if noise == 0:
            chance = float((u > 0) == passes)
        else:
            chance = math.exp(u / noise * passes) / (1 + math.exp(u / noise))
        defer += p * chance * (u if passes else 0.0)
    return defer - max(act, 0.0)


_WRONG_DEFERENCE = {
    "compared with acting only": lambda probs, utilities, *, noise=0.0: (
        equations.deference_gain(probs, utilities, noise=noise)
        + (probs * utilities).sum(-1).clamp(min=0)
        - (probs * utilities).sum(-1)
    ),
    "the person judges the mean, not the plan": lambda probs, utilities, *, noise=0.0: (
        (
            (probs * utilities).sum(-1) * ((probs * utilities).sum(-1) > 0)
            if noise == 0
            else (probs * utilities).sum(-1) * torch.sigmoid((probs * utilities).sum(-1) / noise)
        )
        - (probs * utilities).sum(-1).clamp(min=0)
    ),
    "the switch is pressed when the plan is good": lambda probs, utilities, *, noise=0.0: (
        (probs * utilities * ((utilities <= 0) if noise == 0 else torch.sigmoid(-utilities / noise))).sum(-1)
        - (probs * utilities).sum(-1).clamp(min=0)
    ),
}


def _beliefs(draw: Draw) -> list[tuple[Tensor, Tensor]]:
    """Two beliefs about a plan, each unsure of the sign: one good on average, one bad."""
    probs = draw.uniform(4, low=0.15, high=0.3)
    probs = probs / probs.sum()
    good = torch.stack([*draw.uniform(2, low=-1.0, high=-0.5), *draw.uniform(2, low=1.5, high=3.0)])
    return [(probs, good), (probs, -good)]


@check(
    "eq:off-switch",
    "value",
    "The value of waiting for the person, minus the better of acting and switching off.",
    of=equations.deference_gain,
    against="the game tree: the machine moves, then a person who knows the plan's utility",
    wrong=_WRONG_DEFERENCE,
)
def _(deference_gain, draw: Draw):
    for probs, utilities in _beliefs(draw):
        yield deference_gain(probs, utilities), _played(probs, utilities, 0.0)


@check(
    "eq:off-switch-doubt",
    "step",
    "With E[max(u, 0)] = E[u⁺] and E[u] = E[u⁺] − E[u⁻], the gain is the smaller of the two parts.",
    of=equations.deference_gain,
    against="the smaller of what the plan may gain and what it may lose, E[u⁺] and E[u⁻]",
    follows="eq:off-switch",
    wrong=_WRONG_DEFERENCE,
)
def _(deference_gain, draw: Draw):
    for probs, utilities in _beliefs(draw):
        gain = float((probs * utilities.clamp(min=0)).sum())
        loss = float((probs * (-utilities).clamp(min=0)).sum())
        yield deference_gain(probs, utilities), min(gain, loss)


@check(
    "eq:noisy-overseer",
    "value",
    "A person accepts a plan of utility u with odds e^{u/τ} : 1.",
    of=equations.deference_gain,
    against="the game tree, with a person who makes mistakes",
    wrong=_WRONG_DEFERENCE
    | {
        "noise multiplied": lambda probs, utilities, *, noise: (
            (probs * utilities * torch.sigmoid(utilities * noise)).sum(-1) - (probs * utilities).sum(-1).clamp(min=0)
        )
    },
)
def _(deference_gain, draw: Draw):
    for probs, utilities in _beliefs(draw):
        for noise in (0.3 + 0.2 * float(draw.uniform()), 2.0 + float(draw.uniform())):
            yield deference_gain(probs, utilities, noise=noise), _played(probs, utilities, noise)
