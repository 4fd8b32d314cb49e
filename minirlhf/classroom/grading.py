"""Grading: the hidden tests against one submission, then a whole class against a chapter.

The tests run here, in the grader; a submission only answers their questions. So a score is never something that a
submission could say.
"""

from __future__ import annotations

import csv
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from minirlhf.classroom import probes
from minirlhf.classroom.exercise import Exercise
from minirlhf.classroom.runner import Boxed, Ended, Limits, Missing, Server
from minirlhf.classroom.submission import SUFFIXES, Cells, HandedIn, files_of, read_files
from minirlhf.classroom.testing import Asked, Failure, Submission, Test, worst_error
from minirlhf.core.errors import UserError, unknown
from minirlhf.ledger.registry import Draw

MAX_DEATHS = 3  # a submission whose process keeps dying is not asked further


@dataclass(frozen=True)
class TestResult:
    """One test's outcome. ``message`` and ``lines`` say what is wrong; ``worst`` is the largest error of a passed one.

    ``unanswered``: there was no answer to judge (a missing name, a process that ended), so a hint would not help.
    ``named``: the well-known mistakes that it is; ``hints``: those that fit.
    """

    test: Test
    passed: bool
    message: str = ""
    lines: tuple[str, ...] = ()
    worst: float = 0.0
    unanswered: bool = False
    named: tuple[str, ...] = ()
    probe: str = ""  # the kind of probe that failed, if it was one

    @property
    def hints(self) -> tuple[str, str]:
        """Two hints, the second nearer to the answer."""
        return probes.HINTS[self.probe] if self.probe else self.test.hints


@dataclass
class Outcome:
    """One submission's outcome in one exercise. ``note`` says why nothing was tested, if so."""

    exercise: Exercise
    results: list[TestResult] = field(default_factory=list)
    note: str = ""
    file: str = ""  # the file that was graded

    @property
    def points(self) -> float:
        """What was earned."""
        return sum(r.test.points for r in self.results if r.passed)

    @property
    def first_failure(self) -> TestResult | None:
        """The first failed test: what a learner should look at."""
        return next((r for r in self.results if not r.passed), None)

    @property
    def reason(self) -> str:
        """Why points are missing, in one line; empty if none are."""
        if self.note:
            return self.note
        failed = [r for r in self.results if not r.passed]
        if not failed:
            return ""
        return f"{len(failed)} of {len(self.results)} tests failed; {failed[0].test.name}: {failed[0].message}"


def run_test(exercise: Exercise, test: Test, submission: Submission, seed: int) -> TestResult:
    """One test on its rounds of fresh inputs; the inputs depend on the seed, the exercise, the test and the round."""
    worst_error.set(0.0)
    for i in range(test.rounds):
        try:
            test.run(Asked(submission), Draw(seed, exercise.id, test.name, i))
        except Ended:
            raise
        except Failure as problem:
            missing = isinstance(problem, Missing)
            return TestResult(test, False, problem.message, problem.lines, unanswered=missing, named=problem.named)
        except Exception as problem:
            # A test that is proved on the solution fails so only on an answer of some unusable type.
            return TestResult(
                test, False, f"the answer cannot be used ({type(problem).__name__}: {str(problem)[:120]})"
            )
    return TestResult(test, True, worst=worst_error.get())


def run_tests(exercise: Exercise, submission: Submission, seed: int) -> Outcome:
    """All tests of an exercise. A process that died is started anew for the next test, one that hung is not."""
    outcome, deaths, hung = Outcome(exercise), 0, ""
    if exercise.is_personal:
        try:
            used = submission.value("STUDENT")
        except Failure as problem:
            return Outcome(exercise, note=problem.message)
        if used != submission.student:
            note = f"answered with the numbers of {str(used)[:40]!r}; set STUDENT = {submission.student!r}"
            return Outcome(exercise, note=note)
    for test in exercise.tests:
        if hung or deaths >= MAX_DEATHS:
            why = hung or "not tried: the process died each time before"
            outcome.results.append(TestResult(test, False, why, unanswered=True))
            continue
        try:
            outcome.results.append(run_test(exercise, test, submission, seed))
        except Ended as problem:
            deaths += 1
            hung = problem.message if problem.timed_out else ""
            outcome.results.append(TestResult(test, False, problem.message, unanswered=True))
    _probe(outcome, submission, seed)
    return outcome


