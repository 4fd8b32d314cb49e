"""The ledger of chapter 06: models of preference."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import reward_losses
from minirlhf_course.ledger.registry import Comparison, Draw, chain, check

chain(
    "plackett-luce",
    "From Plackett–Luce to Bradley–Terry",
    ["eq:plackett-luce", "eq:plackett-luce-two", "eq:bradley-terry"],
    module=__name__,
)


def _luce_choices(rewards: Tensor) -> float:
    """Probability that choosing in proportion to e^r, again and again without replacement, follows this order."""
    weights, probability = [math.exp(r) for r in rewards.tolist()], 1.0
    while weights:
        probability *= weights[0] / sum(weights)
        weights.pop(0)
    return probability


def _all_pairs(rewards: Tensor) -> Tensor:
    """As if every pair of a ranking were a comparison by itself."""
    pairs = itertools.combinations(range(rewards.shape[-1]), 2)
    return torch.stack([torch.nn.functional.logsigmoid(rewards[..., i] - rewards[..., j]) for i, j in pairs]).sum(0)


@check(
    "eq:plackett-luce",
    "value",
    "The probability of a ranking is the product of the choices that lead to it.",
    of=reward_losses.plackett_luce_logp,
    against="choosing without replacement with probability proportional to e^r, for every order of three answers",
    wrong={
        "chosen answers stay in the denominator": lambda rewards: rewards.log_softmax(-1).sum(-1),
        "read from worst to best": lambda rewards: reward_losses.plackett_luce_logp(rewards.flip(-1)),
        "product of all pairwise Bradley–Terry": _all_pairs,
    },
)
def _(plackett_luce_logp, draw: Draw) -> Comparison:
    orders = draw.normal(3)[torch.tensor(list(itertools.permutations(range(3))))]  # (6, 3)
    return plackett_luce_logp(orders).exp(), torch.tensor(
        [_luce_choices(order) for order in orders], dtype=torch.float64
    )


@check(
    "eq:plackett-luce",
    "pairs within a ranking",
    "Summed over all orders of four answers with a above b, the probability is e^a/(e^a + e^b), whatever the "
    "other answers.",
    of=reward_losses.plackett_luce_logp,
    against="Bradley–Terry odds e^a : e^b",
    wrong={
        "chosen answers stay in the denominator": lambda rewards: rewards.log_softmax(-1).sum(-1),
        "read from worst to best": lambda rewards: reward_losses.plackett_luce_logp(rewards.flip(-1)),
    },
)
def _(plackett_luce_logp, draw: Draw) -> Comparison:
    rewards = draw.uniform(4, low=0.2, high=2.0) * torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)
    orders = torch.tensor([o for o in itertools.permutations(range(4)) if o.index(0) < o.index(1)])
    a, b = rewards[:2].exp()
    return plackett_luce_logp(rewards[orders]).exp().sum(), a / (a + b)


@check(
    "eq:plackett-luce",
    "Luce's axiom",
    "The odds of two answers for the first place are the same for any set of other answers.",
    of=reward_losses.plackett_luce_logp,
    against="odds e^a : e^b for the first place, with one other answer on offer and with three",
    wrong={
        "product of all pairwise Bradley–Terry": _all_pairs,
        "read from worst to best": lambda rewards: reward_losses.plackett_luce_logp(rewards.flip(-1)),
    },
)
def _(plackett_luce_logp, draw: Draw) -> Iterator[Comparison]:
    rewards = draw.uniform(5, low=0.2, high=2.0) * torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0], dtype=torch.float64)
    for offered in (3, 5):
        first = [
            plackett_luce_logp(rewards[torch.tensor([o for o in itertools.permutations(range(offered)) if o[0] == k])])
            for k in (0, 1)
        ]
        yield first[0].exp().sum() / first[1].exp().sum(), (rewards[0] - rewards[1]).exp()


@check(
    "eq:plackett-luce-two",
    "step",
    "With two answers only the first factor of the general product remains.",
    of=reward_losses.plackett_luce_logp,
    against="the first choice alone, e^a/(e^a + e^b): the second is forced",
    follows="eq:plackett-luce",
    wrong={
        "the second choice counted against both": lambda rewards: rewards.log_softmax(-1).sum(-1),
        "read from worst to best": lambda rewards: reward_losses.plackett_luce_logp(rewards.flip(-1)),
    },
)
def _(plackett_luce_logp, draw: Draw) -> Iterator[Comparison]:
    a, b = draw.normal(5), draw.normal(5)
    yield plackett_luce_logp(torch.stack([a, b], -1)).exp(), a.exp() / (a.exp() + b.exp())
    forced = torch.stack([b, torch.full_like(b, -200.0)], -1)  # a third answer that is never chosen
    three = plackett_luce_logp(torch.cat([a[:, None], forced], -1))
    yield plackett_luce_logp(torch.stack([a, b], -1)), three


@check(
    "eq:bradley-terry",
    "step",
    "Dividing e^a/(e^a + e^b) by e^a leaves a function of the difference, σ(a − b).",
    of=reward_losses.bradley_terry,
    against="Plackett–Luce with two answers",
    follows="eq:plackett-luce-two",
    wrong={
        "arguments swapped": lambda a, b: reward_losses.bradley_terry(b, a),
        "ratio of rewards, not of their exponentials": lambda a, b: a.abs() / (a.abs() + b.abs()),
    },
)
def _(bradley_terry, draw: Draw) -> Comparison:
    a, b = draw.normal(5), draw.normal(5)
    return bradley_terry(a, b), reward_losses.plackett_luce_logp(torch.stack([a, b], -1)).exp()


@check(
    "eq:bradley-terry",
    "value",
    "The probability that a + noise exceeds b + noise, with standard Gumbel noise on both.",
    of=reward_losses.bradley_terry,
    against="the integral over the noise of both answers",
    wrong={
        "Gaussian noise": reward_losses.thurstone,
        "arguments swapped": lambda a, b: reward_losses.bradley_terry(b, a),
    },
)
def _(bradley_terry, draw: Draw) -> Iterator[Comparison]:
    difference = draw.away_from([0.0], 4, low=-2.0, high=2.0, margin=0.1)
    b = draw.normal(4)

    def felt(d: float) -> Tensor:
        # P(b's noise < x + d) for a's noise x; with u = e^(−x) the density of that noise becomes e^(−u) on u > 0.
        return exact.integrate(lambda u: (-u).exp() * (-u * math.exp(-d)).exp(), 0.0, 40.0, nodes=60)

    yield bradley_terry(b + difference, b), torch.stack([felt(d) for d in difference.tolist()])


@check(
    "eq:thurstone",
    "value",
    "The probability that a + noise exceeds b + noise, with Gaussian noise of this standard deviation on both.",
    of=reward_losses.thurstone,
    against="Gauss–Hermite quadrature over the noise of one answer",
    wrong={
        "one noise instead of two: √2 forgotten": lambda a, b, *, std: torch.special.ndtr((a - b) / std),
        "logistic instead of Gaussian": lambda a, b, *, std: torch.sigmoid((a - b) / std),
    },
)
def _(thurstone, draw: Draw) -> Comparison:
    a, b, std = draw.uniform(4, low=0.5, high=1.0), draw.uniform(4, low=-0.5, high=0.3), 0.7 + float(draw.uniform())

    def chance(difference: float) -> Tensor:
        return exact.gaussian_expectation(
            lambda z: 0.5 * (1 + torch.erf((difference / std + z) / math.sqrt(2.0))), nodes=40
        )

    return thurstone(a, b, std=std), torch.stack([chance(d) for d in (a - b).tolist()])


def _swaps(order: list[int]) -> int:
    """Exchanges of neighbours that bubble sort needs."""
    row, count = list(order), 0
    for _ in row:
        for i in range(len(row) - 1):
            if row[i] > row[i + 1]:
                row[i], row[i + 1], count = row[i + 1], row[i], count + 1
    return count


ORDERS = list(itertools.permutations(range(4)))


@check(
    "eq:mallows",
    "value",
    "The probability falls by e^(−θ) with every exchange of neighbours; at θ = 0 all orders are equally probable.",
    of=reward_losses.mallows_logp,
    against="e^(−θ · swaps of bubble sort), normalised over all 24 orders",
    wrong={
        "items out of place instead of pairs": lambda order, *, dispersion: (
            -dispersion * (order != torch.arange(order.shape[-1])).double().sum(-1)
        ).log_softmax(0),
        "not normalised": lambda order, *, dispersion: torch.tensor(
            [-dispersion * _swaps(row) for row in order.tolist()], dtype=torch.float64
        ),
        "best to worst confused": lambda order, *, dispersion: reward_losses.mallows_logp(
            order.flip(-1), dispersion=dispersion
        ),
    },
)
def _(mallows_logp, draw: Draw) -> Iterator[Comparison]:
    dispersion = float(draw.uniform(low=0.2, high=1.5))
    weights = torch.tensor([math.exp(-dispersion * _swaps(list(order))) for order in ORDERS], dtype=torch.float64)
    yield mallows_logp(torch.tensor(ORDERS), dispersion=dispersion).exp(), weights / weights.sum()
    yield mallows_logp(torch.tensor(ORDERS), dispersion=0.0).exp(), torch.full((24,), 1 / 24, dtype=torch.float64)


@check(
    "eq:elo-expected",
    "value",
    "Odds multiply by ten per 400 points, and the two players' scores add up to 1.",
    of=reward_losses.elo_expected,
    against="the definition in odds: even at equal ratings, ten times as much with every 400 points",
    wrong={
        "natural exponential": lambda a, b: reward_losses.bradley_terry(a / 400, b / 400),
        "arguments swapped": lambda a, b: reward_losses.elo_expected(b, a),
        "scale of 200": lambda a, b: reward_losses.elo_expected(2 * a, 2 * b),
    },
)
def _(elo_expected, draw: Draw) -> Iterator[Comparison]:
    a = 1500 + 200 * draw.normal(4)
    b = a - draw.uniform(4, low=50.0, high=300.0)
    odds = lambda p: p / (1 - p)
    yield odds(elo_expected(a, a)), torch.ones(4)
    yield odds(elo_expected(a + 400, b)), 10 * odds(elo_expected(a, b))
    yield elo_expected(a, b) + elo_expected(b, a), torch.ones(4)
    yield elo_expected(a + 400, a), torch.full((4,), 10 / 11, dtype=torch.float64)


@check(
    "eq:elo-update",
    "gradient",
    "An update is a step of k · 400/ln 10 along the gradient of the log-likelihood of the result.",
    of=reward_losses.elo_update,
    against="finite differences of the Bradley–Terry log-likelihood of the game",
    wrong={
        "both players gain": lambda a, b, score, *, k: (
            a + k * (score - reward_losses.elo_expected(a, b)),
            b + k * (score - reward_losses.elo_expected(a, b)),
        ),
        "score without what was expected": lambda a, b, score, *, k: (a + k * (score - 0.5), b - k * (score - 0.5)),
        "winner's expectation for the loser": lambda a, b, score, *, k: reward_losses.elo_update(a, b, 1 - score, k=k),
    },
)
def _(elo_update, draw: Draw) -> Comparison:
    ratings = torch.stack([1500 + 200 * draw.normal(3), 1500 + 200 * draw.normal(3)])
    score, k = torch.tensor([1.0, 0.0, 0.5], dtype=torch.float64), float(draw.uniform(low=8.0, high=24.0))
    scale = 400 / math.log(10)

    def log_likelihood(x: Tensor) -> Tensor:  # in rewards, i.e. ratings in units of 400/ln 10
        p = x[0].exp() / (x[0].exp() + x[1].exp())
        return (score * p.log() + (1 - score) * (1 - p).log()).sum()

    gradient = exact.finite_difference(log_likelihood, (ratings - 1500) / scale)
    return torch.stack(elo_update(ratings[0], ratings[1], score, k=k)) - ratings, k * gradient
