"""Fine-tune a judge that writes verdicts on pairs of the assistant task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from minirlhf.data.records import Comparison
from minirlhf.data.types import PreferencePair
from minirlhf.feedback.judge import Judge, Verdicts
from minirlhf.stages.judging import ASK, finetune_judge, judge_pairs
from minirlhf.stages.pipeline import RewardPlan, Trained
from minirlhf.trainers.loop import TrainerCallback
from minirlhf.trainers.sft import SFTConfig, train_sft


@dataclass(frozen=True)
class JudgePlan:
    """The amount of training of a judge, and how often it is evaluated during training."""

    pairs: RewardPlan = RewardPlan(pairs=4800, held_out=400)
    training: SFTConfig = SFTConfig(
        max_steps=450, batch_size=64, learning_rate=2e-3, lr_scheduler_type="linear", warmup_steps=20
    )
    looks: int = 3


def judged(judge: Trained, held: Sequence[Comparison]) -> Verdicts:
    """Return the judge's verdicts on held-out pairs; the chosen completion is the first of each pair."""
    pairwise_judge = Judge(judge.model, judge.tokenizer, ask=ASK, max_completion_length=2, batch_size=256)
    return pairwise_judge([c.prompt for c in held], [c.chosen for c in held], [c.rejected for c in held])


def measured(found: Verdicts) -> dict[str, float]:
    """Return metrics of verdicts on pairs whose first completion is the chosen one.

    ``single`` is the accuracy of single verdicts, ``accuracy`` that of both orders together. ``consistency`` is the
    agreement of the two orders, right or wrong, and ``both_right`` the fraction of pairs that are right in both orders.
    """
    single = [v == "A" for v in (*found.given, *found.exchanged)]
    return {
        "single": sum(single) / len(single),
        "accuracy": sum(found.scores) / len(found.scores),
        "consistency": found.consistency,
        "both_right": found.scores.count(1.0) / len(found.scores),
        "first_position_rate": found.first_position_rate,
    }


def train_judge(
    judge: Trained,
    said: Sequence[PreferencePair],
    held: Sequence[PreferencePair],
    plan: JudgePlan,
    seed: int,
    *,
    quiet: bool = True,
) -> list[dict[str, float]]:
    """Fine-tune the judge in place; return its metrics at each evaluation."""
    config = replace(plan.training, seed=seed)
    evaluations: list[dict[str, float]] = []
    pairs = judge_pairs(held)

    def evaluate() -> dict[str, float]:
        judge.model.eval()
        evaluations.append(measured(judged(judge, pairs)))
        judge.model.train()
        return evaluations[-1]

    callback = TrainerCallback(config.max_steps // plan.looks, evaluate)
    examples, pad = finetune_judge(judge.tokenizer, said), judge.tokenizer.pad_token_id
    train_sft(judge.model, examples, config, pad_token_id=pad, name="judge", watch=callback, quiet=quiet)
    return evaluations