def _probe(outcome: Outcome, submission: Submission, seed: int) -> None:
    """The machine's own questions to each function that has passed all its tests; the last of these answers for it."""
    made = probes.plan(outcome.exercise, seed, submission.student)
    for name, asked in made.by_function.items():
        places = [i for i, r in enumerate(outcome.results) if r.test.name in made.called_by[name]]
        if not places or not all(outcome.results[i].passed for i in places):
            continue
        home = outcome.results[places[-1]]
        try:
            for probe in asked:
                probes.ask(probe, submission)
        except probes.Probed as problem:
            found = replace(home, passed=False, message=problem.message, lines=problem.lines)
            outcome.results[places[-1]] = replace(found, named=problem.named, probe=problem.kind)
        except Failure as problem:
            found = replace(home, passed=False, message=problem.message, lines=problem.lines, unanswered=True)
            outcome.results[places[-1]] = found


def grade_answer(
    server: Server, exercise: Exercise, handed: HandedIn, student: str, seed: int, limits: Limits | None = None
) -> Outcome:
    """Grade one student's answer to one exercise in a box.

    An answer runs by itself, so that no other exercise can spoil it. If it misses a name, it runs once more below all the
    cells above it, as it did in the student's notebook, and the better of the two counts.
    """
    section = handed.answer(exercise)
    if section is None:
        return Outcome(exercise, note=handed.why_missing(exercise))
    if section.is_stub(exercise):
        return Outcome(exercise, note="unchanged: this is what was given", file=section.file)

    def graded(cells: Cells) -> Outcome:
        boxed = Boxed(server, cells, exercise.library, student, limits)
        try:
            return replace(run_tests(exercise, boxed, seed), file=section.file)
        finally:
            boxed.close()

    outcome = graded(section.cells)
    if any("NameError" in r.message for r in outcome.results) and section.before != section.preamble:
        outcome = max(outcome, graded(section.before + section.own), key=lambda o: o.points)
    return outcome


# -- a class -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Report:
    """What one student gets: an outcome per exercise, and what could not be read."""

    student: str
    outcomes: tuple[Outcome, ...]
    problems: tuple[str, ...]


def students(folder: Path) -> dict[str, HandedIn]:
    """Each student's work: one folder, or one file, per student, named by the student's id.

    A file of another kind counts as its student's too, and is reported: nobody is overlooked.

    Raises:
        UserError: no such folder, or nobody in it.
    """
    if not folder.is_dir():
        raise UserError(f"no folder {folder}; expected one folder per student in it")
    found: dict[str, list[Path]] = {}
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        if entry.is_dir() and not entry.is_symlink():
            found.setdefault(entry.name, []).extend(files_of(entry))
        else:
            found.setdefault(entry.stem, []).append(entry)
    if not found:
        raise UserError(f"{folder} holds no submissions; expected one folder per student, or one file per student")
    return {name: _read(paths) for name, paths in found.items()}


def _read(paths: Sequence[Path]) -> HandedIn:
    handed = read_files(p for p in paths if p.suffix in SUFFIXES)
    others = [p.name for p in paths if p.suffix not in SUFFIXES]
    if others and not handed.sections:
        handed.problems.append(f"{', '.join(others[:5])}: expected a notebook (.ipynb) or a Python file (.py)")
    return handed


