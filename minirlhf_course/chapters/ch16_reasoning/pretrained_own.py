"""Distillation of the pretrained model's own right completions: one round of rejection sampling.

The base model writes completions of the training questions. SFT imitates one right completion of each question that has
any, with the settings of the main study's SFT on the right number alone.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from minirlhf_course.chapters.ch16_reasoning.pretrained import (
    Calculation,
    Policy,
    PretrainedPlan,
    ask,
    digest,
    questions,
    tokens_of,
    train_examples,
)
from minirlhf_course.chapters.ch16_reasoning.pretrained_claims import (
    accuracy,
    divergence,
    entropy,
    form,
    subset,
    zero_variance,
)
from minirlhf_course.evidence.claims import Record, StatedClaim


def right_completions(
    start: Policy, train: Sequence[Calculation], count: int, seed: int
) -> tuple[list[Any], list[list[str]]]:
    """Sample ``count`` completions of each question, and keep the first right one of each question that has any.

    Returns:
        The kept completions with their prompts, as examples; and the question and text of each.
    """
    rows, rollouts = ask(start, train, count, seed)
    owners = [(rollout, row) for rollout in rollouts for row in range(0, len(rollout.mask), count)]
    examples, written = [], []
    for (rollout, first), asked in zip(owners, rows, strict=True):
        if 1 in asked["grade"]:
            best = asked["grade"].index(1)
            examples.append(tokens_of(rollout, first + best))
            written.append([asked["question"], asked["text"][best]])
    return examples, written


def run_own(start: Policy, plan: PretrainedPlan, seed: int) -> dict[str, Any]:
    """Return the record of one seed: the imitated completions, and completions of the held-out questions after SFT."""
    began = time.perf_counter()
    train, held_out, transfer = questions(plan, seed)
    examples, written = right_completions(start, train, plan.completions // 2, seed)
    own, history = train_examples(start, examples, replace(plan.sft, seed=seed))
    rows, _ = ask(own, held_out, plan.completions // 2, seed)
    return {
        "data": digest(train, held_out, transfer),
        "imitated": written,
        "own_metrics": {key: history[key] for key in ("loss", "grad_norm")},
        "own": rows,
        "seconds": round(time.perf_counter() - began, 1),
    }


# -- claims ------------------------------------------------------------------------------------------------------


OWN: dict[str, StatedClaim] = {
    "imitates": StatedClaim(
        "SFT on the model's own right completions raises accuracy",
        11,
        lambda r, some: accuracy(subset(r["own"], some)) - accuracy(subset(r["base"], some)),
    ),
    "nearer": StatedClaim(
        "after twelve steps its KL is smaller than the KL of SFT on the number alone",
        18,
        lambda r, some: divergence(subset(r["sft"], some)) - divergence(subset(r["own"], some)),
        unit="nats",
    ),
    "better": StatedClaim(
        "it is more accurate than SFT on the number alone",
        18,
        lambda r, some: accuracy(subset(r["own"], some)) - accuracy(subset(r["sft"], some)),
    ),
    "below_rl": StatedClaim(
        "Dr. GRPO is more accurate than this one round",
        11,
        lambda r, some: accuracy(subset(r["rl"], some)) - accuracy(subset(r["own"], some)),
    ),
}


def describe_own(record: Record) -> dict[str, float]:
    """Return the number of imitated completions, and accuracy, form, entropy and KL after SFT on them."""
    rows = record["own"]
    return {
        "own_imitated": float(len(record["imitated"])),
        "own_right": accuracy(rows),
        "own_easy": accuracy([row for row in rows if not row["hard"]]),
        "own_hard": accuracy([row for row in rows if row["hard"]]),
        "own_zero_variance": zero_variance(rows),
        "own_tokens": float(np.mean([row["length"] for row in rows])),
        "own_neg_logp": entropy(rows),
        "own_kl": divergence(rows),
        "own_minutes": record["seconds"] / 60,
        **form("own", rows),
    }
