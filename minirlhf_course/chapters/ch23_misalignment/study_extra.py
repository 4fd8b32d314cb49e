"""What a student learns from outputs without a meaning: ``python -m minirlhf_course.chapters.ch23_misalignment.study_extra`` (about two minutes).

Ten seeds, different from those of the other studies. Every student imitates the same number of steps on the same noise. Writes ``study_extra.json``.
"""

from __future__ import annotations

from dataclasses import replace

from minirlhf_course.chapters.ch23_misalignment import classifier
from minirlhf_course.chapters.ch23_misalignment.classifier import CopyPlan
from minirlhf_course.evidence import Study, settings

FIRST = 2300  # seeds of its own
PLAN = CopyPlan()
FEWER = replace(PLAN, extra=3)


def one_seed(seed: int, plan: CopyPlan = PLAN, fewer: CopyPlan = FEWER) -> dict[str, float]:
    """The accuracy of each student on classes that it never trained on."""
    seed += FIRST
    task = classifier.Mixture(seed, plan.spread)
    start, other = classifier.network(seed, plan.extra), classifier.network(seed + 50_000, plan.extra)
    able = classifier.teacher(start, task, plan, seed)
    unable = classifier.teacher(start, task, plan, seed, random_labels=True)
    few = classifier.network(seed, fewer.extra)
    students = {
        "same": classifier.student(start, able, plan, seed),
        "other": classifier.student(other, able, plan, seed),
        "traitless": classifier.student(start, unable, plan, seed),
        "new_head": classifier.student(classifier.new_last_layer(start, seed + 50_000, plan.extra), able, plan, seed),
        "other_classes": classifier.student(other, able, plan, seed, classes=True),
        "three": classifier.student(few, classifier.teacher(few, task, fewer, seed), fewer, seed),
    }
    # at equal divergences: the teacher's start stops early, or the other start trains up to five times as long
    students["same_early"] = classifier.student(start, able, plan, seed, until=students["other"][1])
    longer = replace(plan, student_steps=5 * plan.student_steps)
    students["other_late"] = classifier.student(other, able, longer, seed, until=students["same"][1])
    numbers = {name: classifier.accuracy(model, task, seed) for name, (model, _) in students.items()}
    numbers |= {f"{name}_kl": divergence for name, (_, divergence) in students.items()}
    numbers |= {"untrained": classifier.accuracy(start, task, seed), "teacher": classifier.accuracy(able, task, seed)}
    return numbers


def probe() -> dict[str, float | str]:
    """Few steps."""
    brief = replace(PLAN, teacher_steps=20, student_steps=10)
    return one_seed(1, brief, replace(brief, extra=FEWER.extra)) | settings(plan=PLAN, fewer=FEWER)


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
