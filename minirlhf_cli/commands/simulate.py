"""Generate a class to rehearse grading: correct, partial, broken, late, missing and adversarial submissions.

Writes OUT/submissions, OUT/late, OUT/roster.txt, OUT/who.txt (who does what) and OUT/expected.csv, the expected result
of `minirlhf class grade --totals` for the submissions in time. With --as canvas, moodle or github it also writes
OUT/download.zip and OUT/export.csv in that platform's export format, for `minirlhf class collect`.

examples:
  minirlhf class simulate --chapter 05 --out class
  minirlhf class grade class/submissions --roster class/roster.txt --out marks/grades.csv --totals marks/totals.csv
  diff class/expected.csv marks/totals.csv
"""

from __future__ import annotations

import argparse
from pathlib import Path

from minirlhf.core.errors import UserError, unknown
from minirlhf_cli.settings import require_at_least
from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom import rehearsal


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--chapter", required=True, help="the chapter of the exercises, such as 05")
    parser.add_argument("--out", type=Path, required=True, help="output folder, new or empty")
    parser.add_argument("--students", type=int, default=30, help="number of students (default: 30)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    parser.add_argument("--as", dest="platform", help=f"also as the download of: {', '.join(rehearsal.DRESSES)}")
    parser.add_argument("--exercises", type=Path, help="folder of the exercises' sources")


def run(args: argparse.Namespace) -> int:
    """Write the class."""
    require_at_least(1, args, "students")
    if args.out.exists() and (not args.out.is_dir() or any(args.out.iterdir())):
        raise UserError(f"{args.out} exists; name a new folder, so that no real submissions are mixed in")
    if args.platform and args.platform not in rehearsal.DRESSES:
        raise unknown("platform", args.platform, rehearsal.DRESSES)
    exercises = sources.load(sources.folder(args.exercises), [args.chapter])
    students = rehearsal.write(exercises, args.out, args.students, args.seed)
    if args.platform:
        rehearsal.dress(students, exercises, args.platform, args.out)
    late = sum(s.late for s in students)
    print(f"{len(students)} students in {args.out}, {late} of them late; {args.out / 'who.txt'} lists who does what")
    return 0
