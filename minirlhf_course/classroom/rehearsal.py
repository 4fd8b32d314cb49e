"""A synthetic class for rehearsing grading: correct, partial, unchanged, broken, late, missing and hostile submissions.

The expected points of each student follow from the exercises' sources, which the tests of this package verify. They
are written beside the submissions in the format of ``minirlhf class grade --totals``. If grading is correct, the two files
are equal.
"""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from minirlhf_course.classroom import marks, release
from minirlhf_course.classroom.exercise import DEFAULT_STUDENT, Exercise
from minirlhf_course.ledger.registry import Draw

# These replace the answer to the first exercise. None of them earns a point or changes another student's points.
HOSTILE = {
    "loops for ever": "while True:\n    pass",
    "ends the process and claims a score": "import os\n\nprint('6 of 6 points')\nos._exit(0)",
    "looks for the solutions": "import pathlib\n\nfound = list(pathlib.Path('/').glob('*/*/exercises'))\nraise SystemExit(found)",
}


@dataclass
class Rehearsed:
    """One synthetic student: the submitted files, and the expected points per exercise."""

    id: str
    note: str
    points: dict[str, float]
    files: dict[str, bytes]  # content by path in the folder of submissions; empty: no submission
    late: bool = False


def answers(exercises: Sequence[Exercise], draw: Draw) -> tuple[dict[str, str], dict[str, float]]:
    """Sample for each exercise the solution, a partial answer or the stub; return the code and the points it earns."""
    code, points = {}, {}
    for e in exercises:
        choices = [(e.solution, e.points), (e.solution, e.points), (e.stub, 0.0)]
        choices += [(f"{e.solution}\n\n{p.code}", p.points) for p in e.partials]
        code[e.id], points[e.id] = choices[draw.integer(0, len(choices) - 1)]
    return code, points


def cells(exercises: Sequence[Exercise], code: dict[str, str], student: str) -> list[release.ReleaseCell]:
    """Return the release's cells with these answers filled in and ``student`` as the student's name."""
    filled = []
    for cell in release.cells(exercises):
        if cell.role == "setup":
            cell = replace(cell, text=cell.text.replace(f'"{DEFAULT_STUDENT}"', f'"{student}"'))
        elif cell.role == "answer":
            marker = cell.text.split("\n")[0] + "\n" if cell.text.startswith("# exercise") else ""
            cell = replace(cell, text=marker + code[cell.exercise])
        filled.append(cell)
    return filled


def students(exercises: Sequence[Exercise], count: int, seed: int) -> list[Rehearsed]:
    """Return the class: first one student per special case, then students with ordinary homework."""
    name = exercises[0].path.parent.name
    full = {e.id: e.points for e in exercises}
    solved = {e.id: e.solution for e in exercises}
    personal = {e.id for e in exercises if e.is_personal}
    first, last = exercises[0].id, exercises[-1].id

    def notebook(student: str, code: dict[str, str], signed: str = "") -> bytes:
        return release.notebook(cells(exercises, code, signed or student)).encode()

    def script(student: str, code: dict[str, str]) -> bytes:
        return release.script(cells(exercises, code, student)).encode()

    def without(points: dict[str, float], *lost: str) -> dict[str, float]:
        return {number: 0.0 if number in lost else value for number, value in points.items()}

    zero = without(full, *full)
    builders: list[Callable[[str], Rehearsed]] = [
        lambda s: Rehearsed(s, "hands in nothing", zero, {}),
        lambda s: Rehearsed(s, "hands in an archive", zero, {f"{s}/{name}.zip": b"PK\x03\x04"}),
        lambda s: Rehearsed(s, "half a notebook", zero, {f"{s}/{name}.ipynb": notebook(s, solved)[:2000]}),
        lambda s: Rehearsed(s, "unchanged", zero, {f"{s}/{name}.py": script(s, {e.id: e.stub for e in exercises})}),
        lambda s: Rehearsed(
            s, "a syntax error", without(full, first), {f"{s}/{name}.py": script(s, solved | {first: "def broken(:"})}
        ),
        lambda s: Rehearsed(
            s,
            "deleted the line that names the last exercise",
            without(full, last),
            {f"{s}/{name}.py": script(s, solved).replace(f"exercise {last} (keep this line)".encode(), b"")},
        ),
        lambda s: Rehearsed(
            s, "forgot STUDENT", without(full, *personal), {f"{s}/{name}.ipynb": notebook(s, solved, DEFAULT_STUDENT)}
        ),
        lambda s: Rehearsed(
            s,
            "copied from a neighbour",
            without(full, *personal),
            {f"{s}/{name}.ipynb": notebook(s, solved, f"{s}-friend")},
        ),
        lambda s: Rehearsed(s, "late", full, {f"{s}/{name}.ipynb": notebook(s, solved)}, late=True),
        lambda s: Rehearsed(s, "one file, no folder", full, {f"{s}.py": b"\xef\xbb\xbf" + script(s, solved)}),
        lambda s: Rehearsed(
            s, "files in a folder of its own", full, {f"{s}/homework/{name}.ipynb": notebook(s, solved)}
        ),
    ]
    for note, code in HOSTILE.items():
        builders.append(
            lambda s, note=note, code=code: Rehearsed(  # type: ignore[misc]
                s, note, without(full, first), {f"{s}/{name}.ipynb": notebook(s, solved | {first: code})}
            )
        )
    members = [builders[i](f"s{i + 1:02}") for i in range(min(count, len(builders)))]
    for i in range(len(members), count):
        student = f"s{i + 1:02}"
        answer_code, points = answers(exercises, Draw(seed, student))
        content = notebook(student, answer_code) if i % 2 else script(student, answer_code)
        members.append(
            Rehearsed(student, "works", points, {f"{student}/{name}{'.ipynb' if i % 2 else '.py'}": content})
        )
    return members


