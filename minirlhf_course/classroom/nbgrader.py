"""Support for nbgrader: assignments with nbgrader's metadata, and the score of a cell.

An autograded cell calls the same sandboxed grader as ``minirlhf class grade`` and returns the points. However, nbgrader
runs that cell in the student's own kernel, after the student's code, so a student who replaces :func:`score` can set
the score. If students are not trusted, use ``minirlhf class grade``, which reads the same notebooks.
"""

from __future__ import annotations

import dataclasses
import functools
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom import release
from minirlhf_course.classroom.checker import Verdict
from minirlhf_course.classroom.exercise import DEFAULT_STUDENT, Exercise
from minirlhf_course.classroom.grading import grade_answer
from minirlhf_course.classroom.runner import Server
from minirlhf_course.classroom.submission import SUFFIXES, read_files

CONFIG = '''"""nbgrader's configuration of this course."""
import os
import sys

c = get_config()  # noqa: F821  defined by nbgrader
c.CourseDirectory.course_id = "minirlhf"
# nbgrader calls other programs of its own environment by name.
os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
# The stub stands above the solution in each answer cell, so nothing takes the solution's place.
c.ClearSolutions.code_stub = {{"python": ""}}
# An endless loop in a cell ends here; the other cells are graded all the same.
c.Execute.timeout = 120
# Where the grader finds the hidden tests. Students do not have this folder.
os.environ["MINIRLHF_EXERCISES"] = {exercises!r}
'''


def _metadata(exercise: Exercise, role: str) -> dict[str, Any]:
    graded = role == "tests"
    entry: dict[str, Any] = {
        "grade_id": f"ex-{exercise.id.replace('.', '-')}-{role}",
        "cell_type": "code",
        "grade": graded,
        "solution": not graded,
        "locked": graded,
        "task": False,
        "schema_version": 3,
    }
    return {"nbgrader": entry | ({"points": exercise.points} if graded else {})}


def source_cells(exercises: Sequence[Exercise]) -> list[release.ReleaseCell]:
    """Return the cells of the instructor's notebook: answers hold stub and solution, checks become graded cells."""
    by_id = {e.id: e for e in exercises}
    cells = []
    for cell in release.cells(exercises):
        if cell.role == "answer":
            e = by_id[cell.exercise]
            text = f"{cell.text}\n\n### BEGIN SOLUTION\n{e.solution}\n### END SOLUTION"
            cell = dataclasses.replace(cell, text=text, metadata=_metadata(e, "answer"))
        elif cell.role == "check":
            e = by_id[cell.exercise]
            hidden = f'from minirlhf_course.classroom.nbgrader import score\n\nscore("{e.id}")'
            text = f"# graded when you have handed in\n### BEGIN HIDDEN TESTS\n{hidden}\n### END HIDDEN TESTS"
            cell = dataclasses.replace(cell, role="tests", text=text, metadata=_metadata(e, "tests"))
        cells.append(cell)
    return cells


def write(exercises: Sequence[Exercise], out: Path, replace: bool = False) -> list[Path]:
    """Write one chapter as an assignment into the course folder ``out``, and a configuration if it has none."""
    folder = exercises[0].path.parent
    config = out / "nbgrader_config.py"
    if not config.exists():
        config.write_text(CONFIG.format(exercises=str(folder.parent.resolve())), encoding="utf-8")
    path = out / "source" / folder.name / f"{folder.name}.ipynb"
    return release.place({path: release.notebook(source_cells(exercises))}, replace)


@functools.cache
def _server() -> Server:
    return Server([sources.folder().resolve()])  # ends with the kernel


def score(number: str) -> float:
    """Grade one exercise of the notebook in the working directory; print feedback and return the points."""
    (exercise,) = sources.load(sources.folder(), [number])
    folder = Path.cwd()
    student = folder.parent.name if folder.parent.parent.name in ("autograded", "submitted") else DEFAULT_STUDENT
    submission = read_files(p for p in folder.iterdir() if p.suffix in SUFFIXES)
    outcome = grade_answer(_server(), exercise, submission, student, secrets.randbits(31))
    failed = outcome.first_failure
    print(repr(Verdict(outcome, f"Hint: {failed.hints[0]}" if failed and not failed.unanswered else "")))
    return outcome.points
