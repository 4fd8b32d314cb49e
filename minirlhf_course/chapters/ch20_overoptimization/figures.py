"""The figures of over-optimisation, each with one message. Each function takes measured results and its axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from minirlhf.trainers.history import History
from minirlhf_course.chapters.ch20_overoptimization.curves import Curve
from minirlhf_course.chapters.ch20_overoptimization.detector import Detection
from minirlhf_course.chapters.ch20_overoptimization.errors import Errors
from minirlhf_course.chapters.ch20_overoptimization.fits import FitVerdict
from minirlhf_course.chapters.ch20_overoptimization.habits import Habit
from minirlhf_course.chapters.ch20_overoptimization.tampering import TamperingRun
from minirlhf_course.report.plotting import PALETTE, smooth

DISTANCE = "distance from the reference, √KL"
COLOURS = tuple(PALETTE[name] for name in ("blue", "red", "green", "purple", "orange", "sky", "black", "yellow"))


def _band(ax: Any, curves: Sequence[Curve], field: str, *, colour: str, style: str, label: str) -> None:
    """Plot mean and range over seeds, up to the largest distance that all seeds reach."""
    reach = min(float(c.distance.max()) for c in curves)
    grid = torch.linspace(0, reach, 60, dtype=torch.float64)
    rows = torch.stack([_at(c.distance, getattr(c, field), grid) for c in curves])
    ax.plot(grid, rows.mean(0), color=colour, ls=style, label=label)
    if len(curves) > 1:
        ax.fill_between(grid, rows.amin(0), rows.amax(0), color=colour, alpha=0.15, lw=0)


def _at(distance: Tensor, values: Tensor, grid: Tensor) -> Tensor:
    """Return the values along a path at given distances; where the path turns back, only the points that reach a new
    largest distance count."""
    outward, farthest = [0], float(distance[0])
    for k, d in enumerate(distance.tolist()):
        if d > farthest:
            farthest, outward = d, [*outward, k]
    x, y = distance[outward], values[outward]
    right = torch.searchsorted(x, grid.contiguous()).clamp(1, len(x) - 1)
    fraction = ((grid - x[right - 1]) / (x[right] - x[right - 1])).clamp(0, 1)
    return y[right - 1] + fraction * (y[right] - y[right - 1])


def overview(axes: Sequence[Any], curves: Mapping[str, Sequence[Curve]]) -> None:
    """Plot one panel per optimiser: proxy and gold against √KL, mean and range over seeds."""
    for ax, (name, runs) in zip(axes, curves.items(), strict=True):
        _band(ax, runs, "proxy", colour=PALETTE["orange"], style="--", label="proxy reward")
        _band(ax, runs, "gold", colour=PALETTE["green"], style="-", label="gold reward")
        ax.set(title=name, xlabel=DISTANCE)
    axes[0].set_ylabel("mean reward, in units of gold")
    axes[0].legend(frameon=False)


def gold_curves(ax: Any, curves: Mapping[str, Sequence[Curve]]) -> None:
    """Plot gold reward against √KL for several proxies, optimisers or remedies in one panel."""
    for colour, (name, runs) in zip(COLOURS, curves.items(), strict=False):
        _band(ax, runs, "gold", colour=colour, style="-", label=name)
    ax.set(xlabel=DISTANCE, ylabel="gold reward")
    ax.legend(frameon=False)


def fits(axes: Sequence[Any], verdicts: Mapping[str, FitVerdict]) -> None:
    """Plot one panel per optimiser: the gains of single seeds, and both fitted forms with their bands."""
    for ax, (name, verdict) in zip(axes, verdicts.items(), strict=True):
        ax.plot(verdict.grid, verdict.gains[:6].T, color="0.8", lw=0.6)  # six seeds are enough to see how they differ
        ax.plot(verdict.grid, verdict.gains.mean(0), color="black", lw=1.5, label="mean over data sets")
        for (form, fit), colour in zip(verdict.pooled.items(), (PALETTE["blue"], PALETTE["red"]), strict=True):
            low, high = verdict.bands[form]
            ax.fill_between(verdict.grid, low, high, color=colour, alpha=0.25, lw=0)
            ax.plot(
                verdict.grid, fit(verdict.grid), color=colour, ls="--", label=f"{form}: R² {verdict.within[form]:.2f}"
            )
        ax.set(title=name, xlabel=DISTANCE)
        ax.legend(frameon=False, fontsize="small")
    axes[0].set_ylabel("gold gained")


def remedies(ax: Any, gold: Mapping[str, Sequence[float]], *, oracle: float) -> None:
    """Plot the gold reward at one distance for each remedy: a dot per seed, a bar for the mean. For a remedy that
    never reaches the distance, its end point counts."""
    for row, values in enumerate(gold.values()):
        ax.plot(values, [row] * len(values), "o", ms=3, alpha=0.4, color=PALETTE["blue"], mew=0)
        ax.plot([sum(values) / len(values)] * 2, [row - 0.3, row + 0.3], color="black", lw=2)
    first = next(iter(gold.values()))
    ax.axvline(sum(first) / len(first), color="0.6", lw=0.8, ls=":")
    ax.axvline(oracle, color=PALETTE["green"], lw=1)
    ax.set(yticks=range(len(gold)), yticklabels=list(gold), xlabel="gold reward")
    ax.set_ylim(len(gold) - 0.5, -0.5)


def errors(ax: Any, parts: Mapping[str, Sequence[Errors]]) -> None:
    """Plot the gold reward lost by cause, mean over seeds; a cause that happens to help is drawn below zero."""
    names = ("approximation", "estimation", "optimisation")
    up, down = [0.0] * len(parts), [0.0] * len(parts)
    for name, colour in zip(names, ("blue", "orange", "purple"), strict=True):
        heights = [sum(getattr(e, name) for e in runs) / len(runs) for runs in parts.values()]
        bottoms = [u if h >= 0 else d for h, u, d in zip(heights, up, down, strict=True)]
        ax.bar(list(parts), heights, bottom=bottoms, color=PALETTE[colour], width=0.6, label=name)
        up = [u + max(h, 0) for h, u in zip(heights, up, strict=True)]
        down = [d + min(h, 0) for h, d in zip(heights, down, strict=True)]
    ax.axhline(0, color="black", lw=0.8)
    ax.set(ylabel="gold reward lost")
    ax.legend(frameon=False)


def counted(ax: Any, histories: Sequence[History], names: Sequence[str]) -> None:
    """Plot features per completion of a policy during training against √KL: means over runs and over five steps."""
    smoothed = lambda name: smooth(torch.tensor([h[name] for h in histories]).mean(0).tolist(), 5)
    distance = [max(0.0, kl) ** 0.5 for kl in smoothed("kl")]
    for colour, name in zip(COLOURS, names, strict=False):
        ax.plot(distance, smoothed(name), color=colour, label=name)
    ax.set(xlabel=DISTANCE, ylabel="per completion")
    ax.legend(frameon=False)


def leash(ax: Any, free: Curve, held: Curve, turn: tuple[float, float] | None) -> None:
    """Plot gold and proxy of one policy-gradient run without a penalty, the ends of runs under a KL penalty, and the
    point at which a second reward model is highest."""
    ax.plot(free.distance, free.proxy, color=PALETTE["orange"], ls="--", label="proxy, no penalty")
    ax.plot(held.distance[1:], held.proxy[1:], "o", color=PALETTE["orange"], label="proxy, converged under a penalty")
    ax.plot(free.distance, free.gold, color=PALETTE["green"], label="gold, no penalty")
    ax.plot(held.distance[1:], held.gold[1:], "o", color=PALETTE["green"], label="gold, converged under a penalty")
    if turn is not None:
        ax.plot(*turn, "*", ms=12, color="black", label="a second reward model is highest")
    ax.set(xlabel=DISTANCE, ylabel="mean reward, in units of gold reward")
    ax.legend(frameon=False, fontsize="small")


def tampering(axes: Sequence[Any], runs: Mapping[str, TamperingRun]) -> None:
    """Plot the grade in the sheet and the gold reward during training, and how often the sheet is edited."""
    for colour, (name, run) in zip(COLOURS, runs.items(), strict=False):
        axes[0].plot(run.grade, color=colour, ls="--")
        axes[0].plot(run.worth, color=colour, label=name)
        axes[1].plot(run.edits, color=colour, label=name)
    axes[0].set(xlabel="step", ylabel="grade (dashed), gold reward (solid)")
    axes[1].set(xlabel="step", ylabel="lines written into the sheet")
    axes[1].legend(frameon=False)


def detector(ax: Any, found: Detection) -> None:
    """Plot the ROC curves of all scores."""
    for colour, name in zip(COLOURS, found.scores, strict=False):
        false, true = found.curve(name)
        ax.plot(false, true, color=colour, label=f"{name}: {found.auc(name):.2f}")
    ax.plot([0, 1], [0, 1], color="0.7", lw=0.8, ls=":")
    ax.set(xlabel="honest completions flagged", ylabel="hacks flagged")
    ax.legend(frameon=False, fontsize="small", title="area under the curve")


def habit(ax: Any, found: Habit, reply: int) -> None:
    """Plot how often one completion is given to each kind of prompt, and the gold reward, against √KL."""
    distance, gold, policies = found.path()
    lines = policies[..., reply].T
    for colour, style, kind, line in zip(COLOURS, ("-", "-", (0, (2, 2))), found.kinds, lines, strict=False):
        ax.plot(distance, line, color=colour, ls=style, lw=2, label=kind)
    ax.plot(distance, gold, color="black", ls=":", label="gold reward, mean over prompts")
    ax.set(title=f"fraction of completions: {found.replies[reply]}", xlabel=DISTANCE)
    ax.legend(frameon=False, fontsize="small")
