"""Post-training end to end on tiny models, in about two minutes: pretraining, SFT, preferences, reward model, GRPO,
PPO, DPO; then a model that learns to think. Ends with a table, sample completions and an HTML report."""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the two options."""
    parser.add_argument(
        "--out", type=Path, default=Path("tour"), metavar="FOLDER", help="folder of the report (default: tour)"
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")


def run(args: argparse.Namespace) -> int:
    """Run the tour and write its report."""
    from minirlhf.core.errors import UserError
    from minirlhf_course.tour import report, stages

    if args.out.exists() and not args.out.is_dir():
        raise UserError(
            f"{args.out}: is a file; --out names a folder", argument="--out", expected="folder", file=args.out
        )
    if args.seed < 0:
        raise UserError(
            f"--seed {args.seed}; expected a whole number ≥ 0", argument="--seed", value=args.seed, expected=0
        )
    tour = stages.run(args.seed, say=lambda text: print(text, flush=True))
    print(report.answers(tour))
    print("\n" + report.table(tour))
    path = report.write(tour, args.out)
    print(f"\n{tour.seconds['total']:.0f} s in total. Report saved to {path}")
    return 0
