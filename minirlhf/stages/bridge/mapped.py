"""What a recipe becomes in another engine, and what no engine takes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from minirlhf.core.errors import UserError
from minirlhf.recipes import Recipe
from minirlhf.recipes.offline import PreferenceRecipe
from minirlhf.stages.sources import SFTSource, Source
from minirlhf.trainers.config import TrainerConfig
from minirlhf.trainers.reward import RewardConfig
from minirlhf.trainers.sft import SFTConfig


@dataclass(frozen=True)
class RunSpec:
    """A run as it was asked for: what :func:`minirlhf.cli.train.load_run_spec` reads from its ``config.json``.

    Attributes:
        depends: what tells its data, model and grader from others.
    """

    trainer: str
    source: Source
    config: TrainerConfig
    recipe: Recipe | PreferenceRecipe | None
    depends: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Of the recipe, or of the trainer that has none."""
        return self.trainer if self.recipe is None else self.recipe.name

    @property
    def compares(self) -> bool:
        """Does it ask a reference?"""
        match self.recipe:
            case Recipe():
                return self.recipe.update.kl is not None
            case PreferenceRecipe():
                return self.recipe.needs.reference
        return False


@dataclass(frozen=True)
class ExportPlan:
    """A recipe in the words of an engine.

    Attributes:
        trainer: the class or module that trains, as a dotted name.
        options: of the engine, without those of the optimizer and of sampling.
        differs: what the engine computes otherwise, a sentence each; none if the optimizer's steps are the same.
        advantage: the recipe's own advantage, where the engine lets a program put one in; None: it is among the options.
        sample_filter: likewise the choice of the samples that are learned from.
        notes: what is the same only so long as nothing else is changed, a sentence each.
    """

    trainer: str
    options: Mapping[str, Any]
    differs: tuple[str, ...] = field(default=())
    advantage: Callable[..., Any] | None = None
    sample_filter: Callable[..., Any] | None = None
    notes: tuple[str, ...] = ()


class NoCounterpartError(UserError):
    """The engine has nothing that does what a part of the recipe does; its facts are an option's name and value."""

    def __init__(self, engine: str, recipe: str, part: str, *, argument: str, value: Any = None) -> None:
        super().__init__(
            f"{recipe}: {engine} has no counterpart of {part}", argument=argument, value=value, problem="no counterpart"
        )
        self.part = part


def head(function: Any) -> Callable[..., Any]:
    """A function without the numbers that are bound to it."""
    while isinstance(function, functools.partial):
        function = function.func
    return function  # type: ignore[no-any-return]


def number(function: Any, name: str) -> Any:
    """The present value of a hyperparameter of a function: bound, or its default."""
    return inspect.signature(function).parameters[name].default


def require_single_function(recipe: Recipe) -> bool:
    """Is there one update per rollout, so that every ratio is 1?"""
    return recipe.update.num_iterations * recipe.update.num_minibatches == 1


def raise_unsupported(engine: str, recipe: Recipe, *, staleness: int, shapes: Sequence[Any]) -> None:
    """Refuse what is nowhere to be had.

    Args:
        staleness: steps by which the policy that samples is behind.
        shapes: the functions of rewards that somebody else can apply.

    Raises:
        NoCounterpartError: naming the part.
    """
    update = recipe.update
    none = {"positive_coef": 0.0, "ptx_coef": 0.0, "entropy_coef": 0.0, "top_entropy_quantile": 1.0}
    for name, plain in none.items():
        if (value := getattr(update, name)) != plain:
            raise NoCounterpartError(engine, recipe.name, f"{name} = {value:g}", argument=name, value=value)
    if staleness:
        part = f"a sampler that is a fixed number of steps behind (staleness = {staleness})"
        raise NoCounterpartError(engine, recipe.name, part, argument="staleness", value=staleness)
    for shaped in (head(f).__name__ for f in recipe.collect.shape if head(f) not in shapes):
        raise NoCounterpartError(engine, recipe.name, f"shape={shaped}", argument="shape", value=shaped)


def refuse_numbers(engine: str, told: str, function: Any, **fixed: float) -> None:
    """Refuse another value of a number that is fixed there.

    Raises:
        NoCounterpartError: naming the first.
    """
    for name, value in fixed.items():
        if number(function, name) != value:
            found = number(function, name)
            part = f"{name} = {found:g} (there it is {value:g})"
            raise NoCounterpartError(engine, told, part, argument=name, value=found)


def refuse_settings(engine: str, told: str, **values: Any) -> None:
    """Refuse settings of a run that the engine has no name for; None, 0 and "" ask for nothing.

    Raises:
        NoCounterpartError: naming the first.
    """
    for name, value in values.items():
        if value:
            raise NoCounterpartError(engine, told, f"{name} = {value}", argument=name, value=value)


def refuse_sft_settings(engine: str, told: RunSpec, *train_on: str) -> None:
    """Refuse what the engines other than TRL cannot be told of supervised fine-tuning; ``train_on`` is what they can.

    Raises:
        NoCounterpartError: naming the first setting.
    """
    source, config = told.source, told.config
    assert isinstance(source, SFTSource) and isinstance(config, SFTConfig)
    refuse_settings(
        engine, told.name, packing=config.packing, loss_type=source.loss_type.replace("nll", ""),
        train_on="" if source.train_on in train_on else source.train_on,
    )  # fmt: skip


def refuse_reward_settings(engine: str, config: TrainerConfig) -> None:
    """Refuse what only our reward model's loss knows; the engines have the plain one, with the data's margins.

    Raises:
        NoCounterpartError: naming the first setting.
    """
    plain = RewardConfig()
    for name in ("loss", "margin_coefficient", "label_smoothing", "balance_prompts", "nll_coefficient"):
        if (value := getattr(config, name)) != getattr(plain, name):
            raise NoCounterpartError(engine, "reward", f"{name} = {value}", argument=name, value=value)
