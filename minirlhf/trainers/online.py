"""Online reinforcement learning: sample, grade, assign credit, update. The algorithm is a :class:`~minirlhf.recipes.Recipe`."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from minirlhf.core.errors import UserError
from minirlhf.core.masking import lengths, masked_mean, masked_sum
from minirlhf.data.chat import encode_prompt
from minirlhf.data.collate import batch_indices, collate
from minirlhf.data.formats import Problem
from minirlhf.data.types import Rollout, Tokens
from minirlhf.equations.kl import k3
from minirlhf.feedback.rewards import Reward, ask
from minirlhf.models.adapters import copy_of_reference
from minirlhf.models.critics import completion_values, new_critic
from minirlhf.models.forward import completion_logps
from minirlhf.models.reference import require_same_vocabulary
from minirlhf.models.sampling import sample
from minirlhf.models.texts import completion_texts
from minirlhf.recipes import Graded, Recipe, describe
from minirlhf.trainers import samples
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.history import History
from minirlhf.trainers.improve import improve
from minirlhf.trainers.loop import Loop

log = logging.getLogger(__name__)


def train_online(
    model: nn.Module,
    problems: Sequence[Problem],
    reward: Reward,
    recipe: Recipe,
    config: OnlineConfig,
    *,
    tokenizer: Any,
    ref_model: nn.Module | None = None,
    critic: nn.Module | None = None,
    pretraining: Sequence[Tokens] | None = None,
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
        ref_model: the frozen reference; None means ``model`` as it is now (its adapter, if it has one, off), if the recipe
            needs one.
        critic: what the recipe's critic starts from, changed in place; None means one that expects 0 everywhere.
        pretraining: texts that a recipe with ``ptx_coef`` keeps likely.
        monitors: other rewards, whose mean is logged under their name and which nothing optimises.

    Returns:
        The metrics, named as in the glossary.
    """
    recipe = for_run(recipe, config)
    if recipe.update.ptx_coef and not pretraining:
        raise UserError(f"ptx_coef = {recipe.update.ptx_coef}, but there are no pretraining texts")
    if recipe.needs_reference and ref_model is None:
        ref_model = copy_of_reference(model)
    if ref_model is not None:
        require_same_vocabulary(model, ref_model)
    parts, ratios = {}, {}
    if recipe.credit.critic is not None:
        parts["critic"] = critic if critic is not None else new_critic(model, shared=recipe.credit.critic.shared)
        ratios["critic"] = recipe.credit.critic.critic_learning_rate_ratio
    prompts = [encode_prompt(tokenizer, problem.prompt) for problem in problems]
    loop = Loop(
        name or recipe.name,
        model,
        config,
        settings={"recipe": describe(recipe)},
        parts=parts,
        ratios=ratios,
        dropout=False,
        out=out,
        tokenizer=tokenizer,
        resume=resume,
        quiet=quiet,
    )
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
        rewards, valid = grade(reward, repeated, texts, config.num_generations, config.max_invalid)
        graded = Graded(rollout, rewards, valid, *opinions(rollout, ref_model, parts.get("critic"), config))
        watched = {key: _mean(monitor(repeated, texts)) for key, monitor in (monitors or {}).items()}
        shaped = recipe.collect(graded)
        batch = None
        if recipe.update.ptx_coef and pretraining:
            rows = batch_indices(len(pretraining), config.batch_size * config.num_generations, step, config.seed)
            batch = collate([pretraining[i] for i in rows], tokenizer.pad_token_id).to(rollout.input_ids.device)
        metrics, visits = improve(loop, shaped, recipe, config, pretraining=batch)
        if loop.out is not None and config.keep_samples:
            kept = samples.record(shaped, recipe, visits, tokenizer, step=step, count=config.keep_samples)
            samples.write(loop.out, kept)
        if recipe.collect.shape:
            watched["shaped_reward"] = float(shaped.rewards[valid].mean())
        done = time.perf_counter()
        loop.log(**observe(graded), **watched, **metrics, seconds_sampling=sampled - start, seconds=done - start)
    return loop.history


def for_run(recipe: Recipe, config: OnlineConfig) -> Recipe:
    """The recipe with the run's completion length, where one of its functions counts in it; a ``UserError`` if it cannot work."""
    if "max_completion_length" in recipe.options():
        recipe = recipe.with_(max_completion_length=config.max_completion_length)
    recipe.try_out(config.num_generations)
    return recipe


@torch.no_grad()
def opinions(
    rollout: Rollout, ref_model: nn.Module | None, critic: nn.Module | None, config: OnlineConfig
) -> tuple[Tensor | None, Tensor | None]:
    """Log-probabilities under the reference and values of the critic, ``(B, T)`` each, or None."""
    inputs = rollout.input_ids, rollout.attention_mask, rollout.mask.shape[1]
    ref_logps = None if ref_model is None else completion_logps(ref_model, *inputs, config.temperature)
    return ref_logps, None if critic is None else completion_values(critic, *inputs)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def grade(
    reward: Reward,
    problems: Sequence[Problem],
    completions: Sequence[str],
    num_generations: int,
    max_invalid: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Rewards ``(P, G)`` and which of them are numbers ``(P, G)``; the others are set to 0.

    Raises:
        UserError: more than the share ``max_invalid`` could not be graded; it says what happened first.
    """
    values, failure = ask(reward, problems, completions)
    raw = torch.tensor(values)
    valid = raw.isfinite()
    share = float((~valid).float().mean())
    if share > max_invalid:
        raise UserError(
            f"the grader failed on {int((~valid).sum())} of {len(raw)} samples, more than max_invalid = {max_invalid:g} of them; "
            f"first: {failure}"
        )
    if failure is not None:
        log.warning("%d of %d samples could not be graded; first: %s", int((~valid).sum()), len(raw), failure)
    return torch.where(valid, raw, 0.0).view(-1, num_generations), valid.view(-1, num_generations)


def observe(graded: Graded) -> dict[str, float]:
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
