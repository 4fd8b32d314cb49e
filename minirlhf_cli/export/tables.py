"""The maps as tables: each recipe in each engine, and the engines' names of our hyperparameters.

Appendix C of the book prints them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from minirlhf import recipes
from minirlhf.core.errors import UserError
from minirlhf.recipes.offline import PREFERENCES
from minirlhf.recipes.options import ConfigurableRecipe, head
from minirlhf_cli.export.mapped import ExportPlan, NoCounterpartError
from minirlhf_cli.export.scripts import SETTINGS
from minirlhf_cli.export.write import ENGINES, Engine

SAME, NEARLY, NONE = "=", "≈", "–"
#: Options left out of the tables: equal for all recipes, or numbers of iterations and minibatches per rollout.
UNTOLD = {
    "use_bias_correction_kl", "reward.clip_range", "num_iterations", "steps_per_generation", "train.max_epochs",
    "actor_rollout_ref.actor.ppo_epochs", "max_length", "completion_only_loss",
}  # fmt: skip


@dataclass(frozen=True)
class OptionCell:
    """A recipe in one engine.

    Attributes:
        mark: the same, nearly the same, or no counterpart.
        options: ``name=value`` each.
        words: the differences, or the part without a counterpart.
    """

    mark: str
    options: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


def online(engine: str) -> dict[str, OptionCell]:
    """Return the rows of the table of recipes, without the composition of minibatches: every engine has its own."""
    return {name: _cell(ENGINES[engine], _plain(row)) for name, row in recipes.RECIPES.items()}


def preferences(engine: str) -> dict[str, OptionCell]:
    """Return the rows of the table of preference losses."""
    return {name: _cell(ENGINES[engine], row) for name, row in PREFERENCES.items()}


def _plain(row: recipes.Recipe) -> recipes.Recipe:
    """Return the recipe with one minibatch but two updates, so that its clip range appears in the options."""
    return row.with_(num_minibatches=1, num_iterations=2) if row.update.num_minibatches > 1 else row


def _map(engine: Engine, row: Any) -> ExportPlan:
    """Map a row to the engine's options; unset completion lengths become 32 tokens."""
    if isinstance(row, recipes.Recipe):
        return engine.online(row.resolved(max_completion_length=32))
    return engine.offline(row)


def _cell(engine: Engine, row: Any) -> OptionCell:
    try:
        plan = _map(engine, row)
    except NoCounterpartError as problem:
        return OptionCell(NONE, words=(problem.part,))
    options = {name.removeprefix("+"): value for name, value in plan.options.items() if name not in UNTOLD}
    options = {name.removeprefix("actor_rollout_ref."): value for name, value in options.items()}
    labels = [f"{name}={_value(value)}" for name, value in options.items() if value is not None and value is not False]
    for name in ("advantage", "sample_filter"):
        if (function := getattr(plan, name)) is not None:
            labels.append(f"hook: {head(function).__name__}")
    trainer = plan.trainer.rpartition(".")[2]
    return OptionCell(NEARLY if plan.differs else SAME, (trainer, *labels), (*plan.differs, *plan.notes))


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def settings() -> dict[str, tuple[str, str, str]]:
    """Return the settings of a run with their names in TRL, verl and OpenRLHF."""
    return SETTINGS


def numbers() -> dict[str, tuple[str, str, str]]:
    """Return the hyperparameters of recipes with the engines' options that change when we change them."""
    table: dict[str, list[set[str]]] = {}
    for row in [*map(_plain, recipes.RECIPES.values()), *PREFERENCES.values()]:
        for index, engine in enumerate(ENGINES.values()):
            for name, changed in _moved(engine, row):
                table.setdefault(name, [set() for _ in ENGINES])[index] |= changed
    joined = {name: [", ".join(sorted(one)) for one in theirs] for name, theirs in sorted(table.items()) if any(theirs)}
    return {name: (one, two, three) for name, (one, two, three) in joined.items()}


def _moved(engine: Engine, row: ConfigurableRecipe) -> Iterator[tuple[str, set[str]]]:
    """Yield each hyperparameter of a recipe, with the engine's options that change with it."""
    try:
        before = _map(engine, row)
    except NoCounterpartError:
        return
    for name, option in row.numbers().items():
        if isinstance(option.value, bool):
            continue
        for value in (1, 0.37, 1.7) if option.value is None else (option.value + 1, option.value / 2 + 0.01):
            try:
                after = _map(engine, row.with_(**{name: value}))
            except (UserError, ValueError):
                continue
            changed = _changed(before.options, after.options)
            if (
                changed and "scale_rewards" not in changed
            ):  # scale_rewards names no hyperparameter: it changes if a hook takes the advantage
                yield name, changed
                break


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    names = before.keys() | after.keys()
    return {name.removeprefix("+") for name in names if before.get(name) != after.get(name)}
