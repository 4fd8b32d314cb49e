"""The ledger of chapter 07: what a label is worth, and what a test can see."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import comparisons as worth
from minirlhf_course.chapters.ch07_preference_data import equations
from minirlhf_course.ledger.registry import Comparison, Draw, check


def _logistic(low: float, high: float, centre: float) -> Tensor:
    """The mass of a logistic density around ``centre`` between two points, by quadrature; far tails are cut at 40."""
    density = lambda x: (-(x - centre).abs()).exp() / (1 + (-(x - centre).abs()).exp()) ** 2
    low, high = max(low, centre - 40), min(high, centre + 40)
    edges = [low, *(e for e in (centre - 6, centre, centre + 6) if low < e < high), high]
    return torch.stack([exact.integrate(density, a, b, nodes=40) for a, b in itertools.pairwise(edges)]).sum()


def _information(probs: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    """Expected curvature of the log-likelihood, Σ_l p_l (−∂² log p_l), by automatic differentiation twice."""
    x = at.detach().requires_grad_()
    log = probs(x).log()
    curvature = torch.zeros((), dtype=torch.float64)
    for value in log:
        (slope,) = torch.autograd.grad(value, x, create_graph=True)
        (second,) = torch.autograd.grad(slope, x, retain_graph=True)
        curvature = curvature - value.exp().detach() * second
    return curvature


@check(
    "eq:flipped-label",
    "value",
    "The label says that the first reply is better if it won and the label was not flipped, or lost and it was.",
    of=worth.flipped_label,
    against="a sum over the label and whether it is flipped",
    wrong={
        "flips make it a coin toss": lambda probability, *, flip: (1 - flip) * probability + flip / 2,
        "only losses are turned": lambda probability, *, flip: probability + flip * (1 - probability),
    },
)
def _(flipped_label, draw: Draw) -> Iterator[Comparison]:
    p = draw.uniform(4, low=0.6, high=0.95)
    for flip in (0.1, 0.35):
        outcomes = [(p if won else 1 - p) * (flip if turned else 1 - flip) for won, turned in ((1, 0), (0, 1))]
        yield flipped_label(p, flip=flip), outcomes[0] + outcomes[1]


@check(
    "eq:flipped-information",
    "value",
    "The Fisher information of one label about the difference in reward.",
    of=equations.flipped_information,
    against="expected curvature of the log-likelihood of the label",
    wrong={
        "as if the labels were clean": lambda difference, *, flip: (
            torch.sigmoid(difference) * torch.sigmoid(-difference)
        ),
        "clean information times (1 − 2ε)²": lambda difference, *, flip: (
            (1 - 2 * flip) ** 2 * torch.sigmoid(difference) * torch.sigmoid(-difference)
        ),
    },
)
def _(flipped_information, draw: Draw) -> Iterator[Comparison]:
    for flip in (0.1, 0.3):
        x = draw.uniform(3, low=0.8, high=2.0)

        def probs(difference: Tensor, flip: float = flip) -> Tensor:
            odds = difference.exp()
            first = (odds * (1 - flip) + flip) / (1 + odds)
            return torch.stack([first, 1 - first])

        yield flipped_information(x, flip=flip), torch.stack([_information(probs, one) for one in x])


@check(
    "eq:graded-preference",
    "value",
    "The perceived difference is the reward difference plus logistic noise; the level is the interval between "
    "two cuts in which it lies.",
    of=worth.graded_preference,
    against="the mass of the logistic density between the cuts, by quadrature",
    wrong={
        "read from the other end": lambda difference, cuts: worth.graded_preference(difference, cuts).flip(-1),
        "normal noise": lambda difference, cuts: (
            torch.cat(
                [
                    torch.ones_like(difference.unsqueeze(-1)),
                    torch.special.ndtr(difference.unsqueeze(-1) - cuts),
                    torch.zeros_like(difference.unsqueeze(-1)),
                ],
                -1,
            )
            .diff(dim=-1)
            .neg()
        ),
        "cuts of the wrong sign": lambda difference, cuts: worth.graded_preference(difference, -cuts.flip(-1)),
    },
)
def _(graded_preference, draw: Draw) -> Comparison:
    x, cuts = (
        draw.uniform(2, low=0.4, high=1.2),
        torch.tensor([-1.5, 0.2, 0.9], dtype=torch.float64) + draw.uniform(1, high=0.1),
    )
    edges = [-math.inf, *cuts.tolist(), math.inf]
    levels = [[_logistic(a, b, float(one)) for a, b in itertools.pairwise(edges)] for one in x]
    return graded_preference(x, cuts), torch.stack([torch.stack(row) for row in levels])


@check(
    "eq:graded-information",
    "value",
    "The Fisher information of one label on a scale about the difference in reward.",
    of=worth.graded_information,
    against="expected curvature of the log-likelihood of the level",
    wrong={
        "the sign alone: whether it is above the middle": lambda difference, cuts: (
            torch.sigmoid(difference) * torch.sigmoid(-difference)
        ),
        "not divided by the probability": lambda difference, cuts: (
            torch.func.jacfwd(lambda d: worth.graded_preference(difference + d, cuts))(
                torch.zeros((), dtype=torch.float64)
            )
            ** 2
        ).sum(-1),
    },
)
def _(graded_information, draw: Draw) -> Comparison:
    x, cuts = (
        draw.uniform(3, low=0.2, high=1.0),
        torch.tensor([-1.5, 0.3, 1.2], dtype=torch.float64) + draw.uniform(1, high=0.1),
    )

    def probs(difference: Tensor) -> Tensor:
        below = [1 / (1 + (difference - c).exp()) for c in cuts]
        return torch.stack([below[0], below[1] - below[0], below[2] - below[1], 1 - below[2]])

    return graded_information(x, cuts), torch.stack([_information(probs, one) for one in x])


# -- rankings ----------------------------------------------------------------------------------------------------


@functools.cache
def _scores(size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Over all K! orders of equally good replies: gradients of log-likelihoods in the rewards, curvatures, and a pair's.

    The first is Plackett–Luce's ``(K!, K)``, the second that of all pairs taken as independent; then the curvature of the
    second and that of a single pair, averaged over all pairs, both ``(K, K)``.
    """
    rewards = torch.zeros(size, dtype=torch.float64, requires_grad=True)
    ranked, paired = [], []
    for order in itertools.permutations(range(size)):
        luce = sum((rewards[i] - rewards[list(order[k:])].logsumexp(0) for k, i in enumerate(order)), rewards.sum() * 0)
        wins = [rewards[a] - rewards[[a, b]].logsumexp(0) for a, b in itertools.combinations(order, 2)]
        ranked.append(torch.autograd.grad(luce, rewards)[0])
        paired.append(torch.autograd.grad(torch.stack(wins).sum(), rewards)[0])
    pairs = list(itertools.combinations(range(size), 2))
    curvature = torch.zeros(size, size, dtype=torch.float64)
    for a, b in pairs:
        sign = torch.zeros(size, dtype=torch.float64)
        sign[a], sign[b] = 1.0, -1.0
        curvature += torch.outer(sign, sign) / 4
    return torch.stack(ranked), torch.stack(paired), curvature, curvature / len(pairs)


