"""Grading: the hidden tests against one submission, then a whole class against a chapter.

The tests run here, in the grader; a submission only answers their questions. So a score is never something that a
submission could say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from minirlhf.classroom import exercise as sources
from minirlhf.classroom import probes, side_by_side
from minirlhf.classroom.cells import Cells, code_cells
from minirlhf.classroom.exercise import Exercise
from minirlhf.classroom.runner import Ended, Limits, Missing, SandboxedSubmission, Server
from minirlhf.classroom.submission import SUFFIXES, StudentSubmission, files_of, named, normalised, read_files
from minirlhf.classroom.testing import Asked, Failure, Submission, Test, worst_error
from minirlhf.core.errors import UserError
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
    facts: Mapping[str, Any] = field(default_factory=dict, compare=False)  # of the failure, see Failure

    @property
    def problem(self) -> str:
        """What is wrong in one or two words; "wrong" where no more can be said."""
        return self.facts.get("problem") or ""

    @property
    def asks(self) -> str:
        """What it asks: the test's sentence, or, of a failed probe, its own."""
        return f"Asked beyond the tests: {probes.ASKS[self.probe]}" if self.probe else self.test.asks

    @property
    def hints(self) -> tuple[str, str]:
        """Two hints, the second nearer to the answer."""
        return probes.HINTS[self.probe] if self.probe else self.test.hints


@dataclass
class Outcome:
    """One submission's outcome in one exercise. ``note`` says why nothing was tested, if so; ``problem`` in a word or two."""

    exercise: Exercise
    results: list[TestResult] = field(default_factory=list)
    note: str = ""
    file: str = ""  # the file that was graded
    remarks: tuple[str, ...] = ()  # which earlier answers ran in it, one sentence each
    problem: str = ""

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


def run_test(
    exercise: Exercise, test: Test, submission: Submission, seed: int, earlier: Mapping[str, Submission]
) -> TestResult:
    """One test on its rounds of fresh inputs; the inputs depend on the seed, the exercise, the test and the round."""
    worst_error.set(0.0)
    around = side_by_side.Beside(exercise, submission.student, earlier)
    for i in range(test.rounds):
        try:
            test.run(Asked(submission, around), Draw(seed, exercise.id, test.name, i))
        except Ended:
            raise
        except Failure as problem:
            missing = isinstance(problem, Missing)
            found = TestResult(test, False, problem.message, problem.lines, unanswered=missing, named=problem.named)
            return replace(found, facts=problem.facts)
        except Exception as problem:
            # A test that is proved on the solution fails so only on an answer of some unusable type.
            said = f"the answer cannot be used ({type(problem).__name__}: {str(problem)[:120]})"
            return TestResult(test, False, said, facts={"problem": "unusable"})
    return TestResult(test, True, worst=worst_error.get())


def run_tests(
    exercise: Exercise,
    submission: Submission,
    seed: int,
    also: Sequence[str] = (),
    earlier: Mapping[str, Submission] | None = None,
) -> Outcome:
    """All tests of an exercise. A process that died is started anew for the next test, one that hung is not.

    ``also`` are other names of the student, whose numbers are the student's, too; ``earlier`` the student's right answers to
    exercises that this one uses.
    """
    outcome, deaths, hung = Outcome(exercise), 0, ""
    if exercise.is_personal:
        try:
            used = submission.value("STUDENT")
        except Failure as problem:
            return Outcome(exercise, note=problem.message, problem=problem.problem or "")
        if not isinstance(used, str) or normalised(used) not in map(normalised, (submission.student, *also)):
            note = f"answered with the numbers of {str(used)[:40]!r}; set STUDENT = {submission.student!r}"
            return Outcome(exercise, note=note, problem="student")
        submission.student = used  # as it is spelled there, the numbers were drawn
    for test in exercise.tests:
        if hung or deaths >= MAX_DEATHS:
            why = hung or "not tried: the process died each time before"
            outcome.results.append(TestResult(test, False, why, unanswered=True))
            continue
        try:
            outcome.results.append(run_test(exercise, test, submission, seed, earlier or {}))
        except Ended as problem:
            deaths += 1
            hung = problem.message if problem.timed_out else ""
            outcome.results.append(TestResult(test, False, problem.message, unanswered=True, facts=problem.facts))
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
            outcome.results[places[-1]] = replace(found, named=problem.named, probe=problem.kind, facts=problem.facts)
        except Failure as problem:
            found = replace(home, passed=False, message=problem.message, lines=problem.lines, unanswered=True)
            outcome.results[places[-1]] = replace(found, facts=problem.facts)


