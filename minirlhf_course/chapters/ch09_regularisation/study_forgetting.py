"""What is forgotten while something new is learned, by where the answers come from: ``python -m minirlhf_course.chapters.ch09_regularisation.study_forgetting`` (minutes).

Each way to teach at two learning rates, all until the new task is done equally well; ten seeds, each with a base model of its own.
Writes ``study_forgetting.json``.
"""

from minirlhf_course.chapters.ch09_regularisation.forgetting import MOST, LetterReader
from minirlhf_course.evidence import Study

RATES = {"slow": 1e-3, "fast": 3e-3}
WAYS = ("rl", "nearest", "own", "true", "any", "one", "one_with_letters")


def one_seed(seed: int, pretraining: int = 400, most: int = MOST) -> dict[str, float]:
    """The base model, and it taught in every way."""
    pupil = LetterReader(seed, pretraining)
    base = pupil.look(pupil.base, 0)
    numbers = {"base_new": base.new, "base_old": base.old}
    for way in WAYS:
        for name, rate in RATES.items():
            kept = pupil.taught(getattr(pupil, way), rate, most)
            numbers.update({f"{way}_{name}_{key}": float(value) for key, value in vars(kept).items()})
    return numbers


def probe() -> dict[str, float | str]:
    """A base model of forty steps, and ten steps in every way."""
    return dict(one_seed(0, pretraining=40, most=10))


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
