"""Trained tiny models: items that leaked, and examples in a prompt: ``python -m minirlhf_course.chapters.ch19_evaluation.study_models`` (about four minutes).

Ten seeds. Of each, three models with another leak of the test, and one that has read pages of rated words.
"""

from dataclasses import replace

from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch19_evaluation import examples_in_prompt as pages
from minirlhf_course.chapters.ch19_evaluation import leaks
from minirlhf_course.evidence import Study, settings

COUNTS = (0, 1, 2, 6)


def one_seed(
    seed: int, leaked: SFTConfig = leaks.TRAINING, read: SFTConfig = pages.TRAINING, size: int = 3000
) -> dict[str, float]:
    """Four models and how they score."""
    numbers, test = {}, leaks.items(leaks.TEST, "test", seed)
    for leak in leaks.LEAKS:
        model, seen = leaks.saw(leak, test, seed=seed, plan=leaked, corpus=size)
        found = leaks.standing(model, seen, test, seed=seed)
        numbers.update({f"leak_{leak}_{key}": value for key, value in found.items()})
    reader = pages.model(seed=seed, plan=read, pages=size)
    for count in COUNTS:
        found = pages.by_count(reader, count, seed=seed)
        numbers.update({f"shots_{count}_{key}": value for key, value in found.items()})
    for order in pages.ORDERS:
        found = pages.by_order(reader, order, seed=seed)
        numbers.update({f"{order}_{key}": value for key, value in found.items()})
    scores = pages.lottery(reader, seed=seed)
    best = int(scores["public"].argmax())
    numbers |= {f"drawn_{part}": float(score.mean()) for part, score in scores.items()}
    numbers |= {f"chosen_{part}": float(score[best]) for part, score in scores.items()}
    lowest, highest = scores["private"].min(), scores["private"].max()
    return numbers | {"drawn_lowest": float(lowest), "drawn_highest": float(highest)}


def probe() -> dict[str, float | str]:
    """Three steps of every model."""
    few = {"max_steps": 3}
    found = one_seed(0, replace(leaks.TRAINING, **few), replace(pages.TRAINING, **few), size=60)
    return found | settings(leaked=leaks.TRAINING, read=pages.TRAINING)


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
