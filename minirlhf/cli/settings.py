"""From frozen dataclasses to flags and back: ``learning_rate: float`` becomes ``--learning-rate NUMBER``.

A YAML file given by ``--config`` holds the same names; flags win over it, and it wins over the defaults.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import inspect
import re
import sys
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from minirlhf.core.errors import UserError, shown, unknown
from minirlhf.feedback.graders import GRADERS

if typing.TYPE_CHECKING:
    from minirlhf.recipes.binding import ConfigurableRecipe, Option

C = TypeVar("C")

#: What the names mean that many functions share; the other ones are explained by the function that takes them.
MEANINGS = {
    "beta": "strength of the KL term, or of the hold that the reference has on the loss (in a Jensen–Shannon divergence: the teacher's share of the mixture); larger stays closer",
    "gamma": "discount per token; in a preference loss the margin that the chosen answer shall win by",
    "label_smoothing": "share of labels that are taken to be wrong",
    "nll_weight": "weight of the likelihood of the chosen answer",
    "alpha": "VAPO: the weights of GAE add up to this share of the completion; AlphaPO: how much harder unlikely answers are pushed",
    "lam": "λ of generalised advantage estimation: 0 believes the critic, 1 the rewards alone",
    "cliprange_value": "how far a value may move from where the rollout found it before it gains no more",
    "renormalise": "whether completions without weight leave the denominator too",
    "chosen_win_rate": "share of comparisons that the chosen answer is taken to win",
    "rejected_win_rate": "share of comparisons that the rejected answer is taken to win",
    "desirable_weight": "weight of the good answers",
    "undesirable_weight": "weight of the bad answers",
    "length_normalised": "take means per token in place of sums",
    "eta": "scale of the given reward difference",
    "weight": "how hard the rejected answer is pushed down",
    "delta": "with a clip, the largest ratio where the advantage is negative; in SLiC the margin, in nats",
    "ddof": "the divisor of the variance is n − ddof, 0 or 1",
    "penalty": "how hard a chosen answer is held that loses probability",
    "eps": "added to a standard deviation before it divides",
    "max_completion_length": "tokens of a completion at most; by default the run's",
    "soft_punish_cache": "the last tokens of the budget, which cost more and more",
    "missing_eos_penalty": "what a completion that is cut off loses",
    "length_penalty": "what every token costs",
    "num_kept": "samples of a group that are learned from",
    "importance_sampling_cap": "largest weight of a token that another policy sampled",
    "importance_sampling_floor": "a token that another policy sampled and that would weigh less counts nothing",
    "off_policy_mask_threshold": "nats per token that the policy may be away from the one that sampled a bad completion",
}


def add_flags(parser: argparse.ArgumentParser, cls: type, group: str) -> None:
    """Add a flag for every field of a config dataclass. Values stay text until :func:`from_mapping` reads them."""
    section = parser.add_argument_group(group)
    for f in dataclasses.fields(cls):
        section.add_argument(
            f"--{f.name.replace('_', '-')}",
            dest=f.name,
            default=argparse.SUPPRESS,
            metavar="VALUE",
            help=f"{f.metadata.get('help', '')} (default: {f.default})".replace("%", "%%"),
        )


def add_options(
    parser: argparse.ArgumentParser,
    table: Mapping[str, ConfigurableRecipe],
    choice: str,
    skip: frozenset[str] = frozenset(),
) -> None:
    """Add a flag for every number of these recipes, and ``--help``, which after ``--recipe NAME`` shows those of this one.

    Args:
        parser: made with ``add_help=False``.
        table: the recipes by name; one alone is chosen.
        choice: the flag that chooses one, without dashes.
        skip: names that are flags already.
    """
    section = parser.add_argument_group("recipe")
    names = sorted({name for recipe in table.values() for name in recipe.numbers()} - skip)
    flags = {
        name: section.add_argument(f"--{name.replace('_', '-')}", dest=name, default=argparse.SUPPRESS, metavar="VALUE")
        for name in names
    }

    class Help(argparse.Action):
        """Show the help, and in it what the chosen recipe takes."""

        def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: Any) -> None:
            chosen = table.get(getattr(namespace, choice, ""))
            for name, flag in flags.items():
                takers = [r.numbers()[name] for r in ([chosen] if chosen else table.values()) if name in r.numbers()]
                defaults = {str(option.value) for option in takers}
                default = defaults.pop() if len(defaults) == 1 else f"depends on the {choice}"
                text = f"{meaning(takers[0])} (default: {default})" if takers else argparse.SUPPRESS
                flag.help = text.replace("%", "%%")
            parser.print_help()
            parser.exit()

    of_one = f"; after --{choice} NAME, what that takes" if len(table) > 1 else ""
    nowhere = argparse.SUPPRESS
    parser.add_argument("-h", "--help", action=Help, nargs=0, help=f"show this{of_one}", dest=nowhere, default=nowhere)


def meaning(option: Option) -> str:
    """What a choice does: in the words of :data:`MEANINGS`, or of its entry in the docstring of the function or part that takes it."""
    text = MEANINGS.get(option.name) or _entry(option.owner, option.name)
    return re.sub(r"(:\w+:)?`+~?(?:[\w.]*\.)?(.*?)`+", r"\2", text)


def _entry(owner: Any, name: str) -> str:
    while isinstance(owner, functools.partial):
        owner = owner.func
    text = inspect.getdoc(owner if inspect.isroutine(owner) else type(owner)) or ""
    listed = rf"^ +(?:\w+, )*{name}(?:, \w+)*: (.+?)(?=^ +\w+(?:, \w+)*: |^\S|\Z)"
    inline = rf"^Args: (?:.*; )?({name} [^;]+?)\.?(?:;|$)"
    mentioned = rf"((?:(?<=\. )|^)[^.\n]*``{name}``[^.]*)\."
    entries = [re.search(pattern, text, re.DOTALL | re.MULTILINE) for pattern in (listed, inline, mentioned)]
    found = next((" ".join(entry.group(1).split()).rstrip(".") for entry in entries if entry), "")
    same = re.search(r"as (?:in )?:func:`~?[\w.]*?(\w+)`", found or text)
    return _entry(getattr(sys.modules[owner.__module__], same.group(1)), name) if same else found


class _Once(yaml.SafeLoader):
    """Plain values only, and in a mapping each name once: of two alike others take the last and say nothing."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} stands twice", key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_yaml(path: str) -> dict[str, Any]:
    """The settings in a YAML file.

    Raises:
        UserError: naming the file and, where it is broken, the line.
    """
    file = Path(path)
    if not file.is_file():
        raise UserError(f"{path}: no such file; expected a YAML file of settings", problem="missing", file=path)
    try:
        values = yaml.load(file.read_text(encoding="utf-8"), Loader=_Once)
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark else ""
        reason = " ".join(str(getattr(problem, "problem", None) or problem).split())
        raise UserError(
            f"{path}{where}: not YAML ({reason})", expected="YAML", file=path, line=mark.line + 1 if mark else None
        ) from None
    except UnicodeDecodeError:
        raise UserError(
            f"{path}: not UTF-8 text; expected a YAML file of settings", expected="UTF-8", file=path
        ) from None
    except (ValueError, KeyError, RecursionError) as problem:
        # a month 99, a number of thousands of digits, thousands of brackets
        raise UserError(
            f"{path}: holds a value that cannot be read ({type(problem).__name__}: {problem})",
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
    """``value`` (a flag's text or a YAML scalar) as the annotated type ``kind``: int, float, bool, str, or one of them or None."""
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
            f"{where} = {shown(value)}; expected true or false",
            argument=where.rpartition(": ")[2],
            value=value,
            expected=bool,
        )
    if kind is str:
        if isinstance(value, str):
            return value
        raise UserError(
            f"{where} = {shown(value)}; expected text", argument=where.rpartition(": ")[2], value=value, expected=str
        )
    try:
        if isinstance(value, bool) or (kind is int and isinstance(value, float) and value != int(value)):
            raise ValueError
        return kind(value)
    except (TypeError, ValueError, OverflowError):
        expected = {int: "a whole number", float: "a number"}[kind]
        raise UserError(
            f"{where} = {shown(value)}; expected {expected}",
            argument=where.rpartition(": ")[2],
            value=value,
            expected=kind,
        ) from None