def _variance(information: Tensor) -> float:
    """Mean variance of a difference of two rewards: what an estimate of that information is good for."""
    inverse = torch.linalg.pinv(information)
    pairs = itertools.combinations(range(len(inverse)), 2)
    return sum(float(inverse[i, i] + inverse[j, j] - 2 * inverse[i, j]) for i, j in pairs)


SIZES = (2, 3, 4, 5)


@check(
    "eq:ranking-worth",
    "value",
    "The number of single comparisons, spread over all pairs, with the same uncertainty as one ranking.",
    of=worth.ranking_worth,
    against="variance of a difference of rewards, all K! rankings written out, against that of single pairs",
    wrong={
        "all pairs count in full": lambda num_ranked: num_ranked * (num_ranked - 1) / 2.0,
        "neighbours only": lambda num_ranked: num_ranked - 1.0,
        "the harmonic number taken without its first term": lambda num_ranked: worth.ranking_worth(num_ranked) + 2,
    },
)
def _(ranking_worth, draw: Draw) -> Comparison:
    found = []
    for size in SIZES:
        ranked, _, _, pair = _scores(size)
        found.append(_variance(pair) / _variance(ranked.T @ ranked / len(ranked)))
    return ranking_worth(torch.tensor(SIZES)), torch.tensor(found, dtype=torch.float64)


@check(
    "eq:all-pairs-worth",
    "value",
    "The number of single comparisons with the same uncertainty as the pairs of one ranking, fitted as if independent.",
    of=worth.all_pairs_worth,
    against="variance of the estimate from all pairs, from their true covariance over K! orders",
    wrong={
        "as if the pairs were independent": lambda num_ranked: num_ranked * (num_ranked - 1) / 2.0,
        "as if nothing were lost": lambda num_ranked: worth.ranking_worth(num_ranked),
    },
)
def _(all_pairs_worth, draw: Draw) -> Comparison:
    found = []
    for size in SIZES:
        _, paired, curvature, pair = _scores(size)
        inverse = torch.linalg.pinv(curvature)
        covariance = inverse @ (paired.T @ paired / len(paired)) @ inverse
        found.append(_variance(pair) / _variance(torch.linalg.pinv(covariance)))
    return all_pairs_worth(torch.tensor(SIZES)), torch.tensor(found, dtype=torch.float64)


