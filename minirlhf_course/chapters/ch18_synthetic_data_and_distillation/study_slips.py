"""Students of a teacher that was trained with injected errors, two of them smaller and one as wide: ``python -m minirlhf_course.chapters.ch18_synthetic_data_and_distillation.study_slips`` (about three minutes).

Five seeds, each with its own circle of words and teacher. Students of three widths learn along right sequences. Students of half the teacher's
width also learn along sequences with errors, and all of that width at two rates. Every student sees the same number of words. Writes ``study_slips.json``.
"""

from dataclasses import replace

import torch

from minirlhf.trainers.distill import DistillConfig
from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch18_synthetic_data_and_distillation import slips
from minirlhf_course.chapters.ch18_synthetic_data_and_distillation.equations import compounded_errors
from minirlhf_course.evidence import Study, settings

#: Of each student: its width, the share of slips in what it learns along, and its learning rate.
STUDENTS = {
    "right_16": (16, 0.0, 6e-3),
    "right_32": (32, 0.0, 6e-3),
    "right_64": (64, 0.0, 6e-3),
    "slips_32": (32, slips.SLIPS, 6e-3),
    "right_32_fast": (32, 0.0, 1.2e-2),
    "slips_32_fast": (32, slips.SLIPS, 1.2e-2),
}


def one_seed(
    seed: int, school: SFTConfig = slips.SCHOOL, lessons: DistillConfig = slips.LESSONS, count: int = 400
) -> dict[str, float]:
    """Return the measurements of the teacher and its students; ``foretold`` is the prediction of eq:exposure-errors from the errors after right words, with δ = 0."""
    circle = slips.Circle(seed)
    teacher = slips.teacher(circle, school)
    numbers = {f"teacher_{key}": value for key, value in slips.standing(circle, teacher, teacher, count).items()}
    for name, (width, share, rate) in STUDENTS.items():
        plan = replace(lessons, learning_rate=rate)
        student = slips.student(circle, teacher, width=width, slips=share, lessons=plan)
        found = slips.standing(circle, student, teacher, count)
        found["foretold"] = float(
            compounded_errors(torch.tensor(found["shown"] / slips.LENGTH), torch.tensor(0.0), length=slips.LENGTH)
        )
        numbers |= {f"{name}_{key}": value for key, value in found.items()}
    return numbers


def probe() -> dict[str, float | str]:
    """Run three steps of every model."""
    few = replace(slips.SCHOOL, max_steps=3), replace(slips.LESSONS, max_steps=3)
    return one_seed(0, *few, count=16) | settings(school=slips.SCHOOL, lessons=slips.LESSONS)


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
