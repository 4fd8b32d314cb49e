"""An online recipe: its definition, its description, and its validation before a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import MISSING, dataclass, fields, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError, UnusedOptionNotice, UserError
from minirlhf.data.types import Rollout
from minirlhf.equations import policy_losses
from minirlhf.equations.aggregation import high_entropy_weights
from minirlhf.recipes.options import ConfigurableRecipe, Places, filled, head, name_of, number
from minirlhf.recipes.parts import (
    AdvantageEstimator,
    PolicyUpdate,
    RolloutExtras,
    RolloutProcessing,
    ScoredRollout,
    masked_importance,
    off_policy_sequence_mask,
    sequence_importance,
    truncated_importance,
)


@dataclass(frozen=True)
class Recipe(ConfigurableRecipe):
    """An online algorithm.

    Attributes:
        source: the paper.
        credit: ``(graded, kl) -> (B, T)``.
        update: how a step is taken.
        collect: what is sampled, and how rewards are processed before credit.
    """

    PLACES: ClassVar[Places] = {
        "": ("name", "source", "deviations", "credit", "update", "collect"),
        "credit": ("advantage", "critic", "gamma", "lam", "critic_lam", "whiten_rewards", "whiten_advantages"),
        "credit.advantage": ("ddof", "eps"),
        "credit.lam": ("alpha",),
        "credit.critic": ("value_loss", "shared", "vf_coef", "critic_learning_rate_ratio", "critic_warmup"),
        "credit.critic.value_loss": ("cliprange_value",),
        "update": tuple(f.name for f in fields(PolicyUpdate)),
        "update.objective": (
            *("epsilon", "epsilon_high", "delta", "per_sequence", "sapo_temperature_pos", "sapo_temperature_neg"),
            *("vespo_k_pos", "vespo_lambda_pos", "vespo_k_neg", "vespo_lambda_neg"),
        ),
        "update.weights": ("renormalise", "max_completion_length"),
        "update.kl": ("estimator", "beta"),
        "update.corrections": ("importance_sampling_cap", "importance_sampling_floor", "off_policy_mask_threshold"),
        "collect": ("shape", "refill", "sample_filter"),
        "collect.shape": ("missing_eos_penalty", "length_penalty", "max_completion_length", "soft_punish_cache"),
        "collect.refill": ("keep_groups", "max_resampling_rounds"),
        "collect.sample_filter": ("num_kept",),
    }

    source: str
    credit: AdvantageEstimator
    update: PolicyUpdate
    collect: RolloutProcessing = RolloutProcessing()

    def resolved(self, *, max_completion_length: int) -> Recipe:
        """Return this recipe with the run's length for functions that take it and have none bound; also its row."""
        fill = partial(filled, max_completion_length=max_completion_length)
        update, collect = self.update, self.collect
        return replace(
            self,
            row=self.row and self.row.resolved(max_completion_length=max_completion_length),
            update=replace(update, weights=fill(update.weights)),
            collect=replace(collect, shape=tuple(map(fill, collect.shape))),
        )

    def advantages(self, graded: ScoredRollout) -> Tensor:
        """Return ``(B, T)``: the credit of every sampled token.

        Raises:
            UserError: the recipe cannot use these rewards; the message is that of the function.
        """
        try:
            return self.credit(graded, self.update.kl)
        except ValueError as problem:
            raise UserError.about(f"{self.name}: {problem}", problem) from None

    def validate(self, num_generations: int = 2) -> None:
        """Run the recipe on a synthetic rollout, so that an invalid number is reported before the run starts.

        Raises:
            UserError: a function rejects a number; the message is that of the function.
        """
        scored, extras = _made_up(self, num_generations)
        update, rollout, refill = self.update, scored.rollout, self.collect.refill
        logps, mask = rollout.old_logps, rollout.mask
        try:
            _at_least(1, True, num_iterations=update.num_iterations, num_minibatches=update.num_minibatches)
            _at_least(0, positive_coef=update.positive_coef, ptx_coef=update.ptx_coef, entropy_coef=update.entropy_coef)
            if update.kl is not None:
                _at_least(0, beta=update.kl.beta)
            if refill is not None:
                refill.keep_groups(scored.rewards, scored.valid)
                _at_least(0, True, max_resampling_rounds=refill.max_resampling_rounds)
            complete = self.collect(self.credit.complete(scored, extras))
            advantages = self.credit(complete, update.kl)
            self.credit.targets(complete, update.kl)
            update.objective(logps, logps, advantages, mask)
            weights = update.token_weights(rollout)
            if update.top_entropy_quantile != 1:
                high_entropy_weights(weights, -logps, mask, top_entropy_quantile=update.top_entropy_quantile)
            for correction in update.corrections:
                correction(logps, rollout, advantages)
            if (critic := self.credit.critic) is not None:
                critic.value_loss(logps, logps, logps, mask)
                _at_least(0, vf_coef=critic.vf_coef, critic_learning_rate_ratio=critic.critic_learning_rate_ratio)
                _at_least(0, True, critic_warmup=critic.critic_warmup)
        except (ValueError, TypeError) as problem:
            raise UserError.about(f"{self.name}: {problem}", problem) from None

    def _try(self) -> None:
        self.resolved(max_completion_length=4096).validate(64)

    def unused_options(
        self,
        num_generations: int,
        *,
        staleness: int = 0,
        truncates: bool = False,
        max_steps: int | None = None,
        completions: int | None = None,
    ) -> list[UnusedOptionNotice]:
        """Return the options that have no effect at these settings, with the reasons.

        Of a function of your own nothing is known.

        Args:
            num_generations: ``G``.
            staleness: number of steps by which the behaviour policy lags behind the current policy.
            truncates: whether top-k, top-p or min-p truncate the sampling distribution.
            max_steps: steps of the run; None: the run does not end.
            completions: number of completions to learn from in a step; None: always enough.
        """
        update, critic, collect = self.update, self.credit.critic, self.collect
        single = update.num_iterations * update.num_minibatches == 1
        on_policy = staleness == 0 and not truncates
        unused: dict[str, dict[str, str]] = {}  # why: {description: name of the option}
        if single and (staleness == 0 or update.decoupled):
            why = "with one update per rollout (num_iterations = num_minibatches = 1) every ratio is 1"
            unused[why] = _bound(update.objective, AT_RATIO_ONE.get(head(update.objective), ()))
        if single and critic is not None:
            why = "with one update per rollout the critic's values are still those of the rollout"
            unused[why] = _bound(critic.value_loss, ("cliprange_value",))
        if update.keep is None:
            unused["keep is None, so no completion is masked"] = _bound(update.weights, ("renormalise",))
        if on_policy:
            inactive = {name_of(c): head(c).__name__ for c in update.corrections if _is_one_on_policy(c, single)}
            inactive |= {"decoupled": "decoupled"} if update.decoupled else {}
            unused["the behaviour policy is the current policy (staleness = 0)"] = inactive
        if collect.sample_filter is not None and number(collect.sample_filter, "num_kept", 0) >= num_generations:
            why = f"it keeps all {num_generations} completions of a group"
            unused[why] = {name_of(collect.sample_filter): "sample_filter"}
        weightless = {} if update.kl is None or update.kl.beta else {"the KL term (beta = 0)": "beta"}
        for name in ("vf_coef", "critic_learning_rate_ratio"):
            if critic is not None and getattr(critic, name) == 0:
                weightless[f"the critic, which is not trained ({name} = 0)"] = name
        unused["its weight is 0"] = weightless
        if collect.refill is not None and collect.refill.max_resampling_rounds == 0:
            why = "max_resampling_rounds = 0: filtered groups are dropped and not replaced"
            unused[why] = {"refill": "refill"}
        if critic is not None and max_steps is not None and critic.critic_warmup >= max_steps:
            why = f"critic_warmup = {critic.critic_warmup} covers all {max_steps} steps, which train the critic only"
            unused[why] = {"the policy's update": "update"}
        if completions is not None and update.num_minibatches > completions:
            why = f"a step has {completions} completions, so at most {completions} updates per pass"
            unused[why] = {f"num_minibatches = {update.num_minibatches} beyond {completions}": "num_minibatches"}
        return [
            UnusedOptionNotice(f"no effect of {', '.join(opts)}: {why}", *opts.values())
            for why, opts in unused.items()
            if opts
        ]


