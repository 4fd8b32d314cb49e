"""The report on a trained language model: RLOO and best-of-n against a reward model, seed by seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from minirlhf import zoo
from minirlhf.core.errors import UserError
from minirlhf.data import tasks
from minirlhf.overoptimization import figures
from minirlhf.overoptimization.language_model import LanguagePlan, best_of_n, language_world, reinforce
from minirlhf.pipeline import Trained
from minirlhf.plotting import panels
from minirlhf.trainers.history import History

OF_LANGUAGE = {"best-of-n", "policy-gradient"}


def assistant_report(
    report_type: Callable[..., Any],
    *,
    proxy: Callable[[str, str], float] | None,
    gold: Callable[[str, str], float] | None,
    optimizers: Sequence[str],
    pairs: int,
    seeds: int,
) -> Any:
    """Train and measure; ``report_type`` is :class:`~minirlhf.overoptimization.report.Report`.

    Raises:
        UserError: only the tilt is asked for: it is a sum over all replies, and here there are too many.
    """
    chosen = [name for name in optimizers if name in OF_LANGUAGE]
    if not chosen:
        raise UserError(
            "--optimizer tilt needs a world that can be summed over; the assistant takes best-of-n or policy-gradient"
        )
    task = tasks.get("assistant")
    start = Trained(*zoo.load("assistant-sft"), History())
    curves: dict[str, list[Any]] = {name: [] for name in chosen}
    notes = []
    for seed in range(seeds):
        plan = LanguagePlan().with_seed(seed)
        plan = replace(plan, reward=replace(plan.reward, pairs=pairs))
        world = language_world(task, start, plan, proxy=proxy, gold=gold)
        if not math.isnan(world.accuracy):
            notes.append(
                f"seed {seed}: the reward model ranks {world.accuracy:.0%} of held-out pairs as the labeller did"
            )
        if "best-of-n" in chosen:
            curves["best-of-n"].append(best_of_n(world))
        if "policy-gradient" in chosen:
            curves["policy-gradient"].append(reinforce(world, plan)[0])
    report = report_type(curves, notes=notes)
    report.figures["curves"], axes = panels(len(curves), 3.6, 3.0)
    figures.overview(axes, report.curves)
    return report
