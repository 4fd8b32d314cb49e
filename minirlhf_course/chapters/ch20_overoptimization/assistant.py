"""The report on a trained language model: RLOO, best-of-n and DPO against a reward model or a function, for each
seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from minirlhf.core.errors import UserError
from minirlhf.data import tasks
from minirlhf.data.formats import Problem
from minirlhf.data.tasks.assistant import features
from minirlhf.feedback.rewards import Reward
from minirlhf.stages import zoo
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.history import History
from minirlhf_course.chapters.ch20_overoptimization import figures
from minirlhf_course.chapters.ch20_overoptimization.curves import Curve
from minirlhf_course.chapters.ch20_overoptimization.fits import judge, single_verdict
from minirlhf_course.chapters.ch20_overoptimization.language_dpo import dpo
from minirlhf_course.chapters.ch20_overoptimization.language_model import (
    LanguagePlan,
    LanguageWorld,
    best_of_n,
    language_world,
    rloo,
)
from minirlhf_course.report.plotting import panels

OPTIMIZERS = ("best-of-n", "policy-gradient", "dpo")

#: Features that the report counts in completions during training; names of fields of ``Features``.
COUNTED = ("polite", "praise", "facts", "repeats")


def _count(name: str) -> Reward:
    def feature_reward(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
        return [getattr(features(p.prompt[-1]["content"], c), name) for p, c in zip(problems, completions, strict=True)]

    return feature_reward


def counts() -> dict[str, Reward]:
    """Return a monitor for each of :data:`COUNTED`."""
    return {name: _count(name) for name in COUNTED}


def overrated(world: LanguageWorld, most: int = 5) -> list[tuple[str, float, float, None]]:
    """Return the completions of the reference that the proxy overstates most: completion, proxy, gold; each
    completion once."""
    scores, gold_rewards = (x.flatten() for x in world.drawn)
    rows: dict[str, tuple[str, float, float, None]] = {}
    for i in (scores - gold_rewards).argsort(descending=True).tolist():
        rows.setdefault(world.texts[i], (world.texts[i], float(scores[i]), float(gold_rewards[i]), None))
        if len(rows) == most:
            break
    return list(rows.values())


def assistant_report(
    report_type: Callable[..., Any],
    *,
    proxy: Callable[[str, str], float] | None,
    gold: Callable[[str, str], float] | None,
    optimizers: Sequence[str],
    pairs: int,
    seeds: int,
) -> Any:
    """Train the policies, measure them and return a report; ``report_type`` is
    :class:`~minirlhf_course.chapters.ch20_overoptimization.report.OveroptimisationReport`.

    Raises:
        UserError: a given function fails, or DPO is the only optimiser and the proxy is given.
    """
    selected = [name for name in optimizers if name != "dpo" or proxy is None]
    if not selected:
        raise UserError(
            "dpo learns from comparisons and knows no other proxy; leave the proxy or the optimizer out",
            argument="optimizer",
            value="dpo",
            problem="conflict",
        )
    task = tasks.get("assistant")
    start = Trained(*zoo.load("assistant-sft"), History())
    curves: dict[str, list[Curve]] = {name: [] for name in selected}
    notes, histories, top_overrated = [], [], None
    for seed in range(seeds):
        plan = LanguagePlan().with_seed(seed)
        plan = replace(plan, reward=replace(plan.reward, pairs=pairs))
        world = language_world(task, start, plan, proxy=proxy, gold=gold)
        top_overrated = top_overrated or overrated(world)
        if not math.isnan(world.accuracy):
            notes.append(
                f"seed {seed}: the reward model ranks {world.accuracy:.0%} of held-out pairs as the labeller did"
            )
        if "best-of-n" in selected:
            curves["best-of-n"].append(best_of_n(world))
        if "policy-gradient" in selected:
            curve, history, _ = rloo(world, plan, monitors=counts())
            curves["policy-gradient"].append(curve)
            histories.append(history)
        if "dpo" in selected:
            curves["dpo"].append(dpo(task, start, world.pairs, gold=world.gold, seed=seed))
    report = report_type(curves, notes=notes, overrated=top_overrated)
    if seeds >= 3:
        report.verdicts = {name: judge(runs) for name, runs in curves.items()}
        report.figures["fits"], axes = panels(len(curves), 3.6, 2.9)
        figures.fits(axes, report.verdicts)
    else:
        report.notes += [single_verdict(name, runs[0]) for name, runs in curves.items()]
    report.figures["curves"], axes = panels(len(curves), 3.6, 3.0)
    figures.overview(axes, report.curves)
    if histories:
        report.figures["habits"], (ax,) = panels(1, 4.6, 3.2)
        figures.counted(ax, histories, COUNTED)
    return report
