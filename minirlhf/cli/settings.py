"""From frozen dataclasses to flags and back: ``learning_rate: float`` becomes ``--learning-rate NUMBER``.

A YAML file given by ``--config`` holds the same names; flags win over it, and it wins over the defaults.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import yaml

from minirlhf.core.errors import UserError


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


def read_yaml(path: str) -> dict[str, Any]:
    """The settings in a YAML file.

    Raises:
        UserError: naming the file and, where it is broken, the line.
    """
    file = Path(path)
    if not file.is_file():
        raise UserError(f"{path}: no such file; expected a YAML file of settings")
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark else ""
        reason = " ".join(str(getattr(problem, "problem", None) or problem).split())
        raise UserError(f"{path}{where}: not YAML ({reason})") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8 text; expected a YAML file of settings") from None
    except (ValueError, KeyError, RecursionError) as problem:
        # a month 99, a number of thousands of digits, thousands of brackets
        raise UserError(f"{path}: holds a value that cannot be read ({type(problem).__name__}: {problem})") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UserError(f"{path}: holds a {type(values).__name__}; expected 'name: value' lines")
    return {str(key).replace("-", "_"): value for key, value in values.items()}
