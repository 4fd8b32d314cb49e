"""How many items, replies and seeds tell two models apart: the noise of a comparison, assumed or measured, and what it asks for."""

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
from minirlhf.evidence import t_distribution


@dataclass(frozen=True)
class VarianceComponents:
    """Variances of a measured difference, as eq:three-sources has them.

    Attributes:
        item: ω², between items, of the difference of the two chances.
        reply: σ², of the difference of one reply of each model to an item.
        seed: τ², of the true difference between seeds.
        known: what the numbers come from, in words.
    """

    item: float
    reply: float
    seed: float
    known: str

    @classmethod
    def of_shares(cls, accuracy: float, effect: float, seed: float) -> VarianceComponents:
        """Of right and wrong answers to other items for each model, one reply each: p(1 − p) of the two, all of it as ω².

        How much of it is σ² cannot be known from an accuracy. As ω² more seeds do not reduce it, so that no promise is too large.
        """
        other = accuracy + effect
        total = accuracy * (1 - accuracy) + other * (1 - other)
        return cls(total, 0.0, seed, f"accuracies of {accuracy:g} and {other:g}, each model on items of its own")

    @classmethod
    def measured(cls, ours: Tensor, theirs: Tensor, seed: float) -> VarianceComponents:
        """Of the rewards ``(P, G)`` of two models on the same items, by the analysis of variance of their differences, reply by reply.

        A pilot of ``minirlhf evaluate`` gives both models the same random numbers, and so will the next comparison. Their replies are then
        not independent, and σ² is that of the difference of two of them; of independent ones it is the sum of both.

        With one reply to each item the two parts cannot be told apart, and everything counts as ω².

        Source: Searle, Casella and McCulloch (1992), "Variance components".
        Raises:
            UserError: all differences are alike, so that there is no noise to be seen.
        """
        problems, replies = ours.shape
        between = float((ours - theirs).mean(1).var())
        within = float((ours - theirs).var(1).mean()) if replies > 1 else 0.0
        if between + within == 0:
            raise UserError(
                f"--results: the two models differ by the same on each of {problems} items; expected a larger pilot",
                argument="--results",
                value=problems,
                problem="no noise",
            )
        known = f"two models on the same {problems} items, {replies} replies to each"
        return cls(max(0.0, between - within / replies), within, seed, known)

    def items(self, effect: float, *, seeds: int, replies: int, alpha: float, power: float) -> float:
        """Items from which on the difference is found so often; infinite where the seeds alone hide it."""
        return items_needed(
            effect, seed=self.seed, item=self.item, reply=self.reply, seeds=seeds, replies=replies, alpha=alpha, power=power
        )  # fmt: skip

    def minimum_detectable_effect(self, items: int, *, seeds: int, replies: int, alpha: float, power: float) -> float:
        """The smallest difference that so many items find so often."""
        parts = (torch.tensor(x, dtype=torch.float64) for x in (self.seed, self.item, self.reply))
        variance = difference_variance(*parts, seeds=seeds, items=items, replies=replies)
        return float(smallest_effect(1 / variance, alpha=alpha, power=power))

    def seeds(self, effect: float, *, alpha: float, power: float) -> int:
        """The fewest seeds that can find this difference, with as many items as one likes."""
        one = dataclasses.replace(self, item=0.0, reply=0.0).minimum_detectable_effect(
            1, seeds=1, replies=1, alpha=alpha, power=power
        )
        return math.floor((one / effect) ** 2) + 1

    def effect_by_t(self, *, seeds: int, alpha: float, power: float) -> float:
        """The smallest difference that a t test over the differences of so many seeds finds so often if there are so many items that they add no
        noise; with fewer items it finds less.

        It does not know τ², it measures it; of one seed it cannot, and the difference is infinite.
        """
        if seeds == 1:
            return math.inf
        return t_distribution.detectable(alpha, seeds - 1, power) * math.sqrt(self.seed / seeds)

    def seeds_by_t(self, effect: float, *, alpha: float, power: float) -> int:
        """The fewest seeds by which a t test over their differences can find this one."""
        found = max(2, self.seeds(effect, alpha=alpha, power=power))
        while self.effect_by_t(seeds=found, alpha=alpha, power=power) > effect:
            found += 1
        return found


class _Pilot(NamedTuple):
    grades: Tensor
    data: str


def grades(files: Sequence[Path]) -> dict[str, Tensor]:
    """Rewards ``(P, G)`` of every model in these files of ``minirlhf evaluate --json``.

    Raises:
        UserError: a file that is not one, problems in clusters, or models that were asked other problems or another number of replies.
    """
    found: dict[str, Tensor] = {}
    asked: set[str] = set()
    for file in files:
        for name, one in _models(file).items():
            if name in found:
                raise UserError(
                    f"{file}: {name} was read already; expected two different models",
                    argument="model",
                    value=name,
                    problem="duplicate",
                    file=file,
                )
            found[name] = one.grades
            asked.add(f"{one.data} {tuple(one.grades.shape)}")
    if len(asked) > 1:
        raise UserError(
            f"{', '.join(map(str, files))}: the models answered other problems, or another number of replies; expected the "
            "same data, limit and num-generations",
            argument="data",
            value=sorted(asked),
            problem="mismatch",
        )
    return found


def _models(file: Path) -> dict[str, _Pilot]:
    """What is said of each model; of one task alone."""
    try:
        text = json.loads(file.read_text(encoding="utf-8"))
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
        if "tasks" not in text:
            models = {text["measured on"]["asked"]["model"]: text}
        elif len(text["tasks"]) > 1:
            raise UserError(
                f"{file}: holds the tasks {', '.join(text['tasks'])}; expected a file of one task",
                argument="tasks",
                value=list(text["tasks"]),
                expected=1,
                file=file,
            )
        else:
            [models] = [task["models"] for task in text["tasks"].values()]
        for one in models.values():
            if field := one["measured on"]["asked"].get("cluster"):
                raise UserError(
                    f"{file}: its problems come in clusters, by {field}; expected a pilot of problems that stand alone, since those of a "
                    "cluster are worth fewer, and the file does not say which belong together",
                    argument="cluster",
                    value=field,
                    file=file,
                )
        return {name: _Pilot(_table(one["grades"]), one["measured on"]["data"]) for name, one in models.items()}
    except (TypeError, KeyError, AttributeError, ValueError):
        raise UserError(
            f"{file}: holds no grades of models; expected what evaluate --json has written",
            argument="grades",
            problem="missing",
            file=file,
        ) from None


def _table(rows: list[list[float | None]]) -> Tensor:
    """``(P, G)``, NaN where there is no grade."""
    found = torch.tensor([[math.nan if x is None else float(x) for x in row] for row in rows], dtype=torch.float64)
    if found.ndim != 2 or not found.numel():
        raise ValueError("no table of grades")
    return found
