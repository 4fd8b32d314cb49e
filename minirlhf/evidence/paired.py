"""Numbers of several seeds, compared.

Against a threshold a claim holds where it does by three standard deviations between seeds. Two measurements of the same seeds are
compared by their differences, seed by seed: the mean difference with its interval (Student 1908), in how many seeds which is larger, and
how large a difference would have been found. Where several pairs are looked at, so much more is asked of each (Holm 1979, "A simple
sequentially rejective multiple test procedure").
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from minirlhf.core import provenance
from minirlhf.core.errors import ArgumentError, UserError, unknown
from minirlhf.core.statistics import holm
from minirlhf.evidence import t_distribution

#: How often a difference may be found where there is none, in a whole family of pairs; and how often one of the size that a
#: comparison is said to see would be found.
ALPHA, POWER = 0.05, 0.8

#: Differences that differ by less than this share of the numbers are the same: a last digit is no noise to estimate.
ROUNDING = 1e-12

#: A tail that is smaller is not computed: it is a difference from 1.
SMALLEST = 1e-12


def read(path: Path) -> dict[str, Any]:
    """The evidence in a file."""
    if not path.is_file():
        raise UserError(f"{path}: no such evidence; run the study beside it", problem="missing", file=path)
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
        raise ArgumentError(
            f"{len(numbers)} seeds; expected at least 3", argument="numbers", value=len(numbers), expected=3
        )
    if not all(map(math.isfinite, numbers)):
        raise ArgumentError(f"{list(numbers)}; expected finite numbers", argument="numbers", problem="not finite")
    mean = sum(numbers) / len(numbers)
    deviation = math.sqrt(sum((x - mean) ** 2 for x in numbers) / (len(numbers) - 1))
    if deviation > 0:
        return (mean - threshold) / deviation
    return 0.0 if mean == threshold else math.copysign(math.inf, mean - threshold)


@dataclass(frozen=True)
class Difference:
    """One measurement less another, over the same seeds. The differences are taken to be about normal.

    Attributes:
        mean: of the differences.
        error: its standard error.
        above, below: in how many seeds the first, or the other, is larger.
        seeds: how many there are.
        pairs: how many pairs were looked at; the interval covers all of theirs together in 95 of 100 studies (Bonferroni).
        p: chance of so large a difference if there were none, corrected for the other pairs (Holm). Of an exact difference 0, or
            1 where it is none: nothing was left to chance, and no test was made.
    """

    mean: float
    error: float
    above: int
    below: int
    seeds: int
    pairs: int
    p: float

    def __neg__(self) -> Difference:
        """The other less the one."""
        return replace(self, mean=-self.mean, above=self.below, below=self.above)

    @property
    def interval(self) -> tuple[float, float]:
        """The mean differences that these seeds leave possible."""
        reach = t_distribution.quantile(ALPHA / self.pairs, self.seeds - 1) * self.error
        return self.mean - reach, self.mean + reach

    @property
    def exact(self) -> bool:
        """Is it the same in every seed, to within rounding? Then it is certain, whatever the number of seeds."""
        return self.error == 0

    @property
    def p_value(self) -> str:
        """``p`` in words: of an exact difference there is none."""
        if self.exact:
            return "exact, the same in every seed"
        said = f"p = {self.p:.2g}" if self.p > SMALLEST else f"p < {SMALLEST:g}"
        return f"{said} after correction for {self.pairs} pairs"

    @property
    def significant(self) -> bool:
        """Is one larger than the other?"""
        return self.p < ALPHA

    @property
    def minimum_detectable_effect(self) -> float:
        """The smallest mean difference that would have been found in four of five such studies, with these seeds' noise."""
        return t_distribution.detectable(ALPHA / self.pairs, self.seeds - 1, POWER) * self.error


def differences(
    columns: Mapping[str, Sequence[float]], pairs: Iterable[tuple[str, str]] | None = None
) -> dict[tuple[str, str], Difference]:
    """Compare measurements of the same seeds in ``pairs``, by default each with each later one; all pairs are one family.

    Raises:
        ValueError: fewer than three seeds, or not as many in one column as in the other.
    """
    wanted = list(combinations(columns, 2)) if pairs is None else list(pairs)
    found: dict[tuple[str, str], Difference] = {}
    for name, other in wanted:
        apart = [x - y for x, y in zip(columns[name], columns[other], strict=True)]
        count = len(apart)
        if count < 3:
            raise ArgumentError(f"{count} seeds; expected at least 3", argument="columns", value=count, expected=3)
        if not all(map(math.isfinite, apart)):
            raise ArgumentError(
                f"{name} and {other} differ by {apart}; expected finite numbers",
                argument="columns",
                value=(name, other),
                problem="not finite",
            )
        mean = math.fsum(apart) / count
        error = math.sqrt(math.fsum((x - mean) ** 2 for x in apart) / (count - 1) / count)
        size = max(map(abs, (*columns[name], *columns[other])))
        if max(apart) - min(apart) <= ROUNDING * size:  # no noise at all
            mean, error = mean if abs(mean) > ROUNDING * size else 0.0, 0.0
        p = t_distribution.two_sided(mean / error, count - 1) if error > 0 else float(mean == 0)
        above, below = sum(x > 0 for x in apart), sum(x < 0 for x in apart)
        found[name, other] = Difference(mean, error, above, below, count, len(wanted), p)
    for (pair, one), p in zip(list(found.items()), holm([d.p for d in found.values()]), strict=True):
        found[pair] = replace(one, p=p)
    return found


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


class StudyResults:
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
            raise ArgumentError(f"{name}: neither above nor below is given", argument="above", problem="missing")
        numbers = self.values(name)
        return margin(numbers, above) >= 3 and margin([-x for x in numbers], -below) >= 3

    def all_exceed(self, name: str, other: str) -> bool:
        """Is a number larger than another, seed by seed, by three standard deviations of their difference? So clear a difference a
        single run shows as well. Where this is false the two may still be apart: ask for their :meth:`difference`."""
        return margin([x - y for x, y in zip(self.values(name), self.values(other), strict=True)], 0.0) >= 3

    def difference(self, name: str, other: str) -> Difference:
        """A number less another, as the only pair that is looked at."""
        return self.differences([name, other])[name, other]

    def differences(
        self, names: Iterable[str], pairs: Iterable[tuple[str, str]] | None = None
    ) -> dict[tuple[str, str], Difference]:
        """Numbers less others, as one family of pairs: see :func:`differences`."""
        return differences({name: self.values(name) for name in names}, pairs)
