"""Forward and reverse KL of a student that cannot have both: ``python -m minirlhf_course.chapters.ch09_regularisation.study_speakers`` (about a minute).

Both divergences exactly and from samples, ten first tables; the reverse one also at a fifth of the learning rate, with five times the steps,
since which writer is chosen, and whether one is, might be the optimiser's doing. Writes ``study_speakers.json``.
"""

from minirlhf_course.chapters.ch09_regularisation.speakers import Letters, imitate
from minirlhf_course.evidence import Study

RUNS = {
    "forward": ("forward", 400, 0.05),
    "reverse": ("reverse", 400, 0.05),
    "reverse_slow": ("reverse", 2000, 0.01),
    "sft": ("sft", 400, 0.05),
    "rl": ("rl", 400, 0.05),
}


def one_seed(seed: int, short: int = 1) -> dict[str, float]:
    """Every run, with ``1/short`` of its steps."""
    letters, numbers = Letters(), {}
    for name, (how, steps, rate) in RUNS.items():
        shares = letters.shares(imitate(letters, how, seed, steps // short, rate))
        numbers.update({f"{name}_{key}": value for key, value in shares.items()})
        numbers[f"{name}_favourite"] = max(shares["formal"], shares["casual"])
    return numbers


def probe() -> dict[str, float | str]:
    """A hundredth of the steps."""
    return dict(one_seed(0, short=100))


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
