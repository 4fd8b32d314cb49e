"""Noise, bias and disagreement in made-up labels: ``python -m minirlhf_course.chapters.ch07_preference_data.study`` (about two minutes).

Every labeller is known, so that what is detected, recovered or learned can be held against the truth. Writes ``study.json``.
"""

from minirlhf_course.chapters.ch07_preference_data import labellers
from minirlhf_course.evidence import Study


def one_seed(seed: int, counts: tuple[int, ...] = (300, 1000), draws: int = 20) -> dict[str, float]:
    """All experiments with one seed."""
    numbers: dict[str, float] = {}
    for count in counts:
        numbers |= labellers.detection(seed, count, draws)
    for experiment in (
        labellers.consensus,
        labellers.noise,
        labellers.selection,
        labellers.confirmation,
        labellers.judging,
        labellers.ties,
        labellers.ratings,
    ):
        numbers |= experiment(seed)
    return {name.replace(" ", "_"): value for name, value in numbers.items()}


def probe() -> dict[str, float | str]:
    """Every experiment once; the detection with two draws of 300 pairs."""
    return one_seed(0, counts=(300,), draws=2)


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
