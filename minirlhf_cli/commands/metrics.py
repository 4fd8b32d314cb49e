"""The metrics of a run: definition, unit, healthy range, and what a bad curve indicates.

minirlhf doctor metrics               list all metrics, one line each
minirlhf doctor metrics kl            one metric in full
minirlhf doctor metrics runs/grpo     the metrics of a run, with the first and last values
"""

from __future__ import annotations

import argparse
import math
import shutil
import textwrap
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the argument: an optional metric or run."""
    parser.add_argument("name", nargs="?", metavar="NAME|RUN", help="a metric, or the folder of a run")


def run(args: argparse.Namespace) -> int:
    """Print the list, one metric, or the metrics of a run."""
    from minirlhf_course.gallery.questions import questions
    from minirlhf_course.report import metrics

    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    if args.name is None:
        for metric in metrics.METRICS.values():
            print(_line(metric.name, f"[{metric.unit}] {metric.definition}", width))
    elif args.name not in metrics.METRICS and Path(args.name).exists():
        _of_run(args.name, width)
    else:
        metric = metrics.get(args.name)
        print(f"{metric.name}  (logged by {', '.join(metric.trainers)})\n")
        for title in ("unit", "definition", "healthy", "bad"):
            print(_line(title, getattr(metric, title), width, 12))
        for question in questions().values():
            if metric.name in question.metrics:
                print(_line("question", f"{question.question} (minirlhf doctor faq {question.name})", width, 12))
    return 0


def _line(name: str, text: str, width: int, column: int = 22) -> str:
    return textwrap.fill(text, width, initial_indent=f"{name:<{column}}", subsequent_indent=" " * column)


def _of_run(folder: str, width: int) -> None:
    from minirlhf.trainers.history import History
    from minirlhf_course.report import metrics

    history = History.read(folder)
    names = [name for name in dict.fromkeys(key for row in history for key in row) if name != "step"]
    custom = metrics.unexplained(names)
    for name in names:
        values = [value for value in history[name] if math.isfinite(value)]
        change = f"{values[0]:.4g} → {values[-1]:.4g}" if values else "never a number"
        meaning = "a monitor of this run" if name in custom else metrics.get(name).healthy
        print(_line(name, f"{change:<24}{meaning}", width))
