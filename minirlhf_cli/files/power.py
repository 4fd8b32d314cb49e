"""Power analysis: the number of items, completions and seeds that a comparison of two models needs.

The variances of the comparison are assumed, or measured on a pilot.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from minirlhf.core.errors import UserError
from minirlhf.equations.comparisons import smallest_effect
from minirlhf.equations.evaluation import difference_variance, items_needed
from minirlhf_course.evidence import t_distribution


@dataclass(frozen=True)
class VarianceComponents:
    """Variances of a measured difference, as eq:three-sources has them.

    Attributes:
        item: ω², variance between items of the difference of the two success probabilities.
        reply: σ², variance of the difference of one completion of each model for an item.
        seed: τ², variance of the true difference between seeds.
        known: the origin of the numbers, in words.
    """

    item: float
    reply: float
    seed: float
    known: str

    @classmethod
    def of_shares(cls, accuracy: float, effect: float, seed: float) -> VarianceComponents:
        """Return the variances for models on different items with one completion each: the sum of both p(1 − p), as ω².

        An accuracy does not show which part is σ². Counted as ω² it is not reduced by more seeds, so the power is not
        overestimated.
        """
        second = accuracy + effect
        variance = accuracy * (1 - accuracy) + second * (1 - second)
        return cls(variance, 0.0, seed, f"accuracies of {accuracy:g} and {second:g}, each model on items of its own")

    @classmethod
    def measured(cls, candidate: Tensor, baseline: Tensor, seed: float) -> VarianceComponents:
        """Estimate the variances from the rewards ``(P, G)`` of two models on the same items.

        The method is the analysis of variance of their differences, completion by completion. ``minirlhf evaluate``
        gives both models the same random numbers, in the pilot and in the next comparison. Their completions are then
        not independent, and σ² is the variance of the difference of two completions. For independent completions it is
        the sum of both variances.

        With one completion per item, ω² and σ² cannot be separated, and all variance counts as ω².

        Source: Searle, Casella and McCulloch (1992), "Variance components".
        Raises:
            UserError: all differences are equal, so the variance cannot be estimated.
        """
        problems, replies = candidate.shape
        between = float((candidate - baseline).mean(1).var())
        within = float((candidate - baseline).var(1).mean()) if replies > 1 else 0.0
        if between + within == 0:
            raise UserError(
                f"--results: the two models differ by the same on each of {problems} items; expected a larger pilot",
                argument="--results",
                value=problems,
                problem="no noise",
            )
        origin = f"two models on the same {problems} items, {replies} replies to each"
        return cls(max(0.0, between - within / replies), within, seed, origin)

    def items(self, effect: float, *, seeds: int, replies: int, alpha: float, power: float) -> float:
        """Return the number of items for this power; infinite if the variance between seeds alone is too large."""
        return items_needed(
            effect, seed=self.seed, item=self.item, reply=self.reply, seeds=seeds, replies=replies, alpha=alpha, power=power
        )  # fmt: skip

    def minimum_detectable_effect(self, items: int, *, seeds: int, replies: int, alpha: float, power: float) -> float:
        """Return the smallest difference that this number of items detects with this power."""
        parts = (torch.tensor(x, dtype=torch.float64) for x in (self.seed, self.item, self.reply))
        variance = difference_variance(*parts, seeds=seeds, items=items, replies=replies)
        return float(smallest_effect(1 / variance, alpha=alpha, power=power))

    def seeds(self, effect: float, *, alpha: float, power: float) -> int:
        """Return the smallest number of seeds that can detect this difference with unlimited items."""
        detectable = dataclasses.replace(self, item=0.0, reply=0.0).minimum_detectable_effect(
            1, seeds=1, replies=1, alpha=alpha, power=power
        )
        return math.floor((detectable / effect) ** 2) + 1

    def effect_by_t(self, *, seeds: int, alpha: float, power: float) -> float:
        """Return the minimum detectable difference of a t test over the seeds' differences, with unlimited items.

        With fewer items the detectable difference is larger. The test estimates τ² from the seeds; with one seed it
        cannot, and the difference is infinite.
        """
        if seeds == 1:
            return math.inf
        return t_distribution.detectable(alpha, seeds - 1, power) * math.sqrt(self.seed / seeds)

    def seeds_by_t(self, effect: float, *, alpha: float, power: float) -> int:
        """Return the smallest number of seeds with which a t test over their differences detects this difference."""
        seeds = max(2, self.seeds(effect, alpha=alpha, power=power))
        while self.effect_by_t(seeds=seeds, alpha=alpha, power=power) > effect:
            seeds += 1
        return seeds


class _Pilot(NamedTuple):
    grades: Tensor
    data: str


def grades(files: Sequence[Path]) -> dict[str, Tensor]:
    """Read the rewards ``(P, G)`` of every model in these files of ``minirlhf evaluate --json``.

    Raises:
        UserError: an invalid file, problems in clusters, or models with different problems or numbers of completions.
    """
    rewards: dict[str, Tensor] = {}
    designs: set[str] = set()
    for file in files:
        for name, pilot in _models(file).items():
            if name in rewards:
                raise UserError(
                    f"{file}: {name} is in an earlier file already; expected different models",
                    argument="model",
                    value=name,
                    problem="duplicate",
                    file=file,
                )
            rewards[name] = pilot.grades
            designs.add(f"{pilot.data} {tuple(pilot.grades.shape)}")
    if len(designs) > 1:
        raise UserError(
            f"{', '.join(map(str, files))}: the models have different problems or numbers of completions; expected the "
            "same data, limit and num-generations",
            argument="data",
            value=sorted(designs),
            problem="mismatch",
        )
    return rewards


def _models(file: Path) -> dict[str, _Pilot]:
    """Read the grades of each model from a file with one task."""
    try:
        results = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"{file}: no such file; expected what evaluate --json has written", problem="missing", file=file
        ) from None
    except (OSError, ValueError) as problem:
        raise UserError(
            f"{file}: cannot be read ({problem}); expected what evaluate --json has written",
            problem="unreadable",
            file=file,
        ) from None
    try:
        if "tasks" not in results:
            models = {results["measured on"]["asked"]["model"]: results}
        elif len(results["tasks"]) > 1:
            raise UserError(
                f"{file}: holds the tasks {', '.join(results['tasks'])}; expected a file of one task",
                argument="tasks",
                value=list(results["tasks"]),
                expected=1,
                file=file,
            )
        else:
            [models] = [task["models"] for task in results["tasks"].values()]
        for result in models.values():
            if field := result["measured on"]["asked"].get("cluster"):
                raise UserError(
                    f"{file}: its problems form clusters, by {field}; expected a pilot with independent problems: the "
                    "effective number of clustered problems is smaller, and the file does not list the clusters",
                    argument="cluster",
                    value=field,
                    file=file,
                )
        return {
            name: _Pilot(_table(result["grades"]), result["measured on"]["data"]) for name, result in models.items()
        }
    except (TypeError, KeyError, AttributeError, ValueError):
        raise UserError(
            f"{file}: holds no grades of models; expected what evaluate --json has written",
            argument="grades",
            problem="missing",
            file=file,
        ) from None


def _table(rows: list[list[float | None]]) -> Tensor:
    """Return ``(P, G)`` grades, NaN where a grade is missing."""
    table = torch.tensor([[math.nan if x is None else float(x) for x in row] for row in rows], dtype=torch.float64)
    if table.ndim != 2 or not table.numel():
        raise ValueError("no table of grades")
    return table
