"""The ledger of chapter 16: reasoning. Rewards of length, format and several graders."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from minirlhf.core import exact
from minirlhf.equations import shaping
from minirlhf.ledger.registry import Comparison, Draw, check


@check(
    "eq:lcpo-exact",
    "value",
    of=shaping.lcpo_exact,
    against="α for each token missing or in excess, counted one by one",
    wrong={
        "only excess charged": lambda right, n, target, *, alpha: right - alpha * (n - target).clamp(min=0),
        "squared": lambda right, n, target, *, alpha: right - alpha * (n - target) ** 2,
        "wrong answers not charged": lambda right, n, target, *, alpha: (
            right * shaping.lcpo_exact(right, n, target, alpha=alpha)
        ),
    },
)
def _(lcpo_exact, draw: Draw) -> Comparison:
    "Correctness minus α per token of deviation, right or wrong: the best length is the one asked for."
    target, alpha = draw.integer(4, 8), float(draw.uniform(low=0.01, high=0.05))
    lengths = torch.arange(1, 13).repeat(2)
    right = torch.tensor([1.0] * 12 + [0.0] * 12, dtype=torch.float64)
    deviation = [len(set(range(n)) ^ set(range(target))) for n in lengths.tolist()]
    got = lcpo_exact(right, lengths, torch.full_like(lengths, target), alpha=alpha)
    return got, right - alpha * torch.tensor(deviation, dtype=torch.float64)


@check(
    "eq:lcpo-max",
    "value",
    of=shaping.lcpo_max,
    against="the middle one of 0, 1 and the straight line, times correctness",
    wrong={
        "not clipped": lambda right, n, target, *, alpha, offset: right * (alpha * (target - n) + offset),
        "deviation in both directions": lambda right, n, target, *, alpha, offset: (
            right * (offset - alpha * (target - n).abs()).clamp(0, 1)
        ),
        "added, not multiplied": lambda right, n, target, *, alpha, offset: (
            right + (alpha * (target - n) + offset).clamp(0, 1)
        ),
    },
)
def _(lcpo_max, draw: Draw) -> Iterator[Comparison]:
    "A factor between 0 and 1 that falls with the length and is `offset` at the budget; a wrong answer earns nothing."
    lengths, budget = torch.arange(1, 25), draw.integer(10, 14)
    alpha, offset = float(draw.uniform(low=0.08, high=0.12)), float(draw.uniform(low=0.4, high=0.6))
    for right in (1.0, 0.0):
        correct = torch.full((24,), right, dtype=torch.float64)
        middle = [right * sorted((0.0, alpha * (budget - n) + offset, 1.0))[1] for n in lengths.tolist()]
        got = lcpo_max(correct, lengths, torch.full_like(lengths, budget), alpha=alpha, offset=offset)
        yield got, torch.tensor(middle, dtype=torch.float64)


@check(
    "eq:kimi-length",
    "value",
    of=shaping.kimi_length_reward,
    against="interpolation between ½ at the shortest and −½ at the longest (NumPy)",
    wrong={
        "wrong answers paid": lambda right, n, valid: shaping.kimi_length_reward(right * 0 + 1, n, valid),
        "long answers paid": lambda right, n, valid: shaping.kimi_length_reward(right, -n, valid),
        "invalid lengths counted": lambda right, n, valid: shaping.kimi_length_reward(right.nan_to_num(), n) * valid,
        "divided by the longest": lambda right, n, valid: torch.where(valid & (right > 0), 0.5 - n / n.max(), 0.0),
    },
)
def _(kimi_length_reward, draw: Draw) -> Comparison:
    "In each group the reward falls linearly from ½ to −½ with the length; a wrong answer gets it only where it is negative."
    lengths = torch.stack([draw.permutation(6) * 2 + 3, torch.full((6,), draw.integer(2, 9))])
    by_length = lengths[0].argsort()
    right = torch.ones(2, 6, dtype=torch.float64)
    right[0, by_length[[1, 3]]] = 0.0  # a short and a long wrong answer
    valid = torch.ones(2, 6, dtype=torch.bool)
    valid[0, by_length[5]] = False  # the longest was not graded
    right[~valid] = torch.nan
    n = lengths[0].double().numpy()
    ends = [lengths[0, by_length[0]].item(), lengths[0, by_length[4]].item()]
    bonus = torch.from_numpy(np.interp(n, ends, [0.5, -0.5]))
    bonus = torch.where(right[0] == 0, torch.minimum(bonus, bonus * 0), bonus)
    expected = torch.stack([torch.where(valid[0], bonus, 0.0), torch.zeros(6)])
    return kimi_length_reward(right, lengths, valid), expected


@check(
    "eq:format-reward",
    "expected value",
    of=shaping.format_reward,
    against="P(well formed)·E[grade | well formed] − penalty·P(malformed) over every response",
    wrong={
        "grade of malformed answers paid": lambda grade, formed, *, penalty: grade - penalty * ~formed,
        "penalty forgotten": lambda grade, formed, *, penalty: grade * formed,
        "penalty for all": lambda grade, formed, *, penalty: grade * formed - penalty,
    },
)
def _(format_reward, draw: Draw) -> Comparison:
    "Only well-formed answers are graded; here well formed means that the response ended."
    lm = draw.toy(3, 2)
    probs, formed = lm.distribution()[0].detach(), lm.responses().terminated
    grades, penalty = 1 + draw.uniform(len(probs)), float(draw.uniform(low=0.5, high=1.5))
    share = probs[formed].sum()
    mean_grade = exact.expectation(probs[formed] / share, grades[formed])
    got = exact.expectation(probs, format_reward(grades, formed, penalty=penalty))
    return got, share * mean_grade - penalty * (1 - share)


@check(
    "eq:composite-reward",
    "optimum",
    of=shaping.composite_reward,
    against="product of the tilts exp(w_k r_k / β) of the graders",
    wrong={
        "weights forgotten": lambda parts, weights: parts.sum(-1),
        "product of the graders": lambda parts, weights: parts.prod(-1),
        "weights brought to sum 1": lambda parts, weights: parts @ (weights / weights.sum()),
    },
)
def _(composite_reward, draw: Draw) -> Comparison:
    "Graders that are added multiply their effect on the optimal policy: exp(Σ w r/β) = Π exp(w r/β)."
    parts, weights, beta = draw.normal(5, 3), draw.uniform(3, low=0.4, high=0.9), 0.7
    ref = draw.distribution(5)
    got = ref * (composite_reward(parts, weights) / beta).exp()
    tilts = torch.stack([(weights[k] * parts[:, k] / beta).exp() for k in range(3)])
    wanted = ref * tilts.prod(0)
    return got / got.sum(), wanted / wanted.sum()
