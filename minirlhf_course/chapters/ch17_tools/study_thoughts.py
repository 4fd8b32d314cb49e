"""Thought, action, observation, against acting alone: ``python -m minirlhf_course.chapters.ch17_tools.study_thoughts`` (eight minutes of one core).

Five seeds. Sums of one to three numbers that a register knows. Demonstrations contain the sum so far as a thought, the same number of empty words, or neither; the last also with
three times the steps, since a conversation with thoughts shows up to three sums. One learning rate: of 1.5e-3, 3e-3 and 6e-3 the best for acting alone on seed
100, which is not reported. Writes ``study_thoughts.json``.
"""

from dataclasses import replace

from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch17_tools.thoughts import SHOWN, WAYS, compared, shown
from minirlhf_course.evidence import Study, settings, trace


def one_seed(seed: int, plan: SFTConfig = SHOWN, count: int = 150) -> dict[str, float]:
    """Return the measurements of all arms on the same questions."""
    return compared(seed, plan, count)


def probe() -> dict[str, float | str]:
    """Run a few steps of each arm."""
    found = one_seed(0, replace(SHOWN, max_steps=40), 4)
    # The longest way has 120 steps, after which two kinds of processors give one of the four questions another answer.
    numbers = {name: x for name, x in found.items() if not (name.startswith("longer") and name.endswith("right"))}
    for way in WAYS:
        numbers |= trace(way, shown(way, replace(SHOWN, max_steps=3, seed=1), count=60).history)
    return numbers | settings(plan=SHOWN)


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
