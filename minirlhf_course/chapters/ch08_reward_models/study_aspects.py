"""Is one reward model enough for two aspects? Five seeds: ``python -m minirlhf_course.chapters.ch08_reward_models.study_aspects`` (a minute of one core).

The same pairs of the assistant world are labelled for what is said and for how it is said. One model is told which, one is not, and
each aspect has one of its own, with half the steps. Writes ``study_aspects.json``.
"""

from __future__ import annotations

from dataclasses import replace

from minirlhf.stages import zoo
from minirlhf.stages.pipeline import Trained
from minirlhf_course.chapters.ch08_reward_models.aspects import AspectsPlan, accuracies
from minirlhf_course.evidence import Study, brief, initial_models, settings


def one_seed(seed: int, plan: AspectsPlan | None = None, start: Trained | None = None) -> dict[str, float]:
    """Accuracies on held-out pairs; a seed draws replies, labels, heads and orders."""
    return accuracies(start or Trained(*zoo.load("assistant-sft", quiet=True)), plan or AspectsPlan(), seed)


def probe() -> dict[str, float | str]:
    """All four models for a few steps, from a brief start."""
    _, start, numbers = initial_models.assistant()
    full = AspectsPlan()
    plan = replace(
        full,
        pairs=brief(full.pairs, pairs=48, held_out=24),
        training=replace(full.training, max_steps=8, batch_size=8),
    )
    return numbers | one_seed(0, plan, start) | settings(plan=full)


STUDY = Study(one_seed, probe)

if __name__ == "__main__":
    STUDY.main(__file__)
