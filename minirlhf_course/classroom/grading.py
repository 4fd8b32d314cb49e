"""Grading: the hidden tests against one submission, then a whole class against a chapter.

The tests run in the grader's process. The submission's process only answers calls of its functions, so a submission
cannot set its own score.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from minirlhf.core.errors import UserError
from minirlhf_course.classroom import derivation, probes, side_by_side, testing
from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom.cells import Cells, code_cells
from minirlhf_course.classroom.exercise import Exercise
from minirlhf_course.classroom.runner import Ended, Limits, Missing, SandboxedSubmission, Server
from minirlhf_course.classroom.submission import SUFFIXES, StudentSubmission, files_of, named, normalised, read_files
from minirlhf_course.classroom.testing import Asked, Failure, Submission, Test, worst_error
from minirlhf_course.ledger.registry import Draw

WRONG_PICK = 0.5  # of a test's points, lost for a wrong answer to an exercise of choices: more than a guess gains
CONFIRMATIONS = 2  # further inputs on which a mistake must show again before it is named
MAX_DEATHS = 3  # after that many ended processes, the remaining tests of a submission are not run


@dataclass(frozen=True)
class TestResult:
    """The result of one test. ``message`` and ``lines`` say what is wrong; ``worst`` is the largest error if it passed.

    ``unanswered``: there was no answer to judge (a missing name, a process that ended), so a hint would not help.
    ``named``: the well-known mistakes that match the answer; ``hints``: the two hints for this failure.
    """

    test: Test
    passed: bool
    message: str = ""
    lines: tuple[str, ...] = ()
    worst: float = 0.0
    unanswered: bool = False
    named: tuple[str, ...] = ()
    probe: str = ""  # the kind of the failed probe; empty if a test failed
    called: frozenset[str] = frozenset()  # the functions that the test has called
    facts: Mapping[str, Any] = field(default_factory=dict, compare=False)  # the facts of the failure, see Failure

    @property
    def problem(self) -> str:
        """The kind of the failure in one or two words; "wrong" if nothing more specific is known."""
        return self.facts.get("problem") or ""

    @property
    def asks(self) -> str:
        """What the test checks: the test's own sentence, or the probe's sentence if a probe failed."""
        return f"Asked beyond the tests: {probes.ASKS[self.probe]}" if self.probe else self.test.asks

    @property
    def hints(self) -> tuple[str, str]:
        """Two hints; the second is closer to the solution."""
        return probes.hints(self.probe, self.problem) if self.probe else self.test.hints


@dataclass
class Outcome:
    """One submission's outcome in one exercise. If no test was run, ``note`` says why and ``problem`` is its kind."""

    exercise: Exercise
    results: list[TestResult] = field(default_factory=list)
    note: str = ""
    file: str = ""  # the file that was graded
    remarks: tuple[str, ...] = ()  # which earlier answers ran in this one, one sentence each
    problem: str = ""

    @property
    def points(self) -> float:
        """The sum of the points of the passed tests; in an exercise of choices, less the cost of wrong picks."""
        earned = sum(r.test.points for r in self.results if r.passed)
        if self.exercise.kind != "choice":
            return earned
        wrong = sum(r.test.points for r in self.results if not (r.passed or r.unanswered or r.problem == "none"))
        return max(0.0, earned - WRONG_PICK * wrong)

    @property
    def first_failure(self) -> TestResult | None:
        """The first failed test, which the learner should look at first."""
        return next((r for r in self.results if not r.passed), None)

    @property
    def reason(self) -> str:
        """Why points are missing, in one line; empty if no points are missing."""
        if self.note:
            return self.note
        failed = [r for r in self.results if not r.passed]
        if not failed:
            return ""
        return f"{len(failed)} of {len(self.results)} tests failed; {failed[0].test.name}: {failed[0].message}"


def run_test(
    exercise: Exercise, test: Test, submission: Submission, seed: int, earlier: Mapping[str, Submission]
) -> TestResult:
    """Run one test on fresh inputs per round; the inputs depend on the seed, the exercise, the test and the round."""
    sub = Asked(submission, side_by_side.Beside(exercise, submission.student, earlier))
    return replace(_run_test(exercise, test, sub, seed), called=frozenset(sub._called))