def read_roster(path: Path) -> list[str]:
    """The students' ids, one per line.

    Raises:
        UserError: the file cannot be read, or names nobody, or somebody twice.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise UserError(f"{path} cannot be read; expected a text file with one student id per line") from problem
    names = [line.strip() for line in lines if line.strip()]
    twice = sorted({name for name in names if names.count(name) > 1})
    if not names or twice:
        raise UserError(f"{path}: {f'{twice[0]!r} stands there twice' if twice else 'no student in it'}")
    return names


def by_roster(work: dict[str, HandedIn], roster: Sequence[str]) -> dict[str, HandedIn]:
    """The work of everybody on the roster, in its order; of those who handed in nothing, too.

    Raises:
        UserError: work by somebody who is not on it.
    """
    for name in work:
        if name not in roster:
            raise unknown("student (handed in, but not on the roster)", name, roster)
    return {name: work.get(name, HandedIn()) for name in roster}


def grade_class(
    server: Server,
    work: dict[str, HandedIn],
    exercises: Sequence[Exercise],
    seed: int,
    jobs: int,
    limits: Limits | None = None,
) -> Iterator[Report]:
    """Grade everybody on the same hidden inputs, ``jobs`` submissions at a time, in the order of ``work``."""

    def one(student: str) -> Report:
        handed = work[student]
        outcomes = [grade_answer(server, e, handed, student, seed, limits) for e in exercises]
        return Report(student, tuple(outcomes), tuple(handed.problems))

    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(one, work)


def plain(text: str, limit: int = 300) -> str:
    """Text of a submission made harmless for a spreadsheet or a page: one line, printable, no formula."""
    text = re.sub(r"\s+", " ", "".join(c if c.isprintable() or c.isspace() else "?" for c in text)).strip()
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def write_csv(reports: Iterable[Report], path: Path) -> None:
    """One row per student and exercise: student, exercise, points, max, reason."""
    rows = [["student", "exercise", "points", "max", "reason"]]
    for report in reports:
        for o in report.outcomes:
            rows.append([report.student, o.exercise.id, f"{o.points:g}", f"{o.exercise.points:g}", o.reason])
    _write(rows, path)


def write_totals(reports: Sequence[Report], path: Path) -> None:
    """One row per student, as gradebooks read it: student, points per exercise, total, max."""
    worth = {o.exercise.id: o.exercise.points for o in reports[0].outcomes}
    write_table([(r.student, {o.exercise.id: o.points for o in r.outcomes}) for r in reports], worth, path)


def write_table(rows: Iterable[tuple[str, dict[str, float]]], worth: dict[str, float], path: Path) -> None:
    """``(student, {exercise: points})`` as one row each; ``worth`` is the most that each exercise can give."""
    table = [["student", *worth, "total", "max"]]
    for student, points in rows:
        earned = [points[number] for number in worth]
        table.append([student, *(f"{p:g}" for p in (*earned, sum(earned), sum(worth.values())))])
    _write(table, path)


def _write(rows: Iterable[Sequence[str]], path: Path) -> None:
    """A CSV file, written whole or not at all."""
    with tempfile.NamedTemporaryFile("w", newline="", encoding="utf-8", dir=path.parent, delete=False) as file:
        csv.writer(file).writerows([plain(cell) for cell in row] for row in rows)
    Path(file.name).replace(path)


def feedback(report: Report) -> str:
    """A student's feedback as Markdown: what was earned, what went wrong, one hint each; no solution."""
    earned, most = (sum(x) for x in zip(*((o.points, o.exercise.points) for o in report.outcomes), strict=True))
    lines = [f"# Feedback for {_code(report.student)}", "", f"**{earned:g} of {most:g} points**", ""]
    lines += ["| exercise | points | of |", "|---|---:|---:|"]
    lines += [f"| {o.exercise.id} {o.exercise.title} | {o.points:g} | {o.exercise.points:g} |" for o in report.outcomes]
    lines += ["", *(f"*{_code(p)}*" for p in report.problems)]
    for outcome in report.outcomes:
        lines += ["", f"## {outcome.exercise.id} {outcome.exercise.title}", ""]
        if outcome.note:
            lines += [f"{outcome.note[0].upper()}{outcome.note[1:]}."]
        elif outcome.file:
            lines += [f"*Graded: {_code(outcome.file)}*", ""]
        for r in outcome.results:
            proof = f" *Proved against {r.test.against}.*" if r.passed and r.test.against else ""
            lines += [f"* {'✓' if r.passed else '✗'} ({r.test.points:g}) {r.test.asks}{proof}"]
            if not r.passed:
                lines += [f"  {_code(r.message)}", ""]
                lines += ["  ~~~text", *(f"  {plain(line)}" for line in r.lines), "  ~~~", ""] if r.lines else []
                lines += [] if r.unanswered else [f"  *Hint: {r.hints[0]}*"]
    return "\n".join(lines).rstrip() + "\n"


def _code(text: str) -> str:
    return f"`{plain(text).replace('`', chr(39))}`"
