"""Grade a class: each answer runs in a box of its own, the hidden tests compare outside it.

SUBMISSIONS holds one folder per student (or one file per student), named by the student's id. Writes the grades as CSV
(student, exercise, points, max, reason) and a feedback file per student.

examples:
  minirlhf grade submissions --out grades.csv
  minirlhf grade submissions --roster roster.txt --out grades.csv --totals totals.csv
  minirlhf grade submissions --chapter 05 --out grades.csv --seed 7     replay with the inputs of another run
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from pathlib import Path

from tqdm import tqdm

from minirlhf.classroom import exercise as sources
from minirlhf.classroom import grading
from minirlhf.classroom.exercise import Exercise
from minirlhf.classroom.runner import Server
from minirlhf.classroom.submission import HandedIn
from minirlhf.core.errors import UserError

# Without these, a submission could read the answers or stop the grading: graded only if the instructor says so.
NEEDED = ("exercise sources out of reach", "grader out of reach")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "submissions", type=Path, metavar="SUBMISSIONS", help="folder with one folder or file per student"
    )
    parser.add_argument("--out", type=Path, required=True, help="the CSV file to write")
    parser.add_argument("--totals", type=Path, help="a second CSV file: one row per student, with the sum")
    parser.add_argument(
        "--roster", type=Path, help="text file with one student id per line: who hands in nothing gets a row too"
    )
    parser.add_argument(
        "--feedback", type=Path, help="folder for the students' feedback; default: grades-feedback for grades.csv"
    )
    parser.add_argument(
        "--chapter", action="append", help="grade this chapter; default: those found in the submissions"
    )
    parser.add_argument("--seed", type=int, help="seed of the hidden inputs; default: a fresh one, printed at the end")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="submissions at a time; default: all cores"
    )
    parser.add_argument("--exercises", type=Path, help="folder of the exercises' sources")
    parser.add_argument(
        "--allow-weak-isolation",
        action="store_true",
        help="grade even where this system cannot keep a submission from the answers; only for students you trust",
    )


def run(args: argparse.Namespace) -> int:
    """Grade everybody and write the files."""
    root = sources.folder(args.exercises)
    work = grading.students(args.submissions)
    if args.roster:
        work = grading.by_roster(work, grading.read_roster(args.roster))
    exercises = _exercises(root, args.chapter, work)
    feedback = args.feedback or args.out.with_name(f"{args.out.stem}-feedback")
    for folder in (args.out.parent, feedback, *([args.totals.parent] if args.totals else ())):
        folder.mkdir(parents=True, exist_ok=True)
    if args.jobs < 1:
        raise UserError(f"--jobs {args.jobs}; expected at least 1")
    seed = secrets.randbits(31) if args.seed is None else args.seed
    history = root.parent / ".git"  # it remembers the answers too
    secret = [p.resolve() for p in (root, args.submissions, feedback, *([history] if history.exists() else []))]
    with Server(secret) as server:
        _report_isolation(server, secret, args.allow_weak_isolation)
        graded = grading.grade_class(server, work, exercises, seed, args.jobs)
        reports = list(tqdm(graded, total=len(work), desc="grading", unit="student"))
    grading.write_csv(reports, args.out)
    if args.totals:
        grading.write_totals(reports, args.totals)
    for report in reports:
        (feedback / f"{report.student}.md").write_text(grading.feedback(report), encoding="utf-8")
    print(
        f"{len(reports)} students, {len(exercises)} exercises: {args.out}; feedback in {feedback}; --seed {seed} replays it"
    )
    return 0


def _exercises(root: Path, chapters: list[str] | None, work: dict[str, HandedIn]) -> list[Exercise]:
    found = {number.split(".")[0] for handed in work.values() for number in handed.sections}
    wanted = chapters or sorted(found & {p.parent.name[:2] for p in sources.sources(root)})
    if not wanted:
        raise UserError("no submission has a section like '# exercise 05.1'; name the chapter by --chapter")
    return sources.load(root, wanted)


def _report_isolation(server: Server, secret: list[Path], allow_weak: bool) -> None:
    """Say what the box keeps out, as measured in it; refuse to go on without what fair grading needs."""
    found = server.probe(secret)
    missing = [name for name, holds in found.items() if not holds]
    text = "; ".join(f"{'' if holds else 'NOT '}{name}" for name, holds in found.items())
    print(f"isolation: {server.level} ({text})", file=sys.stderr)
    if not allow_weak and (lost := [name for name in NEEDED if name in missing]):
        raise UserError(
            f"this system cannot give: {', '.join(lost)}. Grade as root or on Linux with user namespaces, or keep the "
            "exercises where others cannot read; --allow-weak-isolation grades students you trust"
        )
