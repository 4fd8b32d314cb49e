"""The adventure played by a language model: ``python -m minirlhf_course.chapters.ch17_tools.study_player`` (five minutes of one core).

Eight seeds. A model that imitates episodes of which few succeed is trained by Dr. GRPO for 24 steps of 32 episodes, with bonuses for the key and the door. Trajectory credit is the reward of the whole episode minus the mean
of the group; turn credit is the return from each turn on minus the mean of that turn. Both at two learning rates, one the best for either. On seeds 100 and 101, which are not reported, the mean fraction of successful
episodes in the run was .67 and .63 at 1e-3 and 2e-3 with trajectory credit, .67 and .76 with turn credit; at 5e-4 less in both (seed 100), at 4e-3 both collapsed (seed 101). Writes ``study_player.json``.
"""

from dataclasses import replace
from itertools import product
from statistics import fmean

from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch17_tools.player import COURSE, IMITATE, IMPROVE, TURN, imitator, improved
from minirlhf_course.evidence import Study, settings

#: Has a turn its own credit?
ARMS = {"course": False, "turn": True}
RATES = {"slow": 1e-3, "fast": 2e-3}
LAST = 4  # steps, of which the mean is taken as where a run ends


def one_seed(seed: int, plan: SFTConfig = IMITATE, run: OnlineConfig = IMPROVE) -> dict[str, float]:
    """Return, for every arm, the fraction of episodes with the treasure by step, and its means over the run and over the last steps."""
    start, numbers = imitator(seed, plan), dict[str, float]()
    for (arm, by_turn), (pace, rate) in product(ARMS.items(), RATES.items()):
        won = improved(start, by_turn, replace(run, seed=seed, learning_rate=rate)).history["frac_won"]
        numbers |= {f"{arm}_{pace}_mean": fmean(won), f"{arm}_{pace}_last": fmean(won[-LAST:])}
        numbers |= {f"{arm}_{pace}_{step}": share for step, share in enumerate(won, 1)}
    return numbers


def probe() -> dict[str, float | str]:
    """Run a few steps of each arm."""
    few, short = replace(IMITATE, max_steps=15), replace(IMPROVE, max_steps=3, num_generations=8)
    numbers, start = one_seed(0, few, short), imitator(1, few, 200)
    for arm, by_turn in ARMS.items():
        history = improved(start, by_turn, short).history
        numbers |= {f"{arm}_norm_{i}": norm for i, norm in enumerate(history["grad_norm"])}
    return numbers | settings(plan=IMITATE, run=IMPROVE, course=COURSE, turn=TURN, rates=tuple(RATES.values()))


STUDY = Study(one_seed, probe, seeds=8)

if __name__ == "__main__":
    STUDY.main(__file__)
