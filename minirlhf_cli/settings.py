"""Convert frozen dataclasses to flags and back: ``learning_rate: float`` becomes ``--learning-rate FLOAT``.

A YAML file given by ``--config`` uses the same names. Flags override the file, and the file overrides the defaults.
"""

from __future__ import annotations

import argparse
import dataclasses
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from minirlhf.core.errors import UserError, format_value, unknown
from minirlhf.feedback.graders import GRADERS
from minirlhf.feedback.graders.thoughts import THOUGHTS

if typing.TYPE_CHECKING:
    from minirlhf.recipes.options import ConfigurableRecipe, Option

C = TypeVar("C")

#: Help of the options that are numbers of functions, also ``function.option`` where a function has its own.
MEANINGS = {
    "beta": "KL coefficient (online), β of the preference loss (offline; with a reference, a larger β keeps the policy closer to it), or the teacher's weight in the Jensen–Shannon mixture (gkd)",
    "gamma": "discount factor per token; in a preference loss (SimPO, AlphaPO) the target reward margin",
    "label_smoothing": "assumed fraction of wrong labels",
    "nll_weight": "weight of the negative log-likelihood of the chosen completion (dpo_nll: mean per token; cpo, slic: sum over tokens)",
    "alpha": "VAPO: α of the length-adaptive λ = 1 − 1/(α · length); AlphaPO: exponent α of the reward, 0: SimPO, larger: steeper for improbable completions",
    "lam": "λ of generalised advantage estimation: 0 relies on the critic only, 1 on the rewards only",
    "cliprange_value": "clip range of the value loss around the value at rollout, in units of the return, > 0",
    "renormalise": "average over the completions that are not masked; False: masked completions still count in the denominator",
    "chosen_win_rate": "assumed fraction of comparisons that the chosen completion wins",
    "rejected_win_rate": "assumed fraction of comparisons that the rejected completion wins",
    "desirable_weight": "weight of the desirable completions",
    "undesirable_weight": "weight of the undesirable completions",
    "length_normalised": "average over tokens instead of summing",
    "eta": "scale of the given reward difference",
    "weight": "weight of the term that makes the rejected completion less probable",
    "delta": "upper bound of the ratio for negative advantages (dual clip), > 1 + epsilon_high; None: no bound; in SLiC the margin, in nats, > 0",
    "ddof": "0 or 1; the variance is divided by n − ddof",
    "penalty": "weight of the penalty on a chosen completion that becomes less probable",
    "eps": "added to a standard deviation before dividing by it",
    "max_completion_length": "maximum tokens of a completion; by default the run's",
    "soft_punish_cache": "last tokens of max_completion_length, over which the length penalty grows linearly to 1 (DAPO)",
    "missing_eos_penalty": "penalty of a truncated completion",
    "length_penalty": "penalty per token",
    "num_kept": "completions per group that are used for the update",
    "importance_sampling_cap": "upper bound of the importance weight of an off-policy token or completion; larger weights are truncated to it, or masked if there is a floor",
    "importance_sampling_floor": "off-policy tokens with a smaller importance weight are masked",
    "epsilon": "lower clip range, > 0; also the upper one unless epsilon_high is given",
    "cispo.epsilon": "lower clip range, > 0; None: no lower bound, as in the paper's experiments",
    "gmpo.epsilon": "lower clip range of log ρ, > 0; also the upper one unless epsilon_high is given",
    **dict.fromkeys(
        ("gspo.epsilon", "gspo_token.epsilon", "luspo.epsilon"),
        "lower clip range, > 0, far smaller than PPO's; also the upper one unless epsilon_high is given",
    ),
    "epsilon_high": "upper clip range, > 0; None: the same as epsilon",
    "cispo.epsilon_high": "the weight is at most 1 + epsilon_high; TRL's option of this name is the bound itself",
    "gmpo.epsilon_high": "upper clip range of log ρ, > 0",
    **dict.fromkeys(
        ("gspo.epsilon_high", "gspo_token.epsilon_high", "luspo.epsilon_high"),
        "upper clip range, > 0; the paper, the recipe and gspo_loss use 4e-4",
    ),
    "per_sequence": "use one ratio per completion (sequence_ratio) in place of the token ratios",
    "sapo_temperature_pos": "temperature τ > 0 of the soft gate for positive advantages",
    "sapo_temperature_neg": "temperature τ > 0 of the soft gate for advantages ≤ 0",
    "vespo_k_pos": "k > 0 of the weight w^k e^(λ(1 − w)) for advantages ≥ 0",
    "vespo_lambda_pos": "λ > 0 of the weight w^k e^(λ(1 − w)) for advantages ≥ 0",
    "vespo_k_neg": "k > 0 of the weight w^k e^(λ(1 − w)) for negative advantages",
    "vespo_lambda_neg": "λ > 0 of the weight w^k e^(λ(1 − w)) for negative advantages",
    "tau": "temperature of the transition between the DPO loss and the exponential loss, > 0; smaller is sharper",
    "decay": "decay of the moving average, the weight of its previous value, in [0, 1]",
    "target_temperature": "temperature of the softmax of the scores, > 0, in units of the scores",
    "k": "number of the teacher's most probable tokens to use",
    "off_policy_mask_threshold": "mask completions with negative advantage whose divergence from the behaviour policy exceeds this, in nats per token",
}


