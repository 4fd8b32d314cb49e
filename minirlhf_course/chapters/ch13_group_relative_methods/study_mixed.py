"""Prompts of mixed difficulty: ``python -m minirlhf_course.chapters.ch13_group_relative_methods.study_mixed`` (about six minutes).

Ten seeds of prompts and samples from one fine-tuned model; six recipes with eight updates on every rollout, compared at equal sampled tokens.
"""

from functools import cache

from minirlhf_course.chapters.ch13_group_relative_methods import two_worlds
from minirlhf_course.evidence import Study, settings

CONTEST = two_worlds.MIXED


@cache
def begin() -> two_worlds.Trained:
    """What all seeds start from."""
    return two_worlds.start(CONTEST)


def one_seed(seed: int) -> dict[str, float]:
    """Every recipe with one seed."""
    return two_worlds.one_seed(CONTEST, begin(), seed) | two_worlds.pass_rates(begin(), seed=seed)


def probe() -> dict[str, float | str]:
    """Every recipe for four steps from a brief start, and the settings in full."""
    few = two_worlds.brief_contest(CONTEST)
    brief_start = two_worlds.start(few)
    found = two_worlds.one_seed(few, brief_start, 0) | two_worlds.pass_rates(brief_start, seed=0, prompts=60)
    return found | settings(sft=CONTEST.sft, training=CONTEST.training, **two_worlds.recipes(CONTEST))


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
