"""Make the files for students: the statements and stubs of each chapter as notebook and Python file, without solutions.

With --nbgrader, write a course folder for nbgrader instead: its configuration and one assignment per chapter.

examples:
  minirlhf class release --chapter 05 --out handout
  minirlhf class release --chapter 05 --nbgrader --out course
  minirlhf class release --chapter 05 --key --student ada --out key     for assistants: solutions, hints, ada's numbers
"""

from __future__ import annotations

import argparse
from itertools import groupby
from pathlib import Path

from minirlhf.core.errors import UserError
from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom import nbgrader, release


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--out", type=Path, required=True, help="folder to write into")
    parser.add_argument(
        "--chapter", action="append", default=[], help="a chapter, such as 05; repeat for more; default: all"
    )
    parser.add_argument("--nbgrader", action="store_true", help="write a course folder for nbgrader (instructors only)")
    parser.add_argument("--key", action="store_true", help="write the answer key for assistants instead")
    parser.add_argument(
        "--student", default="", help="with --key: the student whose numbers the personal exercises use"
    )
    parser.add_argument("--replace", action="store_true", help="also replace files that were changed since")
    parser.add_argument("--exercises", type=Path, help="folder of the exercises' sources")


def run(args: argparse.Namespace) -> int:
    """Write the release."""
    if args.key and args.nbgrader:
        raise UserError("--key and --nbgrader are mutually exclusive")
    if args.student and not args.key:
        message = "--student belongs to --key: a release is the same for everybody"
        raise UserError(message, argument="--student", expected="--key")
    selected = sources.load(sources.folder(args.exercises), args.chapter)
    args.out.mkdir(parents=True, exist_ok=True)
    for _, chapter in groupby(selected, lambda e: e.chapter):
        exercises = list(chapter)
        if args.key:
            paths = release.write_key(exercises, args.out, args.replace, args.student)
        else:
            write = nbgrader.write if args.nbgrader else release.write
            paths = write(exercises, args.out, args.replace)
        for path in paths:
            print(f"{path}  ({len(exercises)} exercises, {sum(e.points for e in exercises):g} points)")
    return 0
