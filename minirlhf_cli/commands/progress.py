"""Your progress through the exercises: the best score of each on this machine, and what is next.

Counts the results of `check`, in notebooks and on the command line. They are stored in the cache of this machine only.

examples:
  minirlhf check progress
  minirlhf check progress 04 05
"""

from __future__ import annotations

import argparse
from pathlib import Path

from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom import progress


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("what", nargs="*", metavar="WHAT", help="chapters (05) or exercises (05.2); default: all")
    parser.add_argument("--exercises", type=Path, help="folder of the exercises' sources")


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    exercises = sources.load(sources.folder(args.exercises), args.what)
    print(progress.table(exercises, progress.Progress().reached))
    return 0
