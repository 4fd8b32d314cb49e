"""The adventure played by a language model: ``python -m minirlhf.chapters.ch17_tools.study_player`` (five minutes of one core).

Ten seeds. A model that imitates courses of which few succeed is trained by Dr. GRPO for 24 steps of 32 courses: with one reward at the end; with bonuses for the key and the door, and the whole
course's reward less the mean of the group; and with the same bonuses and the return from each turn on less the mean of that turn. Writes ``study_player.json``.
"""

from dataclasses import replace
from statistics import fmean

from minirlhf.chapters.ch17_tools.adventure import BONUS
from minirlhf.chapters.ch17_tools.player import COURSE, IMITATE, IMPROVE, TURN, imitator, improved
from minirlhf.evidence import Study, settings
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.sft import SFTConfig

#: The bonus, and whether a turn has its own credit.
ARMS = {"end": (0.0, False), "course": (BONUS, False), "turn": (BONUS, True)}
LAST = 4  # steps, of which the mean is taken as where a run ends


def one_seed(seed: int, plan: SFTConfig = IMITATE, run: OnlineConfig = IMPROVE) -> dict[str, float]:
    """Every arm from one start: the share of courses that find the treasure before the first step, over the run, and in its last steps."""
    start, numbers = imitator(seed, plan), dict[str, float]()
    for arm, (bonus, by_turn) in ARMS.items():
        won = improved(start, bonus, by_turn, replace(run, seed=seed)).history["frac_won"]
        numbers |= {f"{arm}_first": won[0], f"{arm}_mean": fmean(won), f"{arm}_last": fmean(won[-LAST:])}
        numbers |= {f"{arm}_{step}": share for step, share in enumerate(won, 1)}
    return numbers


def probe() -> dict[str, float | str]:
    """A few steps of each."""
    few, short = replace(IMITATE, max_steps=40), replace(IMPROVE, max_steps=3, num_generations=8)
    numbers, start = one_seed(0, few, short), imitator(1, few, 200)
    for arm, (_, by_turn) in ARMS.items():
        history = improved(start, BONUS, by_turn, short).history
        numbers |= {f"{arm}_norm_{i}": norm for i, norm in enumerate(history["grad_norm"])}
    return numbers | settings(plan=IMITATE, run=IMPROVE, course=COURSE, turn=TURN)


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
