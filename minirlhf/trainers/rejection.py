"""Rejection sampling (RAFT, expert iteration): sample, grade, imitate the best; repeat with the updated model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from minirlhf.core.errors import UserError
from minirlhf.core.randomness import derive_seed, numpy_generator
from minirlhf.data.chat import end_tokens
from minirlhf.data.collate import batch_indices
from minirlhf.data.formats import Problem
from minirlhf.data.types import CompletionBatch
from minirlhf.equations.aggregation import token_mean
from minirlhf.equations.selection import select_top_per_prompt, top_overall
from minirlhf.feedback.rewards import Reward
from minirlhf.recipes.parts import ScoredRollout
from minirlhf.trainers.config import SELECTIONS, RejectionConfig
from minirlhf.trainers.history import History
from minirlhf.trainers.likelihood import nll_losses
from minirlhf.trainers.loop import RunProvenance, TrainerCallback, TrainingLoop
from minirlhf.trainers.online import PromptDataset, compute_metrics
from minirlhf.trainers.rollouts import RolloutEnv


def train_rejection(
    model: nn.Module,
    problems: Sequence[Problem],
    reward: Reward,
    config: RejectionConfig,
    *,
    tokenizer: Any,
    monitors: Mapping[str, Reward] | None = None,
    **run: Any,
) -> History:
    """Train ``model`` in place to imitate its own best completions.

    Args:
        run: the other arguments of :func:`train_rejection_in_env`; all others as for
            :func:`~minirlhf.trainers.online.train_online`.
    """
    env = PromptDataset(
        problems, reward, tokenizer, monitors or {}, config.max_invalid_fraction, end_tokens(tokenizer, model)
    )
    return train_rejection_in_env(model, env, config.for_examples(len(problems)), **run)


def train_rejection_in_env(
    model: nn.Module,
    world: RolloutEnv,
    config: RejectionConfig,
    *,
    out: Path | str | None = None,
    resume: bool = False,
    origin: RunProvenance | None = None,
    watch: TrainerCallback | None = None,
    name: str = "rejection",
    quiet: bool = False,
) -> History:
    """Train in rounds of ``config.steps_per_round`` optimizer steps on the completions kept at the start of the round.

    The model is never reset: each round continues from the model of the previous round. A truncated completion is
    imitated as far as it goes. Arguments as for :class:`~minirlhf.trainers.loop.TrainingLoop`.

    Returns:
        The metrics, named as in the glossary. Metrics of samples are logged in the first step of each round.
    """
    loop = TrainingLoop(
        name, model, config, dropout=not config.disable_dropout, out=out, tokenizer=world.tokenizer, resume=resume,
        origin=origin, watch=watch, quiet=quiet,
    )  # fmt: skip
    device = next(model.parameters()).device
    for step in loop:
        metrics: dict[str, float] = {}
        round_index, round_step = divmod(step, config.steps_per_round)
        if round_step == 0:
            indices = world.sample_prompts(config.num_prompts, round_index, config.seed)
            graded = world.generate_and_score(model, config, indices, step=round_index, seed=config.seed, version=step)
            rows = select_best(graded, config, derive_seed("kept", config.seed, round_index))
            metrics = compute_metrics(graded, graded, None)
            metrics["reward_kept"] = float(graded.rewards.flatten()[rows].mean())
            metrics["prompts_kept"] = len((rows // config.num_generations).unique())
            selected = graded.rollout.select(rows)
            loop.memory = {key: getattr(selected, key) for key in ("input_ids", "attention_mask", "mask")}
        batch_rows = batch_indices(
            len(loop.memory["mask"]), config.batch_size, round_step, derive_seed("order", config.seed, round_index)
        )
        batch = CompletionBatch(**loop.memory).select(torch.from_numpy(batch_rows)).to(device)
        metrics |= loop.update(nll_losses(model, batch, token_mean(batch.mask), config.micro_batch_size))
        if round_step == 0:
            metrics |= world.metrics()
        loop.log(**metrics, tokens=int(batch.mask.sum()))
    return loop.history


def select_best(graded: ScoredRollout, config: RejectionConfig, seed: int) -> Tensor:
    """Return the rows ``(K,)`` of the rollout to imitate, by ``config.selection``; none of them is ungraded.

    Raises:
        UserError: no completion could be graded.
    """
    rewards, valid = graded.rewards, graded.valid
    if not bool(valid.any()):
        raise UserError(
            "none of the sampled completions could be graded, so there is nothing to imitate",
            argument="rewards",
            problem="empty",
        )
    floor = float(rewards[valid].min()) - 1
    select = CHOICES[config.selection]
    rows = select(rewards.masked_fill(~valid, floor), valid, config.keep or len(rewards), seed)
    return rows[valid.flatten()[rows]]


def _per_prompt(rewards: Tensor, valid: Tensor, count: int, seed: int) -> Tensor:
    return select_top_per_prompt(rewards) + torch.arange(len(rewards), device=rewards.device) * rewards.shape[1]


def _overall(rewards: Tensor, valid: Tensor, count: int, seed: int) -> Tensor:
    return top_overall(rewards, k=count)


def _random(rewards: Tensor, valid: Tensor, count: int, seed: int) -> Tensor:
    positions = valid.flatten().nonzero().flatten()
    order = numpy_generator("random selection", seed).permutation(len(positions))[:count]
    return positions[torch.from_numpy(order).to(positions.device)]


#: ``(rewards (M, N), valid (M, N), count, seed) -> (K,)`` indices into ``rewards.flatten()``, by the names in
#: :data:`~minirlhf.trainers.config.SELECTIONS`. An ungraded completion has a reward below all others.
CHOICES: dict[str, Callable[[Tensor, Tensor, int, int], Tensor]] = dict(
    zip(SELECTIONS, (_per_prompt, _overall, _random), strict=True)
)
