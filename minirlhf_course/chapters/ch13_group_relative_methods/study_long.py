"""Long replies of varying length: ``python -m minirlhf_course.chapters.ch13_group_relative_methods.study_long`` (about nine minutes).

Ten seeds of prompts and samples from one fine-tuned model; six recipes with eight updates on every rollout, compared at equal sampled tokens.
"""

from functools import cache

from minirlhf_course.chapters.ch13_group_relative_methods import two_worlds
from minirlhf_course.evidence import Study, settings

CONTEST = two_worlds.LONG


@cache
def begin() -> two_worlds.Trained:
    """What all seeds start from."""
    return two_worlds.start(CONTEST)


def one_seed(seed: int) -> dict[str, float]:
    """Every recipe with one seed."""
    return two_worlds.one_seed(CONTEST, begin(), seed)


def probe() -> dict[str, float | str]:
    """Every recipe for four steps from a brief start, and the settings in full."""
    few = two_worlds.brief_contest(CONTEST)
    found = two_worlds.one_seed(few, two_worlds.start(few), 0)
    return found | settings(sft=CONTEST.sft, training=CONTEST.training, **two_worlds.recipes(CONTEST))


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
