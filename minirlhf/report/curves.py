"""Layer 7: the metrics of runs as curves: overlaid, seeds as a band, or handed to TensorBoard."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from minirlhf.core.errors import UserError, unknown
from minirlhf.report import live, metrics
from minirlhf.report.plotting import PALETTE, smooth
from minirlhf.trainers.history import History

COLORS = [PALETTE[name] for name in ("blue", "orange", "green", "red", "purple", "sky", "black")]
STYLES = ("-", "--", ":", "-.")


@dataclass(frozen=True)
class LoggedRun:
    """A run's folder, its metrics, and its settings (empty where only a metrics file is there)."""

    path: Path
    history: History
    config: Mapping[str, Any]


@dataclass(frozen=True)
class MetricCurve:
    """One metric of one or several runs that differ in their seed only.

    Attributes:
        steps: ``(S,)``, every step that any of the runs has.
        values: ``(R, S)``, one row per run, NaN where it has no number.
    """

    steps: np.ndarray
    values: np.ndarray

    def mean(self) -> np.ndarray:
        """``(S,)``, over the runs that have the step; NaN where none has."""
        return np.array([np.mean(v) if len(v := column[np.isfinite(column)]) else np.nan for column in self.values.T])

    def band(self) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest value of every step, ``(S,)`` each."""
        some = np.isfinite(self.values).any(0)
        low, high = (np.full(len(self.steps), np.nan) for _ in range(2))
        low[some], high[some] = np.nanmin(self.values[:, some], 0), np.nanmax(self.values[:, some], 0)
        return low, high


def read(paths: Sequence[str | Path]) -> list[LoggedRun]:
    """The runs in these places: a run's folder, its ``metrics.jsonl``, or a folder of runs.

    Raises:
        UserError: nothing there, or rows that are no metrics.
    """
    runs: list[LoggedRun] = []
    for path in map(Path, paths):
        if path.is_dir() and not (path / "metrics.jsonl").is_file():
            inside = sorted((file.parent for file in path.glob("*/metrics.jsonl")), key=_natural)
            if not inside:
                raise UserError(
                    f"{path}: no run (no metrics.jsonl in it or in a folder in it)",
                    argument="run",
                    problem="missing",
                    file=path,
                )
            runs += map(_read_run, inside)
        else:
            runs.append(_read_run(path))
    return runs


def _natural(path: Path) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path.name)]


def _read_run(path: Path) -> LoggedRun:
    history = History.read(path)
    for number, row in enumerate(history.rows, 1):
        numbers = isinstance(row, dict) and all(isinstance(v, int | float) for v in row.values())
        if not (numbers and "step" in row):
            raise UserError(
                f"{history.path} line {number}: expected an object of numbers with a step",
                argument="step",
                file=history.path,
                line=number,
            )
    if not history.rows:
        raise UserError(f"{path}: no metrics yet", argument="run", problem="empty", file=path)
    settings = path / "config.json"
    config = {}
    if settings.is_file():
        try:
            config = json.loads(settings.read_text(encoding="utf-8"))
        except ValueError as problem:
            raise UserError(f"{settings}: not JSON ({problem})") from None
    return LoggedRun(path, history, config if isinstance(config, dict) else {})


def group(runs: Sequence[LoggedRun], *, separate: bool = False) -> dict[str, list[LoggedRun]]:
    """Label -> runs. Runs whose settings differ in the seed alone, and names in a number at the end, are one group."""
    groups: dict[tuple[str, str], list[LoggedRun]] = {}
    for run in runs:
        same = json.dumps({k: v for k, v in run.config.items() if k not in ("seed", "noted")}, sort_keys=True)
        stem = re.sub(r"([-_.]?(seed|s))?[-_.]?\d+$", "", str(run.path)).rstrip("/")
        key = (str(run.path), "") if separate or not run.config else (stem, same)
        groups.setdefault(key, []).append(run)
    named: dict[str, list[LoggedRun]] = {}
    for (stem, _), members in groups.items():
        label = stem if len(members) > 1 and stem not in named else str(members[0].path)
        named[label] = members
    return _shorten(named)


def _shorten(named: dict[str, list[LoggedRun]]) -> dict[str, list[LoggedRun]]:
    """Leave out the folders that all labels begin with."""
    parts = [label.split("/") for label in named]
    shared = 0
    while all(len(p) > shared + 1 for p in parts) and len({p[shared] for p in parts}) == 1:
        shared += 1
    return {"/".join(p[shared:]): members for p, members in zip(parts, named.values(), strict=True)}


def choose(runs: Sequence[LoggedRun], asked: Sequence[str] = ()) -> list[str]:
    """The metrics to draw: those asked for, else all but step, times and learning rate, in the order of the glossary.

    Raises:
        UserError: a metric that no run has.
    """
    found = {name for run in runs for row in run.history for name in row} - {"step"}
    for name in asked:
        if name not in found:
            raise unknown("metric of these runs", name, found)
    if asked:
        return list(asked)
    order = list(metrics.METRICS)
    kept = [name for name in found if not name.startswith("seconds") and name != "learning_rate"]
    return sorted(kept or found, key=lambda name: (order.index(name) if name in order else len(order), name))


def curve(runs: Sequence[LoggedRun], name: str) -> MetricCurve:
    """One metric of a group of runs."""
    columns = [{int(row["step"]): row[name] for row in run.history if name in row} for run in runs]
    steps = sorted({step for column in columns for step in column})
    values = [[column.get(step, math.nan) for step in steps] for column in columns]
    return MetricCurve(np.array(steps), np.array(values, dtype=float).reshape(len(columns), len(steps)))


def figure(groups: Mapping[str, Sequence[LoggedRun]], names: Sequence[str], *, window: int = 1) -> Any:
    """A panel per metric, a curve per group: the mean of its seeds, and their range as a band.

    Args:
        groups: as :func:`group` gives them.
        names: the metrics.
        window: each curve is the mean of this many steps up to each.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(3, len(names))
    lines = math.ceil(len(names) / columns)
    with matplotlib.rc_context({"font.size": 9}):
        drawn = Figure(figsize=(4 * columns, 2.7 * lines + 0.5), layout="constrained")
        FigureCanvasAgg(drawn)
        axes = drawn.subplots(lines, columns, squeeze=False)
        for ax, name in zip(axes.flat, names, strict=False):
            _panel(ax, name, groups, window)
        for ax in list(axes.flat)[len(names) :]:
            ax.set_visible(False)
        if len(groups) > 1 or any(len(runs) > 1 for runs in groups.values()):
            drawn.legend(
                *_legend(axes.flat, groups), loc="outside upper center", ncols=min(4, len(groups)), frameon=False
            )
    return drawn


