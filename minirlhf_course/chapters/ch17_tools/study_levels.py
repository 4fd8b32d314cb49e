"""System over user over tool: ``python -m minirlhf_course.chapters.ch17_tools.study_levels`` (two minutes of one core).

Five seeds. A policy that does what anybody asks for; after 150 steps of a hierarchy in which one asks at a time; and after as many in which two of them also
disagree. All are asked with words that the hierarchy was not taught on, with two combinations of levels that it was not, and with the system message behind
the user's. Steps, words and rate were chosen on seed 100: with 4 words in place of 24 little was learnt of others; 2e-3 did worse than 1e-3. Writes
``study_levels.json``.
"""

from dataclasses import replace

from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch17_tools.levels import LEARN, WILLING, arms, examined
from minirlhf_course.evidence import Study, settings, trace


def one_seed(seed: int, plan: SFTConfig = WILLING, learn: SFTConfig = LEARN, count: int = 150) -> dict[str, float]:
    """All of them, on the same questions."""
    return {
        f"{name}_{key}": value
        for name, trained in arms(seed, plan, learn).items()
        for key, value in examined(trained, count).items()
    }


def probe() -> dict[str, float | str]:
    """A few steps of each."""
    plan, learn = replace(WILLING, max_steps=60), replace(LEARN, max_steps=4)
    numbers = one_seed(0, plan, learn, 6)
    for name, trained in arms(1, replace(plan, max_steps=3), replace(learn, max_steps=3)).items():
        numbers |= trace(name, trained.history)
    return numbers | settings(plan=WILLING, learn=LEARN)


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
