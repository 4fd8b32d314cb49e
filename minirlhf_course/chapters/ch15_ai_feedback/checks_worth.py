"""The ledger of chapter 15: principles, rubrics, revisions, and what labels are worth."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from minirlhf_course.chapters.ch15_ai_feedback import equations
from minirlhf_course.ledger.registry import Comparison, Draw, chain, check

chain(
    "noise-or-bias",
    "The budget from which on few clean labels beat many biased ones",
    ["eq:label-error", "eq:label-crossover"],
    module=__name__,
)
chain(
    "mixed-labels",
    "How to split a budget between biased and unbiased labels",
    ["eq:mixed-labels", "eq:ai-budget"],
    module=__name__,
)


def _root(f: Callable[[float], float], low: float, high: float) -> float:
    """Where a function that is positive at ``low`` and negative at ``high`` crosses 0."""
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if f(middle) > 0 else (low, middle)
    return (low + high) / 2


# -- rubrics -----------------------------------------------------------------------------------------------------


def _rubric(draw: Draw) -> tuple[Tensor, Tensor]:
    """Replies by items, and whole weights that differ; some items are half met."""
    met = torch.tensor([[1.0, 0.0, 0.5, 1.0], [0.0, 1.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.5]], dtype=torch.float64)
    weights = torch.tensor([1.0, 2.0, 3.0, 5.0], dtype=torch.float64)
    return met[:, draw.permutation(4)], weights[draw.permutation(4)]


@check(
    "eq:rubric-reward",
    "value",
    "The fraction of items that are met, each weighted.",
    of=equations.rubric_reward,
    against="a rubric in which an item of weight w is listed w times",
    wrong={
        "weights ignored": lambda met, weights: met.mean(-1),
        "not normalised": lambda met, weights: met @ weights,
        "divided by the number of items": lambda met, weights: met @ weights / len(weights),
        "all or nothing": lambda met, weights: (met**weights).prod(-1),
    },
)
def _(rubric_reward, draw: Draw) -> Comparison:
    met, weights = _rubric(draw)
    written_out = [[float(c) for c, w in zip(row, weights, strict=True) for _ in range(int(w))] for row in met]
    return rubric_reward(met, weights), torch.tensor([sum(row) / len(row) for row in written_out], dtype=torch.float64)


def _scored(met: Tensor, weights: Tensor, miss: Tensor, invent: Tensor) -> list[list[tuple[float, float]]]:
    """For each reply the law of its score, (chance, score), over all verdicts on all items."""
    laws = []
    for row in met.tolist():
        law = []
        for truth, said in itertools.product(itertools.product((0, 1), repeat=len(row)), repeat=2):
            chance = 1.0
            for c, true, says, m, v in zip(row, truth, said, miss.tolist(), invent.tolist(), strict=True):
                right = 1 - m if true else 1 - v
                chance *= (c if true else 1 - c) * (right if says == true else 1 - right)
            law.append((chance, sum(float(w) for w, says in zip(weights, said, strict=True) if says)))
        laws.append([(chance, score / float(weights.sum())) for chance, score in law])
    return laws


_WRONG_RUBRICS = {
    "misses and inventions exchanged": lambda met, weights, *, miss, invent: equations.rubric_noise(
        met, weights, miss=invent, invent=miss
    ),
    "misses only": lambda met, weights, *, miss, invent: equations.rubric_noise(
        met, weights, miss=miss, invent=torch.zeros_like(invent)
    ),
    "all items weigh the same": lambda met, weights, *, miss, invent: equations.rubric_noise(
        met, torch.ones_like(weights), miss=miss, invent=invent
    ),
    "no noise, and that of a mean of independent halves": lambda met, weights, *, miss, invent: (
        equations.rubric_reward(met, weights),
        equations.rubric_noise(met, weights, miss=miss, invent=invent)[1] / 2,
    ),
}


def _noise(draw: Draw) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    met, weights = _rubric(draw)
    return met, weights, draw.uniform(4, low=0.05, high=0.15), draw.uniform(4, low=0.25, high=0.45)


@check(
    "eq:rubric-mean",
    "value",
    "The mean of the rubric score.",
    of=equations.rubric_noise,
    against="all verdicts on all items",
    wrong=_WRONG_RUBRICS,
)
def _(rubric_noise, draw: Draw) -> Iterator[Comparison]:
    for _ in range(2):
        met, weights, miss, invent = _noise(draw)
        laws = _scored(met, weights, miss, invent)
        expected = [sum(p * x for p, x in law) for law in laws]
        yield (
            rubric_noise(met, weights, miss=miss, invent=invent)[0],
            torch.tensor(expected, dtype=torch.float64),
        )


@check(
    "eq:rubric-variance",
    "value",
    "The variance of the score.",
    of=equations.rubric_noise,
    against="all verdicts on all items",
    wrong=_WRONG_RUBRICS,
)
def _(rubric_noise, draw: Draw) -> Iterator[Comparison]:
    for _ in range(2):
        met, weights, miss, invent = _noise(draw)
        expected = []
        for law in _scored(met, weights, miss, invent):
            mean = sum(p * x for p, x in law)
            expected.append(sum(p * (x - mean) ** 2 for p, x in law))
        found = rubric_noise(met, weights, miss=miss, invent=invent)[1]
        yield 100 * found, 100 * torch.tensor(expected, dtype=torch.float64)


# -- revisions ---------------------------------------------------------------------------------------------------


def _chain_of_revisions(start: float, rounds: int, principles: int, repair: float, harm: float) -> float:
    """The share of flaws, from the law of all sets of flaws that a reply may have."""
    law = {
        flaws: math.prod(start if flaw else 1 - start for flaw in flaws)
        for flaws in itertools.product((0, 1), repeat=principles)
    }
    for _ in range(rounds):
        after = dict.fromkeys(law, 0.0)
        for flaws, chance in law.items():
            for named in range(principles):
                changed = (*flaws[:named], 1 - flaws[named], *flaws[named + 1 :])
                changes = repair if flaws[named] else harm
                after[changed] += chance * changes / principles
                after[flaws] += chance * (1 - changes) / principles
        law = after
    return sum(chance * sum(flaws) / principles for flaws, chance in law.items())


@check(
    "eq:flaws-left",
    "value",
    "The expected fraction of flaws that remain.",
    of=equations.remaining_flaws,
    against="the Markov chain on all sets of flaws, over all principles that may be drawn",
    wrong={
        "revision does no harm": lambda *, start, rounds, principles, repair, harm: equations.remaining_flaws(
            start=start, rounds=rounds, principles=principles, repair=repair, harm=0.0
        ),
        "every principle in every round": lambda *, start, rounds, principles, repair, harm: equations.remaining_flaws(
            start=start, rounds=rounds * principles, principles=principles, repair=repair, harm=harm
        ),
        "one round too few": lambda *, start, rounds, principles, repair, harm: equations.remaining_flaws(
            start=start, rounds=rounds - 1, principles=principles, repair=repair, harm=harm
        ),
        "ends without flaws": lambda *, start, rounds, principles, repair, harm: (
            start * (1 - (repair + harm) / principles) ** rounds
        ),
    },
)
def _(remaining_flaws, draw: Draw) -> Iterator[Comparison]:
    for rounds, principles in ((1, 2), (3, 3), (5, 2)):
        start, repair = float(draw.uniform(low=0.6, high=0.9)), float(draw.uniform(low=0.3, high=0.8))
        harm = float(draw.uniform(low=0.05, high=0.2))
        found = remaining_flaws(start=start, rounds=rounds, principles=principles, repair=repair, harm=harm)
        yield found, _chain_of_revisions(start, rounds, principles, repair, harm)
    still = float(draw.uniform(low=0.2, high=0.8))
    yield remaining_flaws(start=still, rounds=4, principles=3, repair=0.0, harm=0.0), still


# -- groups ------------------------------------------------------------------------------------------------------


@check(
    "eq:group-consensus",
    "value",
    "The probability that the next member of every group agrees, with a uniform prior for each group.",
    of=equations.group_consensus,
    against="the mean probability of agreement under each group's posterior, by quadrature",
    wrong={
        "everybody in one group": lambda agrees, votes: (agrees.sum(-1) + 1) / (votes.sum(-1) + 2),
        "mean over groups": lambda agrees, votes: ((agrees + 1) / (votes + 2)).mean(-1),
        "shares as they are": lambda agrees, votes: (agrees / votes).prod(-1),
        "the least of the groups": lambda agrees, votes: ((agrees + 1) / (votes + 2)).min(-1).values,
    },
)
def _(group_consensus, draw: Draw) -> Comparison:
    nodes, weights = np.polynomial.legendre.leggauss(30)  # exact for these polynomials
    chance, weight = (nodes + 1) / 2, weights / 2
    agrees = [[draw.integer(1, 4), draw.integer(5, 9)] for _ in range(3)]
    votes = [[a + draw.integer(1, 3), b + draw.integer(1, 6)] for a, b in agrees]
    expected = []
    for a_groups, n_groups in zip(agrees, votes, strict=True):
        product = 1.0
        for a, n in zip(a_groups, n_groups, strict=True):
            seen = weight * chance**a * (1 - chance) ** (n - a)
            product *= float((seen * chance).sum() / seen.sum())
        expected.append(product)
    found = group_consensus(torch.tensor(agrees, dtype=torch.float64), torch.tensor(votes, dtype=torch.float64))
    return found, torch.tensor(expected, dtype=torch.float64)


# -- what labels are worth ---------------------------------------------------------------------------------------


@check(
    "eq:label-error",
    "value",
    "The mean squared error of an estimate from n labels.",
    of=equations.label_error,
    against="the mean of n labels, each with a bias and independent noise, over all 2^n outcomes",
    wrong={
        "bias averages out too": lambda budget, bias, *, cost, information: (bias**2 + 1 / information) * cost / budget,
        "bias not squared": lambda budget, bias, *, cost, information: bias + cost / (budget * information),
        "one label costs 1": lambda budget, bias, *, cost, information: bias**2 + 1 / (budget * information),
        "standard error": lambda budget, bias, *, cost, information: bias**2 + (cost / (budget * information)).sqrt(),
    },
)
def _(label_error, draw: Draw) -> Iterator[Comparison]:
    for labels in (2, 4):
        cost, information = float(draw.uniform(low=1.5, high=3.0)), float(draw.uniform(low=0.1, high=0.24))
        biases = draw.uniform(3, low=1.3, high=2.0)
        coin = 1 / math.sqrt(information)
        expected = [
            sum((bias + coin * sum(signs) / labels) ** 2 for signs in itertools.product((-1, 1), repeat=labels)) / 2**labels
            for bias in biases.tolist()
        ]  # fmt: skip
        budget = torch.full((3,), labels * cost, dtype=torch.float64)
        found = label_error(budget, biases, cost=cost, information=information)
        yield found, torch.tensor(expected, dtype=torch.float64)


def _prices(draw: Draw) -> dict[str, float]:
    """People are dear, the AI is cheap."""
    return {
        "cost": float(draw.uniform(low=2.0, high=5.0)),
        "information": float(draw.uniform(low=0.1, high=0.2)),
        "ai_cost": float(draw.uniform(low=0.1, high=0.3)),
        "ai_information": float(draw.uniform(low=0.15, high=0.25)),
    }


_WRONG_CROSSOVERS: dict[str, Callable[..., Any]] = {
    "AI labels without noise": lambda bias, *, cost, information, ai_cost, ai_information: cost / information / bias**2,
    "equal numbers of labels": lambda bias, *, cost, information, ai_cost, ai_information: (
        (1 / information - 1 / ai_information).__abs__() / bias**2
    ),
    "bias not squared": lambda bias, **prices: bias * equations.label_crossover(bias, **prices),
}


@check(
    "eq:label-crossover",
    "equal errors",
    "Below this budget the AI's labels have the smaller error, above it people's; if people's labels are "
    "cheaper, always people's.",
    of=equations.label_crossover,
    against="the budget at which both errors are equal, by bisection",
    wrong=_WRONG_CROSSOVERS,
    follows="eq:label-error",
)
def _(crossover, draw: Draw) -> Iterator[Comparison]:
    for _ in range(2):
        prices, biases = _prices(draw), draw.uniform(3, low=0.4, high=1.5)

        def gap(budget: float, bias: float, prices: dict[str, float] = prices) -> float:
            """By how much people's error is the larger."""
            c, zero = torch.tensor(budget, dtype=torch.float64), torch.tensor(0.0, dtype=torch.float64)
            people = equations.label_error(c, zero, cost=prices["cost"], information=prices["information"])
            model = equations.label_error(c, zero + bias, cost=prices["ai_cost"], information=prices["ai_information"])
            return float(people - model)

        found = [_root(functools.partial(gap, bias=b), 1e-3, 1e4) for b in biases.tolist()]
        yield crossover(biases, **prices), torch.tensor(found, dtype=torch.float64)
    dear = prices | {"ai_cost": 50.0}
    yield crossover(torch.cat([biases, 0 * biases[:1]]), **dear), torch.zeros(4, dtype=torch.float64)


