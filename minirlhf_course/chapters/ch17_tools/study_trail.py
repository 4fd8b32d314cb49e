"""Actions that depend on thoughts: ``python -m minirlhf_course.chapters.ch17_tools.study_trail`` (four minutes of one core).

Five seeds. Walks from name to name, in which the sum of the digits so far decides what to look up next. Demonstrations contain the sum and the next name as a thought, or nothing, with the
same number of steps and one learning rate, the best of three for acting alone. Then the thoughts are falsified. All seeds get the same test walks. More
than half of these go through names and digits of the training walks, alike for both arms. Writes ``study_trail.json``.
"""

from dataclasses import replace

from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch17_tools.trail import SHOWN, WAYS, compared, shown
from minirlhf_course.evidence import Study, settings, trace


def one_seed(seed: int, plan: SFTConfig = SHOWN, count: int = 300) -> dict[str, float]:
    """Return the measurements of both arms on the same walks."""
    return compared(seed, plan, count)


def probe() -> dict[str, float | str]:
    """Run a few steps of each arm."""
    numbers = one_seed(0, replace(SHOWN, max_steps=40), 12)
    for way in WAYS:
        numbers |= trace(way, shown(way, replace(SHOWN, max_steps=3, seed=1), count=60).history)
    return numbers | settings(plan=SHOWN)


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
