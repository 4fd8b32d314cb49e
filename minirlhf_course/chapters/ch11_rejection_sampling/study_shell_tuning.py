"""Learning rates for ``study_shell``: ``python -m minirlhf_course.chapters.ch11_rejection_sampling.study_shell_tuning`` (about five minutes).

Each method of the shell game at three learning rates, on two seeds that ``study_shell`` does not use. It takes for each method the rate with
the highest mean of the measured rewards. Writes ``study_shell_tuning.json``.
"""

import math

from minirlhf.data import tasks
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import SHELL_GAME_SFT
from minirlhf.trainers.config import OnlineConfig, RejectionConfig
from minirlhf_course.chapters.ch11_rejection_sampling import study_shell
from minirlhf_course.chapters.ch11_rejection_sampling.shell import ONLINE, REJECTION, UPDATES, at, runs
from minirlhf_course.evidence import Study, brief, settings, trace

#: The first rate of each method, then the second, then the third.
GRID = {
    "low": {"raft": 3e-4, "grpo": 3e-4, "grpo_eight": 1e-4},
    "middle": {"raft": 1e-3, "grpo": 1e-3, "grpo_eight": 3e-4},
    "high": {"raft": 3e-3, "grpo": 3e-3, "grpo_eight": 1e-3},
}


def one_seed(
    seed: int, begin: pipeline.Trained | None = None, rejection: RejectionConfig = REJECTION,
    online: OnlineConfig = ONLINE, budgets: tuple[int, ...] = study_shell.BUDGETS,
) -> dict[str, float]:  # fmt: skip
    """Return the reward of every method at every rate, and its mean over the numbers of sampled tokens."""
    if begin is None:
        plan = pipeline.with_seed(SHELL_GAME_SFT, seed)
        begin = pipeline.sft_from_scratch(tasks.get("shell_game"), plan, quiet=True)
    measured: dict[str, float] = {}
    for level, rates in GRID.items():
        for name, history in runs(begin, seed, rates, rejection, online).items():
            reached = at(history, budgets, "reward")
            rewards = [
                history.rows[-1]["reward"] if math.isnan(x) else x for x in reached
            ]  # its completions became too short
            measured |= {f"{name}_{level}_{budget}": x for budget, x in zip(budgets, rewards, strict=True)}
            measured[f"{name}_{level}"] = sum(rewards) / len(rewards)
    return measured


def probe() -> dict[str, float | str]:
    """Run two rollouts of each, from a brief initial model."""
    begin = pipeline.sft_from_scratch(
        tasks.get("shell_game"), pipeline.with_seed(brief(SHELL_GAME_SFT, demonstrations=128), 1), quiet=True
    )
    numbers = trace("begin", begin.history)
    few = RejectionConfig(**vars(REJECTION) | {"max_steps": 4, "steps_per_round": 2, "num_prompts": 4, "batch_size": 4})
    numbers |= one_seed(1, begin, few, OnlineConfig(**vars(ONLINE) | {"max_steps": 2, "batch_size": 4}), (1, 40))
    return numbers | settings(rejection=REJECTION, online=ONLINE, **UPDATES)


STUDY = Study(one_seed, probe, seeds=2, first_seed=100)

if __name__ == "__main__":
    STUDY.main(__file__)