@check(
    "eq:error-bar-factor",
    "value",
    "Pairs of one ranking are not independent, so an analysis that takes them as independent reports standard "
    "errors that are too small.",
    of=worth.error_bar_factor,
    against="true standard deviation over claimed standard deviation, from all K! orders",
    wrong={
        "number of pairs per reply": lambda num_ranked: (num_ranked - 1.0).sqrt(),
        "the variance instead of the standard deviation": lambda num_ranked: (num_ranked + 1) / 3.0,
    },
)
def _(error_bar_factor, draw: Draw) -> Comparison:
    found = []
    for size in SIZES:
        _, paired, curvature, _ = _scores(size)
        inverse = torch.linalg.pinv(curvature)
        true = torch.linalg.pinv(inverse @ (paired.T @ paired / len(paired)) @ inverse)
        found.append(math.sqrt(_variance(true) / _variance(curvature)))
    return error_bar_factor(torch.tensor(SIZES)), torch.tensor(found, dtype=torch.float64)


# -- tests -------------------------------------------------------------------------------------------------------


def _normal_tail(low: float, centre: float) -> Tensor:
    """Mass above ``low`` of the normal density around ``centre``, by quadrature."""
    density = lambda x: (-((x - centre) ** 2) / 2).exp() / math.sqrt(2 * math.pi)
    return exact.integrate(density, low, max(low, centre) + 12, nodes=60)


@functools.cache
def _edge(probability: float) -> float:
    """The point above which so much of a standard normal lies, by bisection on the quadrature."""
    low, high = -8.0, 8.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if float(_normal_tail(middle, 0.0)) > probability else (low, middle)
    return (low + high) / 2


@check(
    "eq:detection-power",
    "value",
    "The probability that the estimate is outside the interval, symmetric about 0, in which it lies in a "
    "fraction 1 − α of studies without an effect.",
    of=worth.detection_power,
    against="mass of the normal density outside the interval, by quadrature",
    tolerance=1e-8,
    wrong={
        "a one-sided test": lambda effect, information, *, alpha=0.05: worth.detection_power(
            effect, information, alpha=2 * alpha
        ),
        "information in place of its root": lambda effect, information, *, alpha=0.05: worth.detection_power(
            effect, information**2, alpha=alpha
        ),
        "the far tail is left out": lambda effect, information, *, alpha=0.05: torch.special.ndtr(
            effect * information.sqrt() - _edge(alpha / 2)
        ),
    },
)
def _(detection_power, draw: Draw) -> Iterator[Comparison]:
    effect, information = draw.uniform(2, low=0.05, high=0.15), draw.uniform(2, low=30.0, high=60.0)
    for alpha in (0.1, 0.2):
        edge = _edge(alpha / 2)
        shifts = (effect * information**0.5).tolist()
        outside = [_normal_tail(edge, s) + _normal_tail(edge, -s) for s in shifts]
        yield detection_power(effect, information, alpha=alpha), torch.stack(outside)


@check(
    "eq:smallest-effect",
    "value",
    "The effect whose estimate lies beyond the upper edge of the test's interval with the desired probability.",
    of=worth.smallest_effect,
    against="the effect at which that share of the normal density lies beyond the edge, by bisection",
    tolerance=1e-8,
    wrong={
        "the edge of the test alone, found in half of all studies": lambda information, *, alpha=0.05, power=0.8: (
            worth.smallest_effect(information, alpha=alpha, power=0.5)
        ),
        "a one-sided test": lambda information, *, alpha=0.05, power=0.8: worth.smallest_effect(
            information, alpha=2 * alpha, power=power
        ),
    },
)
def _(smallest_effect, draw: Draw) -> Iterator[Comparison]:
    information = draw.uniform(2, low=30.0, high=60.0)
    for alpha, power in ((0.1, 0.7), (0.02, 0.9)):
        edge, low, high = _edge(alpha / 2), 0.0, 10.0
        for _ in range(45):
            middle = (low + high) / 2
            low, high = (middle, high) if float(_normal_tail(edge, middle)) < power else (low, middle)
        yield smallest_effect(information, alpha=alpha, power=power), low / information.sqrt()
