"""Package a chapter for another platform. TARGET is one of

  scorm        its predictions and page exercises as SCORM 1.2, for Moodle, Canvas and other platforms

One file per chapter is written into OUT. See also `minirlhf class release` for notebooks, Python files and nbgrader.

examples:
  minirlhf class export --to scorm --chapter 05 --out packages
"""

from __future__ import annotations

import argparse
from itertools import groupby
from pathlib import Path

from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom import scorm

TARGETS = {"scorm": scorm.write}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--to", choices=list(TARGETS), required=True, metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--chapter", action="append", required=True, help="a chapter, such as 05; repeat for more")
    parser.add_argument("--out", type=Path, required=True, help="folder to write into")
    parser.add_argument("--replace", action="store_true", help="also replace files that were changed since")
    parser.add_argument("--exercises", type=Path, help="folder of the exercises' sources")


def run(args: argparse.Namespace) -> int:
    """Write the packages and print their names."""
    selected = sources.load(sources.folder(args.exercises), args.chapter)
    for _, chapter in groupby(selected, lambda e: e.chapter):
        for path in TARGETS[args.to](list(chapter), args.out, args.replace):
            print(f"{path}  ({path.stat().st_size / 1000:,.0f} kB)")
    return 0
