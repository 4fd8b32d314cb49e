"""A language model as the judge, and one budget of labels spent on people and on it: ``python -m minirlhf_course.chapters.ch15_ai_feedback.study_judges`` (about seven minutes of one core).

Five seeds, each with a judge of its own, looked at three times while it learns, and a run of DPO for each way to spend the
budget. The learning rate was chosen on seed 100. Writes ``study_judges.json``.
"""

from __future__ import annotations

from dataclasses import replace

from minirlhf.stages import zoo
from minirlhf.stages.pipeline import Trained
from minirlhf_course.chapters.ch15_ai_feedback import judges as lab
from minirlhf_course.chapters.ch15_ai_feedback.judges import JudgesPlan
from minirlhf_course.evidence import Study, brief, initial_models, settings

PLAN = JudgesPlan()
DISTANCES = (0.5, 1.0, 1.5)


def one_seed(seed: int, plan: JudgesPlan = PLAN, start: Trained | None = None) -> dict[str, float]:
    """A judge of its own, what it likes, and what policies become by each way to spend the budget."""
    start = start or Trained(*zoo.load("assistant-sft", quiet=True))
    tested = lab.two_replies(start, lab.WORLD.prompts("test") * plan.tested, seed)
    judge, looks = lab.schooled(start, tested, plan, seed)
    numbers = {f"{key}_{at}": value for at, look in enumerate(looks, 1) for key, value in look.items()}
    numbers |= lab.own_or_not(judge, start, plan.tested, seed)
    bought = lab.spent(judge, lab.training_replies(start, plan.budget, seed + 1000), plan, seed)
    for name, labels in bought.items():
        numbers |= {f"{name}_labels": float(len(labels)), f"{name}_agreement": lab.agreement(labels)}
        places = lab.align(start, labels, plan, seed)
        numbers |= {f"{name}_kl_last": places[-1].kl, f"{name}_best": max(p.gold for p in places)}
        for distance in DISTANCES:
            place = lab.at_kl(places, distance)
            numbers |= {f"{name}_gold_{distance:g}": place.gold, f"{name}_words_{distance:g}": place.length}
    return numbers | {"start_gold": lab.where(start.model, start, plan.replies).gold}


def probe() -> dict[str, float | str]:
    """All of it for some steps on few pairs, from a brief start."""
    _, start, numbers = initial_models.assistant()
    plan = replace(
        PLAN,
        school=brief(PLAN.school, 12, pairs=96, batch_size=16, warmup_steps=2),
        tested=1,
        budget=80,
        aligned=replace(PLAN.aligned, max_steps=4, batch_size=8),
        every=2,
        replies=1,
    )
    return numbers | one_seed(1, plan, start) | settings(plan=PLAN, recipe=PLAN.recipe)


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
