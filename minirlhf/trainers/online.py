"""Online reinforcement learning: sample, grade, assign credit, update. The algorithm is a :class:`~minirlhf.recipes.recipe.Recipe`."""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections import defaultdict
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
from minirlhf.feedback.rewards import Reward, StepReward, ask
from minirlhf.models.adapters import copy_of_reference
from minirlhf.models.critics import new_critic
from minirlhf.models.reference import require_same_vocabulary
from minirlhf.models.texts import completion_texts
from minirlhf.recipes.parts import Graded
from minirlhf.recipes.recipe import Recipe, describe
from minirlhf.trainers import samples
from minirlhf.trainers.collecting import Sampler, World, collect, decouple, with_reference_and_values
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
        reward: the grader; for recipes that learn from graded steps one that has ``steps``.
        recipe: the algorithm.
        tokenizer: its chat template turns a prompt into the ids that the policy continues.
        ref_model: the frozen reference; None means ``model`` as it is now (its adapter, if it has one, off), if the recipe
            needs one.
        critic: what the recipe's critic starts from, changed in place; None means one that expects 0 everywhere.
        pretraining: texts that a recipe with ``ptx_coef`` keeps likely.
        monitors: other rewards, whose mean is logged under their name and which nothing optimises.
        quiet: no progress bar, no closing line, and no word about choices that have no effect.

    Returns:
        The metrics, named as in the glossary.
    """
    world = Problems(problems, reward, tokenizer, max_invalid=config.max_invalid, monitors=monitors or {})
    if recipe.update.kl is not None and ref_model is None:
        ref_model = copy_of_reference(model)
    if ref_model is not None:
        require_same_vocabulary(model, ref_model)
    return train_in_world(
        model,
        world,
        recipe,
        config,
        ref_model=ref_model,
        critic=critic,
        pretraining=pretraining,
        out=out,
        resume=resume,
        name=name,
        quiet=quiet,
    )


def train_in_world(
    model: nn.Module,
    world: World,
    recipe: Recipe,
    config: OnlineConfig,
    *,
    ref_model: nn.Module | None = None,
    critic: nn.Module | None = None,
    pretraining: Sequence[Tokens] | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    name: str | None = None,
    quiet: bool = False,
) -> History:
    """The loop of :func:`train_online`, for any world; ``ref_model`` is not None if the recipe has a KL term."""
    recipe = for_run(recipe, config)
    if recipe.update.ptx_coef and not pretraining:
        raise UserError(f"ptx_coef = {recipe.update.ptx_coef}, but there are no pretraining texts")
    for sentence in (
        ()
        if quiet
        else recipe.without_effect(
            config.num_generations, staleness=config.staleness, truncates=config.sampling().truncates
        )
    ):
        log.warning("%s: %s", recipe.name, sentence)
    parts, ratios, plan = {}, {}, recipe.credit.critic
    if plan is not None:
        parts["critic"] = critic if critic is not None else new_critic(model, shared=plan.shared)
        ratios["critic"] = plan.critic_learning_rate_ratio
    loop = Loop(
        name or recipe.name,
        model,
        config,
        settings={"recipe": describe(recipe)},
        parts=parts,
        ratios=ratios,
        dropout=False,
        out=out,
        tokenizer=world.tokenizer,
        resume=resume,
        quiet=quiet,
    )
    sampler = Sampler(loop, config.staleness)

    def draw(seed: int) -> Graded:
        policy, version = sampler.policy()
        return world.draw(policy, recipe, config, step=loop.step, seed=seed, version=version)

    for step in loop:
        start, sampled = time.perf_counter(), world.seconds
        everything, graded, share = collect(draw, recipe, config.seed, pad_token_id=world.pad_token_id)
        sampled = world.seconds - sampled
        if recipe.update.decoupled:
            graded = decouple(graded, model, config.temperature)
        graded = with_reference_and_values(graded, ref_model, parts.get("critic"), config.temperature)
        shaped, texts = recipe.collect(graded), None
        if recipe.update.ptx_coef and pretraining:
            rows = batch_indices(len(pretraining), config.batch_size * config.num_generations, step, config.seed)
            texts = collate([pretraining[i] for i in rows], world.pad_token_id).to(graded.rollout.mask.device)
        metrics, seen = improve(loop, shaped, recipe, config, pretraining=texts) if share != 0 else ({}, [])
        if loop.out is not None and config.keep_samples:
            kept = samples.record(shaped, recipe, seen, world.tokenizer, step=step, count=config.keep_samples)
            samples.write(loop.out, kept)
        beside = world.metrics()
        if recipe.collect.shape:
            beside["shaped_reward"] = float(shaped.rewards[graded.valid].mean())
        clock = {"seconds_sampling": sampled, "seconds": time.perf_counter() - start}
        loop.log(**observe(everything, graded, share), **beside, **metrics, **clock)
    return loop.history


def for_run(recipe: Recipe, config: OnlineConfig) -> Recipe:
    """The recipe with the run's completion length, where one of its functions counts in it; a ``UserError`` if it cannot work."""
    recipe = recipe.filled(max_completion_length=config.max_completion_length)
    recipe.try_out(config.num_generations)
    return recipe


