"""Layer 5: the algorithms as rows of one table. A recipe is a choice of functions; nothing here computes.

Two groups of choices: *credit* turns graded samples into one advantage per token, *update* turns advantages into a loss.
``GRPO.with_(weights=token_mean, epsilon_high=0.28)`` reads like the list of changes in a paper: a name is either a field of
the recipe or a hyperparameter of one of its functions, and anything else is an error.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from minirlhf.core.errors import unknown
from minirlhf.core.logprobs import sequence_logps
from minirlhf.core.masking import zero_where_masked
from minirlhf.data.types import Rollout
from minirlhf.equations.advantages import batch_center, broadcast_to_tokens, group_center, group_zscore, leave_one_out
from minirlhf.equations.aggregation import fixed_length, sequence_mean, token_mean
from minirlhf.equations.kl import k1, k3
from minirlhf.equations.policy_losses import ppo_clip, reinforce


@dataclass(frozen=True)
class Graded:
    """A graded rollout, all that credit assignment may look at.

    Attributes:
        rollout: ``B = P × G`` completions.
        rewards: ``(P, G)``.
        valid: ``(P, G)``, False where the grader failed.
        ref_logps: ``(B, T)`` under the reference policy, or None if the recipe has no KL term.
    """

    rollout: Rollout
    rewards: Tensor
    valid: Tensor
    ref_logps: Tensor | None = None


@dataclass(frozen=True)
class InLoss:
    """Add ``beta ·`` estimator, aggregated like the objective, to the loss (as in GRPO)."""

    estimator: Callable[..., Tensor] = k3
    beta: float = 0.04


@dataclass(frozen=True)
class InReward:
    """Take ``beta ·`` estimator, of the sampling policy, off the reward (as in PPO for RLHF and in RLOO)."""

    estimator: Callable[..., Tensor] = k1
    beta: float = 0.05


@dataclass(frozen=True)
class Grouped:
    """Credit that gives every token of a completion the advantage of the completion within its group."""

    advantage: Callable[..., Tensor]

    def __call__(self, graded: Graded, kl: InLoss | InReward | None) -> Tensor:
        """``(B, T)`` advantages, 0 outside the mask."""
        rewards = graded.rewards
        if isinstance(kl, InReward):
            rollout = graded.rollout
            per_token = kl.estimator(rollout.old_logps, _reference(graded))  # (B, T)
            rewards = rewards - kl.beta * rollout.grouped(sequence_logps(per_token, rollout.mask)).to(rewards)  # (P, G)
        return broadcast_to_tokens(self.advantage(rewards, valid=graded.valid), graded.rollout.mask)


def _reference(graded: Graded) -> Tensor:
    if graded.ref_logps is None:
        raise ValueError("ref_logps is None, but the recipe has a KL term")
    return zero_where_masked(graded.ref_logps, graded.rollout.mask)


@dataclass(frozen=True)
class Update:
    """How advantages change the policy.

    Attributes:
        objective: ``(logps, old_logps, advantages, mask, *, ...) -> (B, T)`` or ``(B, 1)``, maximised.
        weights: ``mask (B, T) -> (B, T)``, the aggregation.
        kl: where the KL term stands and which estimator it uses, or None.
        num_iterations: passes over each rollout.
        num_minibatches: optimizer steps per pass.
    """

    objective: Callable[..., Tensor]
    weights: Callable[..., Tensor]
    kl: InLoss | InReward | None = None
    num_iterations: int = 1
    num_minibatches: int = 1


@dataclass(frozen=True)
class Recipe:
    """An online algorithm.

    Attributes:
        name: as on the command line.
        source: the paper.
        credit: ``(graded, kl) -> (B, T)``.
        update: how a step is taken.
        deviations: in what this implementation differs from the paper, a sentence each.
    """

    name: str
    source: str
    credit: Grouped
    update: Update
    deviations: tuple[str, ...] = ()

    @property
    def needs_reference(self) -> bool:
        """True if a frozen reference policy must be evaluated."""
        return self.update.kl is not None

    def options(self) -> dict[str, Any]:
        """Every name that :meth:`with_` takes, with its present value."""
        found: dict[str, Any] = {}
        for name, value in _leaves(self):
            found.setdefault(name, value)
        return found

    def with_(self, **changes: Any) -> Recipe:
        """This recipe with other choices: fields, or hyperparameters of its functions, by name.

        Raises:
            UserError: no field and no function of the recipe has that name.
        """
        recipe: Recipe = self
        # Functions first, so that a hyperparameter binds to the function given beside it.
        for name, value in sorted(changes.items(), key=lambda item: not callable(item[1])):
            recipe, hits = _bind(recipe, name, value)
            if not hits:
                raise unknown(f"option of recipe {self.name!r}", name, self.options())
        return recipe


def _parameters(function: Any) -> dict[str, Any]:
    """Keyword-only hyperparameters of a function, with the values bound so far."""
    return {
        name: p.default
        for name, p in inspect.signature(function).parameters.items()
        if p.kind is p.KEYWORD_ONLY and name != "valid"
    }


def _leaves(node: Any) -> Iterator[tuple[str, Any]]:
    if dataclasses.is_dataclass(node):
        for f in dataclasses.fields(node):
            value = getattr(node, f.name)
            yield f.name, value
            yield from _leaves(value)
    elif callable(node):
        yield from _parameters(node).items()


def _bind(node: Any, name: str, value: Any) -> tuple[Any, int]:
    """``node`` with every field or hyperparameter called ``name`` set; and how many there were."""
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        hits, changes = 0, {}
        for f in dataclasses.fields(node):
            if f.name == name:
                changes[name], hits = value, hits + 1
            else:
                bound, inner = _bind(getattr(node, f.name), name, value)
                if inner:
                    changes[f.name], hits = bound, hits + inner
        return (replace(node, **changes) if changes else node), hits
    if callable(node) and name in _parameters(node):
        return functools.partial(node, **{name: value}), 1
    return node, 0


REINFORCE = Recipe(
    name="reinforce",
    source="Williams (1992), Simple statistical gradient-following algorithms for connectionist reinforcement learning",
    credit=Grouped(batch_center),
    update=Update(reinforce, token_mean),
    deviations=(
        "the baseline is the mean reward of the batch, where the paper has a running average",
        "the mean over tokens replaces the sum: a factor that is constant within a batch",
    ),
)
RLOO = Recipe(
    name="rloo",
    source="Ahmadian et al. (2024), Back to Basics: Revisiting REINFORCE Style Optimization, arXiv:2402.14740",
    credit=Grouped(leave_one_out),
    update=Update(reinforce, sequence_mean, kl=InReward(k1)),
)
GRPO = Recipe(
    name="grpo",
    source="Shao et al. (2024), DeepSeekMath, arXiv:2402.03300",
    credit=Grouped(group_zscore),
    update=Update(ppo_clip, sequence_mean, kl=InLoss(k3)),
)
DR_GRPO = GRPO.with_(
    name="dr_grpo",
    source="Liu et al. (2025), Understanding R1-Zero-Like Training: A Critical Perspective, arXiv:2503.20783",
    advantage=group_center,
    weights=fixed_length,
    kl=None,
)

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in (REINFORCE, RLOO, GRPO, DR_GRPO)}


def get(name: str) -> Recipe:
    """The recipe of this name; a :class:`UserError` with the nearest one otherwise."""
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    return RECIPES[name]


def _name(node: Any) -> str:
    """A function with the hyperparameters bound to it, as text."""
    if node is None:
        return "none"
    if dataclasses.is_dataclass(node):
        inner = ", ".join(
            _name(v) if callable(v) else f"{v}" for v in (getattr(node, f.name) for f in dataclasses.fields(node))
        )
        words = "".join(f" {c.lower()}" if c.isupper() else c for c in type(node).__name__).split()
        return f"{' '.join(words)}: {inner}"
    if isinstance(node, functools.partial):
        bound = ", ".join(f"{k}={v}" for k, v in node.keywords.items())
        return f"{_name(node.func)}({bound})"
    return str(node.__name__)


def choices(recipe: Recipe) -> dict[str, str]:
    """The recipe's choices as text: advantage, objective, weights, KL, passes and minibatches."""
    update = recipe.update
    return {
        "advantage": _name(recipe.credit.advantage),
        "objective": _name(update.objective),
        "weights": _name(update.weights),
        "kl": _name(update.kl),
        "num_iterations": str(update.num_iterations),
        "num_minibatches": str(update.num_minibatches),
    }


def describe(recipe: Recipe) -> str:
    """A header for a run: source, choices, options, and every deviation from the paper."""
    lines = [f"{recipe.name}: {recipe.source}"]
    lines += [f"  {key:16} {value}" for key, value in choices(recipe).items()]
    numbers = {k: v for k, v in recipe.options().items() if v is None or isinstance(v, int | float)}
    lines.append("  options          " + ", ".join(f"{k}={v}" for k, v in numbers.items()))
    lines += [f"  deviates: {sentence}" for sentence in recipe.deviations] or ["  deviates: in nothing that we know of"]
    return "\n".join(lines)
