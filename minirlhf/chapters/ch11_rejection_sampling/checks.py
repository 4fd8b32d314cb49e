"""The ledger of chapter 11: best-of-n."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import estimators
from minirlhf.ledger.registry import Comparison, Draw, chain, check

chain(
    "best-of-n",
    "The law of best-of-n and its KL",
    [
        "eq:best-of-n-cdf",
        "eq:best-of-n-law",
        "eq:best-of-n-density",
        "eq:best-of-n-kl",
        "eq:best-of-n-kl-bound",
    ],
    module=__name__,
)


def _tuples(probs: Tensor, n: int) -> Iterator[tuple[tuple[int, ...], Tensor]]:
    """Every way to draw n responses independently, with its probability."""
    for drawn in itertools.product(range(len(probs)), repeat=n):
        yield drawn, probs[list(drawn)].prod()


def _law_by_enumeration(probs: Tensor, rewards: Tensor, n: int) -> Tensor:
    """The distribution of the best of n draws; of several best ones the first."""
    law = torch.zeros_like(probs)
    for drawn, chance in _tuples(probs, n):
        law[max(drawn, key=lambda y: float(rewards[y]))] += chance
    return law


def _cumulative(probs: Tensor, rewards: Tensor) -> tuple[Tensor, Tensor]:
    """F(r_y) and F(r_y−) of every response."""
    upto = torch.stack([probs[rewards <= r].sum() for r in rewards])
    return upto, torch.stack([probs[rewards < r].sum() for r in rewards])


@check(
    "eq:best-of-n-cdf",
    "value",
    of=estimators.best_of_n_cdf,
    against="all ways to draw n responses, summed",
    wrong={
        "smallest instead of largest": lambda cdf, *, n: 1 - (1 - cdf) ** n,
        "one draw too few": lambda cdf, *, n: cdf ** (n - 1),
        "n times": lambda cdf, *, n: (n * cdf).clamp(max=1.0),
    },
)
def _(best_of_n_cdf, draw: Draw) -> Comparison:
    "The best of n is at most x where all of them are."
    probs, rewards, n = draw.distribution(4), draw.normal(4), draw.integer(2, 3)
    upto, _ = _cumulative(probs, rewards)
    expected = torch.zeros(4, dtype=torch.float64)
    for drawn, chance in _tuples(probs, n):
        expected += chance * (max(rewards[list(drawn)]) <= rewards)
    return best_of_n_cdf(upto, n=n), expected


def _one_hot_of_best(probs: Tensor, rewards: Tensor, *, n: int) -> Tensor:
    return torch.nn.functional.one_hot(rewards.argmax(-1), rewards.shape[-1]).to(probs.dtype)


@check(
    "eq:best-of-n-law",
    "step",
    of=estimators.best_of_n_distribution,
    against="the jumps of F^n at each reward, for distinct rewards",
    follows="eq:best-of-n-cdf",
    wrong={
        "tempered policy, π^n": lambda probs, rewards, *, n: (probs**n) / (probs**n).sum(-1, keepdim=True),
        "n F^(n−1) π, as if no answer had mass": lambda probs, rewards, *, n: (
            n * _cumulative(probs, rewards)[0] ** (n - 1) * probs
        ),
        "always the best answer": _one_hot_of_best,
    },
)
def _(distribution, draw: Draw) -> Iterator[Comparison]:
    "The mass of an answer is what the distribution function of the maximum gains there."
    for size in (4, 5):
        probs, rewards, n = draw.distribution(size), draw.permutation(size).double(), draw.integer(2, 6)
        upto, below = _cumulative(probs, rewards)
        jumps = estimators.best_of_n_cdf(upto, n=n) - estimators.best_of_n_cdf(below, n=n)
        yield distribution(probs, rewards, n=n), jumps


@check(
    "eq:best-of-n-law",
    "value",
    of=estimators.best_of_n_distribution,
    against="all ways to draw n responses, two of them tied; the first of the best is taken",
    wrong={
        "ties resolved by index among the candidates": lambda probs, rewards, *, n: estimators.best_of_n_distribution(
            probs, rewards - 1e-6 * torch.arange(rewards.shape[-1]), n=n
        ),
        "tied answers counted twice": lambda probs, rewards, *, n: (
            _cumulative(probs, rewards)[0] ** n - _cumulative(probs, rewards)[1] ** n
        ),
        "always the best answer": _one_hot_of_best,
    },
)
def _(distribution, draw: Draw) -> Iterator[Comparison]:
    "Answers that tie share the mass of their reward in proportion to π."
    probs, n = draw.distribution(4), draw.integer(2, 3)
    rewards = torch.tensor([0.0, 1.0, 1.0, 2.0], dtype=torch.float64)[draw.permutation(4)]
    yield distribution(probs, rewards, n=n), _law_by_enumeration(probs, rewards, n)
    # An answer of hardly any mass, and one of none, get n F^(n−1) times what they had.
    rare = torch.tensor([1e-30, 0.0, 0.0], dtype=torch.float64)
    law = distribution(torch.cat([probs, rare]), torch.cat([rewards, rewards.new_tensor([0.5, 1.5, 3.0])]), n=n)
    yield law[4] / rare[0], n * probs[rewards < 0.5].sum() ** (n - 1)
    yield law[:4], _law_by_enumeration(probs, rewards, n)
    yield law[5:], torch.zeros(2)


@check(
    "eq:best-of-n-density",
    "step",
    of=estimators.best_of_n_density_ratio,
    against="the exact law, each answer's mass as the integral of the density over its quantiles",
    follows="eq:best-of-n-law",
    wrong={
        "n u^n": lambda quantile, *, n: n * quantile**n,
        "u^(n−1), not normalised": lambda quantile, *, n: quantile ** (n - 1),
        "smallest instead of largest": lambda quantile, *, n: n * (1 - quantile) ** (n - 1),
    },
)
def _(density_ratio, draw: Draw) -> Comparison:
    "Spread over the quantiles it covers, F(r−) to F(r), every answer is weighted by n u^(n−1)."
    probs, n = draw.distribution(4), draw.integer(2, 6)
    rewards = draw.permutation(4).double()
    upto, below = _cumulative(probs, rewards)
    masses = [
        exact.integrate(lambda u: density_ratio(u, n=n), low, high, nodes=8)
        for low, high in zip(below.tolist(), upto.tolist(), strict=True)
    ]
    return torch.stack(masses), estimators.best_of_n_distribution(probs, rewards, n=n)


@check(
    "eq:best-of-n-kl",
    "step",
    of=estimators.best_of_n_kl,
    against="∫ ρ log ρ over the quantiles, ρ = n u^(n−1), by quadrature in s = −log u",
    follows="eq:best-of-n-density",
    wrong={
        "log n": lambda n: math.log(n),
        "log n − 1": lambda n: math.log(n) - 1,
        "KL of the policy to best-of-n": lambda n: -math.log(n) + (n - 1),
    },
)
def _(best_of_n_kl, draw: Draw) -> Comparison:
    "The KL of the density n u^(n−1) to the uniform one."
    n = draw.integer(2, 50)

    def integrand(s: Tensor) -> Tensor:  # du = e^(−s) ds
        ratio = estimators.best_of_n_density_ratio((-s).exp(), n=n)
        return ratio * ratio.log() * (-s).exp()

    return best_of_n_kl(n), exact.integrate(integrand, 0.0, 40.0 / n, nodes=50)


@check(
    "eq:best-of-n-kl-bound",
    "step",
    of=estimators.best_of_n_kl,
    against="the exact KL plus what is lost inside each answer, by quadrature",
    follows="eq:best-of-n-kl",
    wrong={"log n": lambda n: math.log(n), "log n − 1": lambda n: math.log(n) - 1},
)
def _(best_of_n_kl, draw: Draw) -> Iterator[Comparison]:
    "The formula exceeds the exact KL by a weighted sum of KLs within the answers, none of them negative."
    probs, n = draw.distribution(4), draw.integer(2, 8)
    rewards = draw.permutation(4).double()
    law = estimators.best_of_n_distribution(probs, rewards, n=n)
    upto, below = _cumulative(probs, rewards)
    lost = []
    for mass, low, high in zip(law, below.tolist(), upto.tolist(), strict=True):

        def inside(s: Tensor, mass: Tensor = mass, width: float = high - low) -> Tensor:
            # Relative to uniform quantiles within the answer, the best draw has density ρ = n u^(n−1) width / mass.
            ratio = n * (-s).exp() ** (n - 1) * width / mass
            return ratio * ratio.log() * (-s).exp() / width

        # The lowest answer reaches down to quantile 0, where u = e^(−s) needs s → ∞; e^(−40) is as good.
        end = -math.log(low) if low > 0 else 40.0 / n
        lost.append(mass * exact.integrate(inside, -math.log(high), end, nodes=50))
    inner = torch.stack(lost)
    yield best_of_n_kl(n), exact.divergence(law, probs) + inner.sum()
    yield inner.clamp(max=0.0), torch.zeros(4)


@check(
    "eq:best-of-n-kl-bound",
    "value",
    of=estimators.best_of_n_kl,
    against="the exact KL of binary answers, from a coin with p = ½ (n = 4: .459356) to a fine grid",
    wrong={"log n − 1, its limit's constant taken too early": lambda n: math.log(n) - 1},
)
def _(best_of_n_kl, draw: Draw) -> Iterator[Comparison]:
    "No set of answers takes best-of-n further from its policy than the formula says."
    n = draw.integer(3, 8)
    for size in (2, 16, 256):
        probs = torch.full((size,), 1 / size, dtype=torch.float64)
        law = estimators.best_of_n_distribution(probs, draw.permutation(size).double(), n=n)
        yield (exact.divergence(law, probs) - best_of_n_kl(n)).clamp(min=0.0), 0.0


@check(
    "eq:best-of-n-win-rate",
    "value",
    of=estimators.best_of_n_win_rate,
    against="∫ u · n u^(n−1) du, and all ways to draw one answer against n on a fine grid",
    tolerance=1e-9,
    wrong={
        "1 − 2^(−n)": lambda n: 1 - 0.5**n,
        "(n−1)/n": lambda n: (n - 1) / n,
        "n draws from the other side too": lambda n: 0.5,
    },
)
def _(win_rate, draw: Draw) -> Iterator[Comparison]:
    "Among n + 1 draws each is best equally often; only one of them is the opponent's."
    n = draw.integer(2, 8)
    yield win_rate(n), exact.integrate(lambda u: u * n * u ** (n - 1), 0.0, 1.0, nodes=10)
    orders = itertools.permutations(range(4))
    yield win_rate(3), sum(order[0] != 3 for order in orders) / 24


@check(
    "eq:best-of-n-estimator",
    "value",
    of=estimators.best_of_n_curve,
    against="all subsets of the samples, ties shared evenly",
    wrong={
        "prefix maxima: the best of the first n": lambda scores, values: values[
            torch.stack([scores[: n + 1].argmax() for n in range(len(scores))])
        ],
        "with replacement": lambda scores, values: torch.stack(
            [
                (
                    estimators.best_of_n_distribution(torch.full_like(scores, 1 / len(scores)), scores, n=n + 1)
                    * values
                ).sum()
                for n in range(len(scores))
            ]
        ),
        "best value instead of best score": lambda scores, values: estimators.best_of_n_curve(values),
    },
)
def _(best_of_n_curve, draw: Draw) -> Iterator[Comparison]:
    "Entry n is the mean over all subsets of size n of the value of their best-scored member."
    scores = torch.tensor([0.0, 1.0, 1.0, 2.0, 2.0, 3.0], dtype=torch.float64)[draw.permutation(6)]
    values = draw.normal(6)
    means = []
    for n in range(1, 7):
        best = []
        for subset in itertools.combinations(range(6), n):
            index = torch.tensor(subset)
            best.append(values[index[scores[index] == scores[index].max()]].mean())
        means.append(torch.stack(best).mean())
    yield best_of_n_curve(scores, values), torch.stack(means)


@check(
    "eq:best-of-n-estimator",
    "unbiased",
    of=estimators.best_of_n_curve,
    against="value under the exact law, over all ways to draw the samples",
    wrong={
        "with replacement": lambda scores, values: torch.stack(
            [
                (
                    estimators.best_of_n_distribution(torch.full_like(scores, 1 / scores.shape[-1]), scores, n=n + 1)
                    * values
                ).sum(-1)
                for n in range(scores.shape[-1])
            ],
            -1,
        ),
        "best value instead of best score": lambda scores, values: estimators.best_of_n_curve(values),
    },
)
def _(best_of_n_curve, draw: Draw) -> Comparison:
    "On average over the N samples every entry is the expected value of best-of-n."
    probs, size = draw.distribution(3), 4
    scores = draw.permutation(3).double()
    values = torch.tensor([0.0, 2.0, 1.0])[scores.long()] + draw.uniform(
        3, high=0.5
    )  # the best score is not worth most
    drawn = torch.tensor(list(itertools.product(range(3), repeat=size)))  # (81, 4)
    chance = probs[drawn].prod(-1)
    expected = [
        exact.expectation(estimators.best_of_n_distribution(probs, scores, n=n), values) for n in range(1, size + 1)
    ]
    return chance @ best_of_n_curve(scores[drawn], values[drawn]), torch.stack(expected)
