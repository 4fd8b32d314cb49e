"""Write a syllabus of the instructors' guide as a calendar file (.ics): what each week reads, and when homework is due.

examples:
  minirlhf class calendar --start 2027-01-11 --out course.ics
  minirlhf class calendar --start 2027-01-11 --weeks 15 --skip 2027-02-15 --out course.ics     no class in that week
"""

from __future__ import annotations

import argparse
import datetime
from pathlib import Path

from minirlhf.core.errors import UserError
from minirlhf_course.classroom import release, timetable


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--start", metavar="DATE", required=True, help="the first day of week 1, such as 2027-01-11")
    parser.add_argument(
        "--weeks", type=int, default=12, metavar="INT", help="length of the syllabus: 4, 12 or 15 (default: 12)"
    )
    parser.add_argument(
        "--skip", metavar="DATE", action="append", default=[], help="a day in a week without class; repeat for more"
    )
    parser.add_argument("--out", type=Path, required=True, help="the calendar file to write")
    parser.add_argument("--replace", action="store_true", help="also replace a file that was changed since")


def _date(option: str, text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        message = f"{option} {text}: expected a date such as 2027-01-11"
        raise UserError(message, argument=option, value=text, expected="2027-01-11") from None


def run(args: argparse.Namespace) -> int:
    """Write the file."""
    first, skipped = _date("--start", args.start), [_date("--skip", text) for text in args.skip]
    [path] = release.place({args.out: timetable.calendar(args.weeks, first, skipped)}, args.replace)
    print(path)
    return 0
