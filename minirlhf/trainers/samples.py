"""A few samples of each step, token by token: their rewards, and the gradient of the step on every token."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from minirlhf.core.errors import UserError
from minirlhf.core.folders import write_text_atomic
from minirlhf.recipes.parts import NO_KL, ScoredRollout
from minirlhf.recipes.recipe import Recipe
from minirlhf.trainers.policy_update import TokenGradientRecord


@dataclass(frozen=True)
class Sample:
    """One completion of a step. The lists hold one entry per sampled token.

    Attributes:
        prompt, completion: as text, special tokens included.
        reward: after shaping; 0 if the completion could not be graded.
        valid: whether the completion could be graded and the recipe kept it.
        terminated: whether the completion ended with EOS.
        tokens: the text of each token.
        rewards: the reward on the last token, less each token's KL penalty if the recipe puts the KL in the reward.
        old_logps: log-probabilities at sampling time.
        logps: log-probabilities before the last update of the step; ``exp(logps − old_logps)`` is the ratio.
        values: the critic's value before each token, or None.
        advantages: the advantages that enter the objective.
        clipped: True where the objective is flat although the advantage is not 0: the token gets no gradient from it.
        weights: weights of the aggregation.
        shares: each token's share of the gradient of the last iteration, ``|weight · slope|`` divided by its sum; a KL
            term in the loss is not included.
    """

    prompt: str
    completion: str
    reward: float
    valid: bool
    terminated: bool
    tokens: list[str]
    rewards: list[float]
    old_logps: list[float]
    logps: list[float]
    values: list[float] | None
    advantages: list[float]
    clipped: list[bool]
    weights: list[float]
    shares: list[float]


@dataclass(frozen=True)
class StepSamples:
    """The samples kept from one step, with the recipe's name and the size of the whole batch."""

    step: int
    recipe: str
    batch: int
    num_generations: int
    samples: list[Sample]


def record(
    graded: ScoredRollout,
    recipe: Recipe,
    gradients: Sequence[TokenGradientRecord],
    tokenizer: Any,
    *,
    step: int,
    count: int,
) -> StepSamples:
    """Return the first ``count`` samples of a rollout after its update.

    Args:
        graded: the rollout with shaped rewards.
        gradients: the records of the last iteration; empty if only the critic was updated.
    """
    rollout = graded.rollout
    mask = rollout.mask
    logps, grads, weights = (_in_order(gradients, name, mask) for name in ("logps", "slopes", "weights"))
    advantages = recipe.advantages(graded)
    token_grads = (weights * grads).abs()
    per_token = {
        "rewards": (recipe.update.kl or NO_KL).token_rewards(graded),
        "old_logps": rollout.old_logps,
        "logps": logps if gradients else rollout.old_logps,
        "advantages": advantages,
        "weights": weights,
        "shares": token_grads / token_grads.sum().clamp(min=torch.finfo(token_grads.dtype).tiny),
    }
    if graded.values is not None:
        per_token["values"] = graded.values
    clipped = (grads == 0) & (advantages != 0) & bool(gradients)
    samples = []
    for row in range(min(count, len(rollout))):
        row_mask, prompt_mask = mask[row], rollout.attention_mask[row, : rollout.prompt_width].bool()
        ids = rollout.completion_ids[row][row_mask].tolist()
        lists: dict[str, list[float]] = {
            name: [round(value, 7) for value in values[row][row_mask].tolist()] for name, values in per_token.items()
        }
        samples.append(
            Sample(
                prompt=tokenizer.decode(rollout.input_ids[row, : rollout.prompt_width][prompt_mask].tolist()),
                completion=tokenizer.decode(ids),
                reward=float(graded.rewards.flatten()[row]),
                valid=bool(graded.valid.flatten()[row]),
                terminated=bool(rollout.terminated[row]),
                tokens=[tokenizer.decode([token]) for token in ids],
                clipped=clipped[row][row_mask].tolist(),
                values=lists.pop("values", None),
                **lists,
            )
        )
    return StepSamples(step, recipe.name, len(rollout), rollout.num_generations, samples)


def _in_order(gradients: Sequence[TokenGradientRecord], name: str, mask: Tensor) -> Tensor:
    """Return a field of the records, ``(B, T)``, in the order of the rollout; zeros for rows without a record."""
    gathered = torch.zeros(mask.shape, dtype=torch.float64)
    for part in gradients:
        gathered[part.rows] = getattr(part, name).double().cpu()
    return gathered


def file_of(run: Path | str, step: int) -> Path:
    """Return the path of the samples of a step."""
    return Path(run, "samples", f"step-{step:06d}.json")


def write(run: Path | str, kept: StepSamples) -> None:
    """Write the samples of a step; a resumed run writes the same file again."""
    write_text_atomic(file_of(run, kept.step), json.dumps(asdict(kept)) + "\n")


def steps(run: Path | str) -> list[int]:
    """Return the steps whose samples a run has kept."""
    return sorted(int(path.stem.removeprefix("step-")) for path in file_of(run, 0).parent.glob("step-*.json"))


def read(run: Path | str, step: int | None = None) -> StepSamples:
    """Return the samples of a step, or of the last step that has samples.

    Raises:
        UserError: the run does not exist, kept no samples, or kept none of this step.
    """
    recorded = steps(run)
    if not recorded:
        raise UserError(
            f"{run}: contains no samples; expected the folder of an online run whose num_logged_samples is not 0",
            argument="num_logged_samples",
            problem="missing",
            file=run,
        )
    step = recorded[-1] if step is None else step
    if step not in recorded:
        raise UserError(
            f"{run}: no samples of step {step}; expected one of the recorded steps, {recorded[0]} to {recorded[-1]}",
            argument="step",
            value=step,
            expected=(recorded[0], recorded[-1]),
            file=run,
        )
    path = file_of(run, step)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return StepSamples(**{**data, "samples": [Sample(**sample) for sample in data["samples"]]})
    except (ValueError, TypeError, KeyError) as problem:
        raise UserError(f"{path}: unreadable ({problem})", problem="unreadable", file=path) from None
