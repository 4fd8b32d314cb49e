"""Draw the metrics of runs, one over the other.

  minirlhf plot runs/grpo runs/rloo                          every metric, a panel each
  minirlhf plot runs/grpo-s0 runs/grpo-s1 runs/grpo-s2       seeds of one run: their mean, with their range as a band
  minirlhf plot runs --metrics reward,kl --out reward.svg    all runs in a folder
  minirlhf plot runs --tensorboard tb                        for tensorboard --logdir tb

Runs are seeds of one another if their names differ in a number at the end and their settings in the seed.
What the metrics mean: minirlhf metrics.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from minirlhf.core.errors import UserError
from minirlhf.report import curves


def configure(parser: argparse.ArgumentParser) -> None:
    """Runs and what to draw of them."""
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="folder of a run, its metrics.jsonl, or a folder of runs"
    )
    parser.add_argument("--metrics", metavar="NAME,...", help="what to draw (default: all but times and learning rate)")
    parser.add_argument("--smooth", type=int, default=1, metavar="N", help="mean of the last N steps")
    parser.add_argument("--separate", action="store_true", help="a curve for every run, seeds too")
    parser.add_argument("--out", type=Path, default=Path("plot.png"), help=".png, .svg or .pdf (default: plot.png)")
    parser.add_argument("--tensorboard", type=Path, metavar="FOLDER", help="write the metrics for TensorBoard instead")


def run(args: argparse.Namespace) -> int:
    """Draw, and print where the curves end."""
    if args.smooth < 1:
        raise UserError(
            f"--smooth {args.smooth}: expected at least 1", argument="--smooth", value=args.smooth, expected=1
        )
    runs = curves.read(args.runs)
    if args.tensorboard is not None:
        for folder in curves.to_tensorboard(runs, args.tensorboard):
            print(f"written: {folder}")
        print(f"look at it with: tensorboard --logdir {args.tensorboard}")
        return 0
    names = curves.choose(runs, [name.strip() for name in args.metrics.split(",")] if args.metrics else [])
    groups = curves.group(runs, separate=args.separate)
    curves.save(curves.figure(groups, names, window=args.smooth), args.out)
    print("\n".join(_table(groups, names)))
    print(f"written: {args.out}")
    return 0


def _table(groups: dict[str, list[curves.LoggedRun]], names: list[str]) -> list[str]:
    """The last values: of a group of seeds their mean and standard deviation."""
    rows = [["last value of", *groups]]
    for name in names:
        cells = []
        for members in groups.values():
            ends = [v[np.isfinite(v)][-1:] for v in curves.curve(members, name).values]
            last = np.concatenate([*ends, np.empty(0)])
            spread = f" ± {last.std(ddof=1):.2g}" if len(last) > 1 else ""
            cells.append(f"{last.mean():.4g}{spread}" if len(last) else "-")
        rows.append([name, *cells])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
