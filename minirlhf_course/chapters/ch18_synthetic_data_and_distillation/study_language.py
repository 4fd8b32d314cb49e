"""Language models that learn from language models: ``python -m minirlhf_course.chapters.ch18_synthetic_data_and_distillation.study_language`` (about eight minutes).

Five seeds. Eight generations of small transformers, each trained from new weights: on pages of the last model, on all pages so far, on the same number of
pages of the last model alone, or on the pages that the last model finds most probable per token. Steps and rate were best for
real pages on the five other seeds of ``study_rates``. Writes ``study_language.json``.
"""

from dataclasses import replace

from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch18_synthetic_data_and_distillation import generations
from minirlhf_course.evidence import Study, settings


def one_seed(
    seed: int,
    count: int = generations.GENERATIONS_OF_MODELS,
    plan: SFTConfig = generations.TRAINING,
    pages: int = generations.PAGES,
) -> dict[str, float]:
    """Return the measurements of every line of models, generation by generation; the first model reads real pages."""
    numbers = {}
    for way in generations.LINES:
        for g, found in enumerate(generations.lineage(way, seed=seed, generations=count, plan=plan, pages=pages)):
            numbers[f"{way}_nats_{g}"], numbers[f"{way}_triples_{g}"] = found.real_nats, found.triples
    return numbers


def probe() -> dict[str, float | str]:
    """Run two generations of few pages and few steps."""
    few = replace(generations.TRAINING, max_steps=20, batch_size=8)
    return one_seed(1, 2, few, 24) | settings(training=generations.TRAINING)


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
