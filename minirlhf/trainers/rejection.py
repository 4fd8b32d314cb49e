"""Rejection sampling (RAFT, expert iteration): sample, grade, keep the best, imitate them; and again from the model that came out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from minirlhf.core.errors import UserError
from minirlhf.core.randomness import derive_seed, numpy_generator
from minirlhf.data.chat import ends_of
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
    """Improve ``model`` in place by imitating its own best answers; arguments as for
    :func:`~minirlhf.trainers.online.train_online`, ``run`` what :func:`train_rejection_in_env` takes beside them."""
    world = PromptDataset(problems, reward, tokenizer, monitors or {}, config.max_invalid, ends_of(tokenizer, model))
    return train_rejection_in_env(model, world, config, **run)


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
    """Rounds of ``config.steps_per_round`` optimizer steps, each on the replies that its first step has sampled and kept.

    The model is never reset: a round starts from what the one before has made. A reply that was cut off is imitated as far as it
    goes. Arguments as for :class:`~minirlhf.trainers.loop.TrainingLoop`.

    Returns:
        The metrics, named as in the glossary; what is said of samples stands in the first step of each round.
    """
    loop = TrainingLoop(
        name, model, config, out=out, tokenizer=world.tokenizer, resume=resume, origin=origin, watch=watch, quiet=quiet
    )
    device = next(model.parameters()).device
    for step in loop:
        metrics: dict[str, float] = {}
        number, turn = divmod(step, config.steps_per_round)
        if turn == 0:
            picked = world.sample_prompts(config.num_prompts, number, config.seed)
            graded = world.generate_and_score(model, config, picked, step=number, seed=config.seed, version=step)
            rows = select_best(graded, config, derive_seed("kept", config.seed, number))
            metrics = compute_metrics(graded, graded, None)
            metrics["reward_kept"] = float(graded.rewards.flatten()[rows].mean())
            metrics["prompts_kept"] = len((rows // config.num_generations).unique())
            chosen = graded.rollout.select(rows)
            loop.memory = {key: getattr(chosen, key) for key in ("input_ids", "attention_mask", "mask")}
        batch = batch_indices(
            len(loop.memory["mask"]), config.batch_size, turn, derive_seed("order", config.seed, number)
        )
        part = CompletionBatch(**loop.memory).select(torch.from_numpy(batch)).to(device)
        metrics |= loop.update(nll_losses(model, part, token_mean(part.mask), config.micro_batch_size))
        if turn == 0:
            metrics |= world.metrics()
        loop.log(**metrics, tokens=int(part.mask.sum()))
    return loop.history


def select_best(graded: ScoredRollout, config: RejectionConfig, seed: int) -> Tensor:
    """``(K,)`` rows of the rollout to imitate, by ``config.selection``; those that could not be graded are never among them.

    Raises:
        UserError: there are none.
    """
    rewards, valid = graded.rewards, graded.valid
    if not bool(valid.any()):
        raise UserError(
            "none of the sampled replies could be graded, so there is nothing to imitate",
            argument="rewards",
            problem="empty",
        )
    low = float(rewards[valid].min()) - 1
    choose = CHOICES[config.selection]
    rows = choose(rewards.masked_fill(~valid, low), valid, config.keep or len(rewards), seed)
    return rows[valid.flatten()[rows]]


def _per_prompt(rewards: Tensor, valid: Tensor, count: int, seed: int) -> Tensor:
    return select_top_per_prompt(rewards) + torch.arange(len(rewards), device=rewards.device) * rewards.shape[1]


def _overall(rewards: Tensor, valid: Tensor, count: int, seed: int) -> Tensor:
    return top_overall(rewards, k=count)


def _random(rewards: Tensor, valid: Tensor, count: int, seed: int) -> Tensor:
    places = valid.flatten().nonzero().flatten()
    order = numpy_generator("random selection", seed).permutation(len(places))[:count]
    return places[torch.from_numpy(order).to(places.device)]


#: ``(rewards (M, N), valid (M, N), how many, seed) -> (K,)`` places in ``rewards.flatten()``, by the names in
#: :data:`~minirlhf.trainers.config.SELECTIONS`. What could not be graded has a reward below all others.
CHOICES: dict[str, Callable[[Tensor, Tensor, int, int], Tensor]] = dict(
    zip(SELECTIONS, (_per_prompt, _overall, _random), strict=True)
)
