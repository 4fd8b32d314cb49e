"""Twelve claims of the chapters, measured on the recorded completions of a pretrained model.

All completions of one question are one cluster.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from minirlhf.equations.difficulty import zero_variance_group_probability
from minirlhf.equations.estimators import pass_at_k
from minirlhf.equations.evaluation import clustered_variance
from minirlhf.equations.kl import k1, k3
from minirlhf.feedback.graders.answers import answer_number
from minirlhf_course.evidence.claims import Record, StatedClaim, jackknife, measure_claims

GROUP = 8

#: The number that a completion gives as its answer; the jackknife asks for each of them many times.
_number = cache(answer_number)

Rows = Sequence[Mapping[str, Any]]


# -- statistics of some of the questions -------------------------------------------------------------------------


def accuracy(rows: Rows) -> float:
    """Mean grade of single completions: pass@1."""
    return float(np.mean([np.mean(row["grade"]) for row in rows]))


def pass_at(rows: Rows, k: int) -> float:
    """pass@k, without bias."""
    counts = torch.tensor([sum(row["grade"]) for row in rows])
    return float(pass_at_k(len(rows[0]["grade"]), counts, k=k).mean())


def vote(rows: Rows) -> float:
    """Accuracy of the vote of all completions that give a number; a tie counts as the fraction of right answers in it."""
    return float(np.mean([_vote(row) for row in rows]))


def _vote(row: Mapping[str, Any]) -> float:
    numbers = [_number(text) for text in row["text"]]
    counts = Counter(number for number in numbers if number is not None)
    if not counts:
        return 0.0
    right = {n for n, grade in zip(numbers, row["grade"], strict=True) if grade}
    top = [n for n, count in counts.items() if count == max(counts.values())]
    return len(right & set(top)) / len(top)


def zero_variance(rows: Rows) -> float:
    """Probability that a group of eight of a question's completions has equal rewards, without bias."""
    n = len(rows[0]["grade"])
    counts = [sum(row["grade"]) for row in rows]
    return float(np.mean([(math.comb(c, GROUP) + math.comb(n - c, GROUP)) / math.comb(n, GROUP) for c in counts]))


def excess_zero_variance(rows: Rows) -> float:
    """Zero-variance groups, minus their number by the mean pass rate of all questions."""
    predicted = zero_variance_group_probability(
        torch.tensor(accuracy(rows), dtype=torch.float64), num_generations=GROUP
    )
    return zero_variance(rows) - float(predicted)


def entropy(rows: Rows) -> float:
    """Mean negative log-probability of a sampled token, in nats."""
    return -sum(sum(row["logp"]) for row in rows) / sum(sum(row["length"]) for row in rows)


def divergence(rows: Rows) -> float:
    """KL divergence from the base model, in nats per completion, estimated by the log-ratios."""
    return float(np.mean([np.mean(np.subtract(row["logp"], row["base"])) for row in rows]))


def kl_at(curve: Sequence[tuple[float, float]], target: float) -> float:
    """Return the KL at which a curve of (accuracy, KL), by steps, first reaches an accuracy; linear between points.

    A noisy curve can reach it earlier or later by chance, and the jackknife is not exact where the accuracy lies at a
    measured point.
    """
    for (low, before), (high, after) in pairwise(curve):
        if low <= target <= high and high > low:
            return before + (target - low) / (high - low) * (after - before)
    return curve[-1][1]


def log_spread_ratio(rows: Rows) -> float:
    """log of the standard deviation of k3 over that of k1, both of whole completions."""
    logps, base = (torch.tensor([x for row in rows for x in row[name]]).double() for name in ("logp", "base"))
    return float((k3(logps, base).std() / k1(logps, base).std()).log())


def log_variance_ratio(rows: Rows) -> float:
    """log of the variance of the mean grade with clusters, over the variance without."""
    grades = torch.tensor([row["grade"] for row in rows]).double()
    clusters = torch.arange(len(rows)).repeat_interleave(grades.shape[1])
    scores = grades.flatten()
    naive = clustered_variance(scores, torch.arange(len(scores)))
    return float((clustered_variance(scores, clusters) / naive).log()) if naive > 0 else 0.0


# -- claims ------------------------------------------------------------------------------------------------------


def subset(rows: Rows, some: Sequence[int]) -> Rows:
    """Return some of the questions."""
    return [rows[i] for i in some]


def _change(statistic: Callable[[Rows], float], suffix: str = "") -> Callable[[Record, Sequence[int]], float]:
    """A statistic after RL minus before."""
    return lambda r, some: statistic(subset(r[f"rl{suffix}"], some)) - statistic(subset(r[f"base{suffix}"], some))


