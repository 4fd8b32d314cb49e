"""Return grades: write marks and feedback in the import format of the learning platform.

PLATFORM is canvas, moodle or github; ROSTER is the export that `minirlhf class collect` used. Writes into OUT

  canvas   canvas.csv for Grades > Import, canvas-feedback.zip for Upload Submissions (one comment per student)
  moodle   moodle.csv for Upload grading worksheet, moodle-feedback.zip for Upload multiple feedback files in a zip
  github   github.csv in the columns of GitHub Classroom's grades, github-feedback.zip with one folder per repository

examples:
  minirlhf class export-grades canvas --roster gradebook.csv --collected class --totals marks/totals.csv \\
    --feedback marks/grades-feedback --assignment "Homework 05" --out back
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from minirlhf.core.errors import UserError
from minirlhf_course.classroom import downloads, handback, marks, roster
from minirlhf_course.classroom.grading import plain


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("platform", metavar="PLATFORM", help=f"one of {', '.join(downloads.PLATFORMS)}")
    parser.add_argument("--roster", type=Path, required=True, help="the CSV file that the platform exports")
    parser.add_argument("--collected", type=Path, required=True, help="the folder that minirlhf class collect wrote")
    parser.add_argument("--totals", type=Path, required=True, help="the totals of minirlhf class grade")
    parser.add_argument("--feedback", type=Path, help="the feedback folder of minirlhf class grade")
    parser.add_argument("--assignment", default="", help="canvas: the assignment's name, as in the gradebook")
    parser.add_argument("--id", default="", help="the roster's column of student ids, as for collect")
    parser.add_argument("--scale", action="store_true", help="rescale to the platform's points where they differ")
    parser.add_argument("--out", type=Path, required=True, help="folder to write into")


def run(args: argparse.Namespace) -> int:
    """Write the files that the platform imports."""
    platform = handback.platform(args.platform)
    if args.feedback and not args.feedback.is_dir():
        raise UserError(f"no folder {args.feedback}; expected the feedback of minirlhf class grade")
    rows = marks.read(args.collected / "collected.csv", ("student", "key"), "what minirlhf class collect wrote")
    prefixes = {row["student"]: row["key"] for row in rows if row["student"] and row["key"]}
    table = roster.table(args.roster, platform.export)
    totals = handback.read_totals(args.totals)
    grades, unmatched = handback.make(platform, table, args.id, totals, prefixes, args.assignment, args.scale)
    pages = handback.pages(platform, args.feedback, prefixes) if args.feedback else {}
    for name in unmatched:
        print(f"warning: {plain(name)!r} has a total, but is not in {args.roster}", file=sys.stderr)
    for path in handback.write(args.out, grades, table.separator, pages, f"{platform.name}-feedback.zip"):
        print(path)
    return 0
