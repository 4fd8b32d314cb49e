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
from minirlhf.data.chat import Ends, encode_prompt, ends_of
from minirlhf.data.collate import batch_indices, collate
from minirlhf.data.formats import Problem
from minirlhf.data.types import Rollout, Tokens
from minirlhf.equations.kl import k3
from minirlhf.feedback.rewards import Reward, StepReward, score_completions
from minirlhf.models.adapters import copy_of_reference
from minirlhf.models.critics import new_critic
from minirlhf.models.reference import require_same_vocabulary
from minirlhf.models.texts import completion_texts
from minirlhf.recipes.parts import ScoredRollout
from minirlhf.recipes.recipe import Recipe, describe
from minirlhf.recipes.spelling import to_config
from minirlhf.trainers import samples
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.history import History
from minirlhf.trainers.loop import RunProvenance, TrainerCallback, TrainingLoop
from minirlhf.trainers.policy_update import update_policy
from minirlhf.trainers.rollouts import (
    BehaviorPolicy,
    RolloutEnv,
    add_ref_logps_and_values,
    collect_rollouts,
    recompute_old_logps,
)

log = logging.getLogger(__name__)


def train_online(
    model: nn.Module,
    problems: Sequence[Problem],
    reward: Reward,
    recipe: Recipe,
    config: OnlineConfig,
    *,
    tokenizer: Any,
    monitors: Mapping[str, Reward] | None = None,
    **run: Any,
) -> History:
    """Improve ``model`` in place on its own answers.

    Args:
        model: the policy, a causal LM.
        problems: what to answer.
        reward: the grader; for recipes that learn from graded steps one that has ``steps``.
        recipe: the algorithm.
        tokenizer: its chat template turns a prompt into the ids that the policy continues.
        monitors: other rewards, whose mean is logged under their name and which nothing optimises.
        run: what :func:`train_in_env` takes beside them: ``ref_model, critic, pretraining, out, resume, origin, watch,
            name, quiet``.

    Returns:
        The metrics, named as in the glossary.
    """
    world = PromptDataset(problems, reward, tokenizer, monitors or {}, config.max_invalid, ends_of(tokenizer, model))
    return train_in_env(model, world, recipe, config, **run)


def train_in_env(
    model: nn.Module,
    world: RolloutEnv,
    recipe: Recipe,
    config: OnlineConfig,
    *,
    ref_model: nn.Module | None = None,
    critic: nn.Module | None = None,
    pretraining: Sequence[Tokens] | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    origin: RunProvenance | None = None,
    watch: TrainerCallback | None = None,
    name: str | None = None,
    quiet: bool = False,
) -> History:
    """Improve ``model`` in place on its own samples: the one loop of all online training.

    Args:
        ref_model: the frozen reference; None means ``model`` as it is now (its adapter, if it has one, off), if the recipe
            needs one.
        critic: what the recipe's critic starts from, changed in place; None means one that expects 0 everywhere.
        pretraining: texts that a recipe with ``ptx_coef`` keeps likely.
        out, resume, origin, watch, name: as for :class:`~minirlhf.trainers.loop.TrainingLoop`.
        quiet: no progress bar, no closing line, and no word about choices that have no effect.
    """
    recipe = generation_settings(recipe, config)
    if recipe.update.ptx_coef and not pretraining:
        raise UserError(
            f"ptx_coef = {recipe.update.ptx_coef}, but there are no pretraining texts",
            argument="pretraining",
            problem="missing",
        )
    if ref_model is not None:
        require_same_vocabulary(model, ref_model)
    elif recipe.update.kl is not None:
        ref_model = copy_of_reference(model)
    if not quiet:
        idle = recipe.unused_options(
            config.num_generations,
            staleness=config.staleness,
            truncates=config.sampling().truncates,
            max_steps=config.max_steps,
            completions=config.batch_size * config.num_generations,
        )
        for sentence in idle:
            log.warning("%s: %s", recipe.name, sentence)
    parts, ratios, plan = {}, {}, recipe.credit.critic
    if plan is not None:
        parts["critic"] = critic if critic is not None else new_critic(model, shared=plan.shared)
        ratios["critic"] = plan.critic_learning_rate_ratio
    loop = TrainingLoop(
        name or recipe.name,
        model,
        config,
        settings={} if out is None else {"recipe": describe(recipe), **to_config(recipe)},
        parts=parts,
        ratios=ratios,
        dropout=False,
        out=out,
        tokenizer=world.tokenizer,
        resume=resume,
        origin=origin,
        watch=watch,
        quiet=quiet,
    )
    sampler = BehaviorPolicy(loop, config.staleness)

    def draw(seed: int) -> ScoredRollout:
        policy, version = sampler.policy()
        return world.rollout(policy, recipe, config, step=loop.step, seed=seed, version=version)

    for step in loop:
        start, sampled = time.perf_counter(), world.seconds
        everything, graded, share = collect_rollouts(draw, recipe, config.seed, pad_token_id=world.pad_token_id)
        if loop.step == 0 and not quiet and not everything.rollout.terminated.any():
            log.warning("%s: %s", recipe.name, check_eos(world, everything.rollout, config))
        if recipe.update.decoupled:
            graded = recompute_old_logps(graded, model, config.temperature)
        graded = add_ref_logps_and_values(graded, ref_model, parts.get("critic"), config.temperature)
        shaped, texts = recipe.collect(graded), None
        if recipe.update.ptx_coef and pretraining:
            rows = batch_indices(len(pretraining), config.batch_size * config.num_generations, step, config.seed)
            texts = collate([pretraining[i] for i in rows], world.pad_token_id).to(graded.rollout.mask.device)
        metrics, seen = update_policy(loop, shaped, recipe, config, pretraining=texts) if share != 0 else ({}, [])
        if loop.out is not None and config.keep_samples:
            kept = samples.record(shaped, recipe, seen, world.tokenizer, step=step, count=config.keep_samples)
            samples.write(loop.out, kept)
        beside = world.metrics()
        if recipe.collect.shape:
            beside["shaped_reward"] = float(shaped.rewards[graded.valid].mean())
        if world.timed:
            metrics |= {"seconds_sampling": world.seconds - sampled, "seconds": time.perf_counter() - start}
        loop.log(**compute_metrics(everything, graded, share), **beside, **metrics)
    return loop.history


