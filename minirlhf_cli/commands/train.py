"""Train a model on your own data, or on a toy task.

  minirlhf train sft     --data chats.jsonl  --model nano --out runs/sft
  minirlhf train reward  --data pairs.jsonl  --model runs/sft/model --out runs/rm
  minirlhf train prm     --data steps.jsonl  --model runs/sft/model --out runs/prm
  minirlhf train grpo    --data gsm8k.jsonl  --model runs/sft/model --grader numeric --out runs/grpo
  minirlhf train ppo     --task shell_game   --model runs/sft/model --out runs/ppo
  minirlhf train distill --data chats.jsonl  --teacher runs/sft/model --out runs/student --recipe gkd
  minirlhf train dpo     --data pairs.jsonl  --model runs/sft/model --out runs/dpo --beta 0.2
  minirlhf train offline --data pairs.jsonl  --model runs/sft/model --out runs/own --loss my.py:my_loss

Every option can also be set by its name in a YAML file (--config FILE); flags override the file. A file may have a section
for each of several trainers, as the files in configs/ have; minirlhf plan FILE says what they need.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from minirlhf import recipes
from minirlhf.core.errors import UserError, unknown
from minirlhf.feedback.custom_losses import is_custom
from minirlhf.recipes import Recipe
from minirlhf.recipes.distill import DISTILLATIONS, Distillation
from minirlhf.recipes.offline import PREFERENCES, PreferenceRecipe
from minirlhf.trainers.config import OnlineConfig, RejectionConfig, TrainerConfig
from minirlhf.trainers.distill import DistillConfig
from minirlhf.trainers.offline import OfflineConfig
from minirlhf.trainers.online import generation_settings
from minirlhf.trainers.reward import RewardConfig
from minirlhf.trainers.sft import SFTConfig
from minirlhf.trainers.verifiers import OutcomeConfig, ProcessConfig
from minirlhf_cli.export.mapped import RunSpec
from minirlhf_cli.files import custom_losses, sources
from minirlhf_cli.files.sources import Source
from minirlhf_cli.foreign_options import hint
from minirlhf_cli.settings import add_flags, add_options, from_mapping, parse_value, read_yaml


@dataclasses.dataclass(frozen=True)
class Trainer:
    """The definition of ``minirlhf train NAME``.

    Attributes:
        help: one line of help.
        source, config: the dataclasses whose fields become flags.
        run: the name in :func:`_runs` of the function ``(source, config, [recipe,] *, resume, given)``.
        choice: the flag that chooses a recipe, if the trainer has recipes.
        table: the recipes to choose from, the default first; their options become flags too.
    """

    help: str
    source: type[Source]
    config: type[TrainerConfig]
    run: str
    choice: str = ""
    table: Mapping[str, Recipe | PreferenceRecipe | Distillation] = dataclasses.field(default_factory=dict)

    def only(self, name: str, way: str) -> Trainer:
        """Return the trainer of this recipe only."""
        recipe = self.table[name]
        return dataclasses.replace(self, help=f"{way}, {recipe.source}", table={name: recipe})


ONLINE = Trainer(
    "online RL on samples of the policy; --recipe NAME chooses the algorithm",
    sources.OnlineSource,
    OnlineConfig,
    "online",
    "recipe",
    {"grpo": recipes.GRPO, **recipes.RECIPES},
)
OFFLINE = Trainer(
    "offline preference optimisation; --loss NAME chooses the loss",
    sources.OfflineSource,
    OfflineConfig,
    "offline",
    "loss",
    PREFERENCES,
)
TRAINERS: dict[str, Trainer] = {
    "sft": Trainer("supervised fine-tuning on conversations", sources.SFTSource, SFTConfig, "sft"),
    "reward": Trainer(
        "reward model: which of two completions is better",
        sources.RewardSource,
        RewardConfig,
        "reward",
    ),
    "orm": Trainer("outcome reward model: is a completion correct", Source, OutcomeConfig, "orm"),
    "prm": Trainer(
        "process reward model: which steps of a completion are correct",
        Source,
        ProcessConfig,
        "prm",
    ),
    "judge": Trainer("generative judge: write which of two completions is better", Source, SFTConfig, "judge"),
    "rs": Trainer(
        "rejection sampling (RAFT): imitate the best samples of the policy",
        sources.GradedSource,
        RejectionConfig,
        "rejection",
    ),
    "distill": Trainer(
        "distillation from a teacher's probabilities; --recipe NAME chooses the method",
        sources.DistillSource,
        DistillConfig,
        "distill",
        "recipe",
        DISTILLATIONS,
    ),
    "online": ONLINE,
    **{name: ONLINE.only(name, "online") for name in recipes.RECIPES},
    "offline": OFFLINE,
    **{name: OFFLINE.only(name, "offline") for name in PREFERENCES},
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add one sub-command per trainer, per online recipe and per preference loss."""
    subs = parser.add_subparsers(dest="trainer", required=True, metavar="TRAINER", help="what to train")
    for name, trainer in TRAINERS.items():
        text = trainer.help.replace("%", "%%")
        sub = subs.add_parser(name, help=text, description=text, allow_abbrev=False, add_help=False)
        sub.add_argument("--config", metavar="FILE", help="YAML file of settings")
        sub.add_argument("--resume", action="store_true", help="resume the run in --out")
        add_flags(sub, trainer.source, "data and model")
        add_flags(sub, trainer.config, "training", skip=frozenset(_names(trainer.source)))
        if len(trainer.table) > 1:
            own = ", or your own function: FILE.py:NAME" if trainer is OFFLINE else ""
            text = f"one of {', '.join(trainer.table)}{own} (default: {next(iter(trainer.table))})"
            group = sub.add_argument_group("choice")
            group.add_argument(f"--{trainer.choice}", default=argparse.SUPPRESS, metavar="NAME", help=text)
        add_options(sub, trainer.table, trainer.choice, skip=frozenset(_names(trainer.config)))


