"""Create a new exercise from a skeleton: one file that works and passes its self-test; replace all of its content.

examples:
  minirlhf class new-exercise 14.7 --kind implement --title "What odds cost"
  minirlhf class check-exercise 14.7
"""

from __future__ import annotations

import argparse
from pathlib import Path

from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom import skeleton


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("number", metavar="NUMBER", help="number of the exercise, such as 14.7")
    parser.add_argument("--kind", default="implement", help=f"{', '.join(sources.KINDS)} (default: implement)")
    parser.add_argument("--title", default="A new exercise", help="one line")
    parser.add_argument("--exercises", type=Path, help="folder of the exercises' sources")


def run(args: argparse.Namespace) -> int:
    """Write the file."""
    path = skeleton.write(sources.folder(args.exercises), args.number, args.kind, args.title)
    print(f"{path}\nminirlhf class check-exercise {args.number} tests it")
    return 0
