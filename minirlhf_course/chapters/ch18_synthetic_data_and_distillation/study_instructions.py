"""Self-instruct with two filters and with one: ``python -m minirlhf_course.chapters.ch18_synthetic_data_and_distillation.study_instructions`` (about a minute).

Five seeds. A model that is trained on forty questions writes 150 others, in three rounds. Questions of the pool are dropped and, in
one of two runs, questions that a small judge finds improbable. The fractions are those of the first 150. Writes ``study_instructions.json``.
"""

from dataclasses import replace

from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch18_synthetic_data_and_distillation import instructions
from minirlhf_course.evidence import Study, settings

ROUNDS, ALIKE = 3, 1.0


def one_seed(
    seed: int, rounds: int = ROUNDS, plan: SFTConfig = instructions.TRAINING, written: int = instructions.WRITTEN
) -> dict[str, float]:
    """Return the fractions of valid questions, and the valid and other questions in the final pool."""
    numbers = {}
    for name, judged in {"both": True, "novelty": False}.items():
        found = instructions.grow(alike=ALIKE, judged=judged, seed=seed, rounds=rounds, plan=plan, written=written)
        numbers[f"{name}_pool"], numbers[f"{name}_junk"] = float(found[-1].pool), float(found[-1].junk)
    first = found[0]
    share = lambda kept: float(first.valid[kept].double().mean()) if bool(kept.any()) else 0.0
    return numbers | {
        "valid": share(first.novel | ~first.novel),
        "valid_novel": share(first.novel),
        "valid_likely": share(first.likely),
        "valid_novel_likely": share(first.novel & first.likely),
    }


def probe() -> dict[str, float | str]:
    """Run two rounds of a few questions."""
    few = replace(instructions.TRAINING, max_steps=40, batch_size=16)
    return one_seed(1, 2, few, 40) | settings(training=instructions.TRAINING)


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
