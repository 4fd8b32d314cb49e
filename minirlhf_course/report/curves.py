"""The metrics of runs as curves: overlaid, with the range across seeds as a band, or exported to
TensorBoard."""

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
from minirlhf.trainers import live
from minirlhf.trainers.history import History
from minirlhf_course.report import metrics
from minirlhf_course.report.plotting import PALETTE, smooth

COLORS = [PALETTE[name] for name in ("blue", "orange", "green", "red", "purple", "sky", "black")]
STYLES = ("-", "--", ":", "-.")


@dataclass(frozen=True)
class LoggedRun:
    """A run's folder, its metrics, and its settings (empty if there is only a metrics file)."""

    path: Path
    history: History
    config: Mapping[str, Any]


@dataclass(frozen=True)
class MetricCurve:
    """One metric of one or several runs that differ only in their seed.

    Attributes:
        steps: ``(S,)``, every step that any of the runs has.
        values: ``(R, S)``, one row per run, NaN at steps without a value.
    """

    steps: np.ndarray
    values: np.ndarray

    def mean(self) -> np.ndarray:
        """Return the mean over the runs that have the step, ``(S,)``; NaN where no run has it."""
        return np.array([np.mean(v) if len(v := column[np.isfinite(column)]) else np.nan for column in self.values.T])

    def band(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the lowest and the highest value of every step, ``(S,)`` each."""
        valid = np.isfinite(self.values).any(0)
        low, high = (np.full(len(self.steps), np.nan) for _ in range(2))
        low[valid], high[valid] = np.nanmin(self.values[:, valid], 0), np.nanmax(self.values[:, valid], 0)
        return low, high


def read(paths: Sequence[str | Path]) -> list[LoggedRun]:
    """Read the runs at these paths: each is a run's folder, its ``metrics.jsonl``, or a folder of runs.

    Raises:
        UserError: there is no run, or a row does not hold metrics.
    """
    runs: list[LoggedRun] = []
    for path in map(Path, paths):
        if path.is_dir() and not (path / "metrics.jsonl").is_file():
            run_dirs = sorted((file.parent for file in path.glob("*/metrics.jsonl")), key=_natural)
            if not run_dirs:
                raise UserError(
                    f"{path}: no run (no metrics.jsonl in it or in one of its sub-folders)",
                    argument="run",
                    problem="missing",
                    file=path,
                )
            runs += map(_read_run, run_dirs)
        else:
            runs.append(_read_run(path))
    return runs


def _natural(path: Path) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path.name)]


def _read_run(path: Path) -> LoggedRun:
    history = History.read(path)
    for number, row in enumerate(history.rows, 1):
        is_numeric = isinstance(row, dict) and all(isinstance(v, int | float) for v in row.values())
        if not (is_numeric and "step" in row):
            raise UserError(
                f"{history.path} line {number}: expected a JSON object of numbers with the key 'step'",
                argument="step",
                file=history.path,
                line=number,
            )
    if not history.rows:
        raise UserError(f"{path}: no metrics yet", argument="run", problem="empty", file=path)
    config_path = path / "config.json"
    config = {}
    if config_path.is_file():
        try:
            config = json.loads(config_path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise UserError(f"{config_path}: not JSON ({error})") from None
    return LoggedRun(path, history, config if isinstance(config, dict) else {})


def group(runs: Sequence[LoggedRun], *, separate: bool = False) -> dict[str, list[LoggedRun]]:
    """Group runs: label -> runs. Runs whose settings differ only in the seed and whose names differ only in a final
    number are one group."""
    groups: dict[tuple[str, str], list[LoggedRun]] = {}
    for run in runs:
        settings = json.dumps({k: v for k, v in run.config.items() if k not in ("seed", "noted")}, sort_keys=True)
        stem = re.sub(r"([-_.]?(seed|s))?[-_.]?\d+$", "", str(run.path)).rstrip("/")
        key = (str(run.path), "") if separate or not run.config else (stem, settings)
        groups.setdefault(key, []).append(run)
    labelled: dict[str, list[LoggedRun]] = {}
    for (stem, _), members in groups.items():
        label = stem if len(members) > 1 and stem not in labelled else str(members[0].path)
        labelled[label] = members
    return _shorten(labelled)


def _shorten(labelled: dict[str, list[LoggedRun]]) -> dict[str, list[LoggedRun]]:
    """Remove the folders that all labels begin with."""
    parts = [label.split("/") for label in labelled]
    num_shared = 0
    while all(len(p) > num_shared + 1 for p in parts) and len({p[num_shared] for p in parts}) == 1:
        num_shared += 1
    return {"/".join(p[num_shared:]): members for p, members in zip(parts, labelled.values(), strict=True)}


def choose(runs: Sequence[LoggedRun], asked: Sequence[str] = ()) -> list[str]:
    """Return the metrics to draw: the requested ones, else all except step, times and learning rate, in the glossary's
    order.

    Raises:
        UserError: no run has a requested metric.
    """
    available = {name for run in runs for row in run.history for name in row} - {"step"}
    for name in asked:
        if name not in available:
            raise unknown("metric of these runs", name, available)
    if asked:
        return list(asked)
    order = list(metrics.METRICS)
    selected = [name for name in available if not name.startswith("seconds") and name != "learning_rate"]
    return sorted(selected or available, key=lambda name: (order.index(name) if name in order else len(order), name))


def curve(runs: Sequence[LoggedRun], name: str) -> MetricCurve:
    """Return the curve of one metric of a group of runs."""
    columns = [{int(row["step"]): row[name] for row in run.history if name in row} for run in runs]
    steps = sorted({step for column in columns for step in column})
    values = [[column.get(step, math.nan) for step in steps] for column in columns]
    return MetricCurve(np.array(steps), np.array(values, dtype=float).reshape(len(columns), len(steps)))


def figure(groups: Mapping[str, Sequence[LoggedRun]], names: Sequence[str], *, window: int = 1) -> Any:
    """Draw a panel per metric and a curve per group: the mean over its seeds, and their range as a band.

    Args:
        groups: the result of :func:`group`.
        names: the metrics.
        window: each point of a curve is the mean of this many steps, of which it is the last.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(3, len(names))
    num_rows = math.ceil(len(names) / columns)
    with matplotlib.rc_context({"font.size": 9}):
        fig = Figure(figsize=(4 * columns, 2.7 * num_rows + 0.5), layout="constrained")
        FigureCanvasAgg(fig)
        axes = fig.subplots(num_rows, columns, squeeze=False)
        for ax, name in zip(axes.flat, names, strict=False):
            _panel(ax, name, groups, window)
        for ax in list(axes.flat)[len(names) :]:
            ax.set_visible(False)
        if len(groups) > 1 or any(len(runs) > 1 for runs in groups.values()):
            fig.legend(
                *_legend(axes.flat, groups), loc="outside upper center", ncols=min(4, len(groups)), frameon=False
            )
    return fig


def _panel(ax: Any, name: str, groups: Mapping[str, Sequence[LoggedRun]], window: int) -> None:
    for i, (label, runs) in enumerate(groups.items()):
        metric = curve(runs, name)
        style = {"color": COLORS[i % len(COLORS)], "ls": STYLES[i // len(COLORS) % len(STYLES)]}
        if len(metric.steps) == 0:
            continue
        if len(runs) > 1:
            low, high = (smooth(edge.tolist(), window) for edge in metric.band())
            ax.fill_between(metric.steps, low, high, color=style["color"], alpha=0.2, lw=0)
        text = f"{label}: mean and range of {len(runs)} seeds" if len(runs) > 1 else label
        marker = "o" if len(metric.steps) == 1 else None
        ax.plot(metric.steps, smooth(metric.mean().tolist(), window), lw=1.5, label=text, marker=marker, **style)
    unit = "" if metrics.unexplained([name]) else metrics.get(name).unit
    ax.set_title(name, fontsize=10)
    ax.set_xlabel("step")
    ax.set_ylabel("" if "(" in unit else unit.split(",")[0], fontsize=8)  # a unit in brackets differs between trainers
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25, lw=0.6)


def _legend(axes: Any, groups: Mapping[str, Sequence[LoggedRun]]) -> tuple[list[Any], list[str]]:
    """Return the handles and labels of the legend, one per group."""
    handles: dict[str, Any] = {}
    for ax in axes:
        for handle, text in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(text, handle)
    return list(handles.values()), list(handles)


def save(drawn: Any, path: Path) -> None:
    """Write a figure as PNG, SVG or PDF, according to the file name's suffix; the same figure gives the same bytes.

    Raises:
        UserError: the suffix is another one, or the file cannot be written.
    """
    metadata = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    if path.suffix not in metadata:
        raise UserError(
            f"{path}: cannot draw {path.suffix or 'a file without a suffix'}; expected one of {', '.join(metadata)}",
            argument="--out",
            value=path.suffix,
            expected=list(metadata),
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with matplotlib.rc_context({"svg.hashsalt": "minirlhf"}):
            drawn.savefig(path, dpi=150, metadata=metadata[path.suffix])
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from None


def to_tensorboard(runs: Sequence[LoggedRun], folder: Path) -> list[Path]:
    """Write the metrics of every run for ``tensorboard --logdir FOLDER``; earlier event files are replaced.

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
