"""Export marks and feedback in the format that a learning platform imports.

The formats of the platforms' importers:

* Canvas: a CSV file whose first columns are those of its export (``Student``, ``ID``, perhaps SIS ids, ``Section``),
  one column per assignment, and a second line ``Points Possible``.
* Moodle: its own grading worksheet with ``Identifier``, ``Grade`` and ``Last modified (grade)``, unchanged except for
  the grade.
* GitHub Classroom imports nothing. Its grades file is written in the format of its own export, and the feedback in one
  folder per repository.
"""

from __future__ import annotations

import csv
import io
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from minirlhf.core.errors import UserError, unknown
from minirlhf_course.classroom import marks, roster
from minirlhf_course.classroom.downloads import PLATFORMS, Platform
from minirlhf_course.classroom.roster import Export
from minirlhf_course.classroom.submission import normalised

CANVAS_INFO = (
    "student",
    "lastname",
    "firstname",
    "id",
    "sis user id",
    "sis login id",
    "integration id",
    "root account",
    "section",
)
GITHUB = (
    "assignment_name",
    "assignment_url",
    "starter_code_url",
    "github_username",
    "roster_identifier",
    "student_repository_name",
    "student_repository_url",
    "submission_timestamp",
    "points_awarded",
    "points_available",
)


@dataclass(frozen=True)
class Total:
    """One student's points and the maximum."""

    points: float
    most: float

    def max_points(self, possible: float) -> str:
        """Return the points scaled to a maximum of ``possible``, with a decimal point and at most two decimals."""
        return f"{self.points * possible / self.most:.2f}".rstrip("0").rstrip(".")


@dataclass(frozen=True)
class GradeExport:
    """The input of a platform's writer: its export, totals by student, and the prefix of each student's files."""

    table: Export
    students: Mapping[int, str]  # the export's row -> id
    totals: Mapping[str, Total]
    prefixes: Mapping[str, str]
    assignment: str
    scale: bool

    def possible(self, said: str, what: str) -> float:
        """Return the maximum points that the platform states for the assignment.

        Raises:
            UserError: they are not positive, or they differ from the maximum of the totals and ``scale`` is False.
        """
        most = next(iter(self.totals.values())).most
        possible = marks.number(said.replace(",", "."), f"{self.table.path}: {what}") if said else most
        if possible <= 0 or (possible != most and not self.scale):
            raise UserError(
                f"{self.table.path}: {what} is {said}, and the homework is worth {most:g}; use --scale to convert",
                argument="--scale",
                value=possible,
                expected=most,
                file=self.table.path,
            )
        return possible


Written = dict[str, list[list[str]]]  # file name -> rows


def canvas(back: GradeExport) -> Written:
    """Return the gradebook's columns about the student, and the column of the assignment."""
    header = back.table.header
    info = [c for c in header if normalised(c) in CANVAS_INFO]
    if not any(normalised(c) == "section" for c in info) or not any(normalised(c) == "id" for c in info):
        message = f"{back.table.path} has no columns ID and Section; expected the exported gradebook"
        raise UserError(message, argument="ID, Section", file=back.table.path, problem="missing")
    matches = [c for c in header if c == back.assignment or c.rpartition(" (")[0] == back.assignment]
    if not back.assignment or not matches:
        assignments = [c for c in header if c not in info]
        raise unknown(
            "assignment", back.assignment, assignments, file=back.table.path, place=f"{back.table.path} (--assignment)"
        )
    rows = [[*info, matches[0]]]
    possible_row = next((back.table.cells(r) for r in back.table.rows if r[0].strip().lower() == "points possible"), {})
    possible = back.possible(possible_row.get(matches[0], ""), f"Points Possible of {matches[0]!r}")
    rows.append(["    Points Possible", *[""] * (len(info) - 1), f"{possible:g}"])
    for i, student in back.students.items():
        if student in back.totals:
            cells = back.table.cells(back.table.rows[i])
            rows.append([*(cells[c] for c in info), back.totals[student].max_points(possible)])
    return {"canvas.csv": rows}


def moodle(back: GradeExport) -> Written:
    """Return the worksheet with the grades filled in and all else unchanged."""
    what = "the grading worksheet, with Moodle set to English"
    grade, most = (back.table.column(c, what) for c in ("Grade", "Maximum grade"))
    for c in ("Identifier", "Last modified (grade)"):
        back.table.column(c, what)
    header = back.table.header
    rows = [list(header)]
    for i, row in enumerate(back.table.rows):
        cells = back.table.cells(row)
        if (student := back.students.get(i)) in back.totals and student is not None:
            cells[grade] = back.totals[student].max_points(back.possible(cells[most], "Maximum grade"))
        rows.append([cells[c] for c in header])
    return {"moodle.csv": rows}


