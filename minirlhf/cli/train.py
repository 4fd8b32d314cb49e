"""Train a model on your own data, or on a tiny world.

  minirlhf train sft     --data chats.jsonl  --model nano --out runs/sft
  minirlhf train reward  --data pairs.jsonl  --model runs/sft/model --out runs/rm
  minirlhf train grpo    --data gsm8k.jsonl  --model runs/sft/model --grader numeric --out runs/grpo
  minirlhf train ppo     --task shell_game   --model runs/sft/model --out runs/ppo
  minirlhf train dpo     --data pairs.jsonl  --model runs/sft/model --out runs/dpo --beta 0.2

Every option can also stand in a YAML file (--config FILE) under its name; flags win.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from minirlhf import recipes, runs
from minirlhf.cli.settings import add_flags, add_options, from_mapping, parse_value, read_yaml
from minirlhf.core.errors import UserError, unknown
from minirlhf.recipes.binding import Bindable
from minirlhf.recipes.offline import PREFERENCES, get_preference
from minirlhf.trainers.config import OnlineConfig, TrainerConfig
from minirlhf.trainers.offline import OfflineConfig
from minirlhf.trainers.reward import RewardConfig
from minirlhf.trainers.sft import SFTConfig


@dataclasses.dataclass(frozen=True)
class Trainer:
    """What ``minirlhf train NAME`` runs.

    Attributes:
        help: one line.
        source, config: the dataclasses whose fields become flags.
        run: ``(source, config, [changes,] *, resume)``.
        field: the field of ``source`` that names the recipe, if there is a choice of recipes.
        table: these recipes; their numbers become flags too.
        look_up: a name to its recipe.
        chosen: the recipe, where the trainer's own name says it.
    """

    help: str
    source: type[runs.Source]
    config: type[TrainerConfig]
    run: Callable[..., Any]
    field: str = ""
    table: Mapping[str, Bindable] = dataclasses.field(default_factory=dict)
    look_up: Callable[[str], Bindable] = recipes.get
    chosen: str = ""


ONLINE = Trainer(
    "improve on own samples, by --recipe NAME",
    runs.OnlineSource,
    OnlineConfig,
    runs.run_online,
    "recipe",
    recipes.RECIPES,
)
OFFLINE = Trainer(
    "learn from given preferences, by --loss NAME",
    runs.OfflineSource,
    OfflineConfig,
    runs.run_offline,
    "loss",
    PREFERENCES,
    get_preference,
)
TRAINERS: dict[str, Trainer] = {
    "sft": Trainer("imitate conversations", runs.SFTSource, SFTConfig, runs.run_sft),
    "reward": Trainer("learn which of two replies is better", runs.RewardSource, RewardConfig, runs.run_reward),
    "online": ONLINE,
    **{
        r.name: dataclasses.replace(ONLINE, help=f"online, {r.source}", chosen=r.name) for r in recipes.RECIPES.values()
    },
    "offline": OFFLINE,
    **{r.name: dataclasses.replace(OFFLINE, help=f"offline, {r.source}", chosen=r.name) for r in PREFERENCES.values()},
}


def configure(parser: argparse.ArgumentParser) -> None:
    """One sub-command per trainer, one per online recipe and one per preference loss."""
    subs = parser.add_subparsers(dest="trainer", required=True, metavar="TRAINER", help="what to train")
    for name, trainer in TRAINERS.items():
        text = trainer.help.replace("%", "%%")
        sub = subs.add_parser(name, help=text, description=text, allow_abbrev=False, add_help=False)
        sub.add_argument("--config", metavar="FILE", help="YAML file of settings")
        sub.add_argument("--resume", action="store_true", help="go on with the run in --out")
        add_flags(sub, trainer.source, "data and model", skip=(trainer.field,) if trainer.chosen else ())
        add_flags(sub, trainer.config, "training")
        chosen = {trainer.chosen: trainer.table[trainer.chosen]} if trainer.chosen else trainer.table
        add_options(sub, chosen, trainer.field, skip=frozenset(_names(trainer.config)))


def run(args: argparse.Namespace) -> int:
    """Merge the file and the flags, then train."""
    trainer = TRAINERS[args.trainer]
    flags = {k: v for k, v in vars(args).items() if k not in ("trainer", "config", "resume")}
    where = "the flags" if args.config is None else args.config
    values = {**({} if args.config is None else read_yaml(args.config)), **flags}
    if trainer.chosen:
        values[trainer.field] = trainer.chosen
    names = _names(trainer.source) | _names(trainer.config)
    source = from_mapping(trainer.source, {k: v for k, v in values.items() if k in _names(trainer.source)}, where)
    config = from_mapping(trainer.config, {k: v for k, v in values.items() if k in _names(trainer.config)}, where)
    rest = {k: v for k, v in values.items() if k not in names}
    if not trainer.field:
        if rest:
            raise unknown(f"setting in {where}", next(iter(rest)), names)
        trainer.run(source, config, resume=args.resume)
        return 0
    recipe = trainer.look_up(getattr(source, trainer.field))
    for name in rest:
        if name not in recipe.numbers():
            raise unknown(f"setting in {where} for recipe {recipe.name!r}", name, {*recipe.numbers(), *names})
    trainer.run(source, config, {k: _number(k, v, where) for k, v in rest.items()}, resume=args.resume)
    return 0


def _names(cls: type) -> set[str]:
    return {f.name for f in dataclasses.fields(cls)}


def _number(name: str, value: Any, where: str) -> bool | float | int | None:
    for kind in (bool, int | None, float):
        try:
            return parse_value(kind, value, f"{where}: {name}")
        except UserError as problem:
            error = problem
    raise error
