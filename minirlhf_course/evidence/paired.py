"""Comparisons of the numbers of several seeds.

A claim about a threshold holds if the mean is three standard deviations (between seeds) away from it. Two measurements
on the same seeds are compared by their differences, seed by seed: the mean difference with its confidence interval
(Student 1908), the number of seeds in which each is larger, and the minimum detectable difference. Several pairs are
corrected for multiple comparisons (Holm 1979, "A simple sequentially rejective multiple test procedure").
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
from minirlhf_course.evidence import t_distribution

#: The significance level of a whole family of pairs, and the power at the minimum detectable difference.
ALPHA, POWER = 0.05, 0.8

#: Differences that vary by less than this fraction of the numbers are equal: a last digit is rounding, not noise
#: between seeds.
ROUNDING = 1e-12

#: Smaller tail probabilities are not reported: they are computed as a difference from 1.
SMALLEST = 1e-12


def read(path: Path) -> dict[str, Any]:
    """Read the evidence in a file."""
    if not path.is_file():
        raise UserError(f"{path}: no such evidence; run the study beside it", problem="missing", file=path)
    evidence: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return evidence


def values(evidence: Mapping[str, Any], name: str) -> list[float]:
    """Return one number of every seed."""
    return [numbers[name] for numbers in evidence["seeds"].values()]


def margin(numbers: Sequence[float], threshold: float) -> float:
    """Return how far the mean lies above the threshold, in standard deviations between seeds; infinite if they do not
    differ.

    The claim that a number exceeds a threshold requires a margin of at least 3.
    """
    if len(numbers) < 3:
        raise ArgumentError(
            f"{len(numbers)} seeds; expected at least 3", argument="numbers", value=len(numbers), expected=3
        )
    if not all(map(math.isfinite, numbers)):
        raise ArgumentError(f"{list(numbers)}; expected finite numbers", argument="numbers", problem="not finite")
    mean = sum(numbers) / len(numbers)
    std = math.sqrt(sum((x - mean) ** 2 for x in numbers) / (len(numbers) - 1))
    if std > 0:
        return (mean - threshold) / std
    return 0.0 if mean == threshold else math.copysign(math.inf, mean - threshold)


@dataclass(frozen=True)
class Difference:
    """One measurement minus another, over the same seeds. The differences are assumed to be approximately normal.

    Attributes:
        mean: mean of the differences.
        error: standard error of the mean.
        above, below: number of seeds in which the first, or the second, measurement is larger.
        seeds: number of seeds.
        pairs: number of pairs in the family; all their intervals together have 95 % coverage (Bonferroni).
        p: p-value of the difference, corrected for the other pairs (Holm). For an exact difference it is 0, or 1 if the
            difference is 0: nothing is random, and there is no test.
    """

    mean: float
    error: float
    above: int
    below: int
    seeds: int
    pairs: int
    p: float

    def __neg__(self) -> Difference:
        """The difference with the opposite sign."""
        return replace(self, mean=-self.mean, above=self.below, below=self.above)

    @property
    def interval(self) -> tuple[float, float]:
        """The confidence interval of the mean difference."""
        half_width = t_distribution.quantile(ALPHA / self.pairs, self.seeds - 1) * self.error
        return self.mean - half_width, self.mean + half_width

    @property
    def exact(self) -> bool:
        """Whether the difference is the same in every seed, up to rounding. Then it is certain with few seeds too."""
        return self.error == 0

    @property
    def p_value(self) -> str:
        """``p`` in words; an exact difference has none."""
        if self.exact:
            return "exact, the same in every seed"
        text = f"p = {self.p:.2g}" if self.p > SMALLEST else f"p < {SMALLEST:g}"
        return f"{text} after correction for {self.pairs} pairs"

    @property
    def significant(self) -> bool:
        """Whether the two measurements differ significantly."""
        return self.p < ALPHA

    @property
    def minimum_detectable_effect(self) -> float:
        """The minimum detectable mean difference (80 % power), with the standard error of these seeds."""
        return t_distribution.detectable(ALPHA / self.pairs, self.seeds - 1, POWER) * self.error


def differences(
    columns: Mapping[str, Sequence[float]], pairs: Iterable[tuple[str, str]] | None = None
) -> dict[tuple[str, str], Difference]:
    """Compare measurements on the same seeds in ``pairs``, by default all pairs. All are corrected together.

    Raises:
        ValueError: there are fewer than three seeds, or the columns of a pair have different lengths.
    """
    pair_list = list(combinations(columns, 2)) if pairs is None else list(pairs)
    results: dict[tuple[str, str], Difference] = {}
    for name, other in pair_list:
        deltas = [x - y for x, y in zip(columns[name], columns[other], strict=True)]
        count = len(deltas)
        if count < 3:
            raise ArgumentError(f"{count} seeds; expected at least 3", argument="columns", value=count, expected=3)
        if not all(map(math.isfinite, deltas)):
            raise ArgumentError(
                f"{name} and {other} differ by {deltas}; expected finite numbers",
                argument="columns",
                value=(name, other),
                problem="not finite",
            )
        mean = math.fsum(deltas) / count
        error = math.sqrt(math.fsum((x - mean) ** 2 for x in deltas) / (count - 1) / count)
        scale = max(map(abs, (*columns[name], *columns[other])))
        if max(deltas) - min(deltas) <= ROUNDING * scale:  # no noise at all
            mean, error = mean if abs(mean) > ROUNDING * scale else 0.0, 0.0
        p = t_distribution.two_sided(mean / error, count - 1) if error > 0 else float(mean == 0)
        above, below = sum(x > 0 for x in deltas), sum(x < 0 for x in deltas)
        results[name, other] = Difference(mean, error, above, below, count, len(pair_list), p)
    for (pair, difference), p in zip(list(results.items()), holm([d.p for d in results.values()]), strict=True):
        results[pair] = replace(difference, p=p)
    return results


def summary(evidence: Mapping[str, Any]) -> dict[str, tuple[float, float, float, float]]:
    """Return mean, standard deviation between seeds, minimum and maximum of every number."""
    rows = {}
    for name in next(iter(evidence["seeds"].values())):
        numbers = values(evidence, name)
        mean = sum(numbers) / len(numbers)
        std = math.sqrt(sum((x - mean) ** 2 for x in numbers) / max(1, len(numbers) - 1))
        rows[name] = (mean, std, min(numbers), max(numbers))
    return rows


def name_of(path: Path) -> str:
    """Return the name of the study of a file: ``ch20_exact`` for ``chapters/ch20_overoptimization/study_exact.py``."""
    folder = path.parent.name
    chapter = re.match(r"ch\d\d(?=_)", folder)
    return (chapter[0] if chapter else folder) + path.stem.removeprefix("study")


def results() -> dict[str, Path]:
    """Return the result files of the package's studies, by name."""
    return {name_of(path): path for path in provenance.files("study*.json")}


