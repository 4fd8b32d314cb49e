"""Long completions, each recipe at its own rate: ``python -m minirlhf_course.chapters.ch13_group_relative_methods.study_own_rates`` (about five minutes).

Seven seeds of prompts and samples from one fine-tuned model, as in :mod:`.study_long`; the rates were chosen on two
other seeds (``own_rates.tried``).
"""

from functools import cache

from minirlhf_course.chapters.ch13_group_relative_methods import own_rates, two_worlds
from minirlhf_course.evidence import Study, settings

CONTEST = own_rates.LONG


@cache
def begin() -> two_worlds.Trained:
    """Train the initial model that all seeds share."""
    return two_worlds.start(CONTEST)


def one_seed(seed: int) -> dict[str, float]:
    """Train every recipe with one seed."""
    return own_rates.one_seed(CONTEST, begin(), seed)


def probe() -> dict[str, float | str]:
    """Train every recipe for four steps from a briefly trained model, and return the settings in full."""
    few = two_worlds.brief_contest(CONTEST)
    found = own_rates.one_seed(few, two_worlds.start(few), 0)
    return found | settings(sft=CONTEST.sft, training=CONTEST.training, **two_worlds.recipes(CONTEST))


STUDY = Study(one_seed, probe, seeds=7)

if __name__ == "__main__":
    STUDY.main(__file__)