CLIP = ("epsilon", "epsilon_high", "delta")
#: The numbers of each objective that change neither its value nor its gradient where every ratio is 1.
AT_RATIO_ONE: dict[Callable[..., Tensor], tuple[str, ...]] = {
    policy_losses.ppo_clip: CLIP,
    policy_losses.gspo: CLIP,
    policy_losses.gspo_token: CLIP,
    policy_losses.luspo: CLIP,
    policy_losses.gmpo: CLIP,
    policy_losses.cispo: (*CLIP, "per_sequence"),
    policy_losses.sapo: ("per_sequence",),
    policy_losses.vespo: ("vespo_k_pos", "vespo_lambda_pos", "vespo_k_neg", "vespo_lambda_neg"),
}


def _bound(function: Any, names: Collection[str]) -> dict[str, str]:
    """Return ``{"name = value": name}`` of those of the names that are bound to a function."""
    bound = {name: value for name, value in getattr(function, "keywords", {}).items() if name in names}
    return {f"{k} = {v}" if isinstance(v, bool) else f"{k} = {v:g}": k for k, v in bound.items() if v is not None}


def _is_one_on_policy(correction: Any, single: bool) -> bool:
    """Return whether a correction is 1 for samples of the current policy; a mask by drift with one update only."""
    if head(correction) is off_policy_sequence_mask:
        return single
    ratio_weights = (truncated_importance, sequence_importance, masked_importance)
    low, high = (number(correction, f"importance_sampling_{end}", 1.0) for end in ("floor", "cap"))
    return head(correction) in ratio_weights and low <= 1 <= high


