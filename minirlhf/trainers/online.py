"""Online reinforcement learning: sample, grade, assign credit, update.

The algorithm is a :class:`~minirlhf.recipes.recipe.Recipe`.
"""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from minirlhf.core.errors import UserError
from minirlhf.core.masking import lengths, masked_mean, masked_sum
from minirlhf.data.chat import EndTokens, encode_prompt, end_tokens
from minirlhf.data.collate import batch_indices, collate
from minirlhf.data.formats import Problem
from minirlhf.data.types import Rollout, Tokens
from minirlhf.equations.kl import k3
from minirlhf.feedback.rewards import Reward, StepReward, score, with_generation_prompts
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
    """Train ``model`` in place on its own completions.

    Args:
        model: the policy, a causal LM.
        problems: the prompts, with what the grader needs.
        reward: the grader. Recipes that learn from graded steps need one that has ``steps``.
        recipe: the algorithm.
        tokenizer: its chat template turns a prompt into the ids that the policy continues.
        monitors: other rewards. The mean of each is logged under its name, and none is optimised. A name that begins with
            ``cost_`` marks a rate of something unwanted.
        run: the other arguments of :func:`train_in_env`: ``ref_model, critic, pretraining, out, resume, origin, watch,
            name, quiet``.

    Returns:
        The metrics, named as in the glossary.
    """
    env = PromptDataset(
        problems, reward, tokenizer, monitors or {}, config.max_invalid_fraction, end_tokens(tokenizer, model)
    )
    return train_in_env(model, env, recipe, config.for_examples(len(problems)), **run)


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
    """Train ``model`` in place on its own samples. All online training uses this loop.

    Args:
        ref_model: the frozen reference. None: the initial ``model`` (with its adapter off, if it has one), if the
            recipe needs a reference.
        critic: the initial critic, changed in place. None: a critic that predicts 0 everywhere.
        pretraining: texts for the pretraining term of a recipe with ``ptx_coef``.
        out, resume, origin, watch, name: as for :class:`~minirlhf.trainers.loop.TrainingLoop`.
        quiet: no progress bar, no final line, and no warnings about options without effect.
    """
    recipe = generation_settings(recipe, config)
    if recipe.update.ptx_coef and not pretraining:
        raise UserError(
            f"ptx_coef = {recipe.update.ptx_coef}, but there are no pretraining texts; expected pretraining texts, or ptx_coef = 0",
            argument="pretraining",
            problem="missing",
        )
    if ref_model is not None:
        require_same_vocabulary(model, ref_model)
    elif recipe.update.kl is not None:
        ref_model = copy_of_reference(model)
    if not quiet:
        unused = recipe.unused_options(
            config.num_generations,
            staleness=config.staleness,
            truncates=config.sampling().truncates,
            max_steps=config.max_steps,
            completions=config.batch_size * config.num_generations,
        )
        for message in unused:
            log.warning("%s: %s", recipe.name, message)
    parts, ratios, critic_part = {}, {}, recipe.credit.critic
    if critic_part is not None:
        parts["critic"] = critic if critic is not None else new_critic(model, shared=critic_part.shared)
        ratios["critic"] = critic_part.critic_learning_rate_ratio
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
        start, sampling_before = time.perf_counter(), world.seconds
        all_rollouts, graded, frac_kept = collect_rollouts(draw, recipe, config.seed, pad_token_id=world.pad_token_id)
        if loop.step == 0 and not quiet and not all_rollouts.rollout.terminated.any():
            log.warning("%s: %s", recipe.name, check_eos(world, all_rollouts.rollout, config))
        if recipe.update.decoupled:
            graded = recompute_old_logps(graded, model, config.temperature, config.micro_batch_size)
        graded = add_ref_logps_and_values(
            graded, ref_model, parts.get("critic"), config.temperature, config.micro_batch_size
        )
        shaped, texts = recipe.collect(graded), None
        if recipe.update.ptx_coef and pretraining:
            rows = batch_indices(len(pretraining), config.batch_size * config.num_generations, step, config.seed)
            texts = collate([pretraining[i] for i in rows], world.pad_token_id).to(graded.rollout.mask.device)
        metrics, stats = update_policy(loop, shaped, recipe, config, pretraining=texts) if frac_kept != 0 else ({}, [])
        if loop.out is not None and config.num_logged_samples:
            step_samples = samples.record(
                shaped, recipe, stats, world.tokenizer, step=step + 1, count=config.num_logged_samples
            )
            samples.write(loop.out, step_samples)
        env_metrics = world.metrics()
        if recipe.collect.shape:
            env_metrics["shaped_reward"] = float(shaped.rewards[graded.valid].mean())
        if world.timed:
            metrics |= {"seconds_sampling": world.seconds - sampling_before, "seconds": time.perf_counter() - start}
        loop.log(**compute_metrics(all_rollouts, graded, frac_kept), **env_metrics, **metrics)
    return loop.history


