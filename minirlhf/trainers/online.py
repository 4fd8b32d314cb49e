"""Online reinforcement learning: sample, grade, assign credit, update. The algorithm is a :class:`~minirlhf.recipes.Recipe`."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from minirlhf.core.errors import UserError
from minirlhf.core.masking import lengths, masked_mean, masked_sum
from minirlhf.core.randomness import generator
from minirlhf.data.chat import encode_prompt
from minirlhf.data.collate import batch_indices
from minirlhf.data.formats import Problem
from minirlhf.equations.aggregation import aggregate
from minirlhf.equations.kl import k3
from minirlhf.feedback.rewards import Reward
from minirlhf.models.forward import completion_logps
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.texts import completion_texts
from minirlhf.recipes import Graded, InLoss, Recipe
from minirlhf.trainers.config import TrainerConfig, setting
from minirlhf.trainers.history import History
from minirlhf.trainers.loop import Loop


@dataclass(frozen=True)
class OnlineConfig(TrainerConfig):
    """Settings of online reinforcement learning. ``batch_size`` counts prompts."""

    batch_size: int = setting(16, "prompts per rollout")
    num_generations: int = setting(8, "completions per prompt, the group size G")
    max_completion_length: int = setting(32, "tokens of a completion at most, end-of-sequence included")
    temperature: float = setting(1.0, "sampling temperature; also applied where log-probabilities are computed")
    top_k: int = setting(0, "sample among the k most likely tokens only; 0: all")
    top_p: float = setting(1.0, "sample from the smallest set of tokens that holds this probability; 1: all")
    min_p: float = setting(0.0, "sample among tokens at least this likely relative to the likeliest; 0: all")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("num_generations", "max_completion_length"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} = {getattr(self, name)!r}; expected at least 1")
        self.sampling()  # raises on a setting that makes no sense

    def sampling(self) -> Sampling:
        """How completions are sampled."""
        return Sampling(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            max_completion_length=self.max_completion_length,
        )


def train_online(
    model: nn.Module,
    problems: Sequence[Problem],
    reward: Reward,
    recipe: Recipe,
    config: OnlineConfig,
    *,
    tokenizer: Any,
    ref_model: nn.Module | None = None,
    monitors: Mapping[str, Reward] | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    name: str | None = None,
    quiet: bool = False,
) -> History:
    """Improve ``model`` in place on its own samples.

    Args:
        model: the policy, a causal LM.
        problems: what to answer.
        reward: the grader.
        recipe: the algorithm.
        tokenizer: its chat template turns a prompt into the ids that the policy continues.
        monitors: other rewards, whose mean is logged under their name and which nothing optimises.
        ref_model: the frozen reference; None means a copy of ``model`` as it is now, if the recipe needs one.

    Returns:
        The metrics, named as in the glossary.
    """
    if recipe.needs_reference and ref_model is None:
        ref_model = copy.deepcopy(model).requires_grad_(False).eval()
    if "max_completion_length" in recipe.options():
        recipe = recipe.with_(max_completion_length=config.max_completion_length)
    prompts = [encode_prompt(tokenizer, problem.prompt) for problem in problems]
    loop = Loop(name or recipe.name, model, config, out=out, tokenizer=tokenizer, resume=resume, quiet=quiet)
    for step in loop:
        start = time.perf_counter()
        picked = batch_indices(len(problems), config.batch_size, step, config.seed).tolist()
        rollout = sample(
            model,
            [prompts[i] for i in picked],
            sampling=config.sampling(),
            num_generations=config.num_generations,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            seed=config.seed,
            step=step,
            policy_version=step,
        )
        sampled = time.perf_counter()
        repeated = [problems[i] for i in picked for _ in range(config.num_generations)]
        texts = completion_texts(rollout, tokenizer)
        rewards, valid = grade(reward, repeated, texts, config.num_generations)
        ref_logps = None
        if ref_model is not None:
            with torch.no_grad():
                ref_logps = completion_logps(
                    ref_model, rollout.input_ids, rollout.attention_mask, rollout.mask.shape[1], config.temperature
                )
        graded = Graded(rollout, rewards, valid, ref_logps)
        watched = {key: _mean(monitor(repeated, texts)) for key, monitor in (monitors or {}).items()}
        metrics = improve(loop, graded, recipe, config)
        done = time.perf_counter()
        loop.log(**describe(graded), **watched, **metrics, seconds_sampling=sampled - start, seconds=done - start)
    return loop.history


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def grade(
    reward: Reward, problems: Sequence[Problem], completions: Sequence[str], num_generations: int
) -> tuple[Tensor, Tensor]:
    """Rewards ``(P, G)`` and which of them are numbers ``(P, G)``; the others are set to 0."""
    raw = torch.tensor([float(r) for r in reward(problems, completions)])
    if raw.shape != (len(completions),):
        raise ValueError(f"the reward function returned {len(raw)} numbers for {len(completions)} completions")
    valid = raw.isfinite()
    return torch.where(valid, raw, 0.0).view(-1, num_generations), valid.view(-1, num_generations)


def improve(loop: Loop, graded: Graded, recipe: Recipe, config: OnlineConfig) -> dict[str, float]:
    """All optimizer steps on one rollout; returns the mean of their metrics."""
    rollout, update = graded.rollout, recipe.update
    advantages = recipe.credit(graded, update.kl)  # (B, T)
    collected: list[dict[str, float]] = []
    for iteration in range(update.num_iterations):
        order = torch.arange(len(rollout))
        if update.num_minibatches > 1:
            order = torch.randperm(len(rollout), generator=generator("minibatch", config.seed, loop.step, iteration))
        for rows in order.tensor_split(update.num_minibatches):
            weights = update.weights(rollout.mask[rows])  # (b, T), before any micro-batch split
            notes: list[Tensor] = []
            losses = policy_losses(loop.model, graded, advantages, recipe, config, rows, weights, notes)
            metrics = loop.update(losses)
            log_ratio = torch.cat(notes)
            metrics["policy_log_ratio_max"] = float(log_ratio.abs().max())
            collected.append(metrics)
    return {key: sum(m[key] for m in collected) / len(collected) for key in collected[0]}


def policy_losses(
    model: nn.Module,
    graded: Graded,
    advantages: Tensor,
    recipe: Recipe,
    config: OnlineConfig,
    rows: Tensor,
    weights: Tensor,
    notes: list[Tensor],
) -> Iterator[Tensor]:
    """The loss of each micro-batch of ``rows``; they add up to the loss of the optimizer batch."""
    rollout, kl = graded.rollout, recipe.update.kl
    size = config.micro_batch_size or len(rows)
    for part, part_weights in zip(rows.split(size), weights.split(size), strict=True):
        r = rollout.select(part)
        logps = completion_logps(model, r.input_ids, r.attention_mask, r.mask.shape[1], config.temperature)  # (b, T)
        objective = recipe.update.objective(logps, r.old_logps, advantages[part], r.mask)
        loss = -aggregate(objective, part_weights, r.mask)
        if isinstance(kl, InLoss):
            assert graded.ref_logps is not None
            loss = loss + kl.beta * aggregate(kl.estimator(logps, graded.ref_logps[part]), part_weights, r.mask)
        notes.append((logps.detach() - r.old_logps)[r.mask])
        yield loss


def describe(graded: Graded) -> dict[str, float]:
    """Metrics of a graded rollout, before the update."""
    rollout, rewards, valid = graded.rollout, graded.rewards, graded.valid
    spread = torch.where(valid, rewards, math.nan)
    constant = [bool(g[~g.isnan()].max() - g[~g.isnan()].min() == 0) if (~g.isnan()).any() else True for g in spread]
    metrics = {
        "reward": float(rewards[valid].mean()) if bool(valid.any()) else math.nan,
        "reward_std": float(rewards[valid].std(correction=0)) if bool(valid.any()) else math.nan,
        "completion_length": float(lengths(rollout.mask).float().mean()),
        "frac_terminated": float(rollout.terminated.float().mean()),
        "frac_reward_zero_std": sum(constant) / len(constant),
        "frac_invalid": float((~valid).float().mean()),
        "neg_logp": float(-masked_mean(rollout.old_logps, rollout.mask)),
    }
    if graded.ref_logps is not None:
        per_sequence = masked_sum(k3(rollout.old_logps, graded.ref_logps), rollout.mask, -1)  # (B,)
        metrics["kl"] = float(per_sequence.mean())
    return metrics
