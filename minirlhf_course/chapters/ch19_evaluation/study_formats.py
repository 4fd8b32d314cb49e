"""One model, three formats, two graders: ``python -m minirlhf_course.chapters.ch19_evaluation.study_formats`` (about two minutes).

Ten seeds. Of each, a model that writes all formats, and its copies tuned on a new operation in one format and in two.
"""

from dataclasses import replace

from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch19_evaluation import answer_formats as lab
from minirlhf_course.evidence import Study, settings


def one_seed(
    seed: int, learning: SFTConfig = lab.LEARNING, tuning: SFTConfig = lab.TUNING, count: int = lab.EXAMPLES
) -> dict[str, float]:
    """Three models and their scores in each format."""
    base = lab.learned(seed=seed, plan=learning, count=count)
    models = {"base": base} | {how: lab.tuned(base, how, seed=seed, plan=tuning, count=count) for how in lab.TUNED}
    numbers = {}
    for form in lab.FORMATS:
        found = lab.graded(base, form, seed=seed, operation="last")
        numbers |= {f"known_{form}_{key}": value for key, value in found.items()}
        for name, model in models.items():
            found = lab.graded(model, form, seed=seed)
            numbers |= {f"{name}_{form}_{key}": value for key, value in found.items()}
    return numbers


def probe() -> dict[str, float | str]:
    """Three steps of every model."""
    few = {"max_steps": 3}
    found = one_seed(0, replace(lab.LEARNING, **few), replace(lab.TUNING, **few), count=60)
    return found | settings(learned=lab.LEARNING, tuned=lab.TUNING)


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
