"""SFT on the pretrained model's own right completions: ``python -m minirlhf_course.chapters.ch16_reasoning.study_pretrained_own`` (about 10 minutes of one core).

The questions, the plan and the compared runs are those of ``study_pretrained``. A seed's completions are stored beside
this file. Writes ``study_pretrained_own.json``.
"""

from minirlhf.core.randomness import threads
from minirlhf_course.chapters.ch16_reasoning.pretrained import PLAN, beginner, brief_plan, recorded, run_seed
from minirlhf_course.chapters.ch16_reasoning.pretrained_own import OWN, describe_own, run_own
from minirlhf_course.evidence import Study, settings
from minirlhf_course.evidence.claims import Record, measure_claims


def measured(own: Record, seed: Record) -> dict[str, float]:
    """The claims about ``own`` beside the runs of the same questions in ``seed``."""
    assert own["data"] == seed["data"], "the two records have different questions"
    return measure_claims(OWN, {**seed, **own}) | describe_own(own)


def one_seed(seed: int) -> dict[str, float]:
    """All claims with one seed, on one thread."""
    with threads(1):
        main = recorded(f"seed_{seed}", PLAN, lambda start: run_seed(start, PLAN, seed))
        own = recorded(f"own_{seed}", PLAN, lambda start: run_own(start, PLAN, seed))
    return measured(own, main)


def probe() -> dict[str, float | str]:
    """Two steps on own completions, from a tiny model."""
    plan = brief_plan()
    start = beginner(plan)
    own = run_own(start, plan, 1)
    numbers = measured(own, run_seed(start, plan, 1))
    del numbers["own_minutes"]
    return numbers | {f"loss_{i}": x for i, x in enumerate(own["own_metrics"]["loss"])} | settings(plan=PLAN)


STUDY = Study(one_seed, probe, seeds=3)

if __name__ == "__main__":
    STUDY.main(__file__)
