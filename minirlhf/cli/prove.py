"""Let an exercise prove itself, in seconds: stub, solution, mutants, partial answers, the machine's own mutants, the release.

For authors. Exit status 1 if something does not hold; with `--all` what holds is listed, too.

examples:
  minirlhf prove 14.7
  minirlhf prove 14 05.2 --rounds 100        a hundred seeds, each with another student's numbers
  minirlhf prove 12.7 --bars 200             what the bar of a training lets through, from 200 runs of each answer
"""

from __future__ import annotations

import argparse
import secrets
import time
from pathlib import Path

from minirlhf.classroom import exercise as sources
from minirlhf.classroom import proof, training
from minirlhf.core.errors import UserError


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("what", nargs="+", metavar="WHAT", help="an exercise (14.7) or a chapter (14)")
    parser.add_argument("--rounds", type=int, default=3, help="seeds, each with another student's numbers (default: 3)")
    parser.add_argument("--seed", type=int, help="the first of them; default: a fresh one, printed")
    parser.add_argument("--bars", type=int, metavar="RUNS", help="measure the bars of trainings in place of a proof")
    parser.add_argument("--all", action="store_true", help="list what holds, too")
    parser.add_argument("--exercises", type=Path, help="folder of the exercises' sources")


def run(args: argparse.Namespace) -> int:
    """Prove, and print what does not hold."""
    if args.rounds < 1:
        raise UserError(f"--rounds {args.rounds}; expected at least 1")
    if args.bars is not None and args.bars < 10:
        raise UserError(f"--bars {args.bars}; expected at least 10 runs")
    seed = secrets.randbits(31) if args.seed is None else args.seed
    if args.bars is not None:
        return _bars(sources.load(sources.folder(args.exercises), args.what), seed, args.bars)
    wrong = 0
    for exercise in sources.load(sources.folder(args.exercises), args.what):
        began = time.monotonic()
        claims = list(proof.prove(exercise, seed, args.rounds))
        failed = [c for c in claims if c.problem]
        wrong += len(failed)
        mark = "✗" if failed else "✓"
        print(f"{mark} {exercise.id} {exercise.title}: {len(claims)} claims, {time.monotonic() - began:.1f} s")
        for c in claims if args.all else failed:
            print(f"  ✗ {c.what}: {c.problem}" if c.problem else f"  ✓ {c.what}")
    print(f"--seed {seed} repeats it")
    return 1 if wrong else 0


def _bars(exercises: list[sources.Exercise], seed: int, runs: int) -> int:
    """Print how often each answer passes, against our solution on other seeds."""
    print(f"{'':6} {'test':16} {'mean':>7} {'sd':>6} {'passes':>8}  answer")
    for exercise in exercises:
        for bar in training.bars(exercise, seed, runs):
            numbers = f"{bar.mean:7.3f} {bar.deviation:6.3f} {bar.passes:8.2%}"
            print(f"{exercise.id:6} {bar.test:16} {numbers}  {bar.answer}")
    print(f"{runs} runs of each answer; --seed {seed} repeats it")
    return 0
