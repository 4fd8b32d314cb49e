"""Numbers of several seeds, compared: a claim holds where it does by three standard deviations between seeds."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from minirlhf.core import provenance
from minirlhf.core.errors import UserError, unknown


def read(path: Path) -> dict[str, Any]:
    """The evidence in a file."""
    if not path.is_file():
        raise UserError(f"{path}: no such evidence; run the study beside it")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


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
    if deviation > 0:
        return (mean - threshold) / deviation
    return 0.0 if mean == threshold else math.copysign(math.inf, mean - threshold)


def summary(evidence: Mapping[str, Any]) -> dict[str, tuple[float, float, float, float]]:
    """Mean, standard deviation between seeds, minimum and maximum of every number."""
    rows = {}
    for name in next(iter(evidence["seeds"].values())):
        numbers = values(evidence, name)
        mean = sum(numbers) / len(numbers)
        deviation = math.sqrt(sum((x - mean) ** 2 for x in numbers) / max(1, len(numbers) - 1))
        rows[name] = (mean, deviation, min(numbers), max(numbers))
    return rows


def name_of(path: Path) -> str:
    """What the study or the result in this file is called: ``chapters/ch20_overoptimization/study_exact.py`` is ``ch20_exact``."""
    folder = path.parent.name
    chapter = re.match(r"ch\d\d(?=_)", folder)
    return (chapter[0] if chapter else folder) + path.stem.removeprefix("study")


def results() -> dict[str, Path]:
    """The results of the package's studies, by name."""
    return {name_of(path): path for path in sorted(provenance.PACKAGE.rglob("study*.json"))}


def result(study: str) -> dict[str, Any]:
    """The evidence of a study of the package.

    Raises:
        UserError: there is none of this name.
    """
    if study not in (found := results()):
        raise unknown("study", study, found)
    return read(found[study])


class Seen:
    """What a study saw, as a notebook asks for it.

    Args:
        study: its name, as ``minirlhf studies`` lists it, or its result as it was read.

    Raises:
        UserError: there is no such study.
    """

    def __init__(self, study: str | Mapping[str, Any]) -> None:
        self._evidence = result(study) if isinstance(study, str) else study

    def values(self, name: str) -> list[float]:
        """One number of every seed."""
        return values(self._evidence, name)

    def holds(self, name: str, *, above: float = -math.inf, below: float = math.inf) -> bool:
        """Is a number above or below a threshold, by three standard deviations between seeds?"""
        if above == -math.inf and below == math.inf:
            raise ValueError(f"{name}: neither above nor below is given")
        numbers = self.values(name)
        return margin(numbers, above) >= 3 and margin([-x for x in numbers], -below) >= 3

    def exceeds(self, name: str, other: str) -> bool:
        """Is a number larger than another, seed by seed, by three standard deviations of their difference?"""
        differences = [x - y for x, y in zip(self.values(name), self.values(other), strict=True)]
        return margin(differences, 0.0) >= 3