def check_eos(world: RolloutEnv, rollout: Rollout, config: OnlineConfig) -> str:
    """Return the warning for a first step in which no completion ended with an end-of-sequence token."""
    ends = f" A completion ends at {world.ends}." if isinstance(world, PromptDataset) else ""
    return (
        f"not one of the first {len(rollout.mask)} completions ended within {config.max_completion_length} tokens.{ends} Raise "
        "max_completion_length, or fine-tune the model on completions with an end token (SFT with this chat template)"
    )


def generation_settings(recipe: Recipe, config: OnlineConfig) -> Recipe:
    """Return the recipe with the run's completion length filled in where a function needs it.

    Raises:
        UserError: the recipe cannot work with this ``num_generations``.
    """
    recipe = recipe.resolved(max_completion_length=config.max_completion_length)
    recipe.validate(config.num_generations)
    return recipe


class PromptDataset(RolloutEnv):
    """Problems as chat prompts. The reward function grades the completions as text; the monitors see the same texts."""

    def __init__(
        self, problems: Sequence[Problem], reward: Reward, tokenizer: Any, monitors: Mapping[str, Reward], limit: float,
        ends: EndTokens,
    ) -> None:  # fmt: skip
        """``limit``: largest fraction of ungraded completions in a rollout; ``ends``: the end-of-sequence tokens."""
        prompts = [encode_prompt(tokenizer, problem.prompt) for problem in problems]
        super().__init__(prompts, eos_token_id=ends.ids, pad_token_id=tokenizer.pad_token_id)
        # Rendered when a problem is first drawn: most runs draw few of their problems.
        self.problem = cache(lambda i: with_generation_prompts(tokenizer, [problems[i]])[0])
        self.reward, self.tokenizer, self.ends = reward, tokenizer, ends
        self.monitors, self.limit = monitors, limit
        self._seen: defaultdict[str, list[float]] = defaultdict(list)  # monitor rewards in this step
        has_unknown = any(tokenizer.unk_token_id in prompt for prompt in prompts)
        self._unknown: int | None = tokenizer.unk_token_id if has_unknown else None
        self._is_told = False  # whether a step without any grade was reported
        self._unknown_counts = [0, 0]  # of this step: unknown tokens, all tokens
        self._part_values: defaultdict[str, list[float]] = defaultdict(list)  # of each part of the reward, the same

    def sample_prompts(self, count: int, step: int, seed: int) -> list[int]:
        """Return the prompt indices of a step; every epoch takes each problem once."""
        return [int(i) for i in batch_indices(len(self.prompts), count, step, seed)]

    def _repeated(self, picked: Sequence[int], rollout: Rollout) -> list[Problem]:
        return [self.problem(i) for i in picked for _ in range(rollout.num_generations)]

    def grade(self, picked: Sequence[int], rollout: Rollout, watch: bool) -> tuple[Tensor, Tensor]:
        """Grade the completions with the reward function.

        Raises:
            UserError: the grader failed on more than the fraction ``limit``; the message has the first failure.
        """
        problems, texts = self._repeated(picked, rollout), completion_texts(rollout, self.tokenizer)
        scores = score(self.reward, problems, texts)
        raw = torch.tensor(scores.values)
        valid = raw.isfinite()
        num_failed = int((~valid & torch.tensor(scores.applies)).sum())
        failed = f"{num_failed} of {len(raw)} samples"
        if num_failed / len(raw) > self.limit:
            raise UserError(
                f"the grader failed on {failed}; expected at most a fraction of max_invalid_fraction = {self.limit:g}; first: {scores.failure}",
                argument="max_invalid_fraction",
                value=num_failed,
                expected=self.limit,
            )
        if scores.failure is not None:
            log.warning("%s could not be graded; first: %s", failed, scores.failure)
        if not any(scores.applies) and not self._is_told:
            self._is_told = True
            log.warning("the grader applies to none of the %d completions of a step, which teach nothing", len(raw))
        for name, part_values in scores.parts.items():
            self._part_values[f"rewards/{name}"].extend(value for value in part_values if math.isfinite(value))
        for key, monitor in self.monitors.items() if watch else ():
            self._seen[key].extend(monitor(problems, texts))
        if self._unknown is not None:
            ids = rollout.input_ids[rollout.attention_mask.bool()]
            counts = (int((ids == self._unknown).sum()), len(ids))
            self._unknown_counts = [a + b for a, b in zip(self._unknown_counts, counts, strict=True)]
        return rollout.grouped(torch.where(valid, raw, 0.0)), rollout.grouped(valid)

    def grade_steps(self, picked: Sequence[int], rollout: Rollout) -> Tensor:
        """Grade steps with the reward function's ``steps``.

        Raises:
            UserError: the number of grades differs from the number of tokens, or the reward has no ``steps``.
        """
        steps: StepReward | None = getattr(self.reward, "steps", None)
        if steps is None:
            return super().grade_steps(picked, rollout)
        rows = [ids[mask].tolist() for ids, mask in zip(rollout.completion_ids, rollout.mask, strict=True)]
        token_texts = [[self.tokenizer.decode([token]) for token in row] for row in rows]
        grades = torch.full(rollout.mask.shape, math.nan)
        for i, step_grades in enumerate(steps(self._repeated(picked, rollout), token_texts)):
            if len(step_grades) != len(rows[i]):
                raise UserError(
                    f"the step-level grader returned {len(step_grades)} grades for {len(rows[i])} tokens; expected "
                    "one grade per token (NaN where no step ends)",
                    argument="steps",
                    value=len(step_grades),
                    expected=len(rows[i]),
                )
            grades[i, rollout.mask[i].cpu()] = torch.tensor(step_grades)
        return grades.to(rollout.old_logps)

    def metrics(self) -> dict[str, float]:
        """Return the means over the step: of each monitor, and of each part of the reward where it applies.

        Also the fraction of unknown tokens if prompts have some.
        """
        means = {key: statistics.fmean(self._seen[key]) for key in self.monitors}
        means |= {key: statistics.fmean(values) for key, values in self._part_values.items() if values}
        if self._unknown_counts[1]:
            means["frac_unknown"] = self._unknown_counts[0] / self._unknown_counts[1]
        self._unknown_counts = [0, 0]
        self._seen.clear()
        self._part_values.clear()
        return means