def _closer(r: Record, some: Sequence[int]) -> float:
    """KL of SFT minus KL of RL, at the smaller of their last accuracies."""
    curves = {}
    for name in ("rl", "sft"):
        rows = [subset(part, some) for part in (*r["curves"][name], r[name])]
        curves[name] = [(accuracy(subset(r["base"], some)), 0.0), *((accuracy(x), divergence(x)) for x in rows)]
    target = min(curve[-1][0] for curve in curves.values())
    return kl_at(curves["sft"], target) - kl_at(curves["rl"], target)


def _chosen_falls(r: Record, some: Sequence[int]) -> float:
    """Mean fall of the chosen completions' log-probabilities; pairs of one question are one cluster."""
    kept = {sorted(set(r["dpo"]["question"]))[i] for i in some}
    falls = [
        before - after
        for q, before, after in zip(*(r["dpo"][k] for k in ("question", "chosen_base", "chosen_dpo")), strict=True)
        if q in kept
    ]
    return float(np.mean(falls))


def _selects(r: Record, some: Sequence[int]) -> float:
    """Gain of questions with a right answer among half of the base completions, minus gain of the others.

    The gain is measured by the other half, so that chance in the selection does not count as a loss.
    """
    gains: dict[bool, list[float]] = {True: [], False: []}
    for before, after in zip(subset(r["base"], some), subset(r["rl"], some), strict=True):
        half = len(before["grade"]) // 2
        gains[any(before["grade"][half:])].append(float(np.mean(after["grade"]) - np.mean(before["grade"][:half])))
    return float(np.mean(gains[True]) - np.mean(gains[False])) if all(gains.values()) else 0.0


CLAIMS: dict[str, StatedClaim] = {
    "accuracy": StatedClaim("Dr. GRPO raises accuracy on held-out questions", 16, _change(accuracy)),
    "spread": StatedClaim(
        "the mean pass rate predicts too few zero-variance groups after RL",
        13,
        lambda r, some: excess_zero_variance(subset(r["rl"], some)),
        floor=0.05,
    ),
    "entropy": StatedClaim(
        "RL lowers the entropy of a token", 16, lambda r, some: -_change(entropy)(r, some), unit="nats"
    ),
    "closer": StatedClaim("at equal accuracy RL has a smaller KL than SFT", 9, _closer, unit="nats"),
    "displaced": StatedClaim(
        "DPO lowers the log-probability of chosen completions",
        14,
        _chosen_falls,
        unit="nats",
        clusters=lambda r: len(set(r["dpo"]["question"])),
    ),
    "narrows": StatedClaim(
        "RL raises pass@1 more than pass@8",
        16,
        lambda r, some: _change(accuracy)(r, some) - _change(lambda rows: pass_at(rows, 8))(r, some),
    ),
    "vote": StatedClaim(
        "before RL, a vote of 16 is more accurate than one completion",
        16,
        lambda r, some: vote(subset(r["base"], some)) - accuracy(subset(r["base"], some)),
    ),
    "once": StatedClaim(
        "after RL, one completion reaches the vote of 16 before RL",
        16,
        lambda r, some: accuracy(subset(r["rl"], some)) - vote(subset(r["base"], some)),
        floor=-0.05,
    ),
    "clusters": StatedClaim(
        "clusters at least double the variance of the accuracy",
        19,
        lambda r, some: log_variance_ratio(subset(r["rl"], some)),
        floor=math.log(2),
        unit="log ratio",
    ),
    "selects": StatedClaim("RL gains more where the base model is sometimes right", 13, _selects),
    "k3": StatedClaim(
        "for whole completions k3 has a larger standard deviation than k1",
        9,
        lambda r, some: log_spread_ratio(subset(r["rl"], some)),
        unit="log ratio",
    ),
    "transfer": StatedClaim(
        "RL on additions raises accuracy on subtractions",
        16,
        _change(accuracy, "_transfer"),
        clusters=lambda r: len(r["base_transfer"]),
    ),
}


def measure(record: Record) -> dict[str, float]:
    """Return effect, standard error and number of clusters of every claim in one run, and the numbers behind them."""
    return measure_claims(CLAIMS, record) | describe(record)


