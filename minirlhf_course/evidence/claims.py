"""Claims that are stated before their runs, and the rule of their verdicts.

A claim is that an effect exceeds a floor. Its standard error in one run comes from leaving out one cluster at a time
(the jackknife), for example all completions of one question. A claim is about every run: its p-value is the largest of
the runs' p-values (Berger 1982, "Multiparameter hypothesis testing and acceptance sampling"). Holm's correction covers
all claims of one table, separately for each direction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from minirlhf.core.statistics import holm
from minirlhf_course.evidence import t_distribution
from minirlhf_course.evidence.paired import ALPHA, POWER

Record = Mapping[str, Any]


@dataclass(frozen=True)
class StatedClaim:
    """One claim.

    Attributes:
        title: what the chapters lead us to expect.
        chapter: the chapter that says so.
        effect: the measured number, of a record and the indices of some of its clusters.
        floor: the claim is that the effect exceeds this number.
        unit: unit of the effect.
        clusters: number of clusters (questions, or prompts) that the effect is computed from.
    """

    title: str
    chapter: int
    effect: Callable[[Record, Sequence[int]], float]
    floor: float = 0.0
    unit: str = ""
    clusters: Callable[[Record], int] = lambda record: len(record["base"])


def jackknife(effect: Callable[[Sequence[int]], float], clusters: int) -> tuple[float, float]:
    """Return an effect of all clusters, and its standard error by leaving out one cluster at a time."""
    without = [effect([j for j in range(clusters) if j != i]) for i in range(clusters)]
    error = math.sqrt((clusters - 1) / clusters * sum((x - np.mean(without)) ** 2 for x in without))
    return effect(range(clusters)), error


def measure_claims(claims: Mapping[str, StatedClaim], record: Record) -> dict[str, float]:
    """Return effect, standard error and number of clusters of every claim in one run."""
    numbers: dict[str, float] = {}
    for name, claim in claims.items():
        count = claim.clusters(record)
        effect, error = jackknife(partial(claim.effect, record), count)
        numbers |= {f"{name}_effect": effect, f"{name}_error": error, f"{name}_clusters": float(count)}
    return numbers


@dataclass(frozen=True)
class ClaimVerdict:
    """What the runs say of a claim.

    Attributes:
        effects, errors: the effect in each run, and its standard error.
        lowest, highest: ends of the runs' intervals, which hold for all claims together (Bonferroni): the lowest low end
            and the highest high end.
        detectable: distance from the floor at which all runs would decide the claim with 80 % power, if all had
            the largest of their standard errors; at the first, strictest level of Holm's correction.
        confirmed, refuted: p-values after Holm's correction, that the effect exceeds its floor in every run, and that
            it is below it in every run.
    """

    effects: tuple[float, ...]
    errors: tuple[float, ...]
    lowest: float
    highest: float
    detectable: float
    confirmed: float
    refuted: float

    @property
    def word(self) -> str:
        """The verdict."""
        if self.confirmed < ALPHA / 2:
            return "confirmed"
        return "not confirmed" if self.refuted < ALPHA / 2 else "not decided"


def verdicts(claims: Mapping[str, StatedClaim], runs: Sequence[Mapping[str, float]]) -> dict[str, ClaimVerdict]:
    """Return the verdict on every claim from the measurements of all runs.

    An effect without any variation between clusters decides nothing.
    """
    above, below = {}, {}
    for name, claim in claims.items():
        above[name] = max(_one_sided(run, name, claim.floor, 1) for run in runs)
        below[name] = max(_one_sided(run, name, claim.floor, -1) for run in runs)
    corrected = [dict(zip(claims, holm(list(side.values())), strict=True)) for side in (above, below)]
    level = ALPHA / len(claims)
    results = {}
    for name in claims:
        effects, errors = (tuple(run[f"{name}_{part}"] for run in runs) for part in ("effect", "error"))
        widths = [
            t_distribution.quantile(level, int(run[f"{name}_clusters"]) - 1) * run[f"{name}_error"] for run in runs
        ]
        results[name] = ClaimVerdict(
            effects,
            errors,
            min(e - w for e, w in zip(effects, widths, strict=True)),
            max(e + w for e, w in zip(effects, widths, strict=True)),
            detectable(errors, min(int(run[f"{name}_clusters"]) for run in runs), level),
            corrected[0][name],
            corrected[1][name],
        )
    return results


def detectable(errors: Sequence[float], clusters: int, level: float) -> float:
    """Return the minimum detectable distance of an effect from its floor, at a two-sided level; see
    :class:`ClaimVerdict`."""
    return t_distribution.detectable(level, clusters - 1, POWER ** (1 / len(errors))) * max(errors)


def _one_sided(run: Mapping[str, float], name: str, floor: float, sign: int) -> float:
    error = run[f"{name}_error"]
    if error == 0:
        return 1.0
    t = sign * (run[f"{name}_effect"] - floor) / error
    tail = t_distribution.two_sided(t, int(run[f"{name}_clusters"]) - 1) / 2
    return tail if t > 0 else 1.0 - tail
