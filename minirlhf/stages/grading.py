"""What grades the replies of a run or of a saved model: a grader by name, your own function, or reward models."""

from __future__ import annotations

from pathlib import Path

import torch

from minirlhf.core.errors import UserError, unknown
from minirlhf.feedback import custom_rewards, graders
from minirlhf.feedback.rewards import COMBINATIONS, Reward, combined_reward, model_reward, reference_reward
from minirlhf.models.heads import RewardModel
from minirlhf.stages import named, start


def grading(
    grader: str | None, reward_model: str | None, *, seconds: float, device: torch.device, combine: str = "mean"
) -> tuple[Reward, str]:
    """What grades, by the name of a grader, a function in a file, or the folders of reward models; and what tells it from others.

    Raises:
        UserError: neither of the two or both, or one that is not there.
    """
    if (grader is None) == (reward_model is None):
        raise UserError(
            "give either --grader NAME, to compare with the references (or FILE.py:FUNCTION, to grade by your own), or "
            "--reward-model FOLDER",
            argument="--grader",
            expected=("--grader", "--reward-model"),
        )
    if combine not in COMBINATIONS:
        raise unknown("combine", combine, COMBINATIONS)
    if combine != "mean" and "," not in (reward_model or ""):
        raise UserError(
            f"combine = {combine!r} with less than two reward models; expected --reward-model A,B",
            argument="combine",
            value=combine,
            expected="--reward-model",
        )
    if reward_model is not None:
        folders = [named.model_folder(Path(name)) for name in reward_model.split(",")]
        loaded = [RewardModel.load_with_tokenizer(folder) for folder in folders]
        judges = [model_reward(model.to(device), tokenizer) for model, tokenizer in loaded]
        told = " and ".join(f"reward model {start.model_digest(model)}" for model, _ in loaded)
        if len(judges) == 1:
            return judges[0], told
        return combined_reward(judges, COMBINATIONS[combine]), f"{combine} of {told}"
    assert grader is not None
    if custom_rewards.is_named(grader):
        file, function = custom_rewards.function(grader)
        name = getattr(function, "__name__", type(function).__name__)
        return custom_rewards.custom_reward(
            grader, seconds=seconds
        ), f"{name} in a file with digest {start.file_digest(file)}"
    return reference_reward(graders.get(grader)), grader
