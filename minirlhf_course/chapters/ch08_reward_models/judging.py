"""Fine-tune a judge that writes verdicts, and a reward model, on the same pairs of the assistant task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from minirlhf.data.records import Comparison
from minirlhf.data.types import PreferencePair
from minirlhf.feedback.judge import Judge, Verdicts
from minirlhf.models.heads import RewardModel
from minirlhf.stages import pipeline
from minirlhf.stages.judging import ASK, finetune_judge, judge_pairs
from minirlhf.stages.pipeline import RewardPlan, Trained
from minirlhf.trainers.loop import TrainerCallback
from minirlhf.trainers.reward import RewardConfig, train_reward
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf_course.chapters.ch08_reward_models.assistant_rewards import quality


@dataclass(frozen=True)
class JudgePlan:
    """The amount of training of a judge and of the reward model beside it.

    A pass has ``steps_per_pass`` steps. The reward model reads every pair once in it, the judge twice, once in each order.
    """

    pairs: RewardPlan = RewardPlan(pairs=4800, held_out=400)
    steps_per_pass: int = 150
    passes: int = 3
    judge: SFTConfig = SFTConfig(batch_size=64, learning_rate=2e-3, lr_scheduler_type="linear", warmup_steps=20)
    reward: RewardConfig = RewardConfig(batch_size=32, learning_rate=1e-3, lr_scheduler_type="linear")


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
    passes: int,
    quiet: bool = True,
) -> list[dict[str, float]]:
    """Fine-tune the judge in place; return its metrics after each pass."""
    config = replace(plan.judge, seed=seed, max_steps=passes * plan.steps_per_pass)
    evaluations: list[dict[str, float]] = []
    pairs = judge_pairs(held)

    def evaluate() -> dict[str, float]:
        judge.model.eval()
        evaluations.append(measured(judged(judge, pairs)))
        judge.model.train()
        return evaluations[-1]

    callback = TrainerCallback(plan.steps_per_pass, evaluate)
    examples, pad = finetune_judge(judge.tokenizer, said), judge.tokenizer.pad_token_id
    train_sft(judge.model, examples, config, pad_token_id=pad, name="judge", watch=callback, quiet=quiet)
    return evaluations


def reward_passes(
    start: Trained,
    said: Sequence[PreferencePair],
    held: Sequence[PreferencePair],
    plan: JudgePlan,
    seed: int,
    *,
    passes: int,
    quiet: bool = True,
) -> list[dict[str, float]]:
    """Train a reward model from the initial model; return its quality on held-out pairs after each pass."""
    tokenizer = start.tokenizer
    train, held_out = (pipeline.pair_tokens(tokenizer, part) for part in (said, held))
    model = RewardModel.from_causal_lm(start.model, seed=seed)
    config = replace(plan.reward, seed=seed, max_steps=passes * plan.steps_per_pass)
    evaluations: list[dict[str, float]] = []

    def evaluate() -> dict[str, float]:
        model.eval()
        evaluations.append(quality(model, held_out, tokenizer.pad_token_id))
        model.train()
        return {}  # the history has the accuracy of the training pairs under the same name

    callback = TrainerCallback(plan.steps_per_pass, evaluate)
    train_reward(model, train, config, pad_token_id=tokenizer.pad_token_id, watch=callback, quiet=quiet)
    return evaluations