def _run_test(exercise: Exercise, test: Test, sub: Asked, seed: int) -> TestResult:
    worst_error.set(0.0)
    for i in range(test.rounds):
        try:
            test.run(sub, Draw(seed, exercise.id, test.name, i))
        except Ended:
            raise
        except Failure as problem:
            problem = _confirmed(exercise, test, sub, seed, problem)
            missing = isinstance(problem, Missing)
            result = TestResult(test, False, problem.message, problem.lines, unanswered=missing, named=problem.named)
            return replace(result, facts=problem.facts)
        except Exception as problem:
            # The test passes on the solution, so this exception can only come from an answer of an unusable type.
            message = f"the answer cannot be used ({type(problem).__name__}: {str(problem)[:120]})"
            return TestResult(test, False, message, facts={"problem": "unusable"})
    return TestResult(test, True, worst=worst_error.get())


def _confirmed(exercise: Exercise, test: Test, sub: Asked, seed: int, problem: Failure) -> Failure:
    """Return the failure, with only those of its named mistakes that the answer also makes on other inputs.

    A wrong answer may agree with a mistake on one input by chance, for example where few results are possible.
    """
    named = problem.named
    for i in range(test.rounds, test.rounds + CONFIRMATIONS) if named and problem.argument and test.probed else ():
        try:
            test.run(sub, Draw(seed, exercise.id, test.name, i))
        except Failure as other:
            if other.argument == problem.argument:
                named = tuple(mistake for mistake in named if mistake in other.named)
        except Exception:
            continue
    if named == problem.named or problem.argument is None:
        return problem
    predicate, kind = (testing.named(named), problem.problem) if named else ("is wrong", "wrong")
    message = testing.sentence(problem.argument, predicate)
    return Failure(message, problem.lines, named, **(problem.facts | {"problem": kind}))


def run_tests(
    exercise: Exercise,
    submission: Submission,
    seed: int,
    also: Sequence[str] = (),
    earlier: Mapping[str, Submission] | None = None,
) -> Outcome:
    """Run all tests of an exercise. If the process ended, the next test restarts it, unless it timed out.

    ``also``: other names of the student, whose personal numbers are accepted too. ``earlier``: the student's correct
    answers to the exercises that this exercise uses.
    """
    outcome, num_deaths, timeout_message = Outcome(exercise), 0, ""
    if exercise.is_personal:
        try:
            student = submission.value("STUDENT")
        except Failure as problem:
            return Outcome(exercise, note=problem.message, problem=problem.problem or "")
        if not isinstance(student, str) or normalised(student) not in map(normalised, (submission.student, *also)):
            note = f"answered with the numbers of {str(student)[:40]!r}; set STUDENT = {submission.student!r}"
            return Outcome(exercise, note=note, problem="student")
        submission.student = student  # the numbers were drawn with this spelling of the name
    for test in exercise.tests:
        if timeout_message or num_deaths >= MAX_DEATHS:
            message = timeout_message or "not tried: the process died each time before"
            outcome.results.append(TestResult(test, False, message, unanswered=True))
            continue
        try:
            outcome.results.append(run_test(exercise, test, submission, seed, earlier or {}))
        except Ended as problem:
            num_deaths += 1
            timeout_message = problem.message if problem.timed_out else ""
            outcome.results.append(TestResult(test, False, problem.message, unanswered=True, facts=problem.facts))
    _probe(outcome, submission, seed)
    return outcome


def _probe(outcome: Outcome, submission: Submission, seed: int) -> None:
    """Probe each function that has passed all tests that call it; a failed probe fails the last of these tests."""
    plan = derivation.plan(outcome.exercise, seed, submission.student)
    fresh = submission.fresh() if any(plan.repeatable.values()) else None
    for name in (name for name, kind in outcome.exercise.asks.items() if kind == "function"):
        called_by = plan.called_by.get(name, ())
        indices = [i for i, r in enumerate(outcome.results) if r.test.name in called_by or name in r.called]
        if not indices or not all(outcome.results[i].passed for i in indices):
            continue
        last_result = outcome.results[indices[-1]]
        try:
            probes.ask_all(outcome.exercise, name, plan, submission, fresh)
        except probes.Probed as problem:
            failed = replace(last_result, passed=False, message=problem.message, lines=problem.lines)
            outcome.results[indices[-1]] = replace(failed, named=problem.named, probe=problem.kind, facts=problem.facts)
        except Failure as problem:
            failed = replace(last_result, passed=False, message=problem.message, lines=problem.lines, unanswered=True)
            outcome.results[indices[-1]] = replace(failed, facts=problem.facts)
    if isinstance(fresh, SandboxedSubmission):
        fresh.close()