def from_mapping(cls: type[C], values: Mapping[str, Any], where: str = "settings") -> C:
    """Build a config dataclass from names and values.

    Raises:
        UserError: an unknown name (with the nearest one), or a value of the wrong type; ``where`` says in which file.
    """
    hints = typing.get_type_hints(cls)
    known = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            raise unknown(f"setting in {where}", str(name), known)
    return cls(**{name: parse_value(hints[name], value, f"{where}: {name}") for name, value in values.items()})


def add_answering(
    parser: argparse.ArgumentParser, *, num_generations: int, data: str = "problems", several: bool = False
) -> None:
    """The flags of :class:`~minirlhf.stages.answering.GenerationRequest`, of which ``num_generations`` has this default.

    With ``several`` models, ``models`` is the list of them, and their problems may come from elsewhere than ``--data``.
    """
    places = "a run, a model folder, a zoo entry or a hub name"
    if several:
        parser.add_argument("models", metavar="MODEL", nargs="+", help=places)
    else:
        parser.add_argument("model", metavar="MODEL", help=places)
    parser.add_argument("--data", required=not several, help=f"{data}: file, folder, or hub name")
    parser.add_argument("--format", help="format of the data (default: detected from its fields)")
    parser.add_argument("--split", help="split of a folder or hub data set")
    parser.add_argument("--limit", type=int, metavar="N", help="read this many rows at most")
    parser.add_argument(
        "--grader",
        help=f"{', '.join(GRADERS)}, a weighted sum such as gsm8k*0.9+think*0.1, or your own function: FILE.py:NAME",
    )
    parser.add_argument("--grader-seconds", type=float, default=10.0, help="time that your function has for a reply")
    parser.add_argument("--reward-model", metavar="FOLDER", help="grade by this reward model; A,B: by several")
    parser.add_argument(
        "--combine", default="mean", help="several reward models: mean, worst_case, uncertainty_weighted"
    )
    parser.add_argument(
        "--num-generations", type=int, default=num_generations, metavar="G",
        help=f"replies to each problem (default: {num_generations})",
    )  # fmt: skip
    parser.add_argument(
        "--max-completion-length", type=int, default=256, metavar="N", help="tokens of a reply at most (default: 256)"
    )
    parser.add_argument("--temperature", type=float, default=1.0, help="0 takes the likeliest token (default: 1)")
    parser.add_argument("--top-p", type=float, default=1.0, help="sample from the smallest set with this probability")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same replies (default: 0)")
    parser.add_argument("--device", help="where to compute (default: the first GPU, else the CPU)")
    parser.add_argument("--batch-size", type=int, default=64, help="problems answered at once (default: 64)")
