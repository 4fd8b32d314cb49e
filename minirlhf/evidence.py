"""Layer 7: evidence under ``studies/``: a small JSON file with what several seeds gave, the command that made it, and a hash
of the code it depends on, so that a test can say when it is stale."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from minirlhf.core.errors import UserError
from minirlhf.core.provenance import all_modules, source, source_hash
from minirlhf.models.checkpoints import write_text_atomic

# A study runs for minutes, in which its files may be edited: what it depends on is read now.
for _name in all_modules():
    source(_name)


def write(path: Path, *, command: str, modules: Sequence[str], seeds: Mapping[int, Mapping[str, float]]) -> None:
    """Write the numbers of each seed, with the command and the hash of ``modules`` and all that they import."""
    evidence = {
        "command": command,
        "modules": list(modules),
        "code": source_hash(*modules),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "seeds": {str(seed): dict(numbers) for seed, numbers in seeds.items()},
    }
    write_text_atomic(path, json.dumps(evidence, indent=1) + "\n")


def read(path: Path) -> dict[str, Any]:
    """The evidence in a file."""
    if not path.is_file():
        raise UserError(f"{path}: no such evidence; run the study beside it")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def is_stale(evidence: Mapping[str, Any]) -> bool:
    """Has the code that it depends on changed since?"""
    return source_hash(*evidence["modules"]) != evidence["code"]


def values(evidence: Mapping[str, Any], name: str) -> list[float]:
    """One number of every seed."""
    return [numbers[name] for numbers in evidence["seeds"].values()]


def margin(numbers: Sequence[float], threshold: float) -> float:
    """How far the mean lies above the threshold, in standard deviations between seeds; infinite if they do not differ.

    A claim that a number exceeds a threshold is made where this is at least 3.
    """
    if len(numbers) < 3:
        raise ValueError(f"{len(numbers)} seeds; expected at least 3")
    mean = sum(numbers) / len(numbers)
    deviation = math.sqrt(sum((x - mean) ** 2 for x in numbers) / (len(numbers) - 1))
    return (mean - threshold) / deviation if deviation > 0 else math.copysign(math.inf, mean - threshold)


def summary(evidence: Mapping[str, Any]) -> dict[str, tuple[float, float, float, float]]:
    """Mean, standard deviation between seeds, minimum and maximum of every number."""
    rows = {}
    for name in next(iter(evidence["seeds"].values())):
        numbers = values(evidence, name)
        mean = sum(numbers) / len(numbers)
        deviation = math.sqrt(sum((x - mean) ** 2 for x in numbers) / max(1, len(numbers) - 1))
        rows[name] = (mean, deviation, min(numbers), max(numbers))
    return rows
