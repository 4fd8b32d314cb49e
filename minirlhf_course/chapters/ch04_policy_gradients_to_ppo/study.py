"""CartPole with five seeds: ``python -m minirlhf_course.chapters.ch04_policy_gradients_to_ppo.study`` (about fifteen minutes).

Seven methods of chapter 04 at 100,000 steps each, PPO with value clipping, and the mistakes of its gallery. Settings were chosen on
seeds 0 to 4; the study uses other seeds. Writes ``study.json``.
"""

import time
from dataclasses import replace

from minirlhf.control.policy_optimisation import ControlConfig
from minirlhf_course.chapters.ch04_policy_gradients_to_ppo import poles
from minirlhf_course.evidence import Study, settings


def one_seed(seed: int) -> dict[str, float]:
    """Every run of the chapter with one seed."""
    numbers: dict[str, float] = {}
    for name, train in poles.RUNS.items():
        began = time.process_time()
        run = train(seed)
        numbers[f"{name}_seconds"] = time.process_time() - began
        numbers[f"{name}_score"] = poles.score(run)
        numbers[f"{name}_kl"] = sum(run.kls) / len(run.kls)
        numbers[f"{name}_value"] = poles.balanced_value(run)
        numbers |= {f"{name}_{i:02}": mean for i, mean in enumerate(poles.curve(run))}
        if run.betas:
            numbers[f"{name}_last_beta"] = run.betas[-1]
    return numbers


def probe() -> dict[str, float | str]:
    """Two rollouts of every method: how far the policy moves, and what the critic then says; how the last is scored."""
    numbers: dict[str, float | str] = dict(
        settings(**poles.RUNS, default=ControlConfig(), short=poles.SHORT, episodes=poles.EPISODES)
    )
    for name, train in poles.RUNS.items():
        run = train(10, total_steps=1024, num_envs=4)
        numbers |= {f"{name}_kl_{i}": kl for i, kl in enumerate(run.kls[:2])}
        numbers[f"{name}_value"] = poles.balanced_value(run)
    numbers["last_score"] = poles.score(run)
    in_view = replace(run, steps=[1, *run.steps[1:]])  # so short a run has no episode in its first twentieth
    return numbers | {f"last_{i:02}": mean for i, mean in enumerate(poles.curve(in_view))}


STUDY = Study(one_seed, probe, first_seed=10)

if __name__ == "__main__":
    STUDY.main(__file__)
