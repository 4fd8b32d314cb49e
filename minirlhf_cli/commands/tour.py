"""Post-training end to end on tiny models, in about two minutes: pretraining, SFT, preferences, reward model, GRPO,
PPO, DPO; then a model that learns to think. Ends with a table, sample completions and an HTML report."""

from __future__ import annotations

import argparse
from pathlib import Path

from minirlhf_cli.settings import require_at_least


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
    require_at_least(0, args, "seed")
    tour = stages.run(args.seed, say=lambda text: print(text, flush=True))
    print(report.answers(tour))
    print("\n" + report.table(tour))
    path = report.write(tour, args.out)
    print(f"\n{tour.seconds['total']:.0f} s in total. Report saved to {path}")
    return 0
