"""Human and AI labels, judges, rubrics, constitutions, direct RLAIF and self-rewarding in the enumerable toy environment, ten seeds:
python -m minirlhf_course.chapters.ch15_ai_feedback.study

What is exact is the same in every seed.
"""

from __future__ import annotations

from collections.abc import Mapping

from minirlhf_course.chapters.ch15_ai_feedback import counted as lab
from minirlhf_course.evidence.study import Study

BIASES = (0.1, 0.3, 0.6)
PLACES = (0, 1, 2, 4)
ROUNDS = 12
EVERY = tuple(lab.PRINCIPLES)
#: Principles as they are; each of them twice, each left out; and one three times. The last word of a principle is its name.
CONSTITUTIONS = {
    "all": EVERY,
    **{f"{one.split()[-1]}_twice": (*EVERY, one) for one in EVERY},
    **{f"without_{one.split()[-1]}": tuple(name for name in EVERY if name != one) for one in EVERY},
    "brief_thrice": (*EVERY, "be brief", "be brief"),
}


def _named(prefix: str, numbers: Mapping[str, float]) -> dict[str, float]:
    return {f"{prefix}_{name}": value for name, value in numbers.items()}


def exact() -> dict[str, float]:
    """Return what is exact: judges with a position bias (and a length bias), direct RLAIF, rubrics, constitutions."""
    found: dict[str, float] = {}
    for place in PLACES:
        found |= _named(f"place_{place}", lab.judge_accuracies(place))
        found |= _named(f"tasteful_{place}", lab.judge_accuracies(place, taste=0.3))
    for bias in BIASES:
        found |= _named(f"judge_{bias:g}", lab.direct_feedback(bias))
    found |= lab.rubrics()
    for name, principles in CONSTITUTIONS.items():
        found[f"constitution_{name}"] = lab.constitution(principles)
        found[f"clamped_{name}"] = lab.constitution(principles, clamp=0.4)
    return found


def one_seed(seed: int) -> dict[str, float]:
    """Return all measurements; the seed decides the pairs and the labels."""
    found = exact()
    for bias in BIASES:
        found |= _named(f"bias_{bias:g}", lab.budgets(seed, bias))
    found |= _named("self", lab.self_rewarding(seed, ROUNDS))
    found |= _named("kept", lab.self_rewarding(seed, ROUNDS, learns=False))
    return found | _named("people", lab.self_rewarding(seed, ROUNDS, fresh=400))


def probe() -> dict[str, float]:
    """Return one budget, two rounds, and what is exact."""
    found = exact() | lab.budgets(0, 0.3, sizes=(500,))
    found |= _named("kept", lab.self_rewarding(0, 2, learns=False))
    return found | _named("self", lab.self_rewarding(0, 2)) | _named("people", lab.self_rewarding(0, 2, fresh=100))


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
