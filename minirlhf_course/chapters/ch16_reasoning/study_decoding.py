"""A verifier of prefixes that weighs every token, in a table: ``python -m minirlhf_course.chapters.ch16_reasoning.study_decoding`` (a second).

Exact but for the verifier's noise, which twenty seeds draw. Writes ``study_decoding.json``.
"""

from minirlhf_course.chapters.ch16_reasoning.credit_tables import StepChain
from minirlhf_course.chapters.ch16_reasoning.decoding_tables import (
    best,
    by_mean,
    by_soft,
    decoded,
    first_values,
    least_kl,
    readings,
)
from minirlhf_course.evidence import Study, settings

PLAN = StepChain()
BETAS = {"weak": 0.5, "strong": 0.1}
NOISES = {"true": 0.0, "good": 0.5, "fair": 1.0, "poor": 2.0}
SHARP = 0.1


def one_seed(seed: int, plan: StepChain = PLAN) -> dict[str, float]:
    """Right ends and KL of every way to decode, and of each exact one the least KL that buys as many."""
    worth = first_values(plan)
    ends, _ = decoded(worth * 0 + 1, plan)
    numbers = {"sampled": float(ends[0])}
    for name, beta in BETAS.items():
        for how, weigh in (("mean", by_mean), ("soft", by_soft)):
            end, numbers[f"{how}_{name}_kl"] = decoded(weigh(worth, beta), plan)
            numbers[f"{how}_{name}"] = float(end[0])
            numbers[f"{how}_{name}_least"] = least_kl(numbers["sampled"], float(end[0]))
    for name, noise in NOISES.items():
        said = readings(worth, noise, seed)
        end, numbers[f"{name}_kl"] = decoded(said, plan)
        numbers[name] = float(end[0])
        end, numbers[f"{name}_sharp_kl"] = decoded(by_mean(said, SHARP), plan)
        numbers[f"{name}_sharp"] = float(end[0])
        numbers |= {f"{name}_best_{count}": best(said[-1], ends, count) for count in (4, 16)}
    return numbers


def probe() -> dict[str, float | str]:
    """All of it, on shorter chains."""
    return one_seed(1, StepChain(steps=4)) | settings(plan=PLAN)


STUDY = Study(one_seed, probe, seeds=20)

if __name__ == "__main__":
    STUDY.main(__file__)
