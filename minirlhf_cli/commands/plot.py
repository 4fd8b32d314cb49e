"""Plot the metrics of runs, overlaid.

  minirlhf plot runs/grpo runs/rloo                          one panel per metric
  minirlhf plot runs/grpo-s0 runs/grpo-s1 runs/grpo-s2       seeds of one run: their mean, with their range as a band
  minirlhf plot runs --metrics reward,kl --out reward.svg    all runs in a folder
  minirlhf plot runs --tensorboard tb                        for tensorboard --logdir tb

Runs belong together as seeds if their names differ only in a number at the end and their settings only in the seed.
`minirlhf doctor metrics` explains the metrics.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from minirlhf_cli.settings import require_at_least
from minirlhf_course.report import curves


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: runs, metrics and the output."""
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="folder of a run, its metrics.jsonl, or a folder of runs"
    )
    parser.add_argument("--metrics", metavar="NAME,...", help="default: all metrics except times and learning rate")
    parser.add_argument("--smooth", type=int, default=1, metavar="N", help="moving average over the last N steps")
    parser.add_argument("--separate", action="store_true", help="one curve per run instead of per group of seeds")
    parser.add_argument("--out", type=Path, default=Path("plot.png"), help=".png, .svg or .pdf (default: plot.png)")
    parser.add_argument("--tensorboard", type=Path, metavar="FOLDER", help="write the metrics for TensorBoard instead")


def run(args: argparse.Namespace) -> int:
    """Plot the metrics; print their last values."""
    require_at_least(1, args, "smooth")
    runs = curves.read(args.runs)
    if args.tensorboard is not None:
        for folder in curves.to_tensorboard(runs, args.tensorboard):
            print(f"saved to {folder}")
        print(f"view it with: tensorboard --logdir {args.tensorboard}")
        return 0
    names = curves.choose(runs, [name.strip() for name in args.metrics.split(",")] if args.metrics else [])
    groups = curves.group(runs, separate=args.separate)
    curves.save(curves.figure(groups, names, window=args.smooth), args.out)
    print("\n".join(_table(groups, names)))
    print(f"saved to {args.out}")
    return 0


def _table(groups: dict[str, list[curves.LoggedRun]], names: list[str]) -> list[str]:
    """Return a table of the last values, with mean and standard deviation for a group of seeds."""
    rows = [["last value of", *groups]]
    for name in names:
        cells = []
        for members in groups.values():
            last_values = [v[np.isfinite(v)][-1:] for v in curves.curve(members, name).values]
            last = np.concatenate([*last_values, np.empty(0)])
            deviation = f" ± {last.std(ddof=1):.2g}" if len(last) > 1 else ""
            cells.append(f"{last.mean():.4g}{deviation}" if len(last) else "-")
        rows.append([name, *cells])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
