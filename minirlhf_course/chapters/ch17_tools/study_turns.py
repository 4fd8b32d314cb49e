"""Turn credit and its baselines in the adventure: ``python -m minirlhf_course.chapters.ch17_tools.study_turns`` (half a minute of one core).

Twenty seeds. A tabular policy learns from 32 episodes per step: with one reward at the end, with bonuses for the key and the door, and with bonuses and all rewards divided
by 1.6, so that they add up to 1. Credit is the return of the episode or from the turn on. The baseline is the mean of the group, of the turn or of the state,
with or without the episode itself. All arms have the same two learning rates. On seeds
1000 to 1009, with rates from .5 to 16, every arm is faster with a larger rate, so that no arm has a best rate. Writes ``study_turns.json``.
"""

from itertools import product
from statistics import fmean

from minirlhf_course.chapters.ch17_tools.adventure import (
    BONUS,
    learned,
    mean_of_group,
    mean_of_place,
    mean_of_turn,
    of_others,
)
from minirlhf_course.evidence import Study, settings

ARMS = {
    "course": (False, mean_of_group),
    "turn_group": (True, mean_of_group),
    "turn": (True, mean_of_turn),
    "place": (True, mean_of_place),
}
#: Is a course among those with which it is compared, as in GRPO, or not?
OWN = {"": lambda baseline: baseline, "_others": of_others}
RATES = {"slow": 2.0, "fast": 8.0}
STEPS = {"slow": 60, "fast": 20}
#: Bonus, and what the rewards of a course are divided by: with bonuses they add up to more, which alone makes steps longer.
WORLDS = {"end": (0.0, 1.0), "bonus": (BONUS, 1.0), "level": (BONUS, 1 + 2 * BONUS)}
GOAL = 0.9


def steps_to(curve: list[float]) -> int:
    """Return the number of steps before the goal is reached; all steps if it is not."""
    return next((step for step, value in enumerate(curve) if value >= GOAL), len(curve))


def one_seed(seed: int, shorter: int = 1) -> dict[str, float]:
    """Return, for every arm, the steps until 90 % of episodes find the treasure, and the mean success over the run."""
    numbers: dict[str, float] = {}
    for world, (bonus, total) in WORLDS.items():
        for pace, rate in RATES.items():
            for (arm, (by_turn, baseline)), (own, compared) in product(ARMS.items(), OWN.items()):
                steps, mean = STEPS[pace] // shorter, compared(baseline)
                curve = learned(seed, bonus, by_turn=by_turn, baseline=mean, rate=rate / total, steps=steps)
                numbers[f"{world}_{pace}_{arm}{own}_steps"] = steps_to(curve)
                numbers[f"{world}_{pace}_{arm}{own}_mean"] = fmean(curve)
    return numbers


def probe() -> dict[str, float | str]:
    """Run a fifth of the steps."""
    return one_seed(1, 5) | settings(rates=tuple(RATES.values()), steps=tuple(STEPS.values()), bonus=BONUS, goal=GOAL)


STUDY = Study(one_seed, probe, seeds=20)

if __name__ == "__main__":
    STUDY.main(__file__)