def exercise_limits(exercise: Exercise) -> Limits:
    """The limits of an exercise that names its own computing time, or the usual ones."""
    usual = Limits()
    return replace(usual, cpu=exercise.seconds, wall=6.0 * exercise.seconds) if exercise.seconds else usual


def grade_answer(
    server: Server, exercise: Exercise, handed: StudentSubmission, student: str, seed: int, limits: Limits | None = None
) -> Outcome:
    """Grade one student's answer to one exercise in a box.

    An answer runs by itself, so that no other exercise can spoil it. If it misses a name, it runs once more below all the
    cells above it, as it did in the student's notebook, and the better of the two counts.
    """
    section = handed.answer(exercise)
    if section is None:
        return Outcome(exercise, note=handed.why_missing(exercise), problem="missing")
    if section.is_stub(exercise):
        return Outcome(exercise, note="unchanged: this is what was given", file=section.file, problem="unchanged")

    limits = limits or exercise_limits(exercise)
    earlier, remarks = earlier_answers(server, exercise, handed, student, seed, limits)

    def graded(cells: Cells) -> Outcome:
        boxed = SandboxedSubmission(server, cells, exercise.library, student, limits)
        try:
            outcome = run_tests(exercise, boxed, seed, handed.also, earlier)
            return replace(outcome, file=section.file, remarks=remarks)
        finally:
            boxed.close()

    try:
        outcome = graded(section.cells)
        if any("NameError" in r.message for r in outcome.results) and section.before != section.preamble:
            outcome = max(outcome, graded(section.before + section.own), key=lambda o: o.points)
    finally:
        for boxed in earlier.values():
            boxed.close()
    return outcome


def earlier_answers(
    server: Server, exercise: Exercise, handed: StudentSubmission, student: str, seed: int, limits: Limits
) -> tuple[dict[str, SandboxedSubmission], tuple[str, ...]]:
    """The student's own answers to the exercises that this one uses, those that earn everything, each in a box; and what
    was done about each, in words. Where one is missing or wrong, ours will run in its place: it is nobody's second loss."""
    found: dict[str, SandboxedSubmission] = {}
    remarks = []
    for needed in sources.load(exercise.path.parents[1], exercise.uses) if exercise.uses else ():
        section = handed.answer(needed)
        if section is None or section.is_stub(needed):
            remarks.append(side_by_side.run_reference(needed, "is not handed in here"))
            continue
        boxed = SandboxedSubmission(server, section.cells, needed.library, student, limits)
        outcome = run_tests(needed, boxed, seed, handed.also)
        if outcome.reason:
            boxed.close()
            remarks.append(side_by_side.run_reference(needed, f"earns {outcome.points:g} of {needed.points:g} points"))
        else:
            found[needed.id] = boxed
            remarks.append(side_by_side.run_submission(needed))
    return found, tuple(remarks)


# -- a class -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Report:
    """What one student gets: an outcome per exercise, and what could not be read."""

    student: str
    outcomes: tuple[Outcome, ...]
    problems: tuple[str, ...]
    crash: str = ""  # what went wrong in the grader itself


