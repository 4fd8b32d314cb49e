"""The ledger of chapter 16: reasoning. Rewards of length, format and several graders; votes, rewards that say nothing, how RL scales."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import numpy as np
import torch

from minirlhf.core import exact
from minirlhf.equations import reasoning
from minirlhf.equations.policy_losses import ppo_clip
from minirlhf_course.chapters.ch16_reasoning import equations
from minirlhf_course.ledger.registry import Comparison, Draw, check


@check(
    "eq:lcpo-exact",
    "value",
    "Correctness minus α per token of deviation, for correct and wrong answers: the target length is optimal.",
    of=equations.lcpo_exact,
    against="α for each missing or excess token, counted one by one",
    wrong={
        "only excess charged": lambda right, n, target, *, alpha: right - alpha * (n - target).clamp(min=0),
        "squared": lambda right, n, target, *, alpha: right - alpha * (n - target) ** 2,
        "wrong answers not charged": lambda right, n, target, *, alpha: (
            right * equations.lcpo_exact(right, n, target, alpha=alpha)
        ),
    },
)
def _(lcpo_exact, draw: Draw) -> Comparison:
    target, alpha = draw.integer(4, 8), float(draw.uniform(low=0.01, high=0.05))
    lengths = torch.arange(1, 13).repeat(2)
    right = torch.tensor([1.0] * 12 + [0.0] * 12, dtype=torch.float64)
    deviation = [len(set(range(n)) ^ set(range(target))) for n in lengths.tolist()]
    got = lcpo_exact(right, lengths, torch.full_like(lengths, target), alpha=alpha)
    return got, right - alpha * torch.tensor(deviation, dtype=torch.float64)


@check(
    "eq:lcpo-max",
    "value",
    "A factor between 0 and 1 that decreases with the length and equals `offset` at the budget; a wrong answer gets 0.",
    of=equations.lcpo_max,
    against="the median of 0, 1 and the straight line, times correctness",
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
    "In each group the reward falls linearly from ½ to −½ with the length; a wrong answer gets it only if it is "
    "negative.",
    of=equations.kimi_length_reward,
    against="interpolation between ½ at the shortest and −½ at the longest (NumPy)",
    wrong={
        "wrong answers paid": lambda right, n, valid: equations.kimi_length_reward(right * 0 + 1, n, valid),
        "long answers paid": lambda right, n, valid: equations.kimi_length_reward(right, -n, valid),
        "invalid lengths counted": lambda right, n, valid: equations.kimi_length_reward(right.nan_to_num(), n) * valid,
        "divided by the longest": lambda right, n, valid: torch.where(valid & (right > 0), 0.5 - n / n.max(), 0.0),
    },
)
def _(kimi_length_reward, draw: Draw) -> Comparison:
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
    "Only well-formed responses are graded; here well formed means that the response terminated.",
    of=equations.format_reward,
    against="P(well formed)·E[grade | well formed] − penalty·P(malformed) over every response",
    wrong={
        "grade of malformed answers paid": lambda grade, formed, *, penalty: grade - penalty * ~formed,
        "penalty forgotten": lambda grade, formed, *, penalty: grade * formed,
        "penalty for all": lambda grade, formed, *, penalty: grade * formed - penalty,
    },
)
def _(format_reward, draw: Draw) -> Comparison:
    lm = draw.toy(3, 2)
    probs, formed = lm.distribution()[0].detach(), lm.completions().terminated
    grades, penalty = 1 + draw.uniform(len(probs)), float(draw.uniform(low=0.5, high=1.5))
    share = probs[formed].sum()
    mean_grade = exact.expectation(probs[formed] / share, grades[formed])
    got = exact.expectation(probs, format_reward(grades, formed, penalty=penalty))
    return got, share * mean_grade - penalty * (1 - share)


@check(
    "eq:composite-reward",
    "optimum",
    "Adding graders multiplies their effects on the optimal policy: exp(Σ w r/β) = Π exp(w r/β).",
    of=equations.composite_reward,
    against="product of the tilts exp(w_k r_k / β) of the graders",
    wrong={
        "weights forgotten": lambda parts, weights: parts.sum(-1),
        "product of the graders": lambda parts, weights: parts.prod(-1),
        "weights brought to sum 1": lambda parts, weights: parts @ (weights / weights.sum()),
    },
)
def _(composite_reward, draw: Draw) -> Comparison:
    parts, weights, beta = draw.normal(5, 3), draw.uniform(3, low=0.4, high=0.9), 0.7
    ref = draw.distribution(5)
    got = ref * (composite_reward(parts, weights) / beta).exp()
    tilts = torch.stack([(weights[k] * parts[:, k] / beta).exp() for k in range(3)])
    wanted = ref * tilts.prod(0)
    return got / got.sum(), wanted / wanted.sum()


@check(
    "eq:cosine-length",
    "value", "Half a cosine between two ends; correct and wrong answers have different ends, and truncated ones a penalty.",
    of=equations.cosine_length_reward,
    against="a cos² + b sin² of half the angle, one length at a time (NumPy)",
    wrong={
        "a straight line": lambda right, n, *, max_completion_length, **ends: torch.where(
            n >= max_completion_length,
            ends["exceeded"],
            torch.where(right > 0, ends["right_first"], ends["wrong_first"])
            + torch.where(right > 0, ends["right_last"] - ends["right_first"], ends["wrong_last"] - ends["wrong_first"])
            * n / max_completion_length,
        ),
        "ends exchanged": lambda right, n, *, right_first, right_last, wrong_first, wrong_last, **o: (
            equations.cosine_length_reward(
                right, n, right_first=right_last, right_last=right_first, wrong_first=wrong_last, wrong_last=wrong_first, **o
            )
        ),
        "a whole cosine": lambda right, n, *, max_completion_length, **o: torch.where(
            n >= max_completion_length,
            o["exceeded"],
            equations.cosine_length_reward(right, 2 * n, max_completion_length=2 * max_completion_length + 30, **o),
        ),
        "cut off is not charged": lambda right, n, *, exceeded, **o: equations.cosine_length_reward(
            right, n, exceeded=0.0, **o
        ),
    },
)  # fmt: skip
def _(cosine_length_reward, draw: Draw) -> Iterator[Comparison]:
    for limit in (draw.integer(9, 12), draw.integer(14, 17)):
        a, b, c, d, e = (float(x) for x in draw.uniform(5, low=0.5, high=2.0))
        ends = {"right_first": a + b, "right_last": b, "wrong_first": -c - d, "wrong_last": -d, "exceeded": -c - d - e}
        lengths = torch.arange(1, 19).repeat(2)
        right = torch.tensor([1.0] * 18 + [0.0] * 18, dtype=torch.float64)
        half = np.pi * lengths.numpy() / (2 * limit)
        good = (a + b) * np.cos(half) ** 2 + b * np.sin(half) ** 2
        bad = (-c - d) * np.cos(half) ** 2 - d * np.sin(half) ** 2
        wanted = np.where(lengths.numpy() >= limit, -c - d - e, np.where(right.numpy() > 0, good, bad))
        yield cosine_length_reward(right, lengths, max_completion_length=limit, **ends), torch.from_numpy(wanted)


def _again(tokens: list[int], n: int) -> list[bool]:
    """Is this token part of a run of n that stands somewhere before? Every pair of places is compared."""
    starts = range(len(tokens) - n + 1)
    later = [s for s in starts if any(tokens[s : s + n] == tokens[b : b + n] for b in range(s))]
    return [any(s <= t < s + n for s in later) for t in range(len(tokens))]


@check(
    "eq:repetition-penalty",
    "value", "A token is penalised once if it is in an n-gram that occurred before; the first occurrence is free.",
    of=equations.repeated_tokens,
    against="every pair of positions of a response compared",
    wrong={
        "only the last token of a run": lambda tokens, mask, *, n: (
            torch.tensor(
                [[t >= n and row[t - n + 1 : t + 1] in [row[s : s + n] for s in range(t - n + 1)] for t in range(len(row))]
                 for row in tokens.tolist()]
            ) & mask
        ),
        "the first occurrence too": lambda tokens, mask, *, n: (
            equations.repeated_tokens(torch.cat([tokens, tokens], -1), torch.cat([mask, mask], -1), n=n)[:, tokens.shape[1] :]
        ),
        "longer runs only": lambda tokens, mask, *, n: equations.repeated_tokens(tokens, mask, n=n + 1),
        "behind the end too": lambda tokens, mask, *, n: equations.repeated_tokens(tokens, torch.ones_like(mask), n=n),
    },
)  # fmt: skip
def _(repeated_tokens, draw: Draw) -> Iterator[Comparison]:
    said = [[0, 1, 2, 0, 1, 3, 1, 2], [4, 4, 4, 4, 4, 5, 6, 7], [0, 1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 1, 2, 3, 4]]
    tokens = draw.permutation(8)[torch.tensor(said)]
    mask = torch.ones(4, 8, dtype=torch.bool)
    mask[3, 5:] = False
    for n in (2, 3):
        expected = torch.zeros(4, 8, dtype=torch.float64)
        for row, length in enumerate((8, 8, 8, 5)):
            expected[row, :length] = torch.tensor(_again(tokens[row, :length].tolist(), n)).double()
        yield repeated_tokens(tokens, mask, n=n).double(), expected


@check(
    "eq:weighted-vote",
    "value",
    "The weight of an answer is the sum of the weights of all replies that give it.",
    of=reasoning.vote_totals,
    against="a count by hand, one reply after the other",
    wrong={
        "every ballot counts one": lambda answers, weights: reasoning.vote_totals(answers, torch.ones_like(weights)),
        "the mean in place of the total": lambda answers, weights: (
            reasoning.vote_totals(answers, weights) / reasoning.vote_totals(answers, torch.ones_like(weights))
        ),
        "one's own ballot left out": lambda answers, weights: reasoning.vote_totals(answers, weights) - weights,
    },
)
def _(vote_totals, draw: Draw) -> Comparison:
    answers = torch.stack([torch.tensor([0, 0, 1, 2, 1, 0, 2])[draw.permutation(7)] for _ in range(3)])
    weights = draw.uniform(3, 7, low=0.1)
    expected = torch.zeros(3, 7, dtype=torch.float64)
    for row in range(3):
        tally: dict[int, float] = {}
        for answer, weight in zip(answers[row].tolist(), weights[row].tolist(), strict=True):
            tally[answer] = tally.get(answer, 0.0) + weight
        expected[row] = torch.tensor([tally[answer] for answer in answers[row].tolist()], dtype=torch.float64)
    return vote_totals(answers, weights), expected


@check(
    "eq:majority-reward",
    "value", "1 for a reply that agrees with the most common answer of the group, correct or not; of answers that tie, "
    "the one that was given first.",
    of=equations.majority_reward,
    against="the most common answer of a counter",
    wrong={
        "the share of the votes": lambda answers: (
            reasoning.vote_totals(answers, torch.ones(answers.shape, dtype=torch.float64)) / answers.shape[1]
        ),
        "the rarest answer": lambda answers: 1 - equations.majority_reward(answers),
        "all that tie": lambda answers: (
            lambda t: (t == t.amax(-1, keepdim=True)).double()
        )(reasoning.vote_totals(answers, torch.ones(answers.shape))),
    },
)  # fmt: skip
def _(majority_reward, draw: Draw) -> Comparison:
    names = draw.permutation(9)
    groups = [[0, 1, 1, 2, 0, 1], [3, 4, 4, 3, 5, 5], [6, 6, 6, 7, 7, 8]]
    answers = torch.stack([names[torch.tensor(group)[draw.permutation(6)]] for group in groups])
    winners = [Counter(row).most_common(1)[0][0] for row in answers.tolist()]  # of ties the first that was counted
    return majority_reward(answers), (answers == torch.tensor(winners)[:, None]).double()


@check(
    "eq:random-reward-push",
    "gradient", "With a coin as reward, the clip alone gives a gradient: it pulls back every action whose probability ratio "
    "has left [1 − ε, 1 + ε].",
    of=equations.random_reward_gradient,
    against="autograd through the clipped objective, averaged over all actions and both signs",
    wrong={
        "not clipped": lambda probs, old, *, epsilon: 0 * probs,
        "away from the old policy": lambda probs, old, *, epsilon: -equations.random_reward_gradient(
            probs, old, epsilon=epsilon
        ),
        "the softmax forgotten": lambda probs, old, *, epsilon: (
            0.5 * probs * ((probs / old < 1 - epsilon).double() - (probs / old > 1 + epsilon).double())
        ),
        "weighted by the old policy": lambda probs, old, *, epsilon: (
            lambda pull: pull - probs * pull.sum(-1, keepdim=True)
        )(0.5 * old * ((probs / old < 1 - epsilon).double() - (probs / old > 1 + epsilon).double())),
    },
)  # fmt: skip
def _(random_reward_gradient, draw: Draw) -> Iterator[Comparison]:
    for epsilon in (float(draw.uniform(low=0.1, high=0.15)), float(draw.uniform(low=0.2, high=0.25))):
        shares = draw.distribution(
            4, scale=0.5
        )  # of three pairs that exchange probability, and of one action that keeps its own
        moved = torch.cat([draw.uniform(2, low=0.35, high=0.6), draw.uniform(1, low=0.02, high=0.05)])
        old = torch.cat([shares[:3], shares[:3], 2 * shares[3:]]) / 2
        new = old * torch.cat([1 - moved, 1 + moved, torch.ones(1)])
        logits = new.log().requires_grad_()
        logps = logits.log_softmax(-1)[:, None]  # one action, one token
        mask = torch.ones(7, 1, dtype=torch.bool)
        both = torch.stack(
            [
                ppo_clip(logps, old.log()[:, None], torch.full((7, 1), sign), mask, epsilon=epsilon)
                for sign in (1.0, -1.0)
            ]
        )
        objective = (old * both.mean(0)[:, 0]).sum()
        yield random_reward_gradient(new, old, epsilon=epsilon), torch.autograd.grad(objective, logits)[0]


@check(
    "eq:compute-curve",
    "value",
    "Half of the gain at the midpoint; log(gained/remaining) increases by B for every factor e of compute.",
    of=reasoning.compute_curve,
    against="a logistic function whose log-odds are a straight line in log compute",
    wrong={
        "from 0": lambda c, *, start, **o: reasoning.compute_curve(c, start=0.0, **o),
        "the ceiling added to the start": lambda c, *, start, ceiling, **o: reasoning.compute_curve(
            c, start=start, ceiling=start + ceiling, **o
        ),
        "in compute, not in its logarithm": lambda c, *, start, ceiling, exponent, midpoint: (
            start + (ceiling - start) * torch.sigmoid(exponent * (c - midpoint))
        ),
    },
)
def _(compute_curve, draw: Draw) -> Iterator[Comparison]:
    for _ in range(2):
        start, gain = (float(x) for x in draw.uniform(2, low=0.2, high=0.4))
        exponent, midpoint = float(draw.uniform(low=0.8, high=2.5)), float(draw.uniform(low=3.0, high=9.0))
        compute = draw.uniform(6, low=0.5, high=30.0)
        line = torch.special.expit(exponent * (compute.log() - math.log(midpoint)))
        got = compute_curve(compute, start=start, ceiling=start + gain, exponent=exponent, midpoint=midpoint)
        yield got, start + gain * line
