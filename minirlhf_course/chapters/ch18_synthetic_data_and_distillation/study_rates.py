"""Which learning rates and how many steps: ``python -m minirlhf_course.chapters.ch18_synthetic_data_and_distillation.study_rates`` (about three minutes).

Five seeds that no other study of the chapter has. Every method with hints, and RL, at four rates; models of real pages at three
rates, for three numbers of steps. The other studies use what is best here on average. Writes ``study_rates.json``.
"""

from dataclasses import replace

from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch18_synthetic_data_and_distillation import generations, hints
from minirlhf_course.evidence import Study, brief, settings, trace

#: In millionths, as in the names of the numbers.
TEACHING, PAID = (100, 300, 1000, 3000), (100, 200, 400, 800)
READING, STEPS = (6000, 12000, 24000), (75, 100, 150)
PAGES = SFTConfig(batch_size=32, lr_scheduler_type="linear")


def one_seed(
    seed: int, pupil: hints.Pupil | None = None, reading: SFTConfig = PAGES, steps: tuple[int, ...] = STEPS
) -> dict[str, float]:
    """Return the fractions of right rows after every method at every rate, and nats per token of real pages."""
    pupil, numbers = pupil or hints.Pupil(seed, hints.HintPlan()), dict[str, float]()
    for way in hints.WAYS:
        for rate in PAID if way == hints.PAID else TEACHING:
            policy = pupil.taught(way, rate / 1e6)
            numbers[f"{way}_{rate}"] = hints.right(policy, hints.SORTS, pupil.plan.measured)
    for count in steps:
        for rate in READING:
            training = replace(reading, max_steps=count, learning_rate=rate / 1e6)
            [first] = generations.lineage("replace", seed=seed, generations=1, plan=training)
            numbers[f"pages_{count}_{rate}"] = first.real_nats
    return numbers


def probe() -> dict[str, float | str]:
    """Run two steps of everything, from a base that sorts now and then, so that some rewards are positive."""
    plan = hints.HintPlan()
    few = replace(plan, base=brief(plan.base, 120), steps=2, answers=16, measured=64)
    pupil = hints.Pupil(1, few)
    numbers = one_seed(1, pupil, replace(PAGES, batch_size=4), (2,))
    for way in hints.WAYS:
        numbers |= trace(way, pupil.taught(way, 1e-3).history, "loss", "grad_norm")
    return numbers | settings(
        plan=plan, paid=plan.payment(1e-3, 1), reading=PAGES, dr_grpo=hints.DR_GRPO, **hints.TEACHING
    )


STUDY = Study(one_seed, probe, seeds=5, first_seed=100)

if __name__ == "__main__":
    STUDY.main(__file__)
