"""The monitored exam at two other learning rates, three seeds: ``python -m minirlhf_course.chapters.ch24_oversight.study_tuning`` (about two minutes).

Does what a fine does depend on the learning rate of ``study.py``? Half and twice that rate, on seeds of its own. Writes ``study_tuning.json``.
"""

from __future__ import annotations

from minirlhf.stages.pipeline import RLPlan, SFTPlan
from minirlhf_course.chapters.ch24_oversight import exam
from minirlhf_course.chapters.ch24_oversight.exam import ACTION, THOUGHT
from minirlhf_course.evidence import Study, brief, settings

FIRST = 2500  # seeds of its own
RATES = {"half": 2.5e-4, "twice": 1e-3}
ARMS = {"free": (THOUGHT, 0.0), "thought": (THOUGHT, 1.0), "action": (ACTION, 1.0)}


def one_seed(seed: int, sft: SFTPlan = exam.BASE, rl: RLPlan = exam.RL, games: int = 200) -> dict[str, float]:
    """What each model does on the test prompts, at each rate."""
    seed += FIRST
    task, numbers = exam.Exam(), {}
    start = exam.base(task, seed, sft)
    for speed, rate in RATES.items():
        plan = brief(rl, rl.training.max_steps, learning_rate=rate)
        for name, (monitor, fine) in ARMS.items():
            found = exam.measured(task, exam.trained(task, start, seed, monitor, fine, plan), monitor, games)
            numbers |= {f"{name}_{speed}_{what}": value for what, value in found.items()}
    return numbers


def probe() -> dict[str, float | str]:
    """Few steps, few games."""
    few = brief(exam.BASE, 20, demonstrations=600, batch_size=16)
    short = brief(exam.RL, 1, batch_size=4, num_generations=4)
    return one_seed(1, few, short, 20) | settings(sft=exam.BASE, rl=exam.RL)


STUDY = Study(one_seed, probe, seeds=3)

if __name__ == "__main__":
    STUDY.main(__file__)
