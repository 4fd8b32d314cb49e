"""Reward per sampled token, rejection sampling beside GRPO: ``python -m minirlhf_course.chapters.ch11_rejection_sampling.study_shell`` (about five minutes).

The shell game of chapter 13, ten seeds, each with a fresh policy from supervised fine-tuning. Rejection sampling keeps the best of each eight and
takes eight steps on what was kept; GRPO takes one update on every rollout, or eight. ``study_shell_tuning`` chose the learning rate of each method on
other seeds. Writes ``study_shell.json``.
"""

from dataclasses import replace

from minirlhf.data import tasks
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import SHELL_GAME_SFT
from minirlhf.trainers.config import OnlineConfig, RejectionConfig
from minirlhf_course.chapters.ch11_rejection_sampling.shell import ONLINE, REJECTION, UPDATES, at, runs
from minirlhf_course.evidence import Study, brief, initial_models, settings, trace

BUDGETS = (4_000, 8_000, 12_000)  # sampled tokens at which runs are compared
RATES = {"raft": 1e-3, "grpo": 1e-3, "grpo_eight": 3e-4}
KEYS = ("reward", "thinks", "neg_logp")


def one_seed(
    seed: int, begin: pipeline.Trained | None = None, rejection: RejectionConfig = REJECTION,
    online: OnlineConfig = ONLINE, budgets: tuple[int, ...] = BUDGETS,
) -> dict[str, float]:  # fmt: skip
    """Every run with one seed, looked at after so many sampled tokens."""
    if begin is None:
        plan = pipeline.with_seed(SHELL_GAME_SFT, seed)
        begin = pipeline.sft_from_scratch(tasks.get("shell_game"), plan, quiet=True)
    return {
        f"{name}_{key}_{budget}": value
        for name, history in runs(begin, seed, RATES, rejection, online).items()
        for key in KEYS
        for budget, value in zip(budgets, at(history, budgets, key), strict=True)
    }


def probe() -> dict[str, float | str]:
    """Two rollouts of each, from a brief start."""
    begin, numbers = initial_models.shell_game()
    plan = brief(SHELL_GAME_SFT, demonstrations=128)
    fresh = pipeline.sft_from_scratch(tasks.get("shell_game"), pipeline.with_seed(plan, 1), quiet=True)
    numbers |= trace("fresh", fresh.history)
    few = replace(REJECTION, max_steps=4, steps_per_round=2, num_prompts=4, num_generations=4, batch_size=4)
    numbers |= one_seed(1, begin, few, replace(ONLINE, max_steps=2, batch_size=4, num_generations=4), (1, 40))
    return numbers | settings(rejection=REJECTION, online=ONLINE, **UPDATES)


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