def _made_up(recipe: Recipe, num_generations: int) -> tuple[ScoredRollout, RolloutExtras]:
    """Return two groups to test a recipe on, and its extras: rewards of 0 and 1, the first completion truncated."""
    count = 2 * num_generations
    mask, logps = torch.ones(count, 2, dtype=torch.bool), torch.full((count, 2), -1.0)
    ids = torch.zeros(count, 3, dtype=torch.long)
    rollout = Rollout(ids, ids + 1, mask, logps, logps, ids[:, 1:], torch.arange(count) > 0, num_generations)
    rewards = torch.arange(float(count)).remainder(2).view(2, -1)
    valid, steps = torch.ones_like(rewards, dtype=torch.bool), torch.tensor([math.nan, 1.0]).expand(count, 2)
    greedy = ScoredRollout(
        replace(rollout.select(torch.arange(2)), num_generations=1), rewards[:, :1], valid[:, :1], logps[:2]
    )
    scored = ScoredRollout(rollout, rewards, valid, logps, None if recipe.credit.critic is None else logps)
    return scored, RolloutExtras(lambda: greedy, lambda: steps)


def _at_least(low: int, integer: bool = False, **numbers: float) -> None:
    for name, value in numbers.items():
        if not low <= value < math.inf or (integer and value != int(value)):
            raise ArgumentError(
                f"{name} = {value!r}; expected a {'whole' if integer else 'finite'} number ≥ {low}",
                argument=name,
                value=value,
                expected=low,
            )


def summary(recipe: Recipe) -> dict[str, str]:
    """Return the recipe as a table row: choices in which most recipes differ, and in ``beside`` the rarer ones."""
    credit, update, collect = recipe.credit, recipe.update, recipe.collect
    rest = [choice for choice in vars(credit).values() if callable(choice)]
    functions = (*collect.shape, collect.sample_filter, update.keep, *update.corrections)
    beside = [name_of(function) for function in functions if function is not None]
    beside += ["refill"] if collect.refill is not None else []
    beside += ["decoupled"] if update.decoupled else []
    numbers = {"positive_coef": 0.0, "entropy_coef": 0.0, "top_entropy_quantile": 1.0}
    beside += [f"{name}={getattr(update, name):g}" for name, off in numbers.items() if getattr(update, name) != off]
    beside += [name_of(function) for function in rest if name_of(function) != credit.title]
    kl = update.kl
    return {
        "recipe": recipe.name,
        "credit": credit.title,
        "objective": name_of(update.objective),
        "weights": name_of(update.weights),
        "KL": "none" if kl is None else f"{name_of(kl.estimator)} in {'reward' if kl.in_reward else 'loss'}",
        "beside": ", ".join(beside),
    }


def describe(recipe: Recipe, *, defaults: bool = True) -> str:
    """Return a header for a run: source, choices, and every known deviation from the paper.

    Args:
        defaults: whether to list also the choices that most recipes make.
    """
    choices = {**vars(recipe.collect), "credit": recipe.credit, **vars(recipe.update)}
    if not defaults:
        usual = {f.name: f.default for part in (recipe.collect, recipe.update) for f in fields(part)}
        choices = {name: value for name, value in choices.items() if value != usual.get(name, MISSING)}
    lines = recipe.heading(recipe.source) + [f"  {name:16} {name_of(value)}" for name, value in choices.items()]
    per_rollout = recipe.update.num_iterations * recipe.update.num_minibatches
    has_ratio = head(recipe.update.objective) is not policy_losses.reinforce
    note = (
        "1 per rollout: every ratio is 1 and nothing is clipped, unless staleness > 0"
        if per_rollout == 1 and has_ratio
        else f"{per_rollout} per rollout"
    )
    lines.append(f"  {'updates':16} {note}")
    deviations = recipe.known_deviations() or (
        [] if recipe.differences() else ["deviations from the paper: none known"]
    )
    return "\n".join([*lines, *(f"  {line}" for line in deviations)])
