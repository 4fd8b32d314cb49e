"""Self-distillation with a hint, and RL: ``python -m minirlhf_course.chapters.ch18_synthetic_data_and_distillation.study_hints`` (about five minutes).

Ten seeds, each with its own base model. Every method uses 3,200 completions, at the learning rate that was best on the five other seeds
of ``study_rates``. Measured on 333 unseen rows: sorting, and reversing, which no method practises. Writes ``study_hints.json``.
"""

from dataclasses import replace

from minirlhf_course.chapters.ch18_synthetic_data_and_distillation import hints
from minirlhf_course.evidence import Study, brief, settings, trace

PLAN = hints.HintPlan()


def one_seed(seed: int, pupil: hints.Pupil | None = None) -> dict[str, float]:
    """Return the measurements of the base model, with and without a hint, and after every method."""
    pupil = pupil or hints.Pupil(seed, PLAN)
    plan = pupil.plan
    numbers = {"base_shown": hints.right(pupil.base, hints.SHOWN, plan.measured)}
    policies = {"base": pupil.base} | {way: pupil.taught(way, rate) for way, rate in hints.RATES.items()}
    for name, policy in policies.items():
        numbers[f"{name}_right"] = hints.right(policy, hints.SORTS, plan.measured)
        numbers[f"{name}_other"] = hints.right(policy, hints.REVERSES, plan.measured)
        numbers[f"{name}_forgotten"] = numbers["base_other"] - numbers[f"{name}_other"]
    return numbers


def probe() -> dict[str, float | str]:
    """Run two steps of every method, from a base that sorts now and then, so that some rewards are positive."""
    few = replace(PLAN, base=brief(PLAN.base, 120), steps=2, answers=16, measured=64)
    pupil = hints.Pupil(1, few)
    numbers = one_seed(1, pupil)
    for way, rate in hints.RATES.items():
        numbers |= trace(way, pupil.taught(way, rate).history)
    return numbers | settings(plan=PLAN, paid=PLAN.payment(1e-3, 1), dr_grpo=hints.DR_GRPO, **hints.TEACHING)


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
