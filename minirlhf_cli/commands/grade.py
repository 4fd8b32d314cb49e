"""Grade a class: each answer runs in its own sandbox; the hidden tests compare its results outside the sandbox.

SUBMISSIONS holds one folder per student (or one file per student), named by the student's id. Two names that differ
only in case, spaces or the way an accent is typed stop the run; --merge says that they are one student's. Writes the grades as CSV (student, exercise, points, max, reason), a feedback file
per student, and next to the grades: grades-statistics.csv (what to teach again) and grades-similar.csv (long answers
that are nearly identical). An interrupted run resumes when it is started again.

examples:
  minirlhf class grade submissions --chapter 05 --out grades.csv
  minirlhf class grade submissions --chapter 05 --roster roster.txt --out grades.csv --totals totals.csv
  minirlhf class grade dispute --chapter 05 --out grades.csv --totals totals.csv --update --seed 7    one student again
  minirlhf class grade submissions --chapter 05 --out grades.csv --overrides overrides.csv            manual overrides
"""

from __future__ import annotations

import argparse
import difflib
import os
import secrets
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from minirlhf.core.errors import UserError
from minirlhf.sandbox import isolation
from minirlhf_cli.settings import require_at_least
from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom import grading, marks, similarity
from minirlhf_course.classroom import roster as rosters
from minirlhf_course.classroom.exercise import Exercise
from minirlhf_course.classroom.journal import Journal
from minirlhf_course.classroom.marks import Mark, Tried
from minirlhf_course.classroom.runner import Server
from minirlhf_course.classroom.submission import StudentSubmission

# Without these, a submission could read the answers or stop the grading: --allow-weak-isolation is then required.
NEEDED = (isolation.ANSWERS_HIDDEN, isolation.GRADER_HIDDEN)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "submissions", type=Path, metavar="SUBMISSIONS", help="folder with one folder or file per student"
    )
    parser.add_argument("--out", type=Path, required=True, help="the CSV file to write")
    parser.add_argument("--totals", type=Path, help="a second CSV file: one row per student, with the sum")
    parser.add_argument(
        "--roster",
        type=Path,
        help="one student id per line, or a platform's CSV export; students without a submission get a row too",
    )
    parser.add_argument(
        "--feedback", type=Path, help="folder for the students' feedback; default: grades-feedback for grades.csv"
    )
    parser.add_argument(
        "--chapter",
        action="append",
        help="grade this chapter; default: every chapter that at least half as many submitted as the most frequent one",
    )
    parser.add_argument("--seed", type=int, help="seed of the hidden inputs; default: a fresh one, printed first")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="submissions graded in parallel; default: all cores"
    )
    parser.add_argument(
        "--merge",
        action="store_true",
        help="names that differ only in case, spaces or accents' encoding are one student",
    )
    parser.add_argument("--update", action="store_true", help="merge into the existing grades: regrade some students")
    parser.add_argument("--replace", action="store_true", help="replace the existing grades of all students")
    parser.add_argument("--overrides", type=Path, help="CSV of manual overrides: student, exercise, points, comment")
    parser.add_argument("--course", type=Path, help="TOML with [weights] of exercises and the rules for [late] work")
    parser.add_argument("--times", type=Path, help="CSV for the late rules: student, handed_in (2026-11-20T23:59)")
    parser.add_argument("--exercises", type=Path, help="folder of the exercises' sources")
    parser.add_argument(
        "--allow-weak-isolation",
        action="store_true",
        help="grade even if this system cannot hide the answers from a submission; only for students you trust",
    )


def run(args: argparse.Namespace) -> int:
    """Grade all students and write the files."""
    root = sources.folder(args.exercises)
    require_at_least(1, args, "jobs")
    course = marks.read_course(args.course) if args.course else marks.Course()
    if args.times and not course.late:
        raise UserError("--times needs --course with late rules: a table [late] with a deadline")
    times = marks.read_times(args.times) if args.times else {}
    roster = rosters.read(args.roster) if args.roster else None
    grading.folders(args.submissions, args.merge)
    if args.chapter:
        sources.load(root, args.chapter)  # report a wrong name before any work starts
    feedback = args.feedback or args.out.with_name(f"{args.out.stem}-feedback")
    history = root.parent / ".git"  # it contains the answers too
    secret = [p.resolve() for p in (root, args.submissions, feedback, *([history] if history.exists() else []))]
    with Server(secret) as server:
        _report_isolation(server, secret, args.allow_weak_isolation)
        work = grading.students(args.submissions, server.cut, args.jobs, args.merge)
        if roster is not None:
            work, unmatched = rosters.by_roster(work, roster)
            _warn_of_strangers(unmatched, [s.id for s in roster])
        exercises = _exercises(root, args.chapter, work)
        old = _grades_there(args, list(work))
        for folder in (args.out.parent, feedback, *([args.totals.parent] if args.totals else ())):
            folder.mkdir(parents=True, exist_ok=True)
        crashes, new, tried, seed = _grade(args, server, work, exercises, feedback)
    rows = marks.merged(old, new)
    if args.overrides:
        rows = marks.overridden(rows, args.overrides)
    late = None
    if course.late:
        late = marks.lateness(course.late, times, dict.fromkeys(r.student for r in rows), args.out.stem)
    marks.write_rows(rows, args.out)
    marks.write(marks.statistics(tried), args.out.with_name(f"{args.out.stem}-statistics.csv"))
    if args.totals:
        marks.write(marks.totals(rows, course, late), args.totals)
    print("comparing long answers", file=sys.stderr)  # after the grades, because it only concerns pairs to look at
    lines = [[e, a, b, f"{share:.2f}"] for e, a, b, share in similarity.similar(work, exercises)]
    marks.write([["exercise", "student", "other", "share"], *lines], args.out.with_name(f"{args.out.stem}-similar.csv"))
    for crash in crashes:
        print(f"minirlhf: {crash}", file=sys.stderr)
    print(
        f"{len(work)} students, {len(exercises)} exercises: {args.out}; feedback in {feedback}; --seed {seed} replays it"
    )
    return 1 if crashes else 0


