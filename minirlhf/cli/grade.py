"""Grade a class: each answer runs in a box of its own, the hidden tests compare outside it.

SUBMISSIONS holds one folder per student (or one file per student), named by the student's id; case, spaces and the way an
accent is typed do not matter. Writes the grades as CSV (student, exercise, points, max, reason), a feedback file per
student, and beside the grades: grades-statistics.csv (what to teach again) and grades-similar.csv (long answers that are
nearly alike). A run that was cut off goes on where it stopped when it is started again.

examples:
  minirlhf grade submissions --chapter 05 --out grades.csv
  minirlhf grade submissions --chapter 05 --roster roster.txt --out grades.csv --totals totals.csv
  minirlhf grade dispute --chapter 05 --out grades.csv --totals totals.csv --update --seed 7    one student again
  minirlhf grade submissions --chapter 05 --out grades.csv --overrides overrides.csv            marks set by hand
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

from minirlhf.classroom import exercise as sources
from minirlhf.classroom import grading, marks, similarity
from minirlhf.classroom import roster as rosters
from minirlhf.classroom.exercise import Exercise
from minirlhf.classroom.journal import Journal
from minirlhf.classroom.marks import Mark, Tried
from minirlhf.classroom.runner import Server
from minirlhf.classroom.submission import StudentSubmission
from minirlhf.core.errors import UserError
from minirlhf.sandbox import isolation

# Without these, a submission could read the answers or stop the grading: graded only if the instructor says so.
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
        help="one student id per line, or a CSV with a header (a platform's export): who hands in nothing gets a row too",
    )
    parser.add_argument(
        "--feedback", type=Path, help="folder for the students' feedback; default: grades-feedback for grades.csv"
    )
    parser.add_argument(
        "--chapter", action="append", help="grade this chapter; default: what most of the students handed in"
    )
    parser.add_argument("--seed", type=int, help="seed of the hidden inputs; default: a fresh one, printed first")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="submissions at a time; default: all cores"
    )
    parser.add_argument("--update", action="store_true", help="merge into the grades that are there: a regrade of some")
    parser.add_argument("--replace", action="store_true", help="replace the grades that are there, whoever is in them")
    parser.add_argument("--overrides", type=Path, help="CSV of marks set by hand: student, exercise, points, comment")
    parser.add_argument("--course", type=Path, help="TOML with [weights] of exercises and the rules for [late] work")
    parser.add_argument("--times", type=Path, help="CSV for the late rules: student, handed_in (2026-11-20T23:59)")
    parser.add_argument("--exercises", type=Path, help="folder of the exercises' sources")
    parser.add_argument(
        "--allow-weak-isolation",
        action="store_true",
        help="grade even where this system cannot keep a submission from the answers; only for students you trust",
    )


def run(args: argparse.Namespace) -> int:
    """Grade everybody and write the files."""
    root = sources.folder(args.exercises)
    if args.jobs < 1:
        raise UserError(f"--jobs {args.jobs}; expected at least 1", argument="--jobs", value=args.jobs, expected=1)
    course = marks.read_course(args.course) if args.course else marks.Course()
    if args.times and not course.late:
        raise UserError("--times needs the late rules of --course, a table [late] with a deadline")
    times = marks.read_times(args.times) if args.times else {}
    roster = rosters.read(args.roster) if args.roster else None
    grading.folders(args.submissions)
    if args.chapter:
        sources.load(root, args.chapter)  # a wrong name is said before anything is begun
    feedback = args.feedback or args.out.with_name(f"{args.out.stem}-feedback")
    history = root.parent / ".git"  # it remembers the answers too
    secret = [p.resolve() for p in (root, args.submissions, feedback, *([history] if history.exists() else []))]
    with Server(secret) as server:
        _report_isolation(server, secret, args.allow_weak_isolation)
        work = grading.students(args.submissions, server.cut, args.jobs)
        if roster is not None:
            work, strangers = rosters.by_roster(work, roster)
            _warn_of_strangers(strangers, [s.id for s in roster])
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
    pairs = similarity.similar(work, exercises)
    alike = [[e, a, b, f"{share:.2f}"] for e, a, b, share in pairs]
    marks.write([["exercise", "student", "other", "share"], *alike], args.out.with_name(f"{args.out.stem}-similar.csv"))
    if args.totals:
        marks.write(marks.totals(rows, course, late), args.totals)
    for problem in crashes:
        print(f"minirlhf: {problem}", file=sys.stderr)
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
    """Grade whom the journal does not have yet; returns what went wrong, all rows and tests, and the seed."""
    crashes = []
    with Journal(args.out.with_suffix(".journal"), exercises, args.seed, secrets.randbits(31)) as journal:
        print(f"seed: {journal.seed} (--seed {journal.seed} replays this run)", file=sys.stderr)
        missing = {s: w for s, w in work.items() if not journal.finished(s, w.digest)}
        if len(missing) < len(work):
            print(f"{len(work) - len(missing)} students were graded before this run was cut off", file=sys.stderr)
        graded = grading.grade_class(server, missing, exercises, journal.seed, args.jobs)
        for report in tqdm(graded, total=len(missing), desc="grading", unit="student"):
            page = grading.feedback(report)
            data = marks.as_data(report, page, work[report.student].digest)
            if report.crash:
                crashes.append(f"{report.student}: {report.crash}")
                data["digest"] += " crashed"  # so that it is tried again
            journal.add(data)
        rows, tried = [], []
        for student in work:
            mine = marks.from_data(journal.done[student])
            rows += mine[0]
            tried += mine[1]
            name = student.replace("/", "_")
            (feedback / f"{name}.md").write_text(journal.done[student]["page"], encoding="utf-8", errors="replace")
        if not crashes:
            journal.end()
        return crashes, rows, tried, journal.seed


def _grades_there(args: argparse.Namespace, students: list[str]) -> list[Mark]:
    """The rows to merge into. Grades that this run would lose are not overwritten unasked."""
    if args.update:
        if not args.out.exists():
            raise UserError(f"--update: there is no {args.out} yet")
        return marks.read_rows(args.out)
    if args.out.exists() and not args.replace:
        new = [Mark(s, "", 0.0, 0.0) for s in students]
        if lost := marks.lost(marks.read_rows(args.out), new):
            raise UserError(
                f"{args.out} has grades of {len(lost)} students who are not in this run, such as {lost[0]!r}; --update merges into it, --replace throws them away",
                argument="--update, --replace",
                value=lost,
                file=args.out,
            )
    return []


def _warn_of_strangers(strangers: Sequence[str], roster: Sequence[str]) -> None:
    for name in strangers:
        shown = grading.plain(name)
        close = difflib.get_close_matches(name, roster, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        print(f"warning: {shown!r} handed in, but is not on the roster, and is not graded{hint}", file=sys.stderr)


def _exercises(root: Path, chapters: list[str] | None, work: dict[str, StudentSubmission]) -> list[Exercise]:
    """The exercises to grade. Without --chapter: of the chapters handed in, those that at least half as many students handed
    in as the most frequent one; a stray marker in one file changes nobody's total.
    """
    known = {p.parent.name[:2] for p in sources.sources(root)}
    counts = Counter(c for handed in work.values() for c in {n.split(".")[0] for n in handed.sections} & known)
    wanted = chapters or sorted(c for c, n in counts.items() if 2 * n >= max(counts.values()))
    if not wanted:
        message = "no submission has a section like '# exercise 05.1'; name the chapter by --chapter"
        raise UserError(message, argument="--chapter", problem="missing")
    if not chapters:
        for c, n in sorted(counts.items()):
            if c not in wanted:
                print(
                    f"warning: chapter {c}, in {n} of {len(work)} submissions, is not graded; name it by --chapter",
                    file=sys.stderr,
                )
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
            "exercises where others cannot read; --allow-weak-isolation grades students you trust",
            argument="--allow-weak-isolation",
            value=lost,
        )