def write(exercises: Sequence[Exercise], out: Path, count: int, seed: int) -> list[Rehearsed]:
    """Write ``submissions``, ``late``, ``roster.txt``, ``who.txt`` and ``expected.csv`` into ``out``."""
    group = students(exercises, count, seed)
    for student in group:
        for relative, content in student.files.items():
            path = out / ("late" if student.late else "submissions") / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    (out / "roster.txt").write_text("".join(f"{s.id}\n" for s in group), encoding="utf-8")
    (out / "who.txt").write_text("".join(f"{s.id}  {s.note}\n" for s in group), encoding="utf-8")
    maxima = {e.id: e.points for e in exercises}
    rows = [marks.Mark(s.id, e, 0.0 if s.late else s.points[e], most) for s in group for e, most in maxima.items()]
    marks.write(marks.totals(rows), out / "expected.csv")
    return group


# -- in the format of a learning platform --------------------------------------------------------------------


def _canvas(student: Rehearsed, i: int, k: int, path: PurePosixPath) -> str:
    return f"{student.id}_{'LATE_' if student.late else ''}{1000 + i}_{9000 + 10 * i + k}_{path.name}"


def _moodle(student: Rehearsed, i: int, k: int, path: PurePosixPath) -> str:
    inner = path.relative_to(student.id) if path.parts[0] == student.id else path
    return f"Student {student.id.upper()}_{1000 + i}_assignsubmission_file_/{inner}"


def _github(student: Rehearsed, i: int, k: int, path: PurePosixPath) -> str:
    return f"homework-{student.id}/{path.name}"


def _gradebook(students: Sequence[Rehearsed], chapter: str, max_points: float) -> list[list[str]]:
    rows = [["Student", "ID", "SIS User ID", "SIS Login ID", "Section", f"Homework {chapter} (901)"]]
    rows.append(["    Points Possible", "", "", "", "", f"{max_points:g}"])
    return rows + [[f"Student, {s.id.upper()}", str(1000 + i), "", s.id, "1", ""] for i, s in enumerate(students)]


def _worksheet(students: Sequence[Rehearsed], chapter: str, most: float) -> list[list[str]]:
    head = "Identifier,Full name,Username,Status,Grade,Maximum grade,Grade can be changed,Last modified (submission)"
    rows = [[*head.split(","), "Last modified (grade)"]]
    for i, s in enumerate(students):
        time = f"Friday, {21 if s.late else 20} November 2026, 10:00 AM" if s.files else "-"
        rows.append(
            [f"Participant {1000 + i}", f"Student {s.id.upper()}", s.id, "", "", f"{most:.2f}", "Yes", time, "-"]
        )
    return rows


def _classroom(students: Sequence[Rehearsed], chapter: str, max_points: float) -> list[list[str]]:
    return [["identifier", "github_username", "github_id", "name"], *([s.id, s.id, "", ""] for s in students)]


DRESSES = {"canvas": (_canvas, _gradebook), "moodle": (_moodle, _worksheet), "github": (_github, _classroom)}


def dress(made: Sequence[Rehearsed], exercises: Sequence[Exercise], platform: str, out: Path) -> None:
    """Write ``download.zip`` and ``export.csv`` in the platform's format, see :mod:`minirlhf_course.classroom.downloads`."""
    name, table = DRESSES[platform]
    with zipfile.ZipFile(out / "download.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for i, student in enumerate(made):
            for k, (path, content) in enumerate(student.files.items()):
                archive.writestr(name(student, i, k, PurePosixPath(path)), content)
    with open(out / "export.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(table(made, exercises[0].chapter, sum(e.points for e in exercises)))
