"""Online reinforcement learning: sample, grade, assign credit, update. The algorithm is a :class:`~minirlhf.recipes.Recipe`."""

from __future__ import annotations

import dataclasses
import logging
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
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
from minirlhf.feedback.rewards import Reward, StepReward, ask
from minirlhf.models.adapters import copy_of_reference
from minirlhf.models.critics import completion_values, new_critic
from minirlhf.models.forward import completion_logps
from minirlhf.models.reference import require_same_vocabulary
from minirlhf.models.sampling import sample
from minirlhf.models.texts import completion_texts
from minirlhf.recipes import Graded, OnDemand, Recipe, describe
from minirlhf.trainers import samples
from minirlhf.trainers.collecting import Sampler, collect, decouple
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
    step_reward: StepReward | None = None,
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
        step_reward: the grader of steps, for a recipe with process rewards.
        monitors: other rewards, whose mean is logged under their name and which nothing optimises.

    Returns:
        The metrics, named as in the glossary.
    """
    recipe = for_run(recipe, config)
    if recipe.update.ptx_coef and not pretraining:
        raise UserError(f"ptx_coef = {recipe.update.ptx_coef}, but there are no pretraining texts")
    if recipe.credit.needs_step_reward and step_reward is None:
        raise UserError(f"{recipe.name} learns from graded steps, but there is no step_reward")
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
    sampler = Sampler(loop, config.staleness)
    seen: defaultdict[str, list[float]] = defaultdict(list)  # what monitors and the clock say of the draws of a step

    def draw(seed: int, num_generations: int = config.num_generations, greedy: bool = False) -> Graded:
        start = time.perf_counter()
        policy, version = sampler.policy()
        picked = batch_indices(len(problems), config.batch_size, loop.step, seed).tolist()
        rollout = sample(
            policy,
            [prompts[i] for i in picked],
            sampling=dataclasses.replace(config.sampling(), greedy=greedy),
            num_generations=num_generations,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            seed=seed,
            step=loop.step,
            policy_version=version,
        )
        seen["seconds_sampling"].append(time.perf_counter() - start)
        repeated = [problems[i] for i in picked for _ in range(num_generations)]
        texts = completion_texts(rollout, tokenizer)
        graded = Graded(rollout, *grade(reward, repeated, texts, num_generations, config.max_invalid))
        if greedy:
            return graded
        for key, monitor in (monitors or {}).items():
            seen[key].extend(monitor(repeated, texts))
        steps = None if step_reward is None else partial(grade_steps, step_reward, repeated, rollout, tokenizer)
        return recipe.credit.complete(graded, OnDemand(greedy=partial(draw, seed, 1, greedy=True), steps=steps))

    for _ in loop:
        start = time.perf_counter()
        seen.clear()
        everything, graded, share = collect(draw, recipe, config, pad_token_id=tokenizer.pad_token_id)
        if recipe.update.decoupled:
            graded = decouple(graded, model, config.temperature)
        graded = with_opinions(graded, ref_model, parts.get("critic"), config)
        shaped = recipe.collect(graded)
        batch = None
        if recipe.update.ptx_coef and pretraining:
            rows = batch_indices(len(pretraining), config.batch_size * config.num_generations, loop.step, config.seed)
            batch = collate([pretraining[i] for i in rows], tokenizer.pad_token_id).to(graded.rollout.mask.device)
        metrics, visits = improve(loop, shaped, recipe, config, pretraining=batch) if share != 0 else ({}, [])
        if loop.out is not None and config.keep_samples:
            kept = samples.record(shaped, recipe, visits, tokenizer, step=loop.step, count=config.keep_samples)
            samples.write(loop.out, kept)
        watched = {key: statistics.fmean(seen[key]) for key in monitors or {}}
        if recipe.collect.shape:
            watched["shaped_reward"] = float(shaped.rewards[graded.valid].mean())
        clock = {"seconds_sampling": sum(seen["seconds_sampling"]), "seconds": time.perf_counter() - start}
        loop.log(**observe(everything, graded, share), **watched, **metrics, **clock)
    return loop.history


def for_run(recipe: Recipe, config: OnlineConfig) -> Recipe:
    """The recipe with the run's completion length, where one of its functions counts in it; a ``UserError`` if it cannot work."""
    if "max_completion_length" in recipe.options():
        recipe = recipe.with_(max_completion_length=config.max_completion_length)
    recipe.try_out(config.num_generations)
    return recipe


@torch.no_grad()
def with_opinions(
    graded: Graded, ref_model: nn.Module | None, critic: nn.Module | None, config: OnlineConfig
) -> Graded:
    """The rollout with log-probabilities under the reference and values of the critic, where there are these models; the greedy
    completions likewise."""
    rollout = graded.rollout
    inputs = rollout.input_ids, rollout.attention_mask, rollout.mask.shape[1]
    return dataclasses.replace(
        graded,
        ref_logps=None if ref_model is None else completion_logps(ref_model, *inputs, config.temperature),
        values=None if critic is None else completion_values(critic, *inputs),
        greedy=None if graded.greedy is None else with_opinions(graded.greedy, ref_model, None, config),
    )


def grade_steps(step_reward: StepReward, problems: Sequence[Problem], rollout: Rollout, tokenizer: Any) -> Tensor:
    """``(B, T)``: the grade of the step that ends with a token, NaN where none does.

    Raises:
        UserError: the grader answers with another number of grades than there are tokens.
    """
    rows = [ids[inside].tolist() for ids, inside in zip(rollout.completion_ids, rollout.mask, strict=True)]
    words = [[tokenizer.decode([token]) for token in row] for row in rows]
    grades = torch.full(rollout.mask.shape, math.nan)
    for i, (row, found) in enumerate(zip(words, step_reward(problems, words), strict=True)):
        if len(found) != len(row):
            raise UserError(
                f"step_reward gave {len(found)} grades for {len(row)} tokens; expected one each (NaN: no step ends)"
            )
        grades[i, rollout.mask[i].cpu()] = torch.tensor(found)
    return grades.to(rollout.old_logps)


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


def observe(everything: Graded, graded: Graded, share: float | None) -> dict[str, float]:
    """Metrics of what :func:`~minirlhf.trainers.collecting.collect` returned, before the update."""
    rollout, rewards, valid = everything.rollout, everything.rewards, everything.valid
    spread = torch.where(valid, rewards, math.nan)
    constant = [bool(g[~g.isnan()].max() - g[~g.isnan()].min() == 0) if (~g.isnan()).any() else True for g in spread]
    greedy = 0 if graded.greedy is None else int(graded.greedy.rollout.mask.sum())
    metrics = {
        "reward": float(rewards[valid].mean()) if bool(valid.any()) else math.nan,
        "reward_std": float(rewards[valid].std(correction=0)) if bool(valid.any()) else math.nan,
        "completion_length": float(lengths(rollout.mask).float().mean()),
        "frac_terminated": float(rollout.terminated.float().mean()),
        "frac_reward_zero_std": sum(constant) / len(constant),
        "frac_invalid": float((~valid).float().mean()),
        "neg_logp": float(-masked_mean(rollout.old_logps, rollout.mask)),
        "sampled_tokens": int(rollout.mask.sum()) + greedy,
    }
    if share is not None:
        metrics["frac_kept"] = share
    if graded.ref_logps is not None:
        kept = graded.rollout
        per_sequence = masked_sum(k3(kept.old_logps, graded.ref_logps), kept.mask, -1)  # (B,)
        metrics["kl"] = float(per_sequence.mean())
    return metrics