def exercise_limits(exercise: Exercise) -> Limits:
    """Return the limits for one answer: from the exercise's own computing time if it states one, else the defaults."""
    default = Limits()
    return replace(default, cpu=exercise.seconds, wall=6.0 * exercise.seconds) if exercise.seconds else default


def grade_answer(
    server: Server, exercise: Exercise, handed: StudentSubmission, student: str, seed: int, limits: Limits | None = None
) -> Outcome:
    """Grade one student's answer to one exercise in a sandbox.

    The answer first runs alone, so that no other exercise can break it. If this raises a NameError, the answer runs
    again after all cells above it in the student's file, as it did in the notebook, and the better of the two
    outcomes counts.
    """
    section = handed.answer(exercise)
    if section is None:
        return Outcome(exercise, note=handed.why_missing(exercise), problem="missing")
    if section.is_stub(exercise):
        return Outcome(exercise, note="unchanged: this is what was given", file=section.file, problem="unchanged")

    limits = limits or exercise_limits(exercise)
    earlier, remarks = earlier_answers(server, exercise, handed, student, seed, limits)

    def grade_cells(cells: Cells) -> Outcome:
        sandboxed = SandboxedSubmission(server, cells, exercise.library, student, limits)
        try:
            outcome = run_tests(exercise, sandboxed, seed, handed.also, earlier)
            return replace(outcome, file=section.file, remarks=remarks)
        finally:
            sandboxed.close()

    try:
        outcome = grade_cells(section.cells)
        if any("NameError" in r.message for r in outcome.results) and section.before != section.preamble:
            outcome = max(outcome, grade_cells(section.before + section.own), key=lambda o: o.points)
    finally:
        for sandboxed in earlier.values():
            sandboxed.close()
    return outcome


def earlier_answers(
    server: Server, exercise: Exercise, handed: StudentSubmission, student: str, seed: int, limits: Limits
) -> tuple[dict[str, SandboxedSubmission], tuple[str, ...]]:
    """Return the student's own full-mark answers to the exercises that this one uses, and one remark per used exercise.

    Each answer runs in its own sandbox. If an answer is missing or wrong, the reference solution runs in its place, so
    that a student does not lose points twice for the same mistake.
    """
    submissions: dict[str, SandboxedSubmission] = {}
    remarks = []
    for needed in sources.load(exercise.path.parents[1], exercise.uses) if exercise.uses else ():
        section = handed.answer(needed)
        if section is None or section.is_stub(needed):
            remarks.append(side_by_side.run_reference(needed, "is not handed in here"))
            continue
        sandboxed = SandboxedSubmission(server, section.cells, needed.library, student, limits)
        outcome = run_tests(needed, sandboxed, seed, handed.also)
        if outcome.reason:
            sandboxed.close()
            remarks.append(side_by_side.run_reference(needed, f"earns {outcome.points:g} of {needed.points:g} points"))
        else:
            submissions[needed.id] = sandboxed
            remarks.append(side_by_side.run_submission(needed))
    return submissions, tuple(remarks)


# -- a class -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Report:
    """The grading of one student: an outcome per exercise, and the problems with reading the files."""

    student: str
    outcomes: tuple[Outcome, ...]
    problems: tuple[str, ...]
    crash: str = ""  # an error of the grader itself


def folders(submissions: Path, merge: bool = False) -> dict[str, list[Path]]:
    """Return each student's files: one folder, or one file, per student, named by the student's id.

    Args:
        submissions: the folder of the class.
        merge: whether names that differ only in case, spaces or the Unicode form of an accent are one student's.

    Raises:
        UserError: the folder does not exist, it holds no submissions, or two names are alike without ``merge``.
    """
    if not submissions.is_dir():
        message = f"no folder {submissions}; expected one folder per student in it"
        raise UserError(message, file=submissions, problem="missing")
    files_by_student: dict[str, list[Path]] = {}
    spellings: dict[str, str] = {}
    for entry in sorted(submissions.iterdir()):
        if entry.name.startswith("."):
            continue
        is_folder = entry.is_dir() and not entry.is_symlink()
        name = entry.name if is_folder else entry.stem
        student = spellings.setdefault(normalised(name), name)
        if student != name and not merge:
            raise _alike(submissions, student, name)
        files_by_student.setdefault(student, []).extend(files_of(entry) if is_folder else [entry])
    if not files_by_student:
        message = f"{submissions} holds no submissions; expected one folder per student, or one file per student"
        raise UserError(message, file=submissions, problem="empty")
    return files_by_student


