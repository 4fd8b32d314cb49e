"""Learning rates for ``study_judge``, on two seeds that it does not use: ``python -m minirlhf_course.chapters.ch08_reward_models.study_judge_rates`` (five minutes of one core).

The judge and the reward model at three rates, for one and for three passes over the pairs. Writes ``study_judge_rates.json``.
"""

from __future__ import annotations

from dataclasses import replace

from minirlhf.data import tasks
from minirlhf.stages import pipeline, zoo
from minirlhf.stages.judging import add_judge_tokens
from minirlhf.stages.pipeline import Trained
from minirlhf_course.chapters.ch08_reward_models.judging import JudgePlan, reward_passes, train_judge
from minirlhf_course.evidence import Study, brief, initial_models, settings

#: In millionths, as in the names of the numbers.
JUDGE, REWARD = (1000, 2000, 4000), (500, 1000, 2000)


def one_seed(seed: int, plan: JudgePlan | None = None, start: Trained | None = None) -> dict[str, float]:
    """Held-out accuracy at the end of each training."""
    plan = plan or JudgePlan()
    start = start or Trained(*zoo.load("assistant-sft", quiet=True))
    world, numbers = tasks.get("assistant"), dict[str, float]()
    said, held = pipeline.preferences(world, start, pipeline.with_seed(plan.pairs, seed))
    for passes in (1, plan.passes):
        for rate in JUDGE:
            at_rate = replace(plan, judge=replace(plan.judge, learning_rate=rate / 1e6))
            judge = add_judge_tokens(world.words, start, seed)
            look = train_judge(judge, said, held, at_rate, seed, passes=passes)[-1]
            numbers[f"judge_{passes}_{rate}"] = look["accuracy"]
        for rate in REWARD:
            at_rate = replace(plan, reward=replace(plan.reward, learning_rate=rate / 1e6))
            look = reward_passes(start, said, held, at_rate, seed, passes=passes)[-1]
            numbers[f"reward_{passes}_{rate}"] = look["accuracy"]
    return numbers


def probe() -> dict[str, float | str]:
    """All of them for some steps on few pairs, from a brief start."""
    _, start, numbers = initial_models.assistant()
    full = JudgePlan()
    plan = replace(
        full,
        pairs=brief(full.pairs, pairs=48, held_out=12),
        steps_per_pass=4,
        passes=2,
        judge=replace(full.judge, batch_size=16, warmup_steps=2),
        reward=replace(full.reward, batch_size=8),
    )
    return numbers | one_seed(100, plan, start) | settings(plan=full)


STUDY = Study(one_seed, probe, seeds=2, first_seed=100)

if __name__ == "__main__":
    STUDY.main(__file__)
