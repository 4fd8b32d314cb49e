"""The shell game with rewards for the right answer, for the format alone, at random, or for agreement with the group;
and the fall of its entropy."""

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
from minirlhf.equations.reasoning import compute_curve
from minirlhf.feedback.rewards import Reward, task_reward
from minirlhf.recipes import DR_GRPO, Recipe
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import SHELL_GAME_RL, RLPlan, Trained
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.history import History
from minirlhf_course.chapters.ch16_reasoning.equations import majority_reward

WORLD = tasks.get("shell_game")
TRAINING: OnlineConfig = SHELL_GAME_RL.training


def answer(completion: str) -> int | None:
    """Return the number of the cup that a completion names after ``answer`` at its end; None without one."""
    words = completion.split()[-2:]
    return CUPS.index(words[1]) if len(words) == 2 and words[0] == "answer" and words[1] in CUPS else None


def thinks(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
    """Return 1 for each completion that begins with ``think``: a metric to monitor."""
    return [float(text.startswith("think")) for text in completions]


def shape_of_thought(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
    """Return 1 for ``think`` at the beginning and any answer at the end; whether the answer follows from the chain is
    not checked."""
    return [float(text.startswith("think") and answer(text) is not None) for text in completions]


def coin(seed: int) -> Reward:
    """Return a reward that is 0 or 1 at random, for any completion."""
    rng = numpy_generator("coin", seed)
    return lambda problems, completions: rng.integers(0, 2, size=len(completions)).astype(float).tolist()


def with_the_majority(group: int) -> Reward:
    """Return a reward of 1 for the most common answer of a group; a completion without an answer agrees with none."""

    def reward(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
        cups = [answer(text) for text in completions]
        answers = torch.tensor([len(CUPS) + i if cup is None else cup for i, cup in enumerate(cups)])
        agrees = majority_reward(answers.view(-1, group)).flatten()
        return (agrees * torch.tensor([float(cup is not None) for cup in cups])).tolist()

    return reward


#: Eight updates on every rollout, so that the clip has an effect; ``coin_free`` has no clip.
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
    """Return the reward of a run of :data:`RUNS`."""
    if name == "shape":
        return shape_of_thought
    if name == "majority":
        return with_the_majority(training.num_generations)
    return coin(seed) if name.startswith("coin") else task_reward(WORLD)


def train(name: str, begin: Trained, seed: int, training: OnlineConfig = TRAINING) -> History:
    """Train one run from a copy of ``begin``; ``right`` and ``thinks`` are monitored in every rollout."""
    plan = RLPlan(RUNS[name], replace(training, seed=seed))
    monitors = {"right": task_reward(WORLD), "thinks": thinks}
    return pipeline.rl(
        WORLD, begin, plan, reward=reward_of(name, seed, training), monitors=monitors, quiet=True
    ).history


def at(history: History, key: str, step: int, window: int) -> float:
    """Return the mean of a metric over the ``window`` rollouts before ``step``."""
    return float(np.mean(history[key][max(0, step - window) : step]))


CEILINGS, EXPONENTS = np.linspace(0.05, 1.0, 96), np.geomspace(0.5, 16.0, 31)


def fit_curve(rewards: Sequence[float], steps: int, ceilings: np.ndarray = CEILINGS) -> dict[str, float]:
    """Return the sigmoid, :func:`~minirlhf.equations.reasoning.compute_curve`, with the least squared error on the
    first ``steps`` rollouts.

    Compute is counted in rollouts from 1; the start is the mean of the first three. The search tries every combination
    of a ceiling (by default from .05 to 1), an exponent from ½ to 16 and a midpoint of up to four times the length of
    the run.
    """
    observed = torch.tensor(rewards[:steps], dtype=torch.float64)
    start, compute = float(observed[:3].mean()), torch.arange(1, steps + 1, dtype=torch.float64)
    best: tuple[float, dict[str, float]] | None = None
    for midpoint in np.geomspace(2.0, 4.0 * len(rewards), 40).tolist():
        for exponent in EXPONENTS.tolist():
            rise = compute_curve(compute, start=0.0, ceiling=1.0, exponent=exponent, midpoint=midpoint)
            gain = torch.from_numpy(ceilings)[:, None] - start
            errors = ((start + gain * rise - observed) ** 2).sum(-1)
            k = int(errors.argmin())
            if best is None or float(errors[k]) < best[0]:
                best = float(errors[k]), {
                    "start": start, "ceiling": float(ceilings[k]), "exponent": exponent, "midpoint": midpoint,
                }  # fmt: skip
    assert best is not None
    return best[1]
