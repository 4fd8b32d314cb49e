"""Write marks and feedback in the form in which the learning platform takes them back.

PLATFORM is canvas, moodle or github; ROSTER is the same export from which the work was collected. Writes into OUT

  canvas   canvas.csv for Grades > Import, canvas-feedback.zip for Upload Submissions (a comment with the page, each)
  moodle   moodle.csv for Upload grading worksheet, moodle-feedback.zip for Upload multiple feedback files in a zip
  github   github.csv in the columns of GitHub Classroom's grades, github-feedback.zip with one folder per repository

examples:
  minirlhf hand-back canvas --roster gradebook.csv --collected class --totals marks/totals.csv \\
    --feedback marks/grades-feedback --assignment "Homework 05" --out back
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from minirlhf.classroom import downloads, handback, marks, roster
from minirlhf.classroom.grading import plain
from minirlhf.core.errors import UserError


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("platform", metavar="PLATFORM", help=f"one of {', '.join(downloads.PLATFORMS)}")
    parser.add_argument("--roster", type=Path, required=True, help="the CSV file that the platform exports")
    parser.add_argument("--collected", type=Path, required=True, help="the folder that minirlhf collect wrote")
    parser.add_argument("--totals", type=Path, required=True, help="the totals of minirlhf grade")
    parser.add_argument("--feedback", type=Path, help="the feedback folder of minirlhf grade")
    parser.add_argument("--assignment", default="", help="canvas: the assignment's name, as in the gradebook")
    parser.add_argument("--id", default="", help="the roster's column of ids, as given to collect")
    parser.add_argument("--scale", action="store_true", help="convert to the platform's points where they differ")
    parser.add_argument("--out", type=Path, required=True, help="folder to write into")


def run(args: argparse.Namespace) -> int:
    """Write what the platform takes."""
    platform = handback.platform(args.platform)
    if args.feedback and not args.feedback.is_dir():
        raise UserError(f"no folder {args.feedback}; expected the feedback of minirlhf grade")
    lines = marks.read(args.collected / "collected.csv", ("student", "key"), "what minirlhf collect wrote")
    prefixes = {line["student"]: line["key"] for line in lines if line["student"] and line["key"]}
    table = roster.table(args.roster, platform.export)
    totals = handback.read_totals(args.totals)
    made, unknown = handback.make(platform, table, args.id, totals, prefixes, args.assignment, args.scale)
    pages = handback.pages(platform, args.feedback, prefixes) if args.feedback else {}
    for name in unknown:
        print(f"warning: {plain(name)!r} has a total, but is not in {args.roster}", file=sys.stderr)
    for path in handback.write(args.out, made, table.separator, pages, f"{platform.name}-feedback.zip"):
        print(path)
    return 0
