"""A judge that writes verdicts and a reward model, fine-tuned on the same pairs for one and for three passes. Five seeds: ``python -m minirlhf_course.chapters.ch08_reward_models.study_judge`` (five minutes of one core).

The assistant task. A pass of the reward model reads each pair once; a pass of the judge reads it in both orders. With three passes both are
evaluated after each of them. Each learning rate is the best of three on the seeds 100 and 101, which are not reported: .001, .002 and .004 for
the judge, .0005, .001 and .002 for the reward model. Writes ``study_judge.json``.
"""

from __future__ import annotations

from dataclasses import replace

from minirlhf.data import tasks
from minirlhf.stages import pipeline, zoo
from minirlhf.stages.judging import add_judge_tokens
from minirlhf.stages.pipeline import Trained
from minirlhf_course.chapters.ch08_reward_models.judging import JudgePlan, reward_passes, train_judge
from minirlhf_course.evidence import Study, brief, initial_models, settings

#: Passes -> learning rates of the judge and of the reward model.
RATES = {1: (4e-3, 1e-3), 3: (2e-3, 5e-4)}


def one_seed(seed: int, plan: JudgePlan | None = None, start: Trained | None = None) -> dict[str, float]:
    """Judges and reward models; a seed determines completions, labels, the embeddings of new words and orders."""
    plan = plan or JudgePlan()
    start = start or Trained(*zoo.load("assistant-sft", quiet=True))
    world = tasks.get("assistant")
    said, held = pipeline.preferences(world, start, pipeline.with_seed(plan.pairs, seed))
    gaps = [world.grade(p.prompt, p.chosen) - world.grade(p.prompt, p.rejected) for p in held]
    numbers = {"gold_accuracy": sum((gap > 0) + 0.5 * (gap == 0) for gap in gaps) / len(gaps)}
    for prefix, passes in (("once_", 1), ("", plan.passes)):
        judge_rate, reward_rate = RATES[passes]
        tuned = replace(
            plan,
            judge=replace(plan.judge, learning_rate=judge_rate),
            reward=replace(plan.reward, learning_rate=reward_rate),
        )
        judge = add_judge_tokens(world.words, start, seed)
        for number, look in enumerate(train_judge(judge, said, held, tuned, seed, passes=passes), 1):
            numbers |= {f"{prefix}{key}_{number}": value for key, value in look.items()}
        for number, look in enumerate(reward_passes(start, said, held, tuned, seed, passes=passes), 1):
            numbers |= {f"{prefix}reward_{key}_{number}": value for key, value in look.items()}
    return numbers


def probe() -> dict[str, float | str]:
    """All of them for some steps on few pairs, from a brief start."""
    _, start, numbers = initial_models.assistant()
    full = JudgePlan()
    plan = replace(
        full,
        pairs=brief(full.pairs, pairs=48, held_out=12),
        steps_per_pass=4,
        judge=replace(full.judge, batch_size=16, warmup_steps=2),
        reward=replace(full.reward, batch_size=8),
    )
    return numbers | one_seed(0, plan, start) | settings(plan=full)


STUDY = Study(one_seed, probe)

if __name__ == "__main__":
    STUDY.main(__file__)
