"""The shell game with rewards that know the answer, only the form, nothing at all, or only what the group says; and how its entropy falls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from minirlhf.core.randomness import numpy_generator
from minirlhf.data import tasks
from minirlhf.data.formats import Problem
from minirlhf.data.tasks.shell_game import CUPS
from minirlhf.equations.policy_losses import importance_weighted
from minirlhf.equations.reasoning import compute_curve, majority_reward
from minirlhf.feedback.rewards import Reward, task_reward
from minirlhf.recipes import DR_GRPO, Recipe
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import SHELL_GAME_RL, RLPlan, Trained
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.history import History

WORLD = tasks.get("shell_game")
TRAINING: OnlineConfig = SHELL_GAME_RL.training


def answer(completion: str) -> int | None:
    """The number of the cup that a completion names after ``answer`` at its end; None without one."""
    said = completion.split()[-2:]
    return CUPS.index(said[1]) if len(said) == 2 and said[0] == "answer" and said[1] in CUPS else None


def thinks(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
    """1 for each completion that begins with ``think``. Watched, and by one run rewarded."""
    return [float(text.startswith("think")) for text in completions]


def shape_of_thought(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
    """1 for ``think`` at the beginning and any answer at the end: whether one follows from the other is not asked."""
    return [float(text.startswith("think") and answer(text) is not None) for text in completions]


def coin(seed: int) -> Reward:
    """0 or 1, whatever is said."""
    rng = numpy_generator("coin", seed)
    return lambda problems, completions: rng.integers(0, 2, size=len(completions)).astype(float).tolist()


def with_the_majority(group: int) -> Reward:
    """1 for the answer that most of a group give; a completion without an answer agrees with nobody."""

    def reward(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
        said = [answer(text) for text in completions]
        numbers = torch.tensor([len(CUPS) + i if cup is None else cup for i, cup in enumerate(said)])
        agrees = majority_reward(numbers.view(-1, group)).flatten()
        return (agrees * torch.tensor([float(cup is not None) for cup in said])).tolist()

    return reward


#: Eight updates on every rollout, so that there is something to clip; and the same without a clip.
CLIPPED = DR_GRPO.with_(num_iterations=2, num_minibatches=4)
RUNS: dict[str, Recipe] = {
    "right": DR_GRPO,
    "bonus": DR_GRPO.with_(entropy_coef=0.02),
    "uncertain": DR_GRPO.with_(top_entropy_quantile=0.2),
    "shape": DR_GRPO,
    "majority": DR_GRPO,
    "coin": CLIPPED,
    "coin_free": CLIPPED.with_(objective=importance_weighted),
}


def reward_of(name: str, seed: int, training: OnlineConfig) -> Reward:
    """What a run of :data:`RUNS` is paid for."""
    if name == "shape":
        return shape_of_thought
    if name == "majority":
        return with_the_majority(training.num_generations)
    return coin(seed) if name.startswith("coin") else task_reward(WORLD)


def train(name: str, begin: Trained, seed: int, training: OnlineConfig = TRAINING) -> History:
    """One run from a copy of ``begin``; ``right`` and ``thinks`` are watched in every rollout."""
    plan = RLPlan(RUNS[name], replace(training, seed=seed))
    monitors = {"right": task_reward(WORLD), "thinks": thinks}
    return pipeline.rl(
        WORLD, begin, plan, reward=reward_of(name, seed, training), monitors=monitors, quiet=True
    ).history


def at(history: History, key: str, step: int, window: int) -> float:
    """The mean of a metric over the ``window`` rollouts before ``step``."""
    return float(np.mean(history[key][max(0, step - window) : step]))


CEILINGS, EXPONENTS = np.linspace(0.05, 1.0, 96), np.geomspace(0.5, 16.0, 31)


def fit_curve(rewards: Sequence[float], steps: int, ceilings: np.ndarray = CEILINGS) -> dict[str, float]:
    """The sigmoid, :func:`~minirlhf.equations.reasoning.compute_curve`, that has the least squared error on the first ``steps`` rollouts.

    Compute is counted in rollouts from 1; the start is the mean of the first three. Every combination of a ceiling, from .05 to 1 unless others are given, an exponent
    from ½ to 16 and a midpoint up to four times the length of the run is tried.
    """
    seen = torch.tensor(rewards[:steps], dtype=torch.float64)
    start, compute = float(seen[:3].mean()), torch.arange(1, steps + 1, dtype=torch.float64)
    best: tuple[float, dict[str, float]] | None = None
    for midpoint in np.geomspace(2.0, 4.0 * len(rewards), 40).tolist():
        for exponent in EXPONENTS.tolist():
            rise = compute_curve(compute, start=0.0, ceiling=1.0, exponent=exponent, midpoint=midpoint)
            gain = torch.from_numpy(ceilings)[:, None] - start
            errors = ((start + gain * rise - seen) ** 2).sum(-1)
            k = int(errors.argmin())
            if best is None or float(errors[k]) < best[0]:
                best = float(errors[k]), {
                    "start": start, "ceiling": float(ceilings[k]), "exponent": exponent, "midpoint": midpoint,
                }  # fmt: skip
    assert best is not None
    return best[1]
