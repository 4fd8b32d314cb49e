"""The counterpart of a recipe in another engine, and the parts that no engine supports."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from minirlhf.core.errors import UserError
from minirlhf.equations import difficulty
from minirlhf.recipes import Recipe
from minirlhf.recipes.offline import PreferenceRecipe
from minirlhf.recipes.options import head, number
from minirlhf.recipes.parts import mask_truncated_completions
from minirlhf.trainers.config import TrainerConfig
from minirlhf.trainers.reward import RewardConfig
from minirlhf.trainers.sft import SFTConfig
from minirlhf_cli.files.sources import SFTSource, Source


@dataclass(frozen=True)
class RunSpec:
    """The settings of a run, as :func:`minirlhf_cli.commands.train.load_run_spec` reads them from its ``config.json``.

    Attributes:
        depends: digests that identify its data, model and grader.
    """

    trainer: str
    source: Source
    config: TrainerConfig
    recipe: Recipe | PreferenceRecipe | None
    depends: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the recipe, or of the trainer if there is no recipe."""
        return self.trainer if self.recipe is None else self.recipe.name

    @property
    def compares(self) -> bool:
        """Whether the run needs a reference model."""
        match self.recipe:
            case Recipe():
                return self.recipe.update.kl is not None
            case PreferenceRecipe():
                return self.recipe.needs.reference
        return False


@dataclass(frozen=True)
class ExportPlan:
    """A recipe in the options of an engine.

    Attributes:
        trainer: the dotted name of the class or module that trains.
        options: the engine's options, without those of the optimizer and of sampling.
        differs: differences in the computation, one sentence each; empty if the optimizer steps are the same.
        advantage: the recipe's advantage function, if the engine accepts a function; None: an option selects it.
        sample_filter: the recipe's filter of training samples, likewise.
        notes: conditions under which the computation is the same, one sentence each.
    """

    trainer: str
    options: Mapping[str, Any]
    differs: tuple[str, ...] = field(default=())
    advantage: Callable[..., Any] | None = None
    sample_filter: Callable[..., Any] | None = None
    notes: tuple[str, ...] = ()


class NoCounterpartError(UserError):
    """The engine has no counterpart of a part of the recipe; ``argument`` and ``value`` are an option and its value."""

    def __init__(self, engine: str, recipe: str, part: str, *, argument: str, value: Any = None) -> None:
        super().__init__(
            f"{recipe}: {engine} has no counterpart of {part}", argument=argument, value=value, problem="no counterpart"
        )
        self.part = part


def supported(
    known: Container[Any], engine: str, recipe: Recipe | PreferenceRecipe, part: str, argument: str, function: Any
) -> Callable[..., Any]:
    """Return a function of the recipe without its hyperparameters, if it is one of those that the engine has.

    Args:
        part: what the function is, for the message; ``{}`` stands for its name.
        argument: the option of the recipe that holds the function.

    Raises:
        NoCounterpartError: the engine does not have it.
    """
    if (unbound := head(function)) not in known:
        name = unbound.__name__
        raise NoCounterpartError(engine, recipe.name, part.format(name), argument=argument, value=name)
    return unbound


def refuse_filters(engine: str, recipe: Recipe) -> None:
    """Refuse filters of samples, groups and tokens that neither verl nor OpenRLHF has.

    Raises:
        NoCounterpartError: names the first one.
    """
    collect, update = recipe.collect, recipe.update
    if collect.sample_filter is not None:
        part = "sample_filter, which learns from some samples of a group"
        raise NoCounterpartError(engine, recipe.name, part, argument="sample_filter")
    if collect.refill is not None:
        known = [difficulty.nonzero_variance_groups]
        supported(known, engine, recipe, "keep_groups={}", "keep_groups", collect.refill.keep_groups)
    if update.keep is not None:
        supported([mask_truncated_completions], engine, recipe, "keep={}", "keep", update.keep)


def require_single_function(recipe: Recipe) -> bool:
    """Return whether there is one update per rollout, so that every ratio is 1."""
    return recipe.update.num_iterations * recipe.update.num_minibatches == 1


def raise_unsupported(engine: str, recipe: Recipe, *, staleness: int, shapes: Sequence[Any]) -> None:
    """Refuse parts of a recipe that no engine supports.

    Args:
        staleness: number of steps by which the behaviour policy lags.
        shapes: the reward-shaping functions that the engine or the exported grader can apply.

    Raises:
        NoCounterpartError: an unsupported part, which the error names.
    """
    update = recipe.update
    neutral = {"positive_coef": 0.0, "ptx_coef": 0.0, "entropy_coef": 0.0, "top_entropy_quantile": 1.0}
    for name, neutral_value in neutral.items():
        if (value := getattr(update, name)) != neutral_value:
            raise NoCounterpartError(engine, recipe.name, f"{name} = {value:g}", argument=name, value=value)
    if staleness:
        part = f"a sampler that is a fixed number of steps behind (staleness = {staleness})"
        raise NoCounterpartError(engine, recipe.name, part, argument="staleness", value=staleness)
    for shape in (head(f).__name__ for f in recipe.collect.shape if head(f) not in shapes):
        raise NoCounterpartError(engine, recipe.name, f"shape={shape}", argument="shape", value=shape)


def refuse_numbers(engine: str, recipe: str, function: Any, **fixed: float) -> None:
    """Refuse a hyperparameter that differs from the value fixed in the engine.

    Raises:
        NoCounterpartError: names the first one.
    """
    for name, value in fixed.items():
        if number(function, name) != value:
            actual = number(function, name)
            part = f"{name} = {actual:g} (there it is {value:g})"
            raise NoCounterpartError(engine, recipe, part, argument=name, value=actual)


def refuse_settings(engine: str, recipe: str, **values: Any) -> None:
    """Refuse settings of a run for which the engine has no option; None, 0 and "" mean unset.

    Raises:
        NoCounterpartError: names the first one.
    """
    for name, value in values.items():
        if value:
            raise NoCounterpartError(engine, recipe, f"{name} = {value}", argument=name, value=value)


def refuse_sft_settings(engine: str, spec: RunSpec, *train_on: str) -> None:
    """Refuse SFT settings that only TRL supports; ``train_on`` lists the values that this engine supports.

    Raises:
        NoCounterpartError: names the first setting.
    """
    source, config = spec.source, spec.config
    assert isinstance(source, SFTSource) and isinstance(config, SFTConfig)
    refuse_settings(
        engine, spec.name, packing=config.packing, loss_type=source.loss_type.replace("nll", ""),
        train_on="" if source.train_on in train_on else source.train_on, disable_dropout=config.disable_dropout,
    )  # fmt: skip


def refuse_reward_settings(engine: str, config: TrainerConfig, *more: str) -> None:
    """Refuse settings of our reward model's loss, and ``more`` settings; the engines have the plain loss, with the
    data's margins.

    Raises:
        NoCounterpartError: names the first setting.
    """
    defaults = RewardConfig()
    for name in ("loss", "margin_coefficient", "label_smoothing", "balance_prompts", "nll_coefficient", *more):
        if (value := getattr(config, name)) != getattr(defaults, name):
            raise NoCounterpartError(engine, "reward", f"{name} = {value}", argument=name, value=value)
