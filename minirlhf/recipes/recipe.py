"""What an online recipe is, what it says of itself, and how it is tried out before a run."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError, Idle, UserError
from minirlhf.data.types import Rollout
from minirlhf.equations.aggregation import high_entropy_mask
from minirlhf.recipes.binding import ConfigurableRecipe, name_of
from minirlhf.recipes.parts import AdvantageEstimator, PolicyUpdate, RolloutExtras, RolloutProcessing, ScoredRollout


@dataclass(frozen=True)
class Recipe(ConfigurableRecipe):
    """An online algorithm.

    Attributes:
        source: the paper.
        credit: ``(graded, kl) -> (B, T)``.
        update: how a step is taken.
        collect: what is sampled, and what happens to rewards before credit.
    """

    source: str
    credit: AdvantageEstimator
    update: PolicyUpdate
    collect: RolloutProcessing = RolloutProcessing()

    def advantages(self, graded: ScoredRollout) -> Tensor:
        """``(B, T)``: credit for every sampled token.

        Raises:
            UserError: the recipe cannot work with these rewards, in the function's own words.
        """
        try:
            return self.credit(graded, self.update.kl)
        except ValueError as problem:
            raise UserError.about(f"{self.name}: {problem}", problem) from None

    def validate(self, num_generations: int = 2) -> None:
        """Go through a made-up rollout, so that a number that a function refuses is one clear error at once.

        Raises:
            UserError: with the function's own words.
        """
        graded, more = _made_up(self, num_generations)
        update, rollout, refill = self.update, graded.rollout, self.collect.refill
        logps, mask = rollout.old_logps, rollout.mask
        try:
            _at_least(1, True, num_iterations=update.num_iterations, num_minibatches=update.num_minibatches)
            _at_least(0, positive_coef=update.positive_coef, ptx_coef=update.ptx_coef, entropy_coef=update.entropy_coef)
            if update.kl is not None:
                _at_least(0, beta=update.kl.beta)
            if refill is not None:
                refill.keep_groups(graded.rewards, graded.valid)
                _at_least(0, True, max_resampling_rounds=refill.max_resampling_rounds)
            complete = self.collect(self.credit.complete(graded, more))
            advantages = self.credit(complete, update.kl)
            self.credit.targets(complete, update.kl)
            update.objective(logps, logps, advantages, mask)
            weights = update.completion_weights(rollout)
            if update.top_entropy_quantile != 1:
                high_entropy_mask(weights, -logps, mask, top_entropy_quantile=update.top_entropy_quantile)
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
    ) -> list[Idle]:
        """What was chosen and does nothing at these settings, and why; found by trying it out.

        Args:
            num_generations: ``G``.
            staleness: steps by which the policy that samples is behind.
            truncates: top-k, top-p or min-p cut the distribution that is sampled from.
            max_steps: of the run; None: it does not end.
            completions: to learn from in a step; None: always enough.
        """
        update, critic, sample_filter = self.update, self.credit.critic, self.collect.sample_filter
        graded, _ = _made_up(self, num_generations)
        rollout = graded.rollout
        advantages = (graded.rewards - 0.5).flatten()[:, None].expand(rollout.mask.shape)
        same = rollout.old_logps, rollout.old_logps, advantages, rollout.mask
        single = update.num_iterations * update.num_minibatches == 1
        found: dict[str, dict[str, str]] = {}  # why: what it speaks of, with the option's name
        if single and (staleness == 0 or update.decoupled):
            why = "with one update per rollout (num_iterations = num_minibatches = 1) every ratio is 1"
            found[why] = _flat(update.objective, *same)
        if single and critic is not None:
            why = "with one update per rollout the critic still says what it said when sampling"
            found[why] = _flat(critic.value_loss, *same)
        if update.keep is None:
            found["without keep no completion is left out of the weights"] = _flat(update.weights, rollout.mask)
        if staleness == 0 and not truncates:
            logps = rollout.old_logps if single else 1e3 * rollout.old_logps  # as far away as it may ever get
            factors = {name_of(correction): correction(logps, rollout, advantages) for correction in update.corrections}
            idle = [name for name, factor in factors.items() if bool((factor == 1).all())]
            idle += ["decoupled"] * update.decoupled
            found["the policy that samples is the one that learns (staleness = 0)"] = {
                name: name.partition("(")[0] for name in idle
            }
        if sample_filter is not None and bool(sample_filter(graded.rewards, rollout, graded.valid).all()):
            found[f"it keeps all {num_generations} samples of a group"] = {name_of(sample_filter): "sample_filter"}
        weights_of = {"beta": update.kl and update.kl.beta}  # what has weight 0 says nothing, though it was asked for
        if critic is not None:
            weights_of |= {name: getattr(critic, name) for name in ("vf_coef", "critic_learning_rate_ratio")}
        if any(value == 0 for value in weights_of.values()):
            nothing = {"beta": "the KL term"}
            found["its weight is 0"] = {
                f"{nothing.get(name, 'the critic, which never learns')} ({name} = 0)": name
                for name, value in weights_of.items()
                if value == 0
            }
        if (refill := self.collect.refill) is not None and refill.max_resampling_rounds == 0:
            why = "max_resampling_rounds = 0: groups that teach nothing are dropped, and no other is sampled"
            found[why] = {"refill": "refill"}
        if critic is not None and max_steps is not None and critic.critic_warmup >= max_steps:
            why = f"critic_warmup = {critic.critic_warmup} lasts the whole run of {max_steps}, which teaches the critic only"
            found[why] = {"the policy's update": "update"}
        if completions is not None and update.num_minibatches > completions:
            why = f"a step has {completions} completions, and as many updates per pass"
            found[why] = {f"num_minibatches = {update.num_minibatches} beyond that": "num_minibatches"}
        return [Idle(f"no effect of {', '.join(what)}: {why}", *what.values()) for why, what in found.items() if what]


def _made_up(recipe: Recipe, num_generations: int) -> tuple[ScoredRollout, RolloutExtras]:
    """Two groups on which a recipe is tried out, with what it needs: rewards of 0 and 1, the first completion cut off."""
    count = 2 * num_generations
    mask, logps = torch.ones(count, 2, dtype=torch.bool), torch.full((count, 2), -1.0)
    ids = torch.zeros(count, 3, dtype=torch.long)
    rollout = Rollout(ids, ids + 1, mask, logps, logps, ids[:, 1:], torch.arange(count) > 0, num_generations)
    rewards = torch.arange(float(count)).remainder(2).view(2, -1)
    valid, steps = torch.ones_like(rewards, dtype=torch.bool), torch.tensor([math.nan, 1.0]).expand(count, 2)
    greedy = ScoredRollout(
        replace(rollout.select(torch.arange(2)), num_generations=1), rewards[:, :1], valid[:, :1], logps[:2]
    )
    graded = ScoredRollout(rollout, rewards, valid, logps, None if recipe.credit.critic is None else logps)
    return graded, RolloutExtras(lambda: greedy, lambda: steps)


def _at_least(low: int, whole: bool = False, **numbers: float) -> None:
    for name, value in numbers.items():
        if not low <= value < math.inf or (whole and value != int(value)):
            raise ArgumentError(
                f"{name} = {value!r}; expected a {'whole' if whole else 'finite'} number ≥ {low}",
                argument=name,
                value=value,
                expected=low,
            )


def _flat(function: Any, at: Tensor, *rest: Tensor) -> dict[str, str]:
    """The numbers bound to a function that change neither its value nor its gradient at one point, as ``name = value`` with the name."""

    def measured(**changes: float) -> list[Tensor]:
        if not at.is_floating_point():
            return [function(at, *rest, **changes)]
        x = at.clone().requires_grad_()
        y = function(x, *rest, **changes)
        return [y.detach(), *torch.autograd.grad(y.sum(), x)]

    found = {}
    for name, value in getattr(function, "keywords", {}).items():
        if not isinstance(value, int | float):
            continue
        same = []
        for other in (not value,) if isinstance(value, bool) else (value / 2, 2 * value):
            with contextlib.suppress(ValueError):  # a number that the function refuses
                same.append(all(map(torch.equal, measured(), measured(**{name: other}))))
        if same and all(same):
            found[f"{name} = {value}" if isinstance(value, bool) else f"{name} = {value:g}"] = name
    return found


def _has_a_ratio(recipe: Recipe) -> bool:
    """Whether the objective depends on what the old policy said."""
    rollout = _made_up(recipe, 2)[0].rollout
    logps, advantages = rollout.old_logps, torch.ones(rollout.mask.shape)
    objective = recipe.update.objective
    same, moved = (objective(logps, old, advantages, rollout.mask) for old in (logps, logps - 0.5))
    return not torch.equal(same, moved)


def summary(recipe: Recipe) -> dict[str, str]:
    """The recipe as a row of a table: what most of them differ in, and under ``beside`` what only some have."""
    credit, update, collect = recipe.credit, recipe.update, recipe.collect
    rest = [choice for choice in vars(credit).values() if callable(choice)]
    functions = (*collect.shape, collect.sample_filter, update.keep, *update.corrections)
    beside = [name_of(function) for function in functions if function is not None]
    beside += ["refill"] if collect.refill is not None else []
    beside += ["decoupled"] if update.decoupled else []
    numbers = {"positive_coef": 0.0, "entropy_coef": 0.0, "top_entropy_quantile": 1.0}
    beside += [f"{name}={getattr(update, name):g}" for name, plain in numbers.items() if getattr(update, name) != plain]
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
    """A header for a run: source, choices, and every deviation from the paper that is known."""
    chosen = {**vars(recipe.collect), "credit": recipe.credit, **vars(recipe.update)}
    lines = recipe.heading(recipe.source) + [f"  {name:16} {name_of(value)}" for name, value in chosen.items()]
    per_rollout = recipe.update.num_iterations * recipe.update.num_minibatches
    inert = per_rollout == 1 and _has_a_ratio(recipe)
    note = (
        "1 per rollout: every ratio is 1 and clips nothing, unless the samples are stale"
        if inert
        else f"{per_rollout} per rollout"
    )
    lines.append(f"  {'updates':16} {note}")
    declared = recipe.known_deviations() or ([] if recipe.differences() else ["deviates: in nothing that we know of"])
    return "\n".join([*lines, *(f"  {line}" for line in declared)])
