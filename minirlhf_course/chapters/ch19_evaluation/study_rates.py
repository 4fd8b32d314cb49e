"""Are the findings on tuned models those of one learning rate? ``python -m minirlhf_course.chapters.ch19_evaluation.study_rates`` (about four minutes).

Five seeds that no other study of the chapter has. The copies that ``study_facts`` and ``study_formats`` tune, at a third and at
three times their rate, measured as there. Writes ``study_rates.json``.
"""

from dataclasses import replace
from typing import Any

from minirlhf_course.chapters.ch19_evaluation import answer_formats as formats
from minirlhf_course.chapters.ch19_evaluation import facts
from minirlhf_course.evidence import Study, settings

#: In millionths, as in the names of the numbers.
RATES = (300, 3000)
#: What a wrong answer costs, as in ``study_facts``.
PENALTY = 3.0


def one_seed(
    seed: int,
    limit: dict[str, int] | None = None,
    texts: int = facts.TEXTS,
    count: int = formats.EXAMPLES,
) -> dict[str, float]:
    """What copies earn and how they obey, at every rate; with a ``limit`` every model is trained for so many steps only."""
    plan = lambda training, **changed: replace(training, **changed, **(limit or {}))
    world, numbers = facts.FactWorld.of(seed), dict[str, float]()
    knower: Any = facts.model(world, plan=plan(facts.READING), texts=texts)
    base: Any = formats.learned(seed=seed, plan=plan(formats.LEARNING), count=count)
    for rate in RATES:
        for how in ("truth", "abstain"):
            copy = facts.taught(knower, world, how, plan=plan(facts.TUNING, learning_rate=rate / 1e6))
            groups = {group: facts.asked(copy, names, world.city) for group, names in facts.halves(world)[1].items()}
            numbers[f"{how}_earned_{rate}"] = facts.GradedAnswers.joined(groups.values()).earned(PENALTY)
            numbers[f"{how}_never_wrong_{rate}"] = groups["never"].rates()["wrong"]
        for how in formats.TUNED:
            copy = formats.tuned(base, how, seed=seed, plan=plan(formats.TUNING, learning_rate=rate / 1e6), count=count)
            for form in formats.FORMATS:
                found = formats.graded(copy, form, seed=seed)
                numbers |= {f"{how}_{form}_{key}_{rate}": value for key, value in found.items()}
    return numbers


def probe() -> dict[str, float | str]:
    """Three steps of every model."""
    found = one_seed(0, {"max_steps": 3}, texts=60, count=60)
    plans = {"reading": facts.READING, "facts": facts.TUNING, "learned": formats.LEARNING, "formats": formats.TUNING}
    return found | settings(**plans)


STUDY = Study(one_seed, probe, seeds=5, first_seed=100)

if __name__ == "__main__":
    STUDY.main(__file__)
