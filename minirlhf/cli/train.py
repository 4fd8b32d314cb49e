"""Train a model on your own data, or on a tiny world.

  minirlhf train sft     --data chats.jsonl  --model nano --out runs/sft
  minirlhf train reward  --data pairs.jsonl  --model runs/sft/model --out runs/rm
  minirlhf train grpo    --data gsm8k.jsonl  --model runs/sft/model --grader numeric --out runs/grpo
  minirlhf train grpo    --task shell_game   --model runs/sft/model --out runs/grpo

Every option can also stand in a YAML file (--config FILE) under its name; flags win.
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from minirlhf import recipes, runs
from minirlhf.cli.settings import add_flags, read_yaml
from minirlhf.core.errors import UserError, unknown
from minirlhf.trainers.config import from_mapping, parse_value
from minirlhf.trainers.online import OnlineConfig
from minirlhf.trainers.reward import RewardConfig
from minirlhf.trainers.sft import SFTConfig


def configure(parser: argparse.ArgumentParser) -> None:
    """One sub-command per trainer, and one per recipe."""
    trainers = parser.add_subparsers(dest="trainer", required=True, metavar="TRAINER", help="what to train")
    for name, source, config, text in (
        ("sft", runs.SFTSource, SFTConfig, "imitate conversations"),
        ("reward", runs.RewardSource, RewardConfig, "learn which of two replies is better"),
        ("online", runs.OnlineSource, OnlineConfig, "improve on own samples, by --recipe NAME"),
        *((r.name, runs.OnlineSource, OnlineConfig, f"online, {r.source}") for r in recipes.RECIPES.values()),
    ):
        sub = trainers.add_parser(name, help=text, description=text, allow_abbrev=False)
        sub.add_argument("--config", metavar="FILE", help="YAML file of settings")
        sub.add_argument("--resume", action="store_true", help="go on with the run in --out")
        add_flags(sub, source, "data and model", skip=("recipe",) if name in recipes.RECIPES else ())
        add_flags(sub, config, "training")
        sub.set_defaults(source_type=source, config_type=config)
        if config is OnlineConfig:
            chosen = [recipes.RECIPES[name]] if name in recipes.RECIPES else list(recipes.RECIPES.values())
            section = sub.add_argument_group("recipe")
            for option in sorted({o for recipe in chosen for o in recipe.numbers()} - _names(config)):
                section.add_argument(
                    f"--{option.replace('_', '-')}", dest=option, default=argparse.SUPPRESS, metavar="VALUE"
                )


def run(args: argparse.Namespace) -> int:
    """Merge the file and the flags, then train."""
    flags = {
        k: v for k, v in vars(args).items() if k not in ("trainer", "config", "resume", "source_type", "config_type")
    }
    where = "the flags" if args.config is None else args.config
    values = {**({} if args.config is None else read_yaml(args.config)), **flags}
    if args.trainer in recipes.RECIPES:
        values["recipe"] = args.trainer
    of_source = {k: v for k, v in values.items() if k in _names(args.source_type)}
    of_config = {k: v for k, v in values.items() if k in _names(args.config_type)}
    rest = {k: v for k, v in values.items() if k not in of_source and k not in of_config}
    source = from_mapping(args.source_type, of_source, where)
    config = from_mapping(args.config_type, of_config, where)
    if args.config_type is OnlineConfig:
        changes = {}
        recipe = recipes.get(source.recipe)
        for name, value in rest.items():
            if name not in recipe.numbers():
                known = {*recipe.numbers(), *_names(args.source_type), *_names(args.config_type)}
                raise unknown(f"setting in {where} for recipe {recipe.name!r}", name, known)
            changes[name] = _number(name, value, where)
        runs.run_online(source, config, changes, resume=args.resume)
        return 0
    if rest:
        raise unknown(f"setting in {where}", next(iter(rest)), _names(args.source_type) | _names(args.config_type))
    (runs.run_sft if args.config_type is SFTConfig else runs.run_reward)(source, config, resume=args.resume)
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
