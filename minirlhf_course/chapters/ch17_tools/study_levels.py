"""System over user over tool: ``python -m minirlhf_course.chapters.ch17_tools.study_levels`` (two minutes of one core).

Five seeds. A policy that fulfils requests of every source; the same after 150 steps of a hierarchy in which one source makes a request; and after the same number of steps
with conflicts between two sources, too. The test words are not those of the training. Two combinations of sources, and a system message after
the user's, were not in training. Steps, words and rate were chosen on seed 100: with 4 words instead of 24 the policy learned little about other words; 2e-3 did worse than 1e-3. Writes
``study_levels.json``.
"""

from dataclasses import replace

from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch17_tools.levels import LEARN, WILLING, arms, examined
from minirlhf_course.evidence import Study, settings, trace


def one_seed(seed: int, plan: SFTConfig = WILLING, learn: SFTConfig = LEARN, count: int = 150) -> dict[str, float]:
    """Return the measurements of all policies on the same questions."""
    return {
        f"{name}_{key}": value
        for name, trained in arms(seed, plan, learn).items()
        for key, value in examined(trained, count).items()
    }


def probe() -> dict[str, float | str]:
    """Run a few steps of each arm."""
    plan, learn = replace(WILLING, max_steps=60), replace(LEARN, max_steps=4)
    numbers = one_seed(0, plan, learn, 6)
    for name, trained in arms(1, replace(plan, max_steps=3), replace(learn, max_steps=3)).items():
        numbers |= trace(name, trained.history)
    return numbers | settings(plan=WILLING, learn=LEARN)


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