@check(
    "eq:mixed-labels",
    "value",
    "The error of the optimally weighted mean.",
    of=equations.mixed_error,
    against="the minimum of the error over all weights, a parabola through three of them",
    wrong={
        "half and half": lambda variance, ai_error: (variance + ai_error) / 4,
        "the better of the two": torch.minimum,
        "errors add": lambda variance, ai_error: variance + ai_error,
        "weights by standard errors": lambda variance, ai_error: (
            2 * variance * ai_error / (variance.sqrt() + ai_error.sqrt()) ** 2
        ),
    },
)
def _(mixed_error, draw: Draw) -> Comparison:
    variance, ai_error = draw.uniform(4, low=0.5, high=1.0), draw.uniform(4, low=1.5, high=3.0)
    expected = []
    for v, e in zip(variance.tolist(), ai_error.tolist(), strict=True):
        at = {w: (1 - w) ** 2 * v + w**2 * e for w in (0.0, 0.5, 1.0)}
        curve = 2 * (at[0.0] - 2 * at[0.5] + at[1.0])
        slope = at[1.0] - at[0.0] - curve
        expected.append(at[0.0] - slope**2 / (4 * curve))
    return mixed_error(variance, ai_error), torch.tensor(expected, dtype=torch.float64)


@check(
    "eq:ai-budget",
    "minimum",
    "The split of a budget at which the best mixture has the smallest error; at the ends all or nothing goes to "
    "the AI.",
    of=equations.ai_budget,
    against="the split whose error has derivative 0, by automatic differentiation and bisection",
    wrong={
        "all that the AI is worth more": lambda budget, **p: budget if p["ai_cost"] < p["cost"] else 0.0,
        "no square root": lambda budget, *, bias, cost, information, ai_cost, ai_information: min(
            budget, (ai_information / ai_cost / (information / cost) - 1) / (bias**2 * ai_information / ai_cost)
        ),
        "bias not squared": lambda budget, *, bias, **p: equations.ai_budget(budget, bias=math.sqrt(bias), **p),
        "half and half": lambda budget, **p: budget / 2,
    },
    follows="eq:mixed-labels",
)
def _(ai_budget, draw: Draw) -> Iterator[Comparison]:
    for budget in (60.0, 200.0):
        prices, bias = _prices(draw), float(draw.uniform(low=1.2, high=1.8))

        def slope(spent: float, budget: float = budget, bias: float = bias, prices: dict[str, float] = prices) -> float:
            """What one more unit of money for the AI takes off the error."""
            money = torch.tensor(spent, dtype=torch.float64, requires_grad=True)
            variance = prices["cost"] / ((budget - money) * prices["information"])
            model = bias**2 + prices["ai_cost"] / (money * prices["ai_information"])
            (gradient,) = torch.autograd.grad(equations.mixed_error(variance, model), money)
            return -float(gradient)

        yield ai_budget(budget, bias=bias, **prices), _root(slope, 1e-9, budget - 1e-9)
    little = 0.01
    yield ai_budget(little, bias=bias, **prices), little
    yield ai_budget(60.0, bias=bias, **(prices | {"ai_cost": 50.0})), 0.0
