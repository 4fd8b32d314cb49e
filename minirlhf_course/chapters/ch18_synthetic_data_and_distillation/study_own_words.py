"""On-policy students, beside a student that learns along right sequences: ``python -m minirlhf_course.chapters.ch18_synthetic_data_and_distillation.study_own_words`` (about three minutes).

Five seeds, each with the circle and the teacher of ``study_slips``. All students have half the teacher's width, 200 steps and sequences of the same length.
They differ in the fraction of on-policy steps, and one in the divergence. Each has the rate, of some a factor of 2 apart, with
the fewest wrong words on seed 100. Writes ``study_own_words.json``.
"""

from dataclasses import replace

import torch

from minirlhf.recipes.distill import DISTILLATIONS
from minirlhf.trainers.distill import DistillConfig
from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch18_synthetic_data_and_distillation import slips
from minirlhf_course.chapters.ch18_synthetic_data_and_distillation.equations import compounded_errors
from minirlhf_course.evidence import Study, settings

WIDTH = 32
#: Of each student: its recipe and its learning rate.
STUDENTS = {
    "off": (DISTILLATIONS["kd"], 2.4e-2),
    "half": (DISTILLATIONS["kd"].with_(own_answers=0.5), 2.4e-2),
    "own": (DISTILLATIONS["kd"].with_(own_answers=1.0), 1.2e-2),
    "reverse": (DISTILLATIONS["on_policy_kd"], 1.2e-2),
}


def one_seed(
    seed: int, school: SFTConfig = slips.SCHOOL, lessons: DistillConfig = slips.LESSONS, count: int = 400
) -> dict[str, float]:
    """Return the measurements of all students; ``foretold`` is the prediction of eq:exposure-errors from the errors after right words, with δ = 0."""
    circle = slips.Circle(seed)
    teacher = slips.teacher(circle, school)
    numbers: dict[str, float] = {}
    for name, (recipe, rate) in STUDENTS.items():
        plan = replace(lessons, learning_rate=rate)
        student = slips.student(circle, teacher, width=WIDTH, slips=0.0, lessons=plan, recipe=recipe)
        found = slips.standing(circle, student, teacher, count)
        found["foretold"] = float(
            compounded_errors(torch.tensor(found["shown"] / slips.LENGTH), torch.tensor(0.0), length=slips.LENGTH)
        )
        numbers |= {f"{name}_{key}": value for key, value in found.items()}
    return numbers


def probe() -> dict[str, float | str]:
    """Run three steps of every model."""
    few = replace(slips.SCHOOL, max_steps=3), replace(slips.LESSONS, max_steps=3)
    recipes = {name: recipe for name, (recipe, _) in STUDENTS.items()}
    return one_seed(0, *few, count=16) | settings(school=slips.SCHOOL, lessons=slips.LESSONS, **recipes)


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
