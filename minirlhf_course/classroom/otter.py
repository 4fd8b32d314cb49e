"""A chapter as a master notebook for Otter Assign, whose hidden tests are those of the exercises.

Source: the documentation of Otter-Grader 7 ("Notebook Format" of Otter Assign, exception-based tests). Otter runs hidden
tests in the student's own kernel, after the student's code, so a student can forge a score there. If students are not
trusted, use ``minirlhf class grade``, which reads the same notebooks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom import github, gradescope, grading, release
from minirlhf_course.classroom.exercise import DEFAULT_STUDENT, Exercise
from minirlhf_course.classroom.grading import Outcome
from minirlhf_course.classroom.release import ReleaseCell
from minirlhf_course.classroom.runner import Local
from minirlhf_course.classroom.testing import Test

SEED = 7  # of the hidden inputs, the same for the whole class
CONFIG = """# ASSIGNMENT CONFIG
name: {name}
export_cell: {{pdf: false}}
tests: {{ok_format: false}}
requirements: ["minirlhf @ git+https://github.com/{source}"]
autograder_files: [{files}]
"""
TEST = '''""" # BEGIN TEST CONFIG
points: {points:g}
hidden: true
""" # END TEST CONFIG
def test_{name}(env):
    from minirlhf_course.classroom.otter import require

    require("{id}", "{name}", env)'''


def _question(e: Exercise, cells: Sequence[ReleaseCell]) -> list[ReleaseCell]:
    """The cells of one exercise: statement, stub as a prompt, solution, a cell for each hidden test."""

    def mark(text: str, role: str) -> ReleaseCell:
        return ReleaseCell("raw", role, f"# {text}", e.id)

    def test(t: Test) -> ReleaseCell:
        code = TEST.format(points=t.points, name=t.name, id=e.id)
        return ReleaseCell("code", f"test-{t.name}", code, e.id)

    made = [mark(f"BEGIN QUESTION\nname: ex_{e.id.replace('.', '_')}\npoints: {e.points:g}", "begin")]
    for cell in cells:
        if cell.role == "answer":
            made += [mark("BEGIN PROMPT", "prompt"), cell, mark("END PROMPT", "prompted")]
            made += [
                mark("BEGIN SOLUTION", "solution"),
                ReleaseCell("code", "solved", e.solution, e.id),
                mark("END SOLUTION", "solution-end"),
            ]
            made += [mark("BEGIN TESTS", "tests"), *map(test, e.tests), mark("END TESTS", "tests-end")]
        elif cell.role != "check":
            made.append(cell)
    return [*made, mark("END QUESTION", "end")]


def master(exercises: Sequence[Exercise], source: str) -> str:
    """The master notebook. ``source`` is the GitHub repository that the grader's image installs, ``OWNER/NAME``."""
    cells = release.cells(exercises)
    files = ", ".join(f"exercises/{name}" for name in gradescope.exercise_files(exercises))
    config = CONFIG.format(name=exercises[0].path.parent.name, source=source, files=files)
    made = [ReleaseCell("raw", "config", config), *(c for c in cells if not c.exercise)]
    for e in exercises:
        made += _question(e, [c for c in cells if c.exercise == e.id])
    return release.notebook(made)


def write(exercises: Sequence[Exercise], out: Path, replace: bool = False, source: str = "") -> list[Path]:
    """Write one chapter's folder for ``otter assign`` into ``out``, and return its files.

    Raises:
        UserError: ``source`` is no ``OWNER/NAME``.
    """
    github.check_source(source)
    name = exercises[0].path.parent.name
    files: dict[str, str | bytes] = {f"{name}.ipynb": master(exercises, source)}
    files |= {f"exercises/{path}": content for path, content in gradescope.exercise_files(exercises).items()}
    return release.place({out / f"{name}-otter" / path: content for path, content in files.items()}, replace)


# -- in the grader's kernel ---------------------------------------------------------------------------------------

_last: dict[str, tuple[Mapping[str, Any], Outcome]] = {}


def require(number: str, test: str, env: Mapping[str, Any]) -> None:
    """Raise what one test of an exercise finds wrong, with a hint, for the names that a notebook has defined.

    Raises:
        AssertionError: the test does not pass.
    """
    known = _last.get(number)
    if known is None or known[0] is not env:  # the tests of one exercise follow each other
        [exercise] = sources.load(sources.folder(), [number])
        student = str(env.get("STUDENT") or DEFAULT_STUDENT)
        known = _last[number] = (env, grading.run_tests(exercise, Local(env, student), SEED))
    outcome = known[1]
    if outcome.note:
        raise AssertionError(outcome.note)
    [result] = [r for r in outcome.results if r.test.name == test]
    if not result.passed:
        hint = "" if result.unanswered else f"\nHint: {result.hints[0]}"
        raise AssertionError("\n".join([f"{result.asks} {result.message}", *result.lines]) + hint)
