"""Rollouts: the environment (prompts and grader), the behaviour policy, and resampling until the batch is full."""

from __future__ import annotations

import copy
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from minirlhf.core.errors import UserError
from minirlhf.core.randomness import derive_seed
from minirlhf.data.types import Rollout
from minirlhf.models.critics import completion_values
from minirlhf.models.forward import completion_logps
from minirlhf.models.sampling import sample
from minirlhf.recipes.parts import RolloutExtras, ScoredRollout
from minirlhf.recipes.recipe import Recipe
from minirlhf.trainers.config import OnlineConfig, SamplingConfig
from minirlhf.trainers.loop import TrainingLoop


class RolloutEnv(ABC):
    """Prompts and a grader of completions: the environment of a training run.

    Args:
        prompts: the token ids of each prompt.
        eos_token_id, pad_token_id: special tokens of the policy.
        use_cache: False for policies without a KV cache.

    Attributes:
        seconds: time spent on sampling so far.
        tokenizer: decodes samples and is saved beside the model; None if there are no texts.
        timed: whether the metrics include the duration of a step.
    """

    tokenizer: Any = None
    timed: bool = True

    def __init__(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        eos_token_id: int | Sequence[int],
        pad_token_id: int,
        use_cache: bool = True,
    ) -> None:
        self.prompts, self.seconds = prompts, 0.0
        self.eos_token_id, self.pad_token_id, self.use_cache = eos_token_id, pad_token_id, use_cache

    @abstractmethod
    def sample_prompts(self, count: int, step: int, seed: int) -> list[int]:
        """Return the indices of the ``count`` prompts of a rollout."""

    @abstractmethod
    def grade(self, picked: Sequence[int], rollout: Rollout, watch: bool) -> tuple[Tensor, Tensor]:
        """Return the rewards ``(P, G)`` and the mask ``(P, G)`` of the graded completions; the other rewards are 0.

        ``watch``: record what :meth:`metrics` reports.
        """

    def grade_steps(self, picked: Sequence[int], rollout: Rollout) -> Tensor:
        """Return ``(B, T)``: the grade of the step that ends at each token, NaN where no step ends."""
        raise UserError(
            "the recipe needs graded steps, but no step-level grader is configured", argument="steps", problem="missing"
        )

    def metrics(self) -> dict[str, float]:
        """Return the environment's own metrics, called once per step, after the update."""
        return {}

    def generate_and_score(
        self,
        policy: nn.Module,
        config: SamplingConfig,
        picked: Sequence[int],
        *,
        step: int,
        seed: int,
        version: int,
        greedy: bool = False,
    ) -> ScoredRollout:
        """Sample completions of the ``picked`` prompts and grade them."""
        start = time.perf_counter()
        rollout = sample(
            policy,
            [self.prompts[i] for i in picked],
            sampling=replace(config.sampling(), greedy=greedy),
            num_generations=1 if greedy else config.num_generations,
            eos_token_id=self.eos_token_id,
            pad_token_id=self.pad_token_id,
            seed=seed,
            step=step,
            policy_version=version,
            use_cache=self.use_cache,
        )
        self.seconds += time.perf_counter() - start
        return ScoredRollout(rollout, *self.grade(picked, rollout, not greedy))

    def rollout(
        self, policy: nn.Module, recipe: Recipe, config: OnlineConfig, *, step: int, seed: int, version: int
    ) -> ScoredRollout:
        """Return a graded rollout with the extras that the recipe's credit needs.

        The result depends only on the policy, ``seed`` and ``step``.
        """
        indices = self.sample_prompts(config.batch_size, step, seed)
        generate_fn = partial(self.generate_and_score, policy, config, indices, step=step, seed=seed, version=version)
        rollout = generate_fn()
        extras = RolloutExtras(partial(generate_fn, greedy=True), partial(self.grade_steps, indices, rollout.rollout))
        return recipe.credit.complete(rollout, extras)


class BehaviorPolicy:
    """The behaviour policy: the learner itself or, with ``staleness`` above 0, the learner ``staleness`` steps ago.

    An asynchronous system samples on other machines with weights that lag behind. Here sampling and training alternate
    in one process. The lag is the same at every step (less at the first steps); a resumed run ends with the same bits.
    """

    def __init__(self, loop: TrainingLoop, staleness: int) -> None:
        self._loop, self._staleness = loop, staleness
        self._lagging = copy.deepcopy(loop.model) if staleness else loop.model

    def policy(self) -> tuple[nn.Module, int]:
        """Return the behaviour policy of the current step, and the number of steps for which it has been trained."""
        step, memory = self._loop.step, self._loop.memory
        version = max(0, step - self._staleness)
        if self._staleness:
            for i, parameter in enumerate(_trained(self._loop.model)):
                memory[f"version.{step}.{i}"] = parameter.detach().clone()
                memory.pop(f"version.{version - 1}.{i}", None)
            with torch.no_grad():
                for i, parameter in enumerate(_trained(self._lagging)):
                    parameter.copy_(memory[f"version.{version}.{i}"])
        return self._lagging, version


