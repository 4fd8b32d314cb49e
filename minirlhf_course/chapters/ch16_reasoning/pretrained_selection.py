"""Best-of-n on the recorded completions of the pretrained model: by the grade, and by three proxies that no run trains.

The gold reward is the grade. A proxy reads the completion only. All claims use the completions of
:mod:`.pretrained`, so they need no model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from minirlhf.equations.estimators import best_of_n_curve, best_of_n_distribution, best_of_n_kl
from minirlhf_course.chapters.ch16_reasoning.pretrained_claims import Rows, accuracy, divergence, kl_at, subset, vote
from minirlhf_course.evidence.claims import Record, StatedClaim

SIZES = (1, 2, 4, 8, 16)


def digit_fraction(text: str) -> float:
    """Fraction of digits among the characters that are not spaces; 0 without any."""
    return len(re.findall(r"\d", text)) / max(1, len(re.sub(r"\s", "", text)))


#: A question's record -> scores of its completions.
SCORES: Mapping[str, Callable[[Mapping], Sequence[float]]] = {
    "gold": lambda row: row["grade"],
    "length": lambda row: row["length"],
    "phrase": lambda row: [float("=" in text) for text in row["text"]],
    "digits": lambda row: [digit_fraction(text) for text in row["text"]],
}


def scores_of(rows: Rows, name: str) -> Tensor:
    """Return the scores ``(M, N)`` of N completions of each of M questions."""
    return torch.tensor([list(SCORES[name](row)) for row in rows], dtype=torch.float64)


def gold_of_best(rows: Rows, name: str) -> list[float]:
    """Return the mean grade of the best of n by a score, for n = 1 … N, without bias."""
    return best_of_n_curve(scores_of(rows, name), scores_of(rows, "gold")).mean(0).tolist()


def selection_kl(rows: Rows, name: str, n: int) -> float:
    """Return the KL from the base model to best-of-n by a score, in nats: mean over questions, with each question's
    completions as its distribution.

    Ties are broken at random, so the KL depends only on the probability of each score, and the ties make it smaller than
    :func:`~minirlhf.equations.estimators.best_of_n_kl`. Scores that were not sampled are left out.
    """
    kls = []
    for scores in scores_of(rows, name):
        base = torch.full_like(scores, 1 / len(scores))
        best = best_of_n_distribution(base, scores, n=n)
        kls.append(float(torch.special.xlogy(best, best / base).sum()))
    return float(np.mean(kls))


def vote_of(rows: Rows, n: int) -> float:
    """Return the accuracy of the vote of n completions: mean over disjoint blocks of n."""
    blocks = [
        {"text": row["text"][i : i + n], "grade": row["grade"][i : i + n]}
        for row in rows
        for i in range(0, len(row["text"]) - n + 1, n)
    ]
    return vote(blocks)


# -- claims ------------------------------------------------------------------------------------------------------


def _change(name: str, before: int, after: int) -> Callable[[Record, Sequence[int]], float]:
    """Mean grade of the best of ``after`` minus the best of ``before``, by a score."""

    def effect(record: Record, some: Sequence[int]) -> float:
        curve = gold_of_best(subset(record["base"], some), name)
        return curve[after - 1] - curve[before - 1]

    return effect


def _rl_curve(record: Record, some: Sequence[int]) -> list[tuple[float, float]]:
    """Accuracy and KL of the base model and of RL's measured steps."""
    steps = [subset(rows, some) for rows in (*record["curves"]["rl"], record["rl"])]
    return [(accuracy(subset(record["base"], some)), 0.0), *((accuracy(rows), divergence(rows)) for rows in steps)]


def _cheaper(record: Record, some: Sequence[int]) -> float:
    """KL of RL minus the upper bound of best-of-n's KL, at the smaller of their last accuracies."""
    selected = [(gold, best_of_n_kl(n)) for n, gold in enumerate(gold_of_best(subset(record["base"], some), "gold"), 1)]
    trained = _rl_curve(record, some)
    target = min(selected[-1][0], trained[-1][0])
    return kl_at(trained, target) - kl_at(selected, target)


def _ties(record: Record, some: Sequence[int]) -> float:
    """Upper bound of the KL of best-of-16 minus its KL, by the grade."""
    return best_of_n_kl(16) - selection_kl(subset(record["base"], some), "gold", 16)


def _verifier(record: Record, some: Sequence[int]) -> float:
    """Accuracy of best-of-16 by the grade minus pass@1 after RL."""
    return gold_of_best(subset(record["base"], some), "gold")[15] - accuracy(subset(record["rl"], some))


def _falls(name: str, before: int, after: int) -> Callable[[Record, Sequence[int]], float]:
    return lambda record, some: -_change(name, before, after)(record, some)


SELECTION: dict[str, StatedClaim] = {
    "verifier": StatedClaim("best-of-16 by the grade is more accurate than one completion after RL", 11, _verifier),
    "cheaper": StatedClaim("at equal accuracy best-of-n has a smaller KL than RL", 11, _cheaper, unit="nats"),
    "ties": StatedClaim(
        "the formula overstates the KL of best-of-16 by the grade by half a nat", 11, _ties, floor=0.5, unit="nats"
    ),
    "long": StatedClaim("the longest of 16 is right less often than one completion", 20, _falls("length", 1, 16)),
    "phrase": StatedClaim(
        "the best of 16 by the phrase is right more often than one completion", 20, _change("phrase", 1, 16)
    ),
    "digits": StatedClaim(
        "by the fraction of digits, the best of 16 is right less often than the best of 4", 20, _falls("digits", 4, 16)
    ),
}


def describe_selection(record: Record) -> dict[str, float]:
    """Return accuracy, proxy reward and KL of best-of-n by every score, and the accuracy of the vote of n."""
    rows = record["base"]
    numbers: dict[str, float] = {}
    for name in SCORES:
        scores = scores_of(rows, name)
        gold, proxy = gold_of_best(rows, name), best_of_n_curve(scores).mean(0).tolist()
        for n in SIZES:
            numbers |= {f"{name}_gold_{n}": gold[n - 1], f"{name}_proxy_{n}": proxy[n - 1]}
            numbers[f"{name}_kl_{n}"] = selection_kl(rows, name, n)
    numbers |= {f"vote_{n}": vote_of(rows, n) for n in SIZES}
    return numbers | {f"bound_{n}": best_of_n_kl(n) for n in SIZES}