class Problems(World):
    """Problems as chat prompts, graded as text by a reward function."""

    def __init__(
        self,
        problems: Sequence[Problem],
        reward: Reward,
        tokenizer: Any,
        *,
        max_invalid: float,
        monitors: Mapping[str, Reward],
    ) -> None:
        prompts = [encode_prompt(tokenizer, problem.prompt) for problem in problems]
        super().__init__(prompts, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
        self.problems, self.reward, self.tokenizer = problems, reward, tokenizer
        self.max_invalid, self.monitors = max_invalid, monitors
        self._seen: defaultdict[str, list[float]] = defaultdict(list)  # what the monitors said of the draws of a step

    def pick(self, count: int, step: int, seed: int) -> list[int]:
        """Every epoch takes each problem once."""
        return [int(i) for i in batch_indices(len(self.problems), count, step, seed)]

    def _repeated(self, picked: Sequence[int], rollout: Rollout) -> list[Problem]:
        return [self.problems[i] for i in picked for _ in range(rollout.num_generations)]

    def grade(self, picked: Sequence[int], rollout: Rollout, watch: bool) -> tuple[Tensor, Tensor]:
        """By the reward function; the monitors look at the same texts."""
        problems, texts = self._repeated(picked, rollout), completion_texts(rollout, self.tokenizer)
        graded = grade(self.reward, problems, texts, rollout.num_generations, self.max_invalid)
        for key, monitor in self.monitors.items() if watch else ():
            self._seen[key].extend(monitor(problems, texts))
        return graded

    def grade_steps(self, picked: Sequence[int], rollout: Rollout) -> Tensor:
        """By the reward function's ``steps``."""
        steps: StepReward | None = getattr(self.reward, "steps", None)
        if steps is None:
            return super().grade_steps(picked, rollout)
        return grade_steps(steps, self._repeated(picked, rollout), rollout, self.tokenizer)

    def metrics(self) -> dict[str, float]:
        """The means of the monitors."""
        found = {key: statistics.fmean(self._seen[key]) for key in self.monitors}
        self._seen.clear()
        return found


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
    same = [len(group[known].unique()) <= 1 for group, known in zip(rewards, valid, strict=True)]
    greedy = 0 if graded.greedy is None else int(graded.greedy.rollout.mask.sum())
    metrics = {
        "reward": float(rewards[valid].mean()) if bool(valid.any()) else math.nan,
        "reward_std": float(rewards[valid].std(correction=0)) if bool(valid.any()) else math.nan,
        "completion_length": float(lengths(rollout.mask).float().mean()),
        "frac_terminated": float(rollout.terminated.float().mean()),
        "frac_reward_zero_std": statistics.fmean(same),
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
