"""An online recipe: its definition, its description, and its validation before a run."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError, UnusedOptionNotice, UserError
from minirlhf.data.types import Rollout
from minirlhf.equations.aggregation import high_entropy_weights
from minirlhf.recipes.binding import ConfigurableRecipe, name_of
from minirlhf.recipes.parts import AdvantageEstimator, PolicyUpdate, RolloutExtras, RolloutProcessing, ScoredRollout


@dataclass(frozen=True)
class Recipe(ConfigurableRecipe):
    """An online algorithm.

    Attributes:
        source: the paper.
        credit: ``(graded, kl) -> (B, T)``.
        update: how a step is taken.
        collect: what is sampled, and how rewards are processed before credit.
    """

    source: str
    credit: AdvantageEstimator
    update: PolicyUpdate
    collect: RolloutProcessing = RolloutProcessing()

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

    def unused_options(
        self,
        num_generations: int,
        *,
        staleness: int = 0,
        truncates: bool = False,
        max_steps: int | None = None,
        completions: int | None = None,
    ) -> list[UnusedOptionNotice]:
        """Return the options that have no effect at these settings, with the reasons, found on a synthetic rollout.

        Args:
            num_generations: ``G``.
            staleness: number of steps by which the behaviour policy lags behind the current policy.
            truncates: whether top-k, top-p or min-p truncate the sampling distribution.
            max_steps: steps of the run; None: the run does not end.
            completions: number of completions to learn from in a step; None: always enough.
        """
        update, critic, sample_filter = self.update, self.credit.critic, self.collect.sample_filter
        scored, _ = _made_up(self, num_generations)
        rollout = scored.rollout
        advantages = (scored.rewards - 0.5).flatten()[:, None].expand(rollout.mask.shape)
        inputs = rollout.old_logps, rollout.old_logps, advantages, rollout.mask
        single = update.num_iterations * update.num_minibatches == 1
        unused: dict[str, dict[str, str]] = {}  # why: {description: name of the option}
        if single and (staleness == 0 or update.decoupled):
            why = "with one update per rollout (num_iterations = num_minibatches = 1) every ratio is 1"
            unused[why] = _flat(update.objective, *inputs)
        if single and critic is not None:
            why = "with one update per rollout the critic's values are still those of the rollout"
            unused[why] = _flat(critic.value_loss, *inputs)
        if update.keep is None:
            unused["keep is None, so no completion is masked"] = _flat(update.weights, rollout.mask)
        if staleness == 0 and not truncates:
            logps = rollout.old_logps if single else 1e3 * rollout.old_logps  # as far apart as it may get
            factors = {name_of(correction): correction(logps, rollout, advantages) for correction in update.corrections}
            inactive = [name for name, factor in factors.items() if bool((factor == 1).all())]
            inactive += ["decoupled"] * update.decoupled
            unused["the behaviour policy is the current policy (staleness = 0)"] = {
                name: name.partition("(")[0] for name in inactive
            }
        if sample_filter is not None and bool(sample_filter(scored.rewards, rollout, scored.valid).all()):
            unused[f"it keeps all {num_generations} completions of a group"] = {name_of(sample_filter): "sample_filter"}
        weights = {"beta": update.kl and update.kl.beta}  # a term of weight 0 has no effect
        if critic is not None:
            weights |= {name: getattr(critic, name) for name in ("vf_coef", "critic_learning_rate_ratio")}
        if any(value == 0 for value in weights.values()):
            terms = {"beta": "the KL term"}
            unused["its weight is 0"] = {
                f"{terms.get(name, 'the critic, which is not trained')} ({name} = 0)": name
                for name, value in weights.items()
                if value == 0
            }
        if (refill := self.collect.refill) is not None and refill.max_resampling_rounds == 0:
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


def _flat(function: Any, at: Tensor, *rest: Tensor) -> dict[str, str]:
    """Return ``{"name = value": name}`` of the numbers bound to a function that do not affect its value or gradient.

    Each number is tested at one point: ``at``, and the other arguments ``rest``.
    """

    def outputs(**changes: float) -> list[Tensor]:
        if not at.is_floating_point():
            return [function(at, *rest, **changes)]
        x = at.clone().requires_grad_()
        y = function(x, *rest, **changes)
        return [y.detach(), *torch.autograd.grad(y.sum(), x)]

    inactive = {}
    for name, value in getattr(function, "keywords", {}).items():
        if not isinstance(value, int | float):
            continue
        unchanged = []
        for changed in (not value,) if isinstance(value, bool) else (value / 2, 2 * value):
            with contextlib.suppress(ValueError):  # a number that the function rejects
                unchanged.append(all(map(torch.equal, outputs(), outputs(**{name: changed}))))
        if unchanged and all(unchanged):
            inactive[f"{name} = {value}" if isinstance(value, bool) else f"{name} = {value:g}"] = name
    return inactive


def _has_a_ratio(recipe: Recipe) -> bool:
    """Return whether the objective depends on the log-probabilities of the old policy."""
    rollout = _made_up(recipe, 2)[0].rollout
    logps, advantages = rollout.old_logps, torch.ones(rollout.mask.shape)
    objective = recipe.update.objective
    same, shifted = (objective(logps, old, advantages, rollout.mask) for old in (logps, logps - 0.5))
    return not torch.equal(same, shifted)


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


def describe(recipe: Recipe) -> str:
    """Return a header for a run: source, choices, and every known deviation from the paper."""
    choices = {**vars(recipe.collect), "credit": recipe.credit, **vars(recipe.update)}
    lines = recipe.heading(recipe.source) + [f"  {name:16} {name_of(value)}" for name, value in choices.items()]
    per_rollout = recipe.update.num_iterations * recipe.update.num_minibatches
    no_ratio = per_rollout == 1 and _has_a_ratio(recipe)
    note = (
        "1 per rollout: every ratio is 1 and nothing is clipped, unless staleness > 0"
        if no_ratio
        else f"{per_rollout} per rollout"
    )
    lines.append(f"  {'updates':16} {note}")
    deviations = recipe.known_deviations() or (
        [] if recipe.differences() else ["deviations from the paper: none known"]
    )
    return "\n".join([*lines, *(f"  {line}" for line in deviations)])
