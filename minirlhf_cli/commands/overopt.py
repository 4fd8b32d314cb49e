"""Optimise a proxy reward and track the gold reward: all figures of over-optimisation, also for your own rewards.

minirlhf tour overopt --out over                                    seven-word task, exact, 20 seeds, about two minutes
minirlhf tour overopt --proxy pairs --pairs 200 --out over          another class of reward models, less data
minirlhf tour overopt --proxy mine.py:kindness --out over           your own proxy: kindness(prompt, completion) -> number
minirlhf tour overopt --proxy mine.py:kindness --gold mine.py:truth --out over
minirlhf tour overopt --task assistant --out over                   a trained language model; one minute per seed
"""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: task, rewards, optimizers and sizes."""
    parser.add_argument("--task", default="words", help="words (default) or assistant")
    parser.add_argument(
        "--proxy",
        help="words: counts (default), pairs or triples; assistant: reward-model; or FILE.py:FUNCTION of prompt and completion",
    )
    parser.add_argument(
        "--gold",
        metavar="FILE.py:FUNCTION",
        help="gold reward (default: that of the task); in the seven-word task it also labels the comparisons",
    )
    parser.add_argument(
        "--optimizer",
        default="all",
        help="words: tilt, best-of-n, policy-gradient; assistant: best-of-n, policy-gradient, dpo; or all (default)",
    )
    parser.add_argument("--pairs", type=int, help="comparisons to train the proxy on (default: 400; assistant: 1600)")
    parser.add_argument("--seeds", type=int, help="repetitions (default: 20; assistant: 1)")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="folder for the figures")


def run(args: argparse.Namespace) -> int:
    """Run the measurement, print the table, write the figures."""
    from minirlhf.core.errors import UserError
    from minirlhf.data.functions import load_function
    from minirlhf_course.chapters.ch20_overoptimization.report import overopt

    if args.out.exists() and not args.out.is_dir():
        raise UserError(f"{args.out}: is a file; --out names a folder")
    report = overopt(
        args.task,
        proxy=load_function(args.proxy) if args.proxy is not None and ":" in args.proxy else args.proxy,
        gold=None if args.gold is None else load_function(args.gold),
        optimizer=args.optimizer,
        pairs=args.pairs,
        seeds=args.seeds,
    )
    print(report.table())
    print(f"figures: {report.write(args.out)}")
    return 0
