"""The figures of the gallery, from the numbers of its study."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minirlhf_course import evidence
from minirlhf_course.gallery.catalogue import beside
from minirlhf_course.gallery.failure import BrokenRun
from minirlhf_course.report.plotting import PALETTE

RESULT = Path(__file__).with_name("study.json")

#: The results of the gallery's study.
Result = Mapping[str, Any]


def result() -> Result:
    """Return the results of the study."""
    return evidence.read(RESULT)


def kept(seen: Result, kind: str, failure: BrokenRun, metric: str) -> list[list[float]]:
    """Return the downsampled curve of each seed; ``kind`` is broken or healthy."""
    prefix = f"{kind}_{failure.name if kind == 'broken' else beside(failure)}_{metric}_"
    point = re.compile(rf"{re.escape(prefix)}\d\d")  # excludes metrics whose name starts with this name
    return [[numbers[name] for name in sorted(numbers) if point.fullmatch(name)] for numbers in seen["seeds"].values()]


def draw(failure: BrokenRun, seen: Result) -> Any:
    """Plot three panels: every seed of the broken run over every seed of the healthy run."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 2.1), layout="constrained")
    FigureCanvasAgg(figure)
    for ax, metric in zip(figure.subplots(1, len(failure.panel)), failure.panel, strict=True):
        for kind, color, style in (("healthy", PALETTE["blue"], "--"), ("broken", PALETTE["orange"], "-")):
            for i, row in enumerate(kept(seen, kind, failure, metric)):
                progress = [(k + 0.5) / len(row) for k in range(len(row))]
                ax.plot(progress, row, color=color, ls=style, lw=1.1, label=kind if i == 0 else None)
        values = [x for kind in ("healthy", "broken") for row in kept(seen, kind, failure, metric) for x in row]
        if min(values) > 0 and max(values) / min(values) > 300 and metric not in ("reward", "gold"):
            ax.set_yscale("log")
        ax.set_title(metric, fontsize=10)
        ax.set_xlabel("fraction of the run", fontsize=9)
        ax.tick_params(labelsize=8)
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25, lw=0.6)
    figure.axes[0].legend(fontsize=8, frameon=False)
    return figure


def alt(failure: BrokenRun, seen: Result) -> str:
    """Return the alt text of the figure: the means over seeds at the end of the run."""
    parts = []
    for metric in failure.panel:
        means = [_mean([row[-1] for row in kept(seen, kind, failure, metric)]) for kind in ("broken", "healthy")]
        parts.append(f"{metric} ends at {means[0]:.3g} in the broken runs and at {means[1]:.3g} in the healthy ones")
    return f"Three panels over the fraction of the run, a line per seed: {'; '.join(parts)}."


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else math.nan