def check_eos(world: RolloutEnv, rollout: Rollout, config: OnlineConfig) -> str:
    """Why it matters that no completion of a first step ended, in one sentence."""
    ends = f" A reply ends at {world.ends}." if isinstance(world, PromptDataset) else ""
    return (
        f"not one of the first {len(rollout.mask)} completions ended within {config.max_completion_length} tokens.{ends} Raise "
        "max_completion_length, or teach the model to end its replies (supervised fine-tuning with this chat template)"
    )


def generation_settings(recipe: Recipe, config: OnlineConfig) -> Recipe:
    """The recipe with the run's completion length, where one of its functions counts in it; a ``UserError`` if it cannot work."""
    recipe = recipe.resolved(max_completion_length=config.max_completion_length)
    recipe.validate(config.num_generations)
    return recipe


class PromptDataset(RolloutEnv):
    """Problems as chat prompts, graded as text by a reward function; the monitors look at the same texts."""

    def __init__(
        self, problems: Sequence[Problem], reward: Reward, tokenizer: Any, monitors: Mapping[str, Reward], limit: float,
        ends: Ends,
    ) -> None:  # fmt: skip
        """``limit``: largest share of a draw that may fail to be graded; ``ends``: the tokens that end a reply."""
        prompts = [encode_prompt(tokenizer, problem.prompt) for problem in problems]
        super().__init__(prompts, eos_token_id=ends.ids, pad_token_id=tokenizer.pad_token_id)
        self.problems, self.reward, self.tokenizer, self.ends = problems, reward, tokenizer, ends
        self.monitors, self.limit = monitors, limit
        self._seen: defaultdict[str, list[float]] = defaultdict(list)  # what the monitors said of the draws of a step

    def sample_prompts(self, count: int, step: int, seed: int) -> list[int]:
        """Every epoch takes each problem once."""
        return [int(i) for i in batch_indices(len(self.problems), count, step, seed)]

    def _repeated(self, picked: Sequence[int], rollout: Rollout) -> list[Problem]:
        return [self.problems[i] for i in picked for _ in range(rollout.num_generations)]

    def grade(self, picked: Sequence[int], rollout: Rollout, watch: bool) -> tuple[Tensor, Tensor]:
        """``UserError`` if more than the ``limit`` could not be graded; it says what happened first."""
        problems, texts = self._repeated(picked, rollout), completion_texts(rollout, self.tokenizer)
        values, failure = score_completions(self.reward, problems, texts)
        raw = torch.tensor(values)
        valid, failed = raw.isfinite(), f"{int((~raw.isfinite()).sum())} of {len(raw)} samples"
        if float((~valid).float().mean()) > self.limit:
            raise UserError(
                f"the grader failed on {failed}, more than max_invalid = {self.limit:g} of them; first: {failure}",
                argument="max_invalid",
                value=int((~valid).sum()),
                expected=self.limit,
            )
        if failure is not None:
            log.warning("%s could not be graded; first: %s", failed, failure)
        for key, monitor in self.monitors.items() if watch else ():
            self._seen[key].extend(monitor(problems, texts))
        return rollout.grouped(torch.where(valid, raw, 0.0)), rollout.grouped(valid)

    def grade_steps(self, picked: Sequence[int], rollout: Rollout) -> Tensor:
        """By the reward function's ``steps``; ``UserError`` if there are not as many grades as tokens."""
        steps: StepReward | None = getattr(self.reward, "steps", None)
        if steps is None:
            return super().grade_steps(picked, rollout)
        rows = [ids[inside].tolist() for ids, inside in zip(rollout.completion_ids, rollout.mask, strict=True)]
        words = [[self.tokenizer.decode([token]) for token in row] for row in rows]
        grades = torch.full(rollout.mask.shape, math.nan)
        for i, found in enumerate(steps(self._repeated(picked, rollout), words)):
            if len(found) != len(rows[i]):
                raise UserError(
                    f"the grader of steps gave {len(found)} grades for {len(rows[i])} tokens; expected one each (NaN: no "
                    "step ends)",
                    argument="steps",
                    value=len(found),
                    expected=len(rows[i]),
                )
            grades[i, rollout.mask[i].cpu()] = torch.tensor(found)
        return grades.to(rollout.old_logps)

    def metrics(self) -> dict[str, float]:
        """The means of the monitors."""
        found = {key: statistics.fmean(self._seen[key]) for key in self.monitors}
        self._seen.clear()
        return found


def compute_metrics(everything: ScoredRollout, graded: ScoredRollout, share: float | None) -> dict[str, float]:
    """Metrics of what :func:`~minirlhf.trainers.rollouts.collect_rollouts` returned, before the update."""
    rollout, rewards, valid = everything.rollout, everything.rewards, everything.valid
    same = [len(group[known].unique()) <= 1 for group, known in zip(rewards, valid, strict=True)]
    greedy = 0 if everything.greedy is None else int(everything.greedy.rollout.mask.sum())
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
        per_sequence = masked_sum(k3(graded.rollout.old_logps, graded.ref_logps), graded.rollout.mask, -1)  # (B,)
        metrics["kl"] = float(per_sequence.mean())
    return metrics