def describe(record: Record) -> dict[str, float]:
    """Return accuracies, lengths, entropies, KL and costs of one run."""
    numbers: dict[str, float] = {}
    for name in ("base", "rl", "sft"):
        rows = record[name]
        numbers |= {
            f"{name}_right": accuracy(rows),
            f"{name}_easy": accuracy([row for row in rows if not row["hard"]]),
            f"{name}_hard": accuracy([row for row in rows if row["hard"]]),
            f"{name}_pass_8": pass_at(rows, 8),
            f"{name}_vote": vote(rows),
            f"{name}_tokens": float(np.mean([row["length"] for row in rows])),
            f"{name}_neg_logp": entropy(rows),
            f"{name}_numbers": float(np.mean([_number(t) is not None for row in rows for t in row["text"]])),
        }
        if name != "base":
            numbers[f"{name}_kl"] = divergence(rows)
        written = [
            (repeats_question(row["question"], text), grade)
            for row in rows
            for text, grade in zip(row["text"], row["grade"], strict=True)
        ]
        numbers[f"{name}_repeats"] = float(np.mean([repeats for repeats, _ in written]))
        for kind, wanted in (("repeated", True), ("other", False)):
            grades = [grade for repeats, grade in written if repeats == wanted]
            numbers[f"{name}_right_{kind}"] = float(np.mean(grades)) if grades else 0.0
        if len(rows[0]["grade"]) >= GROUP:
            numbers[f"{name}_zero_variance"] = zero_variance(rows)
    ratios = [math.exp(b - a) for row in record["rl"] for a, b in zip(row["logp"], row["base"], strict=True)]
    numbers |= {"rl_ratio": float(np.mean(ratios)), "rl_ratio_largest": max(ratios)}
    for name in ("base", "rl"):
        numbers[f"{name}_transfer"] = accuracy(record[f"{name}_transfer"])
        numbers |= form(f"{name}_transfer", record[f"{name}_transfer"])
        for kind, hard in (("", (True, False)), ("_easy", (False,)), ("_hard", (True,))):
            numbers |= form(f"{name}{kind}", [row for row in record[name] if row["hard"] in hard])
    for kind, before, after in (("", "base_right", "rl_right"), ("_transfer", "base_transfer", "rl_transfer")):
        gain = numbers[after] - numbers[before]
        numbers[f"form_share{kind}"] = (numbers[f"base{kind}_right_form"] - numbers[before]) / gain if gain else 0.0
    numbers |= {f"rl_reward_{step}": reward for step, reward in enumerate(record["rl_metrics"]["reward"], 1)}
    numbers["rl_zero_std"] = float(np.mean(record["rl_metrics"]["frac_reward_zero_std"]))
    for name, curve in record["curves"].items():
        for point, rows in enumerate(curve, 1):
            numbers |= {f"{name}_right_{point}": accuracy(rows), f"{name}_kl_{point}": divergence(rows)}
    dpo = record["dpo"]
    for side in ("chosen", "rejected"):
        numbers[f"dpo_{side}"] = float(np.mean(np.subtract(dpo[f"{side}_dpo"], dpo[f"{side}_base"])))
    asked = {tuple(sorted(map(int, row["question"].split(" + ")))) for row in record["base"]}
    numbers["overlap"] = float(len(asked & {tuple(sorted(numbers)) for numbers in record["train"]}))
    return numbers | {"pairs": float(len(dpo["question"]))}


def form(name: str, rows: Rows) -> dict[str, float]:
    """Return the fraction of completions of the form ``7 + 9 = 16``, and the accuracy among them."""
    formed = [in_form(row["question"], text) for row in rows for text in row["text"]]
    grades = [grade for row in rows for grade in row["grade"]]
    right = [grade for grade, has in zip(grades, formed, strict=True) if has]
    return {f"{name}_form": float(np.mean(formed)), f"{name}_right_form": float(np.mean(right)) if right else 0.0}


def in_form(question: str, text: str) -> bool:
    """Whether a completion repeats its question and states a result: ``7 + 9 = 16``, ``7 + 9 equals 16`` or ``7 + 9 is
    16``, also within a sentence."""
    repeated = r"\s*".join(map(re.escape, question.split()))
    return re.search(rf"(?<!\d){repeated}\s*(?:=|equals|is|is equal to)\s*-?\d", text) is not None


def describe_repeated(control: Record, record: Record) -> dict[str, float]:
    """Return accuracies of the control without training, whose completions begin with the repeated question, and its
    share of RL's gain in ``record``, the run with the same questions."""
    rows, base, rl = control["repeated"], record["base"], record["rl"]
    beyond, error = jackknife(lambda some: accuracy(subset(rl, some)) - accuracy(subset(rows, some)), len(rows))
    gain = accuracy(rl) - accuracy(base)
    return {
        "repeated_share": (accuracy(rows) - accuracy(base)) / gain if gain else 0.0,
        "beyond_repeated": beyond,
        "beyond_repeated_error": error,
        "repeated_right": accuracy(rows),
        "repeated_easy": accuracy([row for row in rows if not row["hard"]]),
        "repeated_hard": accuracy([row for row in rows if row["hard"]]),
        "repeated_pass_8": pass_at(rows, 8),
        "repeated_vote": vote(rows),
        "repeated_zero_variance": zero_variance(rows),
        "repeated_form": form("repeated", rows)["repeated_form"],
    }


def repeats_question(question: str, text: str) -> bool:
    """Whether a completion contains both numbers of its question, as ``7 + 9 = 16`` does."""
    return Counter(re.findall(r"\d+", question)) <= Counter(re.findall(r"\d+", text))