def _alike(submissions: Path, one: str, other: str) -> UserError:
    """The error for two names of which only a person can say whether they are one student's."""
    message = (
        f"{submissions} has {one!a} and {other!a}, which differ only in case, spaces or the way an accent is "
        "typed; rename one if they are two students; --merge grades such names as one student"
    )
    return UserError(message, argument="--merge", value=(one, other), file=submissions, problem="alike")


def students(
    submissions: Path, cut: Callable[[str, str], Cells] = code_cells, jobs: int = 1, merge: bool = False
) -> dict[str, StudentSubmission]:
    """Read each student's work, see :func:`folders`. Files of other types are reported if no answer was found."""
    files = folders(submissions, merge)
    with ThreadPoolExecutor(jobs) as pool:
        return dict(zip(files, pool.map(lambda paths: _read(paths, cut), files.values()), strict=True))


def _read(paths: Sequence[Path], cut: Callable[[str, str], Cells]) -> StudentSubmission:
    submission = read_files((p for p in paths if p.suffix in SUFFIXES), cut)
    other_files = [named(p) for p in paths if p.suffix not in SUFFIXES]
    if other_files and not submission.sections:
        submission.problems.append(f"{', '.join(other_files[:5])}: expected a notebook (.ipynb) or a Python file (.py)")
    return submission


def grade_class(
    server: Server,
    work: dict[str, StudentSubmission],
    exercises: Sequence[Exercise],
    seed: int,
    jobs: int,
    limits: Limits | None = None,
) -> Iterator[Report]:
    """Grade all students on the same hidden inputs, ``jobs`` submissions at a time, in the order of ``work``."""

    def grade_student(student: str) -> Report:
        handed, crash, outcomes = work[student], "", []
        for e in exercises:
            try:
                outcomes.append(grade_answer(server, e, handed, student, seed, limits))
            except Exception as problem:  # an error in one answer must not stop the grading of the other students
                crash = f"{e.id} could not be graded ({type(problem).__name__}: {str(problem)[:200]})"
                outcomes.append(Outcome(e, note=f"could not be graded: {type(problem).__name__}; grade it again"))
        return Report(student, tuple(outcomes), tuple(handed.problems), crash)

    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(grade_student, work)


def plain(text: str, limit: int = 300) -> str:
    """Return a submission's text made safe for a spreadsheet or a page: one line, printable, not a formula."""
    text = re.sub(r"\s+", " ", "".join(c if c.isprintable() or c.isspace() else "?" for c in text)).strip()
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def feedback(report: Report) -> str:
    """Return a student's feedback as Markdown: points, failures and one hint per failed test, without the solution."""
    points, max_points = (sum(x) for x in zip(*((o.points, o.exercise.points) for o in report.outcomes), strict=True))
    lines = [f"# Feedback for {_code(report.student)}", "", f"**{points:g} of {max_points:g} points**", ""]
    lines += ["| exercise | points | of |", "|---|---:|---:|"]
    lines += [f"| {o.exercise.id} {o.exercise.title} | {o.points:g} | {o.exercise.points:g} |" for o in report.outcomes]
    lines += ["", *(f"*{_code(p)}*" for p in report.problems)]
    for outcome in report.outcomes:
        lines += ["", f"## {outcome.exercise.id} {outcome.exercise.title}", "", *feedback_on(outcome)]
    return "\n".join(lines).rstrip() + "\n"


def feedback_on(outcome: Outcome) -> list[str]:
    """Return the lines about one exercise in a student's feedback."""
    lines = []
    if outcome.note:
        lines += [f"{_code(outcome.note)}."]
    elif outcome.file:
        lines += [f"*Graded: {_code(outcome.file)}*", "", *(f"*{remark}*\n" for remark in outcome.remarks)]
    if outcome.exercise.kind == "choice" and outcome.results:
        lines += [f"*A wrong answer costs {WRONG_PICK:g} of its points; one that is left open costs nothing.*", ""]
    for r in outcome.results:
        proof = f" *Proved against {r.test.against}.*" if r.passed and r.test.against else ""
        lines += [f"* {'✓' if r.passed else '✗'} ({r.test.points:g}) {r.test.asks}{proof}"]
        if not r.passed:
            lines += [f"  {r.asks}"] if r.probe else []
            lines += [f"  {_code(r.message)}", ""]
            lines += ["  ~~~text", *(f"  {plain(line)}" for line in r.lines), "  ~~~", ""] if r.lines else []
            lines += [] if r.unanswered else [f"  *Hint: {r.hints[0]}*"]
    return lines


def _code(text: str) -> str:
    return f"`{plain(text).replace('`', chr(39))}`"