def _grade(
    args: argparse.Namespace,
    server: Server,
    work: dict[str, StudentSubmission],
    exercises: Sequence[Exercise],
    feedback: Path,
) -> tuple[list[str], list[Mark], list[Tried], int]:
    """Grade the students who are not in the journal yet; return the crashes, all rows and tests, and the seed."""
    crashes = []
    with Journal(args.out.with_suffix(".journal"), exercises, args.seed, secrets.randbits(31)) as journal:
        print(f"seed: {journal.seed} (--seed {journal.seed} replays this run)", file=sys.stderr)
        missing = {s: w for s, w in work.items() if not journal.finished(s, w.digest)}
        if len(missing) < len(work):
            print(f"{len(work) - len(missing)} students were graded before the run was interrupted", file=sys.stderr)
        graded = grading.grade_class(server, missing, exercises, journal.seed, args.jobs)
        for report in tqdm(graded, total=len(missing), desc="grading", unit="student"):
            page = grading.feedback(report)
            data = marks.as_data(report, page, work[report.student].digest)
            if report.crash:
                crashes.append(f"{report.student}: {report.crash}")
                data["digest"] += " crashed"  # so that the next run grades it again
            journal.add(data)
        rows, tried = [], []
        for student in work:
            student_marks = marks.from_data(journal.done[student])
            rows += student_marks[0]
            tried += student_marks[1]
            name = student.replace("/", "_")
            (feedback / f"{name}.md").write_text(journal.done[student]["page"], encoding="utf-8", errors="replace")
        if not crashes:
            journal.end()
        return crashes, rows, tried, journal.seed


def _grades_there(args: argparse.Namespace, students: list[str]) -> list[Mark]:
    """Return the rows to merge into. Grades that this run would lose are overwritten only with --replace."""
    if args.update:
        if not args.out.exists():
            raise UserError(f"--update: {args.out} does not exist yet")
        return marks.read_rows(args.out)
    if args.out.exists() and not args.replace:
        new = [Mark(s, "", 0.0, 0.0) for s in students]
        if lost := marks.lost(marks.read_rows(args.out), new):
            raise UserError(
                f"{args.out} has grades of {len(lost)} students who are not in this run, such as {lost[0]!r}; --update merges, --replace deletes them",
                argument="--update, --replace",
                value=lost,
                file=args.out,
            )
    return []


def _warn_of_strangers(unmatched: Sequence[str], roster: Sequence[str]) -> None:
    for name in unmatched:
        printable = grading.plain(name)
        matches = difflib.get_close_matches(name, roster, n=1)
        hint = f"; did you mean {matches[0]!r}?" if matches else ""
        print(f"warning: {printable!r} is not on the roster and is not graded{hint}", file=sys.stderr)


def _exercises(root: Path, chapters: list[str] | None, work: dict[str, StudentSubmission]) -> list[Exercise]:
    """Return the exercises to grade.

    Without --chapter, these are the chapters that at least half as many students submitted as the most frequent
    chapter, so that a stray marker in one file changes no student's total.
    """
    known = {p.parent.name[:2] for p in sources.sources(root)}
    counts = Counter(c for answers in work.values() for c in {n.split(".")[0] for n in answers.sections} & known)
    selected = chapters or sorted(c for c, n in counts.items() if 2 * n >= max(counts.values()))
    if not selected:
        message = "no submission has a section like '# exercise 05.1'; name the chapter by --chapter"
        raise UserError(message, argument="--chapter", problem="missing")
    if not chapters:
        for c, n in sorted(counts.items()):
            if c not in selected:
                print(
                    f"warning: chapter {c}, in {n} of {len(work)} submissions, is not graded; name it by --chapter",
                    file=sys.stderr,
                )
    return sources.load(root, selected)


def _report_isolation(server: Server, secret: list[Path], allow_weak: bool) -> None:
    """Print the measured isolation of the sandbox; refuse to grade if a necessary property is missing."""
    probed = server.probe(secret)
    missing = [name for name, holds in probed.items() if not holds]
    text = "; ".join(f"{'' if holds else 'NOT '}{name}" for name, holds in probed.items())
    print(f"isolation: {server.level} ({text})", file=sys.stderr)
    if not allow_weak and (lost := [name for name in NEEDED if name in missing]):
        raise UserError(
            f"this system lacks: {', '.join(lost)}. Grade as root or on Linux with user namespaces, or keep the "
            "exercises where other users cannot read them; --allow-weak-isolation grades students you trust",
            argument="--allow-weak-isolation",
            value=lost,
        )
