"""The entries of the challenge over ten seeds: ``python -m minirlhf_course.challenge.study`` writes ``study.json``.

The worlds were designed on seeds 0, 1 and 3; these seeds are held out. Each number of a seed is a mean over its eight
worlds, as ``minirlhf challenge score`` prints it. It takes about two minutes on one idle core.
"""

from __future__ import annotations

from pathlib import Path

from minirlhf_course.challenge import entries, scoring
from minirlhf_course.evidence import Study

NAMES = ("mine", "best_of_n", "reinforce", "early_stopping")


def measure(seed: int, num_worlds: int) -> dict[str, float]:
    """Return score, KL, labels, and the number of worlds with a score below 0, for each entry."""
    numbers: dict[str, float] = {}
    with scoring.Servers() as servers:
        for name in NAMES:
            source = scoring.read_source(Path(entries.__file__).with_name(f"{name}.py"))
            result = scoring.score(servers, name, source, seed, num_worlds=num_worlds)
            numbers[f"{name}_score"] = result.mean("score")
            numbers[f"{name}_kl"], numbers[f"{name}_labels"] = result.mean("kl"), result.mean("labels")
            numbers[f"{name}_below_0"] = sum(row.score < 0 for row in result.worlds)
    return numbers


def one_seed(seed: int) -> dict[str, float]:
    """Return the numbers of all entries in the worlds of one seed."""
    return measure(seed, scoring.WORLDS)


def probe() -> dict[str, float | str]:
    """Every entry in two worlds."""
    return dict(measure(0, 2))


STUDY = Study(one_seed, probe, seeds=10, first_seed=100)

if __name__ == "__main__":
    STUDY.main(__file__)
