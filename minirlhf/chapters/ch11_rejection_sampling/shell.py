"""Rejection sampling and GRPO on the shell game, from the same start and the same number of sampled tokens."""

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

#: A rollout of either: sixteen games, eight replies to each. Rejection sampling takes eight steps on the sixteen that it keeps.
REJECTION = RejectionConfig(
    max_steps=112, steps_per_round=8, num_prompts=16, num_generations=8, batch_size=16, max_completion_length=16
)
ONLINE = OnlineConfig(max_steps=20, batch_size=16, num_generations=8, max_completion_length=16)
#: One update on a rollout, as in the paper, and eight, as many as rejection sampling takes.
UPDATES: dict[str, Recipe] = {
    "grpo": GRPO.with_(num_iterations=1, num_minibatches=1),
    "grpo_eight": GRPO.with_(num_iterations=8, num_minibatches=1),
}


def thinks(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
    """1 for each completion that begins with a chain of thought. Watched, never rewarded."""
    return [float(text.startswith("think")) for text in completions]


def by_rejection(begin: Trained, config: RejectionConfig) -> History:
    """The rollouts of a copy of ``begin`` that imitates its best replies."""
    world, model = tasks.get("shell_game"), copy.deepcopy(begin.model)
    history = train_rejection(
        model, task_problems(world, "train"), task_reward(world), config, tokenizer=begin.tokenizer,
        monitors={"thinks": thinks}, quiet=True,
    )  # fmt: skip
    return History(rows=[row for row in history if "reward" in row])


def by_grpo(begin: Trained, recipe: Recipe, config: OnlineConfig) -> History:
    """The rollouts of a copy of ``begin`` that learns by a recipe."""
    world, model = tasks.get("shell_game"), copy.deepcopy(begin.model)
    return train_online(
        model, task_problems(world, "train"), task_reward(world), recipe, config, tokenizer=begin.tokenizer,
        monitors={"thinks": thinks}, quiet=True,
    )  # fmt: skip


def at(history: History, budgets: Sequence[int], key: str) -> list[float]:
    """A metric of the rollout in which a run samples its ``budget``-th token; NaN if it never does."""
    sampled, found, wanted = 0.0, [], list(budgets)
    for row in history:
        sampled += row["sampled_tokens"]
        while wanted and sampled >= wanted[0]:
            found.append(row[key])
            del wanted[0]
    return found + [float("nan")] * len(wanted)


def runs(
    begin: Trained, seed: int, rates: dict[str, float], rejection: RejectionConfig = REJECTION,
    online: OnlineConfig = ONLINE,
) -> dict[str, History]:  # fmt: skip
    """Every run with one seed, each at its learning rate."""
    return {"raft": by_rejection(begin, replace(rejection, learning_rate=rates["raft"], seed=seed))} | {
        name: by_grpo(begin, recipe, replace(online, learning_rate=rates[name], seed=seed))
        for name, recipe in UPDATES.items()
    }
