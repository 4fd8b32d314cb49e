"""Filters of difficulty: ``python -m minirlhf_course.chapters.ch16_reasoning.study_filters`` (about a minute).

Twenty seeds. The samples that training needs until the solvable prompts of middle difficulty are solved nine times in ten, where half of the
prompts are impossible and where none is: without a filter, with one of four, and with a curriculum of four paces, each at two rates of learning.
Writes ``study_filters.json``.
"""

from dataclasses import replace
from typing import Any

from minirlhf_course.chapters.ch16_reasoning.tables import Pool, samples_to_goal
from minirlhf_course.evidence import Study, settings

POOL = Pool()
POOLS = {"half": 0.5, "none": 0.0}
#: The rate of the first try, and four times that.
RATES = {"slow": 1.5, "quick": 6.0}
#: Filters, and what is chosen of them: how many of eight replies may be right, how many steps lead to the hardest prompts.
FILTERS: dict[str, tuple[str, dict[str, Any]]] = {
    "all": ("all", {}),
    "offline": ("offline", {"kept": (2, 6)}),
    "mixed": ("offline", {"kept": (1, 7)}),
    "hard": ("offline", {"kept": (1, 4)}),
    "online": ("online", {}),
    "pace_400": ("curriculum", {"pace": 400}),
    "pace_50": ("curriculum", {"pace": 50}),
    "pace_25": ("curriculum", {"pace": 25}),
    "pace_12": ("curriculum", {"pace": 12}),
}


def one_seed(seed: int, pool: Pool = POOL) -> dict[str, float]:
    """Every filter in both pools, at both rates."""
    numbers: dict[str, float] = {}
    for name, impossible in POOLS.items():
        for speed, rate in RATES.items():
            plan = replace(pool, impossible=impossible, learning_rate=rate)
            for called, (filtering, chosen) in FILTERS.items():
                found = samples_to_goal(filtering, seed, plan, **chosen)
                numbers |= {f"{name}_{speed}_{called}_{key}": value for key, value in found.items()}
    return numbers


def probe() -> dict[str, float | str]:
    """A small pool and few steps."""
    return one_seed(1, Pool(size=100, most=40)) | settings(pool=POOL)


STUDY = Study(one_seed, probe, seeds=20)

if __name__ == "__main__":
    STUDY.main(__file__)