#: What help shows in place of the value of a flag, by the flag's name or else by its type.
FILES = {
    **dict.fromkeys(("data", "eval_data", "ptx_data", "chat_template"), "FILE"),
    **dict.fromkeys(("model", "ref_model", "teacher"), "MODEL"),
    **dict.fromkeys(("out", "reward_model"), "FOLDER"),
}
KINDS = {int: "INT", float: "FLOAT", bool: "BOOL", str: "TEXT"}


def metavar(name: str, kind: Any) -> str:
    """Return what help shows for a value: INT, FLOAT, BOOL, TEXT, FILE, FOLDER, MODEL, or VALUE."""
    kinds = [k for k in typing.get_args(kind) if k is not type(None)] or [kind]
    return FILES.get(name) or (KINDS.get(kinds[0], "VALUE") if len(kinds) == 1 else "VALUE")


def add_flags(parser: argparse.ArgumentParser, cls: type, group: str, skip: frozenset[str] = frozenset()) -> None:
    """Add a flag for every field of a config dataclass that is not in ``skip``, the names that are already flags.

    Values stay text until :func:`from_mapping` parses them.
    """
    section = parser.add_argument_group(group)
    hints = typing.get_type_hints(cls)
    for f in (f for f in dataclasses.fields(cls) if f.name not in skip):
        default = "required" if f.name == "out" else f"default: {f.default}"
        section.add_argument(
            f"--{f.name.replace('_', '-')}",
            dest=f.name,
            default=argparse.SUPPRESS,
            metavar=metavar(f.name, hints[f.name]),
            help=f"{f.metadata.get('help', '')} ({default})".replace("%", "%%"),
        )


def add_options(
    parser: argparse.ArgumentParser,
    table: Mapping[str, ConfigurableRecipe],
    choice: str,
    skip: frozenset[str] = frozenset(),
) -> None:
    """Add a flag for every option of these recipes, and ``--help``; after ``--recipe NAME`` it shows that recipe only.

    Args:
        parser: made with ``add_help=False``.
        table: the recipes by name; if there is only one, it is chosen.
        choice: the flag that chooses a recipe, without dashes.
        skip: names that are already flags.
    """
    section = parser.add_argument_group("recipe")
    kinds = {name: option.kind for recipe in table.values() for name, option in recipe.numbers().items()}
    flags = {
        name: section.add_argument(
            f"--{name.replace('_', '-')}", dest=name, default=argparse.SUPPRESS, metavar=_kind(kinds[name])
        )
        for name in sorted(kinds.keys() - skip)
    }

    class Help(argparse.Action):
        """Show the help with the options of the chosen recipe."""

        def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: Any) -> None:
            chosen = table.get(getattr(namespace, choice, ""))
            for name, flag in flags.items():
                options = [r.numbers()[name] for r in ([chosen] if chosen else table.values()) if name in r.numbers()]
                defaults = {str(option.value) for option in options}
                default = defaults.pop() if len(defaults) == 1 else f"depends on the {choice}"
                text = f"{meaning(options[0])} (default: {default})" if options else argparse.SUPPRESS
                flag.help = text.replace("%", "%%")
            parser.print_help()
            parser.exit()

    suffix = f"; after --{choice} NAME, what that takes" if len(table) > 1 else ""
    hidden = argparse.SUPPRESS
    parser.add_argument(
        "-h", "--help", action=Help, nargs=0, help=f"show this help{suffix}", dest=hidden, default=hidden
    )


