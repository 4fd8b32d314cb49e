"""A judge that writes a verdict, taught on pairs of the assistant world."""

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
    """How much a judge is taught, and how often it is looked at."""

    pairs: RewardPlan = RewardPlan(pairs=4800, held_out=400)
    training: SFTConfig = SFTConfig(
        max_steps=450, batch_size=64, learning_rate=2e-3, lr_scheduler_type="linear", warmup_steps=20
    )
    looks: int = 3


def judged(judge: Trained, held: Sequence[Comparison]) -> Verdicts:
    """Its verdicts, the chosen reply as the first."""
    ask = Judge(judge.model, judge.tokenizer, ask=ASK, max_completion_length=2, batch_size=256)
    return ask([c.prompt for c in held], [c.chosen for c in held], [c.rejected for c in held])


def measured(found: Verdicts) -> dict[str, float]:
    """Accuracy of single verdicts and of both orders together, agreement of the orders (right or not), share for the first place."""
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
    """Teach it, in place; what it is worth at each look."""
    config = replace(plan.training, seed=seed)
    looks: list[dict[str, float]] = []
    pairs = judge_pairs(held)

    def look() -> dict[str, float]:
        judge.model.eval()
        looks.append(measured(judged(judge, pairs)))
        judge.model.train()
        return looks[-1]

    watch = TrainerCallback(config.max_steps // plan.looks, look)
    lessons, pad = finetune_judge(judge.tokenizer, said), judge.tokenizer.pad_token_id
    train_sft(judge.model, lessons, config, pad_token_id=pad, name="judge", watch=watch, quiet=quiet)
    return looks