def github(back: GradeExport) -> Written:
    """Return the grades of the assignment in GitHub Classroom's ten columns."""
    rows = [list(GITHUB)]
    for i, student in back.students.items():
        if student in back.totals:
            cells = {normalised(c): v for c, v in back.table.cells(back.table.rows[i]).items()}
            grades = {c: cells.get(c, "") for c in GITHUB}
            grades["assignment_name"] = grades["assignment_name"] or back.assignment
            grades["roster_identifier"] = grades["roster_identifier"] or cells.get("identifier", "")
            grades["student_repository_name"] = grades["student_repository_name"] or back.prefixes.get(student, "")
            total = back.totals[student]
            grades |= {"points_awarded": f"{total.points:g}", "points_available": f"{total.most:g}"}
            rows.append([grades[c] for c in GITHUB])
    return {"github.csv": rows}


def _canvas_page(prefix: str) -> str:
    return f"{prefix}_feedback.md"


def _moodle_page(prefix: str) -> str:
    return f"{prefix}/feedback.md"


def _github_page(prefix: str) -> str:
    return f"{prefix}/FEEDBACK.md"


WRITERS: dict[str, tuple[Callable[[GradeExport], Written], Callable[[str], str]]] = {
    "canvas": (canvas, _canvas_page),
    "moodle": (moodle, _moodle_page),
    "github": (github, _github_page),
}


def read_totals(path: Path) -> dict[str, Total]:
    """Read the totals that ``minirlhf class grade --totals`` wrote, by normalised id."""
    totals = {}
    for line_number, line in enumerate(marks.read(path, ("student", "total", "max"), "totals"), 2):
        where = f"{path} line {line_number}"
        total = Total(marks.number(line["total"], where), marks.number(line["max"], where))
        if total.most <= 0:
            raise UserError(f"{where}: max {total.most:g}; expected more than 0")
        totals[normalised(line["student"])] = total
    if not totals:
        raise UserError(f"{path} holds no student")
    return totals


def make(
    platform: Platform,
    table: Export,
    id_column: str,
    totals: Mapping[str, Total],
    prefixes: Mapping[str, str],
    assignment: str,
    scale: bool,
) -> tuple[Written, list[str]]:
    """Return the platform's files, and the students in the totals who are missing from its export."""
    students = {s.row: s.id for s in roster.enrolled(table, id_column)}
    graded = {s: totals[normalised(s)] for s in students.values() if normalised(s) in totals}
    graded_ids = {normalised(s) for s in graded}
    if not graded:
        raise UserError(f"no student in {table.path} has a total; check that the class and --id are the same")
    write, _ = WRITERS[platform.name]
    back = GradeExport(table, students, graded, prefixes, assignment, scale)
    return write(back), [s for s in totals if s not in graded_ids]


def write(out: Path, made: Written, separator: str, pages: Mapping[str, str], archive: str) -> list[Path]:
    """Write the tables and one archive of feedback pages into ``out``; nothing is copied until all files are complete."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as draft:
        for name, rows in made.items():
            text = io.StringIO()
            csv.writer(text, delimiter=separator).writerows(rows)
            (Path(draft) / name).write_text(text.getvalue(), encoding="utf-8", newline="")
        if pages:
            with zipfile.ZipFile(Path(draft) / archive, "w", zipfile.ZIP_DEFLATED) as file:
                for name, page in pages.items():
                    file.writestr(name, page)
        out.mkdir(exist_ok=True)
        return [Path(shutil.copyfile(path, out / path.name)) for path in sorted(Path(draft).iterdir())]


def pages(platform: Platform, feedback: Path, prefixes: Mapping[str, str]) -> dict[str, str]:
    """Return the feedback pages by the file name that the platform expects, for students who have a page."""
    _, name = WRITERS[platform.name]
    contents = {}
    for student, prefix in prefixes.items():
        path = feedback / f"{student.replace('/', '_')}.md"
        if path.is_file():
            contents[name(prefix)] = path.read_text(encoding="utf-8")
    return contents


def platform(name: str) -> Platform:
    """Look up a platform by its name."""
    if name not in PLATFORMS:
        raise unknown("platform", name, PLATFORMS)
    return PLATFORMS[name]