def result(study: str) -> dict[str, Any]:
    """Return the evidence of a study of the package.

    Raises:
        UserError: there is no study of this name.
    """
    if study not in (paths := results()):
        raise unknown("study", study, paths)
    return read(paths[study])


class StudyResults:
    """The results of a study, for a notebook.

    Args:
        study: its name, as ``minirlhf verify studies`` lists it, or its evidence.

    Raises:
        UserError: there is no such study.
    """

    def __init__(self, study: str | Mapping[str, Any]) -> None:
        self._evidence = result(study) if isinstance(study, str) else study

    def values(self, name: str) -> list[float]:
        """Return one number of every seed."""
        return values(self._evidence, name)

    def holds(self, name: str, *, above: float = -math.inf, below: float = math.inf) -> bool:
        """Return whether a number is above or below a threshold by three standard deviations between seeds."""
        if above == -math.inf and below == math.inf:
            raise ArgumentError(f"{name}: neither above nor below is given", argument="above", problem="missing")
        numbers = self.values(name)
        return margin(numbers, above) >= 3 and margin([-x for x in numbers], -below) >= 3

    def all_exceed(self, name: str, other: str) -> bool:
        """Return whether a number exceeds another, paired by seed, by three standard deviations of the difference.

        A single run shows such a clear difference too. If this is false, the two may still differ significantly: see
        :meth:`difference`.
        """
        return margin([x - y for x, y in zip(self.values(name), self.values(other), strict=True)], 0.0) >= 3

    def difference(self, name: str, other: str) -> Difference:
        """Return one number minus another, as the only pair of its family."""
        return self.differences([name, other])[name, other]

    def differences(
        self, names: Iterable[str], pairs: Iterable[tuple[str, str]] | None = None
    ) -> dict[tuple[str, str], Difference]:
        """Return differences of numbers, as one family of pairs: see :func:`differences`."""
        return differences({name: self.values(name) for name in names}, pairs)
