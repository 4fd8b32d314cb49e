"""A judge that writes verdicts, taught on pairs, beside a reward model on the same pairs. Five seeds: ``python -m minirlhf_course.chapters.ch08_reward_models.study_judge`` (three minutes of one core).

The assistant world. The judge is looked at three times while it learns. Writes ``study_judge.json``.
"""

from __future__ import annotations

from dataclasses import replace

from minirlhf.data import tasks
from minirlhf.stages import pipeline, zoo
from minirlhf.stages.judging import add_judge_tokens
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.reward import RewardConfig
from minirlhf_course.chapters.ch08_reward_models.assistant_rewards import quality, trained
from minirlhf_course.chapters.ch08_reward_models.judging import JudgePlan, train_judge
from minirlhf_course.evidence import Study, brief, initial_models, settings

#: The reward model beside the judges: one epoch of the same pairs.
BESIDE = RewardConfig(max_steps=150, batch_size=32, learning_rate=1e-3, lr_scheduler_type="linear")


def one_seed(
    seed: int, plan: JudgePlan | None = None, start: Trained | None = None, beside: RewardConfig = BESIDE
) -> dict[str, float]:
    """A judge and a reward model; a seed draws replies, labels, the embeddings of new words and orders."""
    plan = plan or JudgePlan()
    start = start or Trained(*zoo.load("assistant-sft", quiet=True))
    world = tasks.get("assistant")
    said, held = pipeline.preferences(world, start, pipeline.with_seed(plan.pairs, seed))
    agree = [world.grade(p.prompt, p.chosen) - world.grade(p.prompt, p.rejected) for p in held]
    numbers = {"gold_accuracy": sum((gap > 0) + 0.5 * (gap == 0) for gap in agree) / len(agree)}
    for number, look in enumerate(train_judge(add_judge_tokens(world.words, start, seed), said, held, plan, seed), 1):
        numbers |= {f"{key}_{number}": value for key, value in look.items()}
    pairs, held_out = (pipeline.pair_tokens(start.tokenizer, part) for part in (said, held))
    model = trained(start, pairs, replace(beside, seed=seed))
    return numbers | {"reward_accuracy": quality(model, held_out, start.tokenizer.pad_token_id)["accuracy"]}


def probe() -> dict[str, float | str]:
    """Both for some steps on few pairs, from a brief start."""
    _, start, numbers = initial_models.assistant()
    full = JudgePlan()
    plan = replace(
        full,
        pairs=brief(full.pairs, pairs=48, held_out=12),
        training=replace(full.training, max_steps=40, batch_size=16, warmup_steps=2),
    )
    found = one_seed(0, plan, start, replace(BESIDE, max_steps=4, batch_size=8))
    return numbers | found | settings(plan=full, beside=BESIDE)


STUDY = Study(one_seed, probe)

if __name__ == "__main__":
    STUDY.main(__file__)