def folders(submissions: Path) -> dict[str, list[Path]]:
    """Each student's files: one folder, or one file, per student, named by the student's id.

    Two that differ in case, spaces or the spelling of an accent are one student.

    Raises:
        UserError: no such folder, or nobody in it.
    """
    if not submissions.is_dir():
        message = f"no folder {submissions}; expected one folder per student in it"
        raise UserError(message, file=submissions, problem="missing")
    found: dict[str, list[Path]] = {}
    spelled: dict[str, str] = {}
    for entry in sorted(submissions.iterdir()):
        if entry.name.startswith("."):
            continue
        is_folder = entry.is_dir() and not entry.is_symlink()
        name = entry.name if is_folder else entry.stem
        student = spelled.setdefault(normalised(name), name)
        found.setdefault(student, []).extend(files_of(entry) if is_folder else [entry])
    if not found:
        message = f"{submissions} holds no submissions; expected one folder per student, or one file per student"
        raise UserError(message, file=submissions, problem="empty")
    return found


def students(
    submissions: Path, cut: Callable[[str, str], Cells] = code_cells, jobs: int = 1
) -> dict[str, StudentSubmission]:
    """Each student's work, see :func:`folders`. A file of another kind counts as its student's too, and is reported."""
    found = folders(submissions)
    with ThreadPoolExecutor(jobs) as pool:
        return dict(zip(found, pool.map(lambda paths: _read(paths, cut), found.values()), strict=True))


def _read(paths: Sequence[Path], cut: Callable[[str, str], Cells]) -> StudentSubmission:
    handed = read_files((p for p in paths if p.suffix in SUFFIXES), cut)
    others = [named(p) for p in paths if p.suffix not in SUFFIXES]
    if others and not handed.sections:
        handed.problems.append(f"{', '.join(others[:5])}: expected a notebook (.ipynb) or a Python file (.py)")
    return handed


def grade_class(
    server: Server,
    work: dict[str, StudentSubmission],
    exercises: Sequence[Exercise],
    seed: int,
    jobs: int,
    limits: Limits | None = None,
) -> Iterator[Report]:
    """Grade everybody on the same hidden inputs, ``jobs`` submissions at a time, in the order of ``work``."""

    def one(student: str) -> Report:
        handed, crash, outcomes = work[student], "", []
        for e in exercises:
            try:
                outcomes.append(grade_answer(server, e, handed, student, seed, limits))
            except Exception as problem:  # whatever it is, it is one student's answer and no other's
                crash = f"{e.id} could not be graded ({type(problem).__name__}: {str(problem)[:200]})"
                outcomes.append(Outcome(e, note=f"could not be graded: {type(problem).__name__}; grade it again"))
        return Report(student, tuple(outcomes), tuple(handed.problems), crash)

    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(one, work)


def plain(text: str, limit: int = 300) -> str:
    """Text of a submission made harmless for a spreadsheet or a page: one line, printable, no formula."""
    text = re.sub(r"\s+", " ", "".join(c if c.isprintable() or c.isspace() else "?" for c in text)).strip()
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


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
            lines += [f"{_code(outcome.note)}."]
        elif outcome.file:
            lines += [f"*Graded: {_code(outcome.file)}*", "", *(f"*{remark}*\n" for remark in outcome.remarks)]
        for r in outcome.results:
            proof = f" *Proved against {r.test.against}.*" if r.passed and r.test.against else ""
            lines += [f"* {'✓' if r.passed else '✗'} ({r.test.points:g}) {r.test.asks}{proof}"]
            if not r.passed:
                lines += [f"  {r.asks}"] if r.probe else []
                lines += [f"  {_code(r.message)}", ""]
                lines += ["  ~~~text", *(f"  {plain(line)}" for line in r.lines), "  ~~~", ""] if r.lines else []
                lines += [] if r.unanswered else [f"  *Hint: {r.hints[0]}*"]
    return "\n".join(lines).rstrip() + "\n"


def _code(text: str) -> str:
    return f"`{plain(text).replace('`', chr(39))}`"