def compute_metrics(everything: ScoredRollout, graded: ScoredRollout, share: float | None) -> dict[str, float]:
    """Return the metrics of what :func:`~minirlhf.trainers.rollouts.collect_rollouts` returned, before the update."""
    rollout, rewards, valid = everything.rollout, everything.rewards, everything.valid
    zero_std = [len(group[mask].unique()) <= 1 for group, mask in zip(rewards, valid, strict=True)]
    greedy_tokens = 0 if everything.greedy is None else int(everything.greedy.rollout.mask.sum())
    metrics = {
        "reward": float(rewards[valid].mean()) if bool(valid.any()) else math.nan,
        "reward_std": float(rewards[valid].std(correction=0)) if bool(valid.any()) else math.nan,
        "completion_length": float(lengths(rollout.mask).float().mean()),
        "frac_terminated": float(rollout.terminated.float().mean()),
        "frac_reward_zero_std": statistics.fmean(zero_std),
        "frac_invalid": float((~valid).float().mean()),
        "neg_logp": float(-masked_mean(rollout.old_logps, rollout.mask)),
        "sampled_tokens": int(rollout.mask.sum()) + greedy_tokens,
    }
    is_prompt = rollout.attention_mask[:, : rollout.prompt_width].bool()
    prompts = rollout.input_ids[:, : rollout.prompt_width].masked_fill(~is_prompt, -1)
    if len(prompts.unique(dim=0)) > 1:  # of one prompt, equal completions may be right
        counts = Counter(map(tuple, rollout.completion_ids.masked_fill(~rollout.mask, -1).tolist()))
        metrics["frac_most_common"] = max(counts.values()) / len(prompts)
    if share is not None:
        metrics["frac_kept"] = share
    if graded.ref_logps is not None:
        sequence_kl = masked_sum(k3(graded.rollout.old_logps, graded.ref_logps), graded.rollout.mask, -1)  # (B,)
        metrics["kl"] = float(sequence_kl.mean())
    return metrics
