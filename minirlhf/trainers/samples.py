"""A few samples of each step, token by token: what they earned, and how hard the step pushed on every token."""

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
        reward: after shaping; 0 if it could not be graded.
        valid: whether it could be graded and the recipe retained it.
        terminated: whether it ended by itself.
        tokens: their text.
        rewards: the reward on the last token, less the KL charge of each if the recipe has one in the reward.
        old_logps: log-probabilities when it was sampled.
        logps: before the last update of the step; ``exp(logps − old_logps)`` is the ratio.
        values: what the critic expected before each token, or None.
        advantages: as the objective got them.
        clipped: True where the objective is flat although the advantage is not 0: the token is not pushed.
        weights: of the aggregation.
        shares: share of the token in the whole push of the last pass, ``|weight · slope|`` over its sum; a KL term in the loss
            is not part of it.
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
    """The samples kept of one step, with the recipe's name and the size of the whole batch."""

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
    """The first ``count`` samples of a rollout that was just learned from.

    Args:
        graded: with shaped rewards.
        gradients: what the last pass saw; empty while only the critic learned, and nothing was pushed.
    """
    rollout = graded.rollout
    mask = rollout.mask
    logps, slopes, weights = (_in_order(gradients, name, mask) for name in ("logps", "slopes", "weights"))
    advantages = recipe.advantages(graded)
    push = (weights * slopes).abs()
    per_token = {
        "rewards": (recipe.update.kl or NO_KL).token_rewards(graded),
        "old_logps": rollout.old_logps,
        "logps": logps if gradients else rollout.old_logps,
        "advantages": advantages,
        "weights": weights,
        "shares": push / push.sum().clamp(min=torch.finfo(push.dtype).tiny),
    }
    if graded.values is not None:
        per_token["values"] = graded.values
    clipped = (slopes == 0) & (advantages != 0) & bool(gradients)
    kept = []
    for row in range(min(count, len(rollout))):
        inside, before = mask[row], rollout.attention_mask[row, : rollout.prompt_width].bool()
        ids = rollout.completion_ids[row][inside].tolist()
        lists: dict[str, list[float]] = {
            name: [round(v, 7) for v in x[row][inside].tolist()] for name, x in per_token.items()
        }
        kept.append(
            Sample(
                prompt=tokenizer.decode(rollout.input_ids[row, : rollout.prompt_width][before].tolist()),
                completion=tokenizer.decode(ids),
                reward=float(graded.rewards.flatten()[row]),
                valid=bool(graded.valid.flatten()[row]),
                terminated=bool(rollout.terminated[row]),
                tokens=[tokenizer.decode([token]) for token in ids],
                clipped=clipped[row][inside].tolist(),
                values=lists.pop("values", None),
                **lists,
            )
        )
    return StepSamples(step, recipe.name, len(rollout), rollout.num_generations, kept)


def _in_order(gradients: Sequence[TokenGradientRecord], name: str, mask: Tensor) -> Tensor:
    """One tensor of the gradients, ``(B, T)``, in the order of the rollout; zeros where there was none."""
    whole = torch.zeros(mask.shape, dtype=torch.float64)
    for part in gradients:
        whole[part.rows] = getattr(part, name).double().cpu()
    return whole


def file_of(run: Path | str, step: int) -> Path:
    """Where a run keeps the samples of a step."""
    return Path(run, "samples", f"step-{step:06d}.json")


def write(run: Path | str, kept: StepSamples) -> None:
    """Write the samples of a step; a resumed run writes the same file again."""
    write_text_atomic(file_of(run, kept.step), json.dumps(asdict(kept)) + "\n")


def steps(run: Path | str) -> list[int]:
    """The steps of which a run has kept samples."""
    return sorted(int(path.stem.removeprefix("step-")) for path in file_of(run, 0).parent.glob("step-*.json"))


def read(run: Path | str, step: int | None = None) -> StepSamples:
    """The samples of a step, or of the last that has some.

    Raises:
        UserError: no such run, none kept, or none of this step.
    """
    known = steps(run)
    if not known:
        raise UserError(
            f"{run}: no samples kept there; expected the folder of an online run (its setting keep_samples must not be 0)",
            argument="keep_samples",
            problem="missing",
            file=run,
        )
    step = known[-1] if step is None else step
    if step not in known:
        raise UserError(
            f"{run}: no samples of step {step}; it has those of the steps {known[0]} to {known[-1]}",
            argument="step",
            value=step,
            expected=(known[0], known[-1]),
            file=run,
        )
    path = file_of(run, step)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return StepSamples(**{**found, "samples": [Sample(**sample) for sample in found["samples"]]})
    except (ValueError, TypeError, KeyError) as problem:
        raise UserError(f"{path}: unreadable ({problem})", problem="unreadable", file=path) from None
