"""Marks and feedback in the form in which a learning platform takes them back.

What the platforms' importers ask for: Canvas, a CSV file whose first columns are those of its export (``Student``, ``ID``,
perhaps SIS ids, ``Section``), one column per assignment, and a second line ``Points Possible``; Moodle, its own grading
worksheet with ``Identifier``, ``Grade`` and ``Last modified (grade)`` untouched but for the grade; GitHub Classroom takes
nothing back, so its grades file is written as it hands it out, and the feedback in a folder per repository.
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

from minirlhf.classroom import marks, roster
from minirlhf.classroom.downloads import PLATFORMS, Platform
from minirlhf.classroom.roster import Export
from minirlhf.classroom.submission import normalised
from minirlhf.core.errors import UserError, unknown

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
    """One student's sum and what could be earned."""

    points: float
    most: float

    def max_points(self, possible: float) -> str:
        """The points as a share of ``possible``, as a platform reads a number: two digits, a full stop."""
        return f"{self.points * possible / self.most:.2f}".rstrip("0").rstrip(".")


@dataclass(frozen=True)
class GradeExport:
    """What a platform's writer is given: its export, totals by student, and the prefixes of what each handed in."""

    table: Export
    students: Mapping[int, str]  # the export's row -> id
    totals: Mapping[str, Total]
    prefixes: Mapping[str, str]
    assignment: str
    scale: bool

    def possible(self, said: str, what: str) -> float:
        """The points that the platform has for the assignment.

        Raises:
            UserError: they are not those of the totals, and ``scale`` does not say to convert.
        """
        most = next(iter(self.totals.values())).most
        possible = marks.number(said.replace(",", "."), f"{self.table.path}: {what}") if said else most
        if possible <= 0 or (possible != most and not self.scale):
            raise UserError(
                f"{self.table.path}: {what} is {said}, and the homework is worth {most:g}; --scale converts",
                argument="--scale",
                value=possible,
                expected=most,
                file=self.table.path,
            )
        return possible


Written = dict[str, list[list[str]]]  # file name -> its rows


def canvas(back: GradeExport) -> Written:
    """The gradebook's own columns about the student, and the assignment's."""
    header = back.table.header
    info = [c for c in header if normalised(c) in CANVAS_INFO]
    if not any(normalised(c) == "section" for c in info) or not any(normalised(c) == "id" for c in info):
        message = f"{back.table.path} has no columns ID and Section; expected the exported gradebook"
        raise UserError(message, argument="ID, Section", file=back.table.path, problem="missing")
    fits = [c for c in header if c == back.assignment or c.rpartition(" (")[0] == back.assignment]
    if not back.assignment or not fits:
        others = [c for c in header if c not in info]
        raise unknown(
            "assignment", back.assignment, others, file=back.table.path, place=f"{back.table.path} (--assignment)"
        )
    rows = [[*info, fits[0]]]
    said = next((back.table.cells(r) for r in back.table.rows if r[0].strip().lower() == "points possible"), {})
    possible = back.possible(said.get(fits[0], ""), f"Points Possible of {fits[0]!r}")
    rows.append(["    Points Possible", *[""] * (len(info) - 1), f"{possible:g}"])
    for i, student in back.students.items():
        if student in back.totals:
            cells = back.table.cells(back.table.rows[i])
            rows.append([*(cells[c] for c in info), back.totals[student].max_points(possible)])
    return {"canvas.csv": rows}


def moodle(back: GradeExport) -> Written:
    """The worksheet as it was, with the grades in it."""
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
    """The assignment's grades, in its ten columns."""
    rows = [list(GITHUB)]
    for i, student in back.students.items():
        if student in back.totals:
            cells = {normalised(c): v for c, v in back.table.cells(back.table.rows[i]).items()}
            made = {c: cells.get(c, "") for c in GITHUB}
            made["assignment_name"] = made["assignment_name"] or back.assignment
            made["roster_identifier"] = made["roster_identifier"] or cells.get("identifier", "")
            made["student_repository_name"] = made["student_repository_name"] or back.prefixes.get(student, "")
            total = back.totals[student]
            made |= {"points_awarded": f"{total.points:g}", "points_available": f"{total.most:g}"}
            rows.append([made[c] for c in GITHUB])
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
    """The sums that ``minirlhf grade --totals`` wrote, by normalised id."""
    found = {}
    for n, line in enumerate(marks.read(path, ("student", "total", "max"), "totals"), 2):
        where = f"{path} line {n}"
        total = Total(marks.number(line["total"], where), marks.number(line["max"], where))
        if total.most <= 0:
            raise UserError(f"{where}: max {total.most:g}; expected more than 0")
        found[normalised(line["student"])] = total
    if not found:
        raise UserError(f"{path}: no student in it")
    return found


def make(
    platform: Platform,
    table: Export,
    id_column: str,
    totals: Mapping[str, Total],
    prefixes: Mapping[str, str],
    assignment: str,
    scale: bool,
) -> tuple[Written, list[str]]:
    """The platform's files, and those in the totals whom its export does not have."""
    students = {s.row: s.id for s in roster.enrolled(table, id_column)}
    mine = {s: totals[normalised(s)] for s in students.values() if normalised(s) in totals}
    known = {normalised(s) for s in mine}
    if not mine:
        raise UserError(f"nobody in {table.path} has a total; is it the same class, and the same --id?")
    write, _ = WRITERS[platform.name]
    back = GradeExport(table, students, mine, prefixes, assignment, scale)
    return write(back), [s for s in totals if s not in known]


def write(out: Path, made: Written, separator: str, pages: Mapping[str, str], archive: str) -> list[Path]:
    """Write the tables and one archive of feedback pages into ``out``; all of it or nothing."""
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
    """Each student's feedback by the name under which the platform takes it; of those whom it can reach."""
    _, name = WRITERS[platform.name]
    found = {}
    for student, prefix in prefixes.items():
        path = feedback / f"{student.replace('/', '_')}.md"
        if path.is_file():
            found[name(prefix)] = path.read_text(encoding="utf-8")
    return found


def platform(name: str) -> Platform:
    """A platform by its name."""
    if name not in PLATFORMS:
        raise unknown("platform", name, PLATFORMS)
    return PLATFORMS[name]