def _kind(text: str) -> str:
    """Return what help shows for a value whose type is written as ``text``, such as ``float | None``."""
    return next((KINDS[kind] for kind in (bool, int, float) if text.startswith(kind.__name__)), "NUMBER")


def meaning(option: Option) -> str:
    """Return the help of an option: from :data:`MEANINGS`, else the help of its field; empty if there is none."""
    function = getattr(getattr(option.owner, "func", option.owner), "__name__", "")
    text = MEANINGS.get(f"{function}.{option.name}") or MEANINGS.get(option.name)
    if text is None and dataclasses.is_dataclass(option.owner):
        [field] = [f for f in dataclasses.fields(option.owner) if f.name == option.name]
        text = field.metadata.get("help")
    return text or ""


class _Once(yaml.SafeLoader):
    """A YAML loader for plain values that rejects duplicate keys; other loaders silently take the last one."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in keys:
                    raise yaml.constructor.ConstructorError(None, None, f"duplicate key {key.value!r}", key.start_mark)
                keys.add(key.value)
        return super().construct_mapping(node, deep)


def read_yaml(path: str) -> dict[str, Any]:
    """Return the settings in a YAML file.

    Raises:
        UserError: the file is missing or invalid; the message names the file and the line of a syntax error.
    """
    file = Path(path)
    if not file.is_file():
        raise UserError(f"{path}: no such file; expected a YAML file of settings", problem="missing", file=path)
    try:
        values = yaml.load(file.read_text(encoding="utf-8"), Loader=_Once)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark else ""
        reason = " ".join(str(getattr(error, "problem", None) or error).split())
        raise UserError(
            f"{path}{where}: not YAML ({reason})", expected="YAML", file=path, line=mark.line + 1 if mark else None
        ) from None
    except UnicodeDecodeError:
        raise UserError(
            f"{path}: not UTF-8 text; expected a YAML file of settings", expected="UTF-8", file=path
        ) from None
    except (ValueError, KeyError, RecursionError) as error:
        # such as a month 99, a number of thousands of digits, or thousands of brackets
        raise UserError(
            f"{path}: contains a value that cannot be parsed ({type(error).__name__}: {error})",
            problem="unreadable",
            file=path,
        ) from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UserError(
            f"{path}: holds a {type(values).__name__}; expected 'name: value' lines",
            value=values,
            expected=dict,
            file=path,
        )
    return {str(key).replace("-", "_"): value for key, value in values.items()}


def parse_value(kind: Any, value: Any, where: str) -> Any:
    """Parse ``value`` (a flag's text or a YAML scalar) as type ``kind``: int, float, bool, str, or optional."""
    optional = isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union
    if optional:
        if value is None or (isinstance(value, str) and value.lower() in ("none", "null")):
            return None
        (kind,) = (k for k in typing.get_args(kind) if k is not type(None))
    if kind is bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        raise UserError(
            f"{where} = {format_value(value)}; expected true or false",
            argument=where.rpartition(": ")[2],
            value=value,
            expected=bool,
        )
    if kind is str:
        if isinstance(value, str):
            return value
        raise UserError(
            f"{where} = {format_value(value)}; expected text",
            argument=where.rpartition(": ")[2],
            value=value,
            expected=str,
        )
    try:
        if isinstance(value, bool) or (kind is int and isinstance(value, float) and value != int(value)):
            raise ValueError
        return kind(value)
    except (TypeError, ValueError, OverflowError):
        expected = {int: "a whole number", float: "a number"}[kind]
        raise UserError(
            f"{where} = {format_value(value)}; expected {expected}",
            argument=where.rpartition(": ")[2],
            value=value,
            expected=kind,
        ) from None


def from_mapping(cls: type[C], values: Mapping[str, Any], where: str = "settings") -> C:
    """Build a config dataclass from names and values.

    Raises:
        UserError: an unknown name (with the nearest one), or a value of the wrong type; ``where`` names the file.
    """
    hints = typing.get_type_hints(cls)
    known = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            raise unknown(f"setting in {where}", str(name), known)
    return cls(**{name: parse_value(hints[name], value, f"{where}: {name}") for name, value in values.items()})


def require_at_least(low: int, options: object, *names: str) -> None:
    """Refuse options below ``low``; an option that is None was not given.

    Args:
        options: the parsed arguments, or a dataclass of settings; ``names`` are its attributes.

    Raises:
        UserError: names the first one, as its flag.
    """
    for name in names:
        if (value := getattr(options, name)) is not None and value < low:
            flag = f"--{name.replace('_', '-')}"
            raise UserError(f"{flag} {value}: expected at least {low}", argument=flag, value=value, expected=low)


def add_answering(
    parser: argparse.ArgumentParser, *, num_generations: int, data: str = "problems", several: bool = False
) -> None:
    """Add the flags of :class:`~minirlhf_cli.files.answering.GenerationRequest`, with this default of ``num_generations``.

    If ``several``, ``models`` is a list of models, and ``--data`` is not required.
    """
    model_help = "a run, a model folder, a zoo entry or a hub name"
    if several:
        parser.add_argument("models", metavar="MODEL", nargs="+", help=model_help)
    else:
        parser.add_argument("model", metavar="MODEL", help=model_help)
    parser.add_argument("--data", required=not several, help=f"{data}: file, folder, or hub name")
    parser.add_argument("--format", help="format of the data (default: detected from its fields)")
    parser.add_argument("--split", help="split of a folder or hub data set")
    parser.add_argument("--limit", type=int, metavar="N", help="read at most N rows")
    parser.add_argument(
        "--grader",
        help=f"{', '.join(GRADERS)}, a weighted sum such as gsm8k*0.9+think*0.1, your own function: FILE.py:NAME, or "
        "field:NAME, a field of the rows that names the grader of each",
    )
    parser.add_argument(
        "--grader-timeout", type=float, default=10.0, help="time limit of your function, per completion"
    )
    parser.add_argument(
        "--thought-tags", metavar="OPENING,CLOSING", default=",".join(THOUGHTS),
        help=f"tags of a thought; graders read the answer after it (default: {','.join(THOUGHTS)})",
    )  # fmt: skip
    parser.add_argument("--reward-model", metavar="FOLDER", help="grade by this reward model; A,B: by an ensemble")
    parser.add_argument(
        "--reward-aggregation", default="mean", help="ensemble aggregation: mean, worst_case, uncertainty_weighted"
    )
    parser.add_argument(
        "--num-generations", type=int, default=num_generations, metavar="G",
        help=f"completions per problem (default: {num_generations})",
    )  # fmt: skip
    parser.add_argument(
        "--max-completion-length", type=int, default=256, metavar="N", help="tokens per completion (default: 256)"
    )
    parser.add_argument("--temperature", type=float, default=1.0, help="0: greedy decoding (default: 1)")
    parser.add_argument("--top-p", type=float, default=1.0, help="sample from the smallest set with this probability")
    parser.add_argument("--seed", type=int, default=0, help="random seed of sampling (default: 0)")
    parser.add_argument("--device", help="device (default: the first CUDA GPU, else the CPU)")
    parser.add_argument("--batch-size", type=int, default=64, help="problems per batch (default: 64)")
    parser.add_argument("--prompt-field", metavar="FIELD", help="field of the rows that holds the prompt")
    parser.add_argument("--answer-field", metavar="FIELD", help="field of the rows that holds the right answer")
    parser.add_argument(
        "--chat-template-kwargs", metavar="JSON", help='arguments of the chat template: {"enable_thinking": false}'
    )
