"""A language model that rewards itself, round after round: ``python -m minirlhf_course.chapters.ch15_ai_feedback.study_itself`` (eight minutes of one core).

Five seeds, each with weights of its own that write and judge, and six rounds with labels by the newest weights, by the first weights, and by careful people. All three learn
by the same DPO, at the rate of ``study_judges``. Of two lengths of the school, 450 and 900 steps, the longer made the better judge on seed 100, which is not reported. Writes ``study_itself.json``.
"""

from __future__ import annotations

from dataclasses import replace

from minirlhf.stages import zoo
from minirlhf.stages.pipeline import Trained
from minirlhf_course.chapters.ch15_ai_feedback import itself as lab
from minirlhf_course.chapters.ch15_ai_feedback import judges
from minirlhf_course.chapters.ch15_ai_feedback.itself import WAYS, ItselfPlan
from minirlhf_course.evidence import Study, brief, initial_models, settings

PLAN = ItselfPlan()
DISTANCE = 1.5  # nats from the first weights, at which the ways are compared as well


def one_seed(seed: int, plan: ItselfPlan = PLAN, start: Trained | None = None) -> dict[str, float]:
    """A school, and the rounds in each way; beside them the start's gold, the round in which each run was best, and gold at one distance from the first weights."""
    start = start or Trained(*zoo.load("assistant-sft", quiet=True))
    tested = judges.two_replies(start, judges.WORLD.prompts("test") * plan.tested, seed)
    first = lab.both(start, plan, seed)
    numbers = {"start_gold": judges.where(start.model, start, plan.replies).gold}
    for way in WAYS:
        numbers |= lab.rounds(first, tested, plan, seed, way)
        places = [
            judges.Milestone(*(numbers[f"{way}_{key}_{number}"] for key in ("gold", "kl", "words")))
            for number in range(plan.rounds + 1)
        ]
        golds = [place.gold for place in places]
        numbers |= {f"{way}_peak": float(golds.index(max(golds))), f"{way}_best": max(golds)}
        numbers[f"{way}_gold_at_{DISTANCE:g}"] = judges.at_kl(places, DISTANCE).gold
    return numbers


def probe() -> dict[str, float | str]:
    """All of it for some steps on few pairs, from a brief start."""
    _, start, numbers = initial_models.assistant()
    plan = replace(
        PLAN,
        school=brief(PLAN.school, 12, pairs=96, batch_size=16, warmup_steps=2),
        rounds=2,
        pairs=40,
        aligned=replace(PLAN.aligned, max_steps=2, batch_size=8),
        replies=1,
        tested=1,
    )
    return numbers | one_seed(1, plan, start) | settings(plan=PLAN, recipe=PLAN.recipe)


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
