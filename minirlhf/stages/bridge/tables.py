"""The maps as tables: what each recipe is in each engine, and what our numbers are called there. Appendix C of the book prints them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from minirlhf import recipes
from minirlhf.core.errors import UserError
from minirlhf.recipes.binding import ConfigurableRecipe
from minirlhf.recipes.offline import PREFERENCES
from minirlhf.stages.bridge.mapped import ExportPlan, NoCounterpartError, head
from minirlhf.stages.bridge.scripts import SETTINGS
from minirlhf.stages.bridge.write import ENGINES, Engine

SAME, NEARLY, NONE = "=", "≈", "–"
#: Options that every recipe has alike, or that say how often and in what pieces a rollout is learned from.
UNTOLD = {
    "use_bias_correction_kl", "reward.clip_range", "num_iterations", "steps_per_generation", "train.max_epochs",
    "actor_rollout_ref.actor.ppo_epochs", "max_length", "completion_only_loss",
}  # fmt: skip


@dataclass(frozen=True)
class OptionCell:
    """A recipe in one engine.

    Attributes:
        mark: the same, nearly the same, or not to be had.
        options: ``name=value`` each.
        words: what differs, or the part that has no counterpart.
    """

    mark: str
    options: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


def online(engine: str) -> dict[str, OptionCell]:
    """Every row of the table of recipes. Replies of a minibatch are not told: that is every engine's own."""
    return {name: _cell(ENGINES[engine], _plain(row)) for name, row in recipes.RECIPES.items()}


def preferences(engine: str) -> dict[str, OptionCell]:
    """Every row of the table of preference losses."""
    return {name: _cell(ENGINES[engine], row) for name, row in PREFERENCES.items()}


def _plain(row: recipes.Recipe) -> recipes.Recipe:
    """The row with one minibatch, but not with one update: its clip range is to be seen."""
    return row.with_(num_minibatches=1, num_iterations=2) if row.update.num_minibatches > 1 else row


def _map(engine: Engine, row: Any) -> ExportPlan:
    """In the engine's words, with replies of 32 tokens at most where nobody said."""
    if isinstance(row, recipes.Recipe):
        return engine.online(row.resolved(max_completion_length=32))
    return engine.offline(row)


def _cell(engine: Engine, row: Any) -> OptionCell:
    try:
        found = _map(engine, row)
    except NoCounterpartError as problem:
        return OptionCell(NONE, words=(problem.part,))
    asked = {name.removeprefix("+"): value for name, value in found.options.items() if name not in UNTOLD}
    asked = {name.removeprefix("actor_rollout_ref."): value for name, value in asked.items()}
    shown = [f"{name}={_value(value)}" for name, value in asked.items() if value is not None and value is not False]
    for name in ("advantage", "sample_filter"):
        if (function := getattr(found, name)) is not None:
            shown.append(f"hook: {head(function).__name__}")
    kind = found.trainer.rpartition(".")[2]
    return OptionCell(NEARLY if found.differs else SAME, (kind, *shown), (*found.differs, *found.notes))


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def settings() -> dict[str, tuple[str, str, str]]:
    """Settings of a run by the names of TRL, verl and OpenRLHF."""
    return SETTINGS


def numbers() -> dict[str, tuple[str, str, str]]:
    """Numbers of recipes likewise: the options that change when ours does, found by changing each."""
    found: dict[str, list[set[str]]] = {}
    for row in [*map(_plain, recipes.RECIPES.values()), *PREFERENCES.values()]:
        for place, engine in enumerate(ENGINES.values()):
            for name, moved in _moved(engine, row):
                found.setdefault(name, [set() for _ in ENGINES])[place] |= moved
    joined = {name: [", ".join(sorted(one)) for one in theirs] for name, theirs in sorted(found.items()) if any(theirs)}
    return {name: (one, two, three) for name, (one, two, three) in joined.items()}


def _moved(engine: Engine, row: ConfigurableRecipe) -> Iterator[tuple[str, set[str]]]:
    """Each number of a recipe, with the engine's options that move with it."""
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
            moved = _changed(before.options, after.options)
            if moved and "scale_rewards" not in moved:  # which is no name of a number: an advantage goes by a hook then
                yield name, moved
                break


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    names = before.keys() | after.keys()
    return {name.removeprefix("+") for name in names if before.get(name) != after.get(name)}