def run(args: argparse.Namespace) -> int:
    """Merge the file and the flags, then train."""
    trainer = TRAINERS[args.trainer]
    flags = {k: v for k, v in vars(args).items() if k not in ("trainer", "config", "resume")}
    origin = "the flags" if args.config is None else args.config
    values = {**({} if args.config is None else settings_for(args.trainer, read_yaml(args.config), origin)), **flags}
    arguments = {"trainer": args.trainer, **values}
    source, config, recipe = parse_settings(trainer, values, origin)
    if recipe is not None and not is_custom(str(arguments.get(trainer.choice, ""))):
        arguments[trainer.choice] = (recipe.row or recipe).name
    _runs()[trainer.run](source, config, *([] if recipe is None else [recipe]), resume=args.resume, given=arguments)
    return 0


def _runs() -> dict[str, Callable[..., Any]]:
    """The functions that run the trainers. They import all that computes, which help does without."""
    from minirlhf_cli.files import from_files, judges_from_files

    return {
        "sft": from_files.run_sft,
        "reward": judges_from_files.run_reward,
        "orm": judges_from_files.run_orm,
        "prm": judges_from_files.run_prm,
        "judge": judges_from_files.run_judge,
        "rejection": from_files.run_rejection,
        "distill": from_files.run_distill,
        "online": from_files.run_online,
        "offline": from_files.run_offline,
    }


def sections(values: Mapping[str, Any]) -> list[str]:
    """Return the trainers for which a file of settings has a section."""
    return [name for name in values if name in TRAINERS and isinstance(values[name], dict)]


def settings_for(trainer: str, values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the settings of one trainer: those of the file, and those of the trainer's section in place of them.

    Raises:
        UserError: the file has sections, but none for this trainer.
    """
    names = sections(values)
    if names and trainer not in names:
        raise unknown("section", trainer, names, file=where)
    common = {name: value for name, value in values.items() if name not in names}
    own = {str(name).replace("-", "_"): value for name, value in values[trainer].items()} if names else {}
    return {**common, **own}


def parse_settings(trainer: Trainer, values: dict[str, Any], where: str) -> tuple[Any, Any, Any]:
    """Return the source, the settings and the recipe of these values; the recipe is None if the trainer has none."""
    recipes_chosen = [_recipe(trainer, values)] if trainer.table else []
    names = {*_names(trainer.source), *_names(trainer.config)}
    source, config = (
        from_mapping(cls, {k: v for k, v in values.items() if k in _names(cls)}, where)
        for cls in (trainer.source, trainer.config)
    )
    options = {k: v for k, v in values.items() if k not in names}
    known = {name for recipe in recipes_chosen for name in recipe.numbers()}
    for name in options:
        if name not in known:
            suffix = f" for recipe {recipes_chosen[0].name!r}" if recipes_chosen else ""
            kind, options_here = f"setting in {where}{suffix}", known | names
            flags_here = {f"--{option.replace('_', '-')}" for option in options_here}
            raise hint(kind, name, flags_here) or unknown(kind, name, options_here)
    with_options = [recipe.with_(**{k: _number(k, v, where) for k, v in options.items()}) for recipe in recipes_chosen]
    return source, config, with_options[0] if with_options else None


def load_run_spec(run: Path) -> RunSpec:
    """Return the request of the run in this folder.

    Raises:
        UserError: the folder holds no run, or a run without its request.
    """
    file = run / "config.json"
    if not (run / "metrics.jsonl").is_file() or not file.is_file():
        raise UserError(
            f"{run}: not a run; expected a folder written by `minirlhf train`",
            argument="run",
            value=str(run),
            problem="missing",
        )
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
        values = dict(settings["noted"]["given"])
        trainer = TRAINERS[values.pop("trainer")]
    except (ValueError, KeyError, TypeError):
        raise UserError(
            f"{file}: lacks the command of the run; it is from an older version or not from `minirlhf train`"
        ) from None
    from minirlhf_cli.files import start

    source, config, recipe = parse_settings(trainer, values, str(file))
    fitted_values = {name: settings[name] for name in start.FIT[trainer.config.__name__] if name in settings}
    steps = settings.get("max_steps", config.max_steps)  # of a run with --epochs, they follow from its data
    config = dataclasses.replace(config, **fitted_values, max_steps=steps, epochs=None)
    if isinstance(recipe, Recipe):
        recipe = generation_settings(recipe, config)
    return RunSpec(settings["noted"]["given"]["trainer"], source, config, recipe, settings.get("depends", {}))


def _recipe(trainer: Trainer, values: dict[str, Any]) -> Recipe | PreferenceRecipe | Distillation:
    """Return the recipe that the settings name, or the only one; remove the name from ``values``."""
    default = next(iter(trainer.table))
    name = str(values.pop(trainer.choice, default))
    if trainer is OFFLINE and is_custom(name):
        return custom_losses.preference_recipe(name)
    if name not in trainer.table:
        raise unknown(trainer.choice, name, trainer.table)
    return trainer.table[name]


def _names(cls: type) -> set[str]:
    return {f.name for f in dataclasses.fields(cls)}


def _number(name: str, value: Any, where: str) -> bool | float | int | None:
    for kind in (bool, int | None, float):
        try:
            return parse_value(kind, value, f"{where}: {name}")
        except UserError as problem:
            error = problem
    raise error
