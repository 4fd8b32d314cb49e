"""The roster of a class: each student's id and other names, from a text file or a platform's export.

A roster is a text file with one id per line, or a CSV file with a header. The ids are in the first column of
:data:`IDS` that the header has. The other identifying columns hold further names of the student, and folders, files
and ``STUDENT`` may use any of them. A name that two students share identifies neither.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from minirlhf.core.errors import UserError, unknown
from minirlhf_course.classroom.submission import StudentSubmission, normalised

# Columns of Canvas ("Student" is a name), Moodle ("Identifier" is "Participant 7"), GitHub Classroom and minirlhf.
IDS = (
    "sis login id",
    "username",
    "id number",
    "student id",
    "student_id",
    "email address",
    "student",
    "roster_identifier",
    "identifier",
    "sis user id",
    "email",
    "github_username",
    "id",
)
NAMES = ("name", "full name", "student name")
ALSO = "also"  # minirlhf's own column: further names, separated by semicolons
PARTICIPANT = re.compile(r"Participant (\d+)")
NOBODY = ("points possible", "student, test")  # Canvas's second line, and its test student


@dataclass(frozen=True)
class Enrolled:
    """One student: the id, other names (``also``), the table's cells by column, and the row number."""

    id: str
    also: tuple[str, ...] = ()
    cells: Mapping[str, str] = field(default_factory=dict)
    row: int = -1


@dataclass(frozen=True)
class Export:
    """The content of a CSV file: its header, its rows, and its separator."""

    path: Path
    header: list[str]
    rows: list[list[str]]
    separator: str

    def cells(self, row: Sequence[str]) -> dict[str, str]:
        """Return a row's cells by column; missing cells of a short row are empty."""
        return {c: row[i].strip() if i < len(row) else "" for i, c in enumerate(self.header)}

    def column(self, name: str, what: str) -> str:
        """Return the header's spelling of a column; case does not matter.

        Raises:
            UserError: the column does not exist; ``what`` describes the expected file.
        """
        column = next((c for c in self.header if normalised(c) == normalised(name)), None)
        if column is None:
            message = f"{self.path} has no column {name!r}; expected {what}"
            raise UserError(message, argument=name, problem="missing", file=self.path)
        return column


def text(path: Path, what: str) -> str:
    """Read an exported text file.

    Raises:
        UserError: the file cannot be read as UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        message = f"{path} cannot be read; expected {what}, as UTF-8"
        raise UserError(message, file=path, problem="unreadable") from problem


def table(path: Path, what: str) -> Export:
    """Read a CSV file with a header, separated by commas, semicolons or tabs.

    Raises:
        UserError: the file cannot be read, or is empty.
    """
    content = text(path, what)
    first = content.split("\n", 1)[0]
    separator = max(",;\t", key=first.count)
    try:
        lines = [row for row in csv.reader(io.StringIO(content), delimiter=separator) if any(c.strip() for c in row)]
    except csv.Error as problem:
        message = f"{path} cannot be read ({problem}); expected {what}, a CSV file"
        raise UserError(message, file=path, problem="unreadable") from problem
    if not lines:
        raise UserError(f"{path} is empty; expected {what}", file=path, problem="empty")
    return Export(path, [c.strip() for c in lines[0]], lines[1:], separator)


def read(path: Path, id_column: str = "") -> list[Enrolled]:
    """Read the students of a roster, see the docstring of this module.

    Args:
        path: the roster's file.
        id_column: the column with the ids; default: the first of :data:`IDS` that the header has.

    Raises:
        UserError: the file cannot be read, the column is missing, there is no student, or an id is empty or duplicate.
    """
    what = "one student id per line, or a CSV file with a header"
    lines = [line.strip() for line in text(path, what).splitlines() if line.strip()]
    if not id_column and lines and not re.search(r"[,;\t]", lines[0]) and normalised(lines[0]) not in IDS:
        return _distinct([Enrolled(line) for line in lines], path)
    export = table(path, what)
    return enrolled(export, id_column)


def enrolled(found: Export, id_column: str = "") -> list[Enrolled]:
    """Return the students in a table, see :func:`read`."""
    known = [c for c in found.header if normalised(c) in (*IDS, *NAMES)]
    rows = {i: cells for i, cells in enumerate(map(found.cells, found.rows)) if not _nobody(cells, known)}
    for c in [c for c in known if any(PARTICIPANT.fullmatch(cells[c]) for cells in rows.values())]:
        known.remove(c)
    if id_column:
        id_name = found.column(id_column, f"one of {', '.join(found.header)}")
    else:
        by_name = {normalised(c): c for c in reversed(known)}
        ids = [by_name[name] for name in IDS if name in by_name]
        if not ids:
            message = f"{found.path} has no column with ids, such as 'student'; name one of its columns by --id"
            raise UserError(message, argument="--id", problem="missing", file=found.path)
        id_name = ids[0]
    students = []
    for i, cells in rows.items():
        if not cells[id_name]:
            student = next((cells[c] for c in known if cells[c]), f"row {i + 2}")
            message = f"{found.path}: {student!r} has no {id_name!r}; choose another column by --id"
            raise UserError(message, argument=id_name, value=student, problem="empty", file=found.path)
        names = [cells[c] for c in known if c != id_name]
        names += [name for c in found.header if normalised(c) == ALSO for name in cells[c].split(";")]
        also = dict.fromkeys(name.strip() for name in (*names, cells[id_name].replace("/", "_")) if name.strip())
        also.pop(cells[id_name], None)
        students.append(Enrolled(cells[id_name], tuple(also), cells, i))
    return _distinct(students, found.path)


def _nobody(cells: Mapping[str, str], known: Sequence[str]) -> bool:
    """Whether this row does not belong to a student."""
    filled_cells = [cells[c] for c in known if cells[c]]
    return not filled_cells or any(normalised(name).startswith(NOBODY) for name in filled_cells)


def _distinct(students: Sequence[Enrolled], path: Path) -> list[Enrolled]:
    """Return the students without the names that two of them share.

    Raises:
        UserError: two students have the same id, or there are no students.
    """
    ids = [normalised(s.id) for s in students]
    for s in students:
        if ids.count(normalised(s.id)) > 1:
            raise UserError(f"{path}: {s.id!r} occurs twice", value=s.id, problem="duplicate", file=path)
    if not students:
        raise UserError(f"{path} holds no student", problem="empty", file=path)
    name_counts = Counter(name for s in students for name in {normalised(n) for n in s.also})
    taken = set(ids) | {name for name, n in name_counts.items() if n > 1}
    return [replace(s, also=tuple(n for n in s.also if normalised(n) not in taken)) for s in students]


def spelled(roster: Sequence[Enrolled]) -> dict[str, str]:
    """Map every normalised name of each student to the student's id."""
    return {normalised(name): s.id for s in roster for name in (s.id, *s.also)}


def by_roster(
    work: Mapping[str, StudentSubmission], roster: Sequence[Enrolled]
) -> tuple[dict[str, StudentSubmission], list[str]]:
    """Return the work of all students on the roster, in its order and spelling, and the names that are not on it.

    A student who handed in nothing has an empty submission.

    Raises:
        UserError: none of the students who handed in is on the roster.
    """
    names = spelled(roster)
    strangers = [name for name in work if normalised(name) not in names]
    if len(strangers) == len(work):
        ids = [s.id for s in roster]
        raise unknown("student (handed in, but not on the roster)", strangers[0], ids)
    submissions = {s.id: StudentSubmission(also=s.also) for s in roster}
    for name, submission in work.items():
        if name not in strangers:
            submissions[names[normalised(name)]].add(submission)
    return submissions, strangers
