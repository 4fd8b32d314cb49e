"""Monitors of an exam that can be cheated, six seeds: ``python -m minirlhf_course.chapters.ch24_oversight.study`` (about ten minutes).

One world with 2 % silent cheats among the demonstrations, one without. From each initial model, 40 steps with the proxy
reward and with fines of several monitors; then the same fines for a model that has learned to cheat. Writes ``study.json``.
"""

from __future__ import annotations

from minirlhf.stages.pipeline import RLPlan, SFTPlan
from minirlhf_course.chapters.ch24_oversight import exam
from minirlhf_course.chapters.ch24_oversight.exam import ACTION, GLIMPSE, HALF, THOUGHT
from minirlhf_course.evidence import Study, brief, settings

FIRST = 2400  # seeds of its own
#: From the initial model: the monitor and the fine of each arm.
ARMS = {
    "free": (THOUGHT, 0.0),
    "small": (THOUGHT, 0.25),
    "thought": (THOUGHT, 1.0),
    "half": (HALF, 1.0),
    "action": (ACTION, 1.0),
    "below": (GLIMPSE, 0.5),
    "above": (GLIMPSE, 2.0),
}
#: Steps without a fine before the monitor begins.
DELAYS = (0, 10, 20, 40)


def one_seed(
    seed: int,
    sft: SFTPlan = exam.BASE,
    rl: RLPlan = exam.RL,
    games: int = 200,
    delays: tuple[int, ...] = DELAYS,
) -> dict[str, float]:
    """What each model does on the test prompts."""
    seed += FIRST
    numbers: dict[str, float] = {}

    def note(name: str, task: exam.Exam, policy: exam.Trained, monitor: exam.Monitor = THOUGHT) -> exam.Trained:
        found = exam.measured(task, policy, monitor, games)
        numbers.update({f"{name}_{what}": value for what, value in found.items()})
        return policy

    task = exam.Exam()
    start = note("before", task, exam.base(task, seed, sft))
    models = {
        name: note(name, task, exam.trained(task, start, seed, monitor, fine, rl), monitor)
        for name, (monitor, fine) in ARMS.items()
    }
    late = exam.trained(task, models["free"], seed + 1, *ARMS["thought"], rl)
    note("late_thought", task, late)

    # Without a silent cheat among the demonstrations: monitors that begin after some steps without a fine.
    never = exam.Exam(silent=0.0)
    start = note("never", never, exam.base(never, seed, sft))
    for delay in delays:
        hacker = note(
            f"never_{delay}", never, exam.trained(never, start, seed, plan=brief(rl, delay)) if delay else start
        )
        for name in ("thought", "action"):
            monitor, fine = ARMS[name]
            watched = exam.trained(never, hacker, seed + 1, monitor, fine, rl)
            note(f"never_{delay}_{name}", never, watched, monitor)
            if not delay and name == "thought":
                note("never_longer", never, exam.trained(never, watched, seed + 2, monitor, fine, rl))
    return numbers


def probe() -> dict[str, float | str]:
    """Few steps, few games."""
    few = brief(exam.BASE, 20, demonstrations=600, batch_size=16)
    short = brief(exam.RL, 1, batch_size=4, num_generations=4)
    return one_seed(1, few, short, 20, (0, 1)) | settings(sft=exam.BASE, rl=exam.RL)


STUDY = Study(one_seed, probe, seeds=6)

if __name__ == "__main__":
    STUDY.main(__file__)
