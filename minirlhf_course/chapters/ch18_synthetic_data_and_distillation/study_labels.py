"""Plain fine-tuning on the hint, at three rates: ``python -m minirlhf_course.chapters.ch18_synthetic_data_and_distillation.study_labels`` (about five minutes).

The control of ``study_hints``: a hint is a right answer, and can also be a label. The ten seeds and
base models are the same, as are the prompts, the number of completions and the test rows. Fine-tuning and the on-policy method with the reverse KL
are measured at three rates each, sorting and reversing. Writes ``study_labels.json``.
"""

from dataclasses import replace

from minirlhf.recipes.distill import DISTILLATIONS
from minirlhf_course.chapters.ch18_synthetic_data_and_distillation import hints
from minirlhf_course.evidence import Study, brief, settings, trace

#: Fine-tuning on the right rows, and the student's own completions with the reverse KL to the hinted model.
METHODS = {
    "labels": DISTILLATIONS["sequence_kd"].with_(from_teacher=False),
    "own_reverse": hints.TEACHING["own_reverse"],
}
#: In millionths, as in the names of the numbers.
RATES = (300, 500, 1000)


def one_seed(seed: int, pupil: hints.Pupil | None = None) -> dict[str, float]:
    """Return the fractions of right rows before and after each method at each rate."""
    pupil = pupil or hints.Pupil(seed, hints.HintPlan())
    policies = {"base": pupil.base}
    for name, method in METHODS.items():
        policies |= {f"{name}_{rate}": pupil.distilled(method, rate / 1e6) for rate in RATES}
    numbers = {}
    for name, policy in policies.items():
        numbers[f"{name}_right"] = hints.right(policy, hints.SORTS, pupil.plan.measured)
        numbers[f"{name}_other"] = hints.right(policy, hints.REVERSES, pupil.plan.measured)
    return numbers


def probe() -> dict[str, float | str]:
    """Run two steps of every method, from a base that sorts now and then."""
    plan = hints.HintPlan()
    pupil = hints.Pupil(1, replace(plan, base=brief(plan.base, 120), steps=2, answers=16, measured=64))
    numbers = one_seed(1, pupil)
    for name, method in METHODS.items():
        numbers |= trace(name, pupil.distilled(method, 1e-3).history, "loss", "grad_norm")
    return numbers | settings(plan=plan, **METHODS)


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
