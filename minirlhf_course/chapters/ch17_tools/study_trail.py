"""Acts that depend on thoughts: ``python -m minirlhf_course.chapters.ch17_tools.study_trail`` (four minutes of one core).

Five seeds. Walks from name to name, in which the sum of what was read decides what to look up next, shown with the sum and the next name as a thought, and without, in as
many steps and at one learning rate, the best of three for acting alone. The thoughts of the one that thinks are then falsified. All seeds are asked the same walks, of which more
than half go through names and digits that stand in the walks shown, alike for both ways. Writes ``study_trail.json``.
"""

from dataclasses import replace

from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch17_tools.trail import SHOWN, WAYS, compared, shown
from minirlhf_course.evidence import Study, settings, trace


def one_seed(seed: int, plan: SFTConfig = SHOWN, count: int = 300) -> dict[str, float]:
    """All ways, on the same walks."""
    return compared(seed, plan, count)


def probe() -> dict[str, float | str]:
    """A few steps of each."""
    numbers = one_seed(0, replace(SHOWN, max_steps=40), 12)
    for way in WAYS:
        numbers |= trace(way, shown(way, replace(SHOWN, max_steps=3, seed=1), count=60).history)
    return numbers | settings(plan=SHOWN)


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
