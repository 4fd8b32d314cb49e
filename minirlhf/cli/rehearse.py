"""Make a class of students to rehearse grading on: good, partial, broken, late, missing and hostile submissions.

Writes OUT/submissions, OUT/late, OUT/roster.txt, OUT/who.txt (who does what) and OUT/expected.csv: what `minirlhf grade --totals`
must write for the submissions that came in time. With --as canvas, moodle or github also OUT/download.zip and OUT/export.csv, as that
platform would hand the class out, for `minirlhf collect`.

examples:
  minirlhf rehearse --chapter 05 --out class
  minirlhf grade class/submissions --roster class/roster.txt --out marks/grades.csv --totals marks/totals.csv
  diff class/expected.csv marks/totals.csv
"""

from __future__ import annotations

import argparse
from pathlib import Path

from minirlhf.classroom import exercise as sources
from minirlhf.classroom import rehearsal
from minirlhf.core.errors import UserError, unknown


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--chapter", required=True, help="the chapter whose exercises are handed in, such as 05")
    parser.add_argument("--out", type=Path, required=True, help="folder to write into; new or empty")
    parser.add_argument("--students", type=int, default=30, help="how many (default: 30)")
    parser.add_argument("--seed", type=int, default=0, help="who solves what (default: 0)")
    parser.add_argument("--as", dest="platform", help=f"also as the download of one of {', '.join(rehearsal.DRESSES)}")
    parser.add_argument("--exercises", type=Path, help="folder of the exercises' sources")


def run(args: argparse.Namespace) -> int:
    """Write the class."""
    if args.students < 1:
        raise UserError(f"--students {args.students}; expected at least 1")
    if args.out.exists() and (not args.out.is_dir() or any(args.out.iterdir())):
        raise UserError(f"{args.out} is there already; name a new folder, so that nobody's work is mixed with this")
    if args.platform and args.platform not in rehearsal.DRESSES:
        raise unknown("platform", args.platform, rehearsal.DRESSES)
    exercises = sources.load(sources.folder(args.exercises), [args.chapter])
    made = rehearsal.write(exercises, args.out, args.students, args.seed)
    if args.platform:
        rehearsal.dress(made, exercises, args.platform, args.out)
    late = sum(s.late for s in made)
    print(f"{len(made)} students in {args.out}, {late} of them late; {args.out / 'who.txt'} says who does what")
    return 0
