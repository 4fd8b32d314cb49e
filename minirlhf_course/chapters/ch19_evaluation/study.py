"""Intervals, tests, leaderboards and climbing in simulated worlds of known truth: python -m minirlhf_course.chapters.ch19_evaluation.study"""

from __future__ import annotations

from collections.abc import Mapping

from minirlhf_course.chapters.ch19_evaluation import experiments as lab
from minirlhf_course.evidence.study import Study


def _named(prefix: str, numbers: Mapping[str, float]) -> dict[str, float]:
    return {f"{prefix}_{name}": value for name, value in numbers.items()}


def one_seed(seed: int) -> dict[str, float]:
    """All simulations with one seed; what is exact is the same in every seed."""
    found = _named("coverage", lab.coverages(30, 0.97)) | _named("coverage_half", lab.coverages(30, 0.5))
    found |= _named("pass", lab.pass_estimates(20, 10, 0.05)) | lab.rankings() | lab.equal_tokens()
    found |= _named("cluster", lab.cluster_coverage(seed))
    for items in (100, 300, 1000):
        found |= _named(f"power_{items}", lab.power(seed, items))
    for seeds in (1, 5):
        found |= _named(f"alarm_{seeds}", lab.false_alarms(seed, seeds))
    for games in (112, 448, 1792, 7168):
        found |= _named(f"board_{games}", lab.leaderboard(seed, games))
    found["elo_spread"] = lab.elo_spread(seed)
    for submissions in (10, 100, 500):
        found |= _named(f"climb_{submissions}", lab.climbing(seed, submissions))
    return found


def probe() -> dict[str, float]:
    """Small sizes of each simulation."""
    found = _named("coverage", lab.coverages(8, 0.9)) | _named("pass", lab.pass_estimates(6, 3, 0.2))
    found |= lab.rankings() | lab.equal_tokens(budget=8)
    found |= _named("cluster", lab.cluster_coverage(0, benchmarks=50, clusters=6))
    found |= _named("power", lab.power(0, 50, benchmarks=20))
    for seeds in (1, 3):
        found |= _named(f"alarm_{seeds}", lab.false_alarms(0, seeds, benchmarks=20))
    found |= _named("board", lab.leaderboard(0, 448, boards=3))
    found["elo_spread"] = lab.elo_spread(0, orders=3, games=50)
    return found | _named("climb", lab.climbing(0, 7, items=30))


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
