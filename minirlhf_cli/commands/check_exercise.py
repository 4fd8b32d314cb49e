"""Self-test an exercise in seconds: stub, solution, mutants, partial answers, generated mutants, the release.

For authors. Exit status 1 if an assertion fails; `--all` also lists the assertions that hold.

examples:
  minirlhf class check-exercise 14.7
  minirlhf class check-exercise 14 05.2 --rounds 100        a hundred seeds, each with another student's numbers
  minirlhf class check-exercise 12.7 --bars 200             pass rates at the training thresholds, from 200 runs of each answer
"""

from __future__ import annotations

import argparse
import secrets
import time
from pathlib import Path

from minirlhf_cli.settings import require_at_least
from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom import proof, training


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("what", nargs="+", metavar="WHAT", help="an exercise (14.7) or a chapter (14)")
    parser.add_argument("--rounds", type=int, default=3, help="seeds, each with another student's numbers (default: 3)")
    parser.add_argument("--seed", type=int, help="the first seed; default: a fresh one, printed")
    parser.add_argument("--bars", type=int, metavar="RUNS", help="measure the pass thresholds of trainings instead")
    parser.add_argument("--all", action="store_true", help="also list the assertions that hold")
    parser.add_argument("--exercises", type=Path, help="folder of the exercises' sources")


def run(args: argparse.Namespace) -> int:
    """Run the self-tests; print the assertions that fail."""
    require_at_least(1, args, "rounds")
    require_at_least(10, args, "bars")
    seed = secrets.randbits(31) if args.seed is None else args.seed
    if args.bars is not None:
        return _bars(sources.load(sources.folder(args.exercises), args.what), seed, args.bars)
    num_failed = 0
    for exercise in sources.load(sources.folder(args.exercises), args.what):
        start = time.monotonic()
        claims = list(proof.prove(exercise, seed, args.rounds))
        failed = [c for c in claims if c.problem]
        num_failed += len(failed)
        mark = "✗" if failed else "✓"
        print(f"{mark} {exercise.id} {exercise.title}: {len(claims)} assertions, {time.monotonic() - start:.1f} s")
        for c in claims if args.all else failed:
            print(f"  ✗ {c.what}: {c.problem}" if c.problem else f"  ✓ {c.what}")
    print(f"repeat it with --seed {seed}")
    return 1 if num_failed else 0


def _bars(exercises: list[sources.Exercise], seed: int, runs: int) -> int:
    """Print how often each answer passes, compared with our solution on other seeds."""
    print(f"{'':6} {'test':16} {'mean':>7} {'sd':>6} {'passes':>8}  answer")
    for exercise in exercises:
        for bar in training.bars(exercise, seed, runs):
            numbers = f"{bar.mean:7.3f} {bar.deviation:6.3f} {bar.passes:8.2%}"
            print(f"{exercise.id:6} {bar.test:16} {numbers}  {bar.answer}")
    print(f"{runs} runs of each answer; repeat it with --seed {seed}")
    return 0
