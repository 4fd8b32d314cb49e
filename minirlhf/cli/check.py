"""Check your own answers: what is wrong, by a counterexample, and the next hint. Never the solution.

Looks for notebooks and Python files of the chapter in the working folder, or takes those named by --file.

examples:
  minirlhf release --chapter 05 --out .      get the exercises
  minirlhf check 05                          check all of the chapter
  minirlhf check 05.2 --file mine.ipynb
"""

from __future__ import annotations

import argparse
from pathlib import Path

from minirlhf.classroom import checker
from minirlhf.classroom import exercise as sources
from minirlhf.classroom.runner import Server
from minirlhf.classroom.submission import SUFFIXES, read_files
from minirlhf.core.errors import UserError


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("what", nargs="+", metavar="WHAT", help="a chapter (05) or an exercise (05.2)")
    parser.add_argument("--file", type=Path, action="append", help="a file with answers; repeat for more")
    parser.add_argument("--student", help="your student id; default: what STUDENT says in the file")
    parser.add_argument("--exercises", type=Path, help="folder of the exercises' sources")


def run(args: argparse.Namespace) -> int:
    """Check, print a verdict per exercise, and return 1 if one is not solved."""
    exercises = sources.load(sources.folder(args.exercises), args.what)
    for path in args.file or ():
        if path.suffix not in SUFFIXES or not path.is_file():
            raise UserError(f"no file {path}; expected a notebook (.ipynb) or a Python file (.py)")
    paths = args.file or [p for p in Path().iterdir() if p.suffix in SUFFIXES and p.is_file()]
    handed = read_files(paths)
    if not any(e.id in handed.sections for e in exercises):
        chapter = exercises[0].chapter
        problems = "; ".join(handed.problems)
        raise UserError(
            problems
            if args.file and problems
            else f"no answers to {', '.join(args.what)} here; 'minirlhf release --chapter {chapter} --out .' writes the exercises"
        )
    student = args.student or checker.student_of(handed)
    with Server() as server:
        verdicts = checker.check_files(server, exercises, handed, student)
    print("\n\n".join(map(repr, verdicts)))
    earned, most = sum(v.outcome.points for v in verdicts), sum(e.points for e in exercises)
    print(f"\n{earned:g} of {most:g} points")
    return 0 if all(v.passed for v in verdicts) else 1
