"""Rejection sampling and GRPO on the shell game, with the same initial model and number of sampled tokens."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

from minirlhf.data import tasks
from minirlhf.data.formats import Problem
from minirlhf.feedback.rewards import task_problems, task_reward
from minirlhf.recipes import GRPO, Recipe
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.config import OnlineConfig, RejectionConfig
from minirlhf.trainers.history import History
from minirlhf.trainers.online import train_online
from minirlhf.trainers.rejection import train_rejection

#: A rollout of either method has sixteen games with eight completions each. Rejection sampling takes eight steps on the
#: sixteen completions that it selects.
REJECTION = RejectionConfig(
    max_steps=112, steps_per_round=8, num_prompts=16, num_generations=8, batch_size=16, max_completion_length=16
)
ONLINE = OnlineConfig(max_steps=20, batch_size=16, num_generations=8, max_completion_length=16)
#: GRPO with one update per rollout, as in the paper, and with eight, the number of steps of rejection sampling.
UPDATES: dict[str, Recipe] = {
    "grpo": GRPO.with_(num_iterations=1, num_minibatches=1),
    "grpo_eight": GRPO.with_(num_iterations=8, num_minibatches=1),
}


def thinks(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
    """Return 1 for each completion that begins with a chain of thought, else 0. It is monitored, never rewarded."""
    return [float(text.startswith("think")) for text in completions]


def by_rejection(begin: Trained, config: RejectionConfig) -> History:
    """Train a copy of ``begin`` by rejection sampling; return the history of its rollouts."""
    task, model = tasks.get("shell_game"), copy.deepcopy(begin.model)
    history = train_rejection(
        model, task_problems(task, "train"), task_reward(task), config, tokenizer=begin.tokenizer,
        monitors={"thinks": thinks}, quiet=True,
    )  # fmt: skip
    return History(rows=[row for row in history if "reward" in row])


def by_grpo(begin: Trained, recipe: Recipe, config: OnlineConfig) -> History:
    """Train a copy of ``begin`` by a recipe; return the history of its rollouts."""
    task, model = tasks.get("shell_game"), copy.deepcopy(begin.model)
    return train_online(
        model, task_problems(task, "train"), task_reward(task), recipe, config, tokenizer=begin.tokenizer,
        monitors={"thinks": thinks}, quiet=True,
    )  # fmt: skip


def at(history: History, budgets: Sequence[int], key: str) -> list[float]:
    """Return, for each budget, a metric of the rollout in which the run reaches it; NaN if it never does."""
    sampled, values, remaining = 0.0, [], list(budgets)
    for row in history:
        sampled += row["sampled_tokens"]
        while remaining and sampled >= remaining[0]:
            values.append(row[key])
            del remaining[0]
    return values + [float("nan")] * len(remaining)


def runs(
    begin: Trained, seed: int, rates: dict[str, float], rejection: RejectionConfig = REJECTION,
    online: OnlineConfig = ONLINE,
) -> dict[str, History]:  # fmt: skip
    """Train by every method with one seed, each at its own learning rate."""
    return {"raft": by_rejection(begin, replace(rejection, learning_rate=rates["raft"], seed=seed))} | {
        name: by_grpo(begin, recipe, replace(online, learning_rate=rates[name], seed=seed))
        for name, recipe in UPDATES.items()
    }
