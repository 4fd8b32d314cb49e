"""The graders of completions, for runs and saved models: a grader by name, your own function, or reward models."""

from __future__ import annotations

from pathlib import Path

import torch

from minirlhf.core.errors import UserError, unknown
from minirlhf.feedback import custom_rewards, graders
from minirlhf.feedback.graders.thoughts import THOUGHTS, ThoughtTags
from minirlhf.feedback.rewards import (
    COMBINATIONS,
    Part,
    Reward,
    WeightedReward,
    combined_reward,
    model_reward,
    reference_reward,
    reward_of_field,
)
from minirlhf.models.heads import RewardModel
from minirlhf.stages import named
from minirlhf_cli.files import start

#: In front of the name of a field that names the grader of each row.
BY_FIELD = "field:"


def grading(
    grader: str | None,
    reward_model: str | None,
    *,
    seconds: float,
    device: torch.device,
    reward_aggregation: str = "mean",
    thoughts: ThoughtTags = THOUGHTS,
    batch_size: int = 256,
) -> tuple[Reward, str]:
    """Return the reward function and a string that identifies it.

    It is a grader by name, a function in a file, or reward models by their folders, which read ``batch_size``
    completions at a time. A grader by name reads the answer after the thought between the tags ``thoughts``.

    Raises:
        UserError: neither or both of ``grader`` and ``reward_model`` are given, or the named one does not exist.
    """
    if (grader is None) == (reward_model is None):
        raise UserError(
            "give either --grader NAME, to compare with the references (or FILE.py:FUNCTION, to grade by your own), or "
            "--reward-model FOLDER",
            argument="--grader",
            expected=("--grader", "--reward-model"),
        )
    if reward_aggregation not in COMBINATIONS:
        raise unknown("reward_aggregation", reward_aggregation, COMBINATIONS)
    if reward_aggregation != "mean" and "," not in (reward_model or ""):
        raise UserError(
            f"reward_aggregation = {reward_aggregation!r} needs at least two reward models; expected --reward-model A,B",
            argument="reward_aggregation",
            value=reward_aggregation,
            expected="--reward-model",
        )
    if reward_model is not None:
        folders = [named.model_folder(Path(name)) for name in reward_model.split(",")]
        loaded = [RewardModel.load_with_tokenizer(folder) for folder in folders]
        rewards = [model_reward(model.to(device), tokenizer, batch_size=batch_size) for model, tokenizer in loaded]
        identity = " and ".join(f"reward model {start.model_digest(model)}" for model, _ in loaded)
        if len(rewards) == 1:
            return rewards[0], identity
        return combined_reward(rewards, COMBINATIONS[reward_aggregation]), f"{reward_aggregation} of {identity}"
    assert grader is not None
    if "+" not in grader and "*" not in grader:
        return _graded_by(grader, seconds, thoughts)
    named_parts = [(name, weight, *_graded_by(name, seconds, thoughts)) for name, weight in graders.terms(grader)]
    labels = [name.rpartition(":")[2] for name, *_ in named_parts]
    parts = tuple(
        Part(label if labels.count(label) == 1 else f"{Path(name.rpartition(':')[0]).stem}.{label}", reward, weight)
        for label, (name, weight, reward, _) in zip(labels, named_parts, strict=True)
    )
    if not custom_rewards.is_named(grader):
        return WeightedReward(parts), _identity(grader, thoughts)
    return WeightedReward(parts), "+".join(f"{identity}*{weight:g}" for _, weight, _, identity in named_parts)


def _graded_by(grader: str, seconds: float, thoughts: ThoughtTags) -> tuple[Reward, str]:
    """Return one grader as a reward, and a string that identifies it."""
    if custom_rewards.is_named(grader):
        file, function = custom_rewards.function(grader)
        name = getattr(function, "__name__", type(function).__name__)
        own = custom_rewards.custom_reward(grader, seconds=seconds)
        return own, f"{name} in a file with digest {start.file_digest(file)}"
    if grader.startswith(BY_FIELD):
        field = grader.removeprefix(BY_FIELD)
        reward = reward_of_field(field, lambda name: reference_reward(graders.get(name, thoughts), thoughts))
    else:
        reward = reference_reward(graders.get(grader, thoughts), thoughts)
    return reward, _identity(grader, thoughts)


def _identity(grader: str, thoughts: ThoughtTags) -> str:
    return grader if thoughts == THOUGHTS else f"{grader} after {' … '.join(thoughts)}"