def _panel(ax: Any, name: str, groups: Mapping[str, Sequence[LoggedRun]], window: int) -> None:
    for i, (label, runs) in enumerate(groups.items()):
        drawn = curve(runs, name)
        style = {"color": COLORS[i % len(COLORS)], "ls": STYLES[i // len(COLORS) % len(STYLES)]}
        if len(drawn.steps) == 0:
            continue
        if len(runs) > 1:
            low, high = (smooth(edge.tolist(), window) for edge in drawn.band())
            ax.fill_between(drawn.steps, low, high, color=style["color"], alpha=0.2, lw=0)
        text = f"{label}: mean and range of {len(runs)} seeds" if len(runs) > 1 else label
        marker = "o" if len(drawn.steps) == 1 else None
        ax.plot(drawn.steps, smooth(drawn.mean().tolist(), window), lw=1.5, label=text, marker=marker, **style)
    unit = "" if metrics.unexplained([name]) else metrics.get(name).unit
    ax.set_title(name, fontsize=10)
    ax.set_xlabel("step")
    ax.set_ylabel("" if "(" in unit else unit.split(",")[0], fontsize=8)  # in brackets: it differs between trainers
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25, lw=0.6)


def _legend(axes: Any, groups: Mapping[str, Sequence[LoggedRun]]) -> tuple[list[Any], list[str]]:
    """One entry per group."""
    found: dict[str, Any] = {}
    for ax in axes:
        for handle, text in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(text, handle)
    return list(found.values()), list(found)


def save(drawn: Any, path: Path) -> None:
    """Write a figure as PNG, SVG or PDF, by the ending of the name; the same figure gives the same bytes.

    Raises:
        UserError: another ending, or a place that cannot be written.
    """
    dates = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    if path.suffix not in dates:
        raise UserError(
            f"{path}: cannot draw {path.suffix or 'a file without an ending'}; known are {', '.join(dates)}",
            argument="--out",
            value=path.suffix,
            expected=list(dates),
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with matplotlib.rc_context({"svg.hashsalt": "minirlhf"}):
            drawn.savefig(path, dpi=150, metadata=dates[path.suffix])
    except OSError as problem:
        raise UserError(f"{path}: cannot be written ({problem.strerror})") from None


def to_tensorboard(runs: Sequence[LoggedRun], folder: Path) -> list[Path]:
    """Write the metrics of every run for ``tensorboard --logdir FOLDER``; what was written before is replaced.

    Raises:
        UserError: TensorBoard is not installed, or the folder cannot be written.
    """
    labels = group(runs, separate=True)
    written = []
    for label, (run,) in labels.items():
        target = folder / label.strip("/")
        with live.open_writer(target) as writer:
            for row in run.history:
                live.write_row(writer, row)
        written.append(target)
    return written
