"""What a step learns from: who asks and grades, which policy samples, and how often, until the batch is what the recipe wants."""

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
    """Prompts and somebody who grades what a policy answers: all that a training run draws from.

    Args:
        prompts: token ids of each.
        eos_token_id, pad_token_id: of the policy.
        use_cache: False for policies without a KV cache.

    Attributes:
        seconds: spent on sampling so far.
        tokenizer: for texts of samples, and saved beside the model; None where there are no texts.
        timed: whether the metrics say how long a step took.
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
        """The numbers of the prompts of a draw."""

    @abstractmethod
    def grade(self, picked: Sequence[int], rollout: Rollout, watch: bool) -> tuple[Tensor, Tensor]:
        """Rewards ``(P, G)``, and which of them are numbers; the others are 0. ``watch``: note what :meth:`metrics` reports."""

    def grade_steps(self, picked: Sequence[int], rollout: Rollout) -> Tensor:
        """``(B, T)``: the grade of the step that ends with a token, NaN where none does."""
        raise UserError(
            "the recipe learns from graded steps, but here nobody grades steps", argument="steps", problem="missing"
        )

    def metrics(self) -> dict[str, float]:
        """What it says beside the rewards, once per step and after its update."""
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
        """Completions of the picked prompts, graded."""
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
        """A graded rollout, with what the recipe's credit needs. Everything depends on the policy, ``seed`` and ``step`` alone."""
        picked = self.sample_prompts(config.batch_size, step, seed)
        asked = partial(self.generate_and_score, policy, config, picked, step=step, seed=seed, version=version)
        found = asked()
        more = RolloutExtras(partial(asked, greedy=True), partial(self.grade_steps, picked, found.rollout))
        return recipe.credit.complete(found, more)


class BehaviorPolicy:
    """The policy that samples: the learner itself or, with ``staleness`` above 0, the learner as it was so many steps ago.

    An asynchronous system samples on other machines with weights that lag behind. Here both take turns in one process; the lag
    is the same at every step (less at the first ones), and a resumed run ends with the same bits.
    """

    def __init__(self, loop: TrainingLoop, staleness: int) -> None:
        self._loop, self._staleness = loop, staleness
        self._lagging = copy.deepcopy(loop.model) if staleness else loop.model

    def policy(self) -> tuple[nn.Module, int]:
        """The sampling policy of the present step, and the number of steps that it has learned from."""
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
    """Sample and grade, again while the recipe's refill asks for it.

    Args:
        draw: ``(seed) -> Graded``: a batch of other prompts and samples for every seed.

    Returns:
        All that was sampled; what to learn from (as many groups as one draw has, or fewer); and its share of the groups, 0 if no
        group is to be learned from, None if the recipe does not refill.
    """
    rounds = [draw(seed)]
    refill = recipe.collect.refill
    if refill is None:
        return rounds[0], rounds[0], None

    def kept(graded: ScoredRollout) -> Tensor:
        """``(number kept,)`` indices of groups."""
        return refill.keep_groups(graded.rewards, graded.valid).nonzero().flatten()

    wanted = len(rounds[0].rewards)
    found = len(kept(rounds[0]))
    while found < wanted and len(rounds) <= refill.max_resampling_rounds:
        rounds.append(draw(derive_seed("refill", seed, len(rounds))))
        found += len(kept(rounds[-1]))
    everything = ScoredRollout.concatenate(rounds, pad_token_id)
    picked = kept(everything)[:wanted]
    share = len(picked) / len(everything.rewards)
    return everything, everything.select_groups(picked) if share else rounds[0], share


@torch.no_grad()
def recompute_old_logps(graded: ScoredRollout, model: nn.Module, temperature: float) -> ScoredRollout:
    """The rollout with the learner's own log-probabilities as ``old_logps``."""
    rollout = graded.rollout
    logps = completion_logps(model, rollout.input_ids, rollout.attention_mask, rollout.mask.shape[1], temperature)
    return replace(graded, rollout=replace(rollout, old_logps=torch.where(rollout.mask, logps, 0.0)))


@torch.no_grad()
def add_ref_logps_and_values(
    graded: ScoredRollout, ref_model: nn.Module | None, critic: nn.Module | None, temperature: float
) -> ScoredRollout:
    """The rollout with log-probabilities under the reference and values of the critic, where there are these models; the greedy
    completions likewise."""
    rollout, greedy = graded.rollout, graded.greedy
    inputs = rollout.input_ids, rollout.attention_mask, rollout.mask.shape[1]
    return replace(
        graded,
        ref_logps=None if ref_model is None else completion_logps(ref_model, *inputs, temperature),
        values=None if critic is None else completion_values(critic, *inputs),
        greedy=None if greedy is None else add_ref_logps_and_values(greedy, ref_model, None, temperature),
    )