def _trained(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def collect_rollouts(
    draw: Callable[[int], ScoredRollout], recipe: Recipe, seed: int, *, pad_token_id: int
) -> tuple[ScoredRollout, ScoredRollout, float | None]:
    """Sample and grade, and resample while the recipe's refill needs more groups.

    Args:
        draw: ``(seed) -> ScoredRollout``: a batch with other prompts and samples for every seed.

    Returns:
        All rollouts; the rollout to train on (at most as many groups as one batch has; if no group is kept, the first
        batch, for metrics only); and the number of groups to train on over the number sampled, None if the recipe does
        not refill.
    """
    rounds = [draw(seed)]
    refill = recipe.collect.refill
    if refill is None:
        return rounds[0], rounds[0], None

    def kept_groups(graded: ScoredRollout) -> Tensor:
        """Return the indices ``(num_kept,)`` of the kept groups."""
        return refill.keep_groups(graded.rewards, graded.valid).nonzero().flatten()

    num_groups = len(rounds[0].rewards)
    num_kept = len(kept_groups(rounds[0]))
    while num_kept < num_groups and len(rounds) <= refill.max_resampling_rounds:
        rounds.append(draw(derive_seed("refill", seed, len(rounds))))
        num_kept += len(kept_groups(rounds[-1]))
    all_rollouts = ScoredRollout.concatenate(rounds, pad_token_id)
    group_indices = kept_groups(all_rollouts)[:num_groups]
    frac_kept = len(group_indices) / len(all_rollouts.rewards)
    return all_rollouts, all_rollouts.select_groups(group_indices) if frac_kept else rounds[0], frac_kept


def in_micro_batches(
    read: Callable[..., Tensor], size: int, model: nn.Module, input_ids: Tensor, attention_mask: Tensor, *rest: Any
) -> Tensor:
    """Return ``read(model, input_ids, attention_mask, *rest)``, computed for ``size`` rows at a time."""
    parts = zip(input_ids.split(size), attention_mask.split(size), strict=True)
    return torch.cat([read(model, *part, *rest) for part in parts])


@torch.no_grad()
def recompute_old_logps(
    graded: ScoredRollout, model: nn.Module, temperature: float, micro_batch_size: int | None = None
) -> ScoredRollout:
    """Return the rollout with the current policy's log-probabilities as ``old_logps``."""
    rollout, read = graded.rollout, partial(in_micro_batches, completion_logps, micro_batch_size or len(graded.rollout))
    logps = read(model, rollout.input_ids, rollout.attention_mask, rollout.mask.shape[1], temperature)
    return replace(graded, rollout=replace(rollout, old_logps=torch.where(rollout.mask, logps, 0.0)))


@torch.no_grad()
def add_ref_logps_and_values(
    graded: ScoredRollout,
    ref_model: nn.Module | None,
    critic: nn.Module | None,
    temperature: float,
    micro_batch_size: int | None = None,
) -> ScoredRollout:
    """Return the rollout with the reference's log-probabilities and the critic's values; a missing model adds nothing.

    The greedy completions get the reference's log-probabilities. The logits of a whole rollout may need more memory
    than the update, so the models read ``micro_batch_size`` rows at a time.
    """
    read_logps: Callable[..., Tensor]
    read_values: Callable[..., Tensor]
    inputs = graded.rollout.input_ids, graded.rollout.attention_mask, graded.rollout.mask.shape[1]
    read_logps, read_values, greedy = completion_logps, completion_values, graded.greedy
    if micro_batch_size is not None:
        read_logps, read_values = (partial(in_micro_batches, f, micro_batch_size) for f in (read_logps, read_values))
    ref_logps = None if ref_model is None else read_logps(ref_model, *inputs, temperature)
    values = None if critic is None else read_values(critic, *inputs)
    if greedy is not None:
        greedy = add_ref_logps_and_values(greedy, ref_model, None, temperature, micro_batch_size)
    return replace(graded, ref_logps=ref_logps, values=values, greedy=greedy)
