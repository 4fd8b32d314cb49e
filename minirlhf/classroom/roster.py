"""Who is in a class: each student's id and what else the student is called, from a text file or a platform's export.

A roster is a text file with one id per line, or a CSV file with a header. Of a header's columns the first of
:data:`IDS` that is there holds the ids; what stands in the others that identify somebody counts as the student's, too, so
that folders, files and ``STUDENT`` may bear any of a student's names. A name that two students share is nobody's.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from minirlhf.classroom.submission import StudentSubmission, normalised
from minirlhf.core.errors import UserError, unknown

# As exported by Canvas ("Student" is a name there), Moodle ("Identifier" is "Participant 7" there), GitHub Classroom, and by us.
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
ALSO = "also"  # our own column: further names, separated by semicolons
PARTICIPANT = re.compile(r"Participant (\d+)")
NOBODY = ("points possible", "student, test")  # Canvas's second line, and its made-up student


@dataclass(frozen=True)
class Enrolled:
    """One student: the id, what else the student is called, and the row of the table and its cells by column."""

    id: str
    also: tuple[str, ...] = ()
    cells: Mapping[str, str] = field(default_factory=dict)
    row: int = -1


@dataclass(frozen=True)
class Export:
    """A CSV file as it is: its header, its rows, and what separates its cells."""

    path: Path
    header: list[str]
    rows: list[list[str]]
    separator: str

    def cells(self, row: Sequence[str]) -> dict[str, str]:
        """A row's cells by their columns; a short row has empty ones."""
        return {c: row[i].strip() if i < len(row) else "" for i, c in enumerate(self.header)}

    def column(self, name: str, what: str) -> str:
        """The header's spelling of a column, in whatever case it is there.

        Raises:
            UserError: there is none; ``what`` says what the file should have been.
        """
        found = next((c for c in self.header if normalised(c) == normalised(name)), None)
        if found is None:
            message = f"{self.path} has no column {name!r}; expected {what}"
            raise UserError(message, argument=name, problem="missing", file=self.path)
        return found


def text(path: Path, what: str) -> str:
    """A text file that somebody exported."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        message = f"{path} cannot be read; expected {what}, as UTF-8"
        raise UserError(message, file=path, problem="unreadable") from problem


def table(path: Path, what: str) -> Export:
    """A CSV file with a header, its cells separated by commas, semicolons or tabs.

    Raises:
        UserError: it cannot be read, or is empty.
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
    """The students of a roster, see the head of this module.

    Args:
        path: the file.
        id_column: the column whose cells are the ids; default: the first of :data:`IDS` that is there.

    Raises:
        UserError: it cannot be read, has no such column, or names nobody, somebody twice, or somebody without an id.
    """
    what = "one student id per line, or a CSV file with a header"
    lines = [line.strip() for line in text(path, what).splitlines() if line.strip()]
    if not id_column and lines and not re.search(r"[,;\t]", lines[0]) and normalised(lines[0]) not in IDS:
        return _distinct([Enrolled(line) for line in lines], path)
    found = table(path, what)
    return enrolled(found, id_column)


def enrolled(found: Export, id_column: str = "") -> list[Enrolled]:
    """The students in a table, see :func:`read`."""
    known = [c for c in found.header if normalised(c) in (*IDS, *NAMES)]
    rows = {i: cells for i, cells in enumerate(map(found.cells, found.rows)) if not _nobody(cells, known)}
    for c in [c for c in known if any(PARTICIPANT.fullmatch(cells[c]) for cells in rows.values())]:
        known.remove(c)
    if id_column:
        chosen = found.column(id_column, f"one of {', '.join(found.header)}")
    else:
        by_name = {normalised(c): c for c in reversed(known)}
        ids = [by_name[name] for name in IDS if name in by_name]
        if not ids:
            message = f"{found.path} has no column with ids, such as 'student'; name one of its columns by --id"
            raise UserError(message, argument="--id", problem="missing", file=found.path)
        chosen = ids[0]
    made = []
    for i, cells in rows.items():
        if not cells[chosen]:
            who = next((cells[c] for c in known if cells[c]), f"row {i + 2}")
            message = f"{found.path}: {who!r} has no {chosen!r}; choose another column by --id"
            raise UserError(message, argument=chosen, value=who, problem="empty", file=found.path)
        others = [cells[c] for c in known if c != chosen]
        others += [name for c in found.header if normalised(c) == ALSO for name in cells[c].split(";")]
        also = dict.fromkeys(name.strip() for name in (*others, cells[chosen].replace("/", "_")) if name.strip())
        also.pop(cells[chosen], None)
        made.append(Enrolled(cells[chosen], tuple(also), cells, i))
    return _distinct(made, found.path)


def _nobody(cells: Mapping[str, str], known: Sequence[str]) -> bool:
    """Whether this row is no student's."""
    said = [cells[c] for c in known if cells[c]]
    return not said or any(normalised(name).startswith(NOBODY) for name in said)


def _distinct(found: Sequence[Enrolled], path: Path) -> list[Enrolled]:
    """The students, without the names that two of them share.

    Raises:
        UserError: two have one id, or there are none.
    """
    ids = [normalised(s.id) for s in found]
    for s in found:
        if ids.count(normalised(s.id)) > 1:
            raise UserError(f"{path}: {s.id!r} stands there twice", value=s.id, problem="duplicate", file=path)
    if not found:
        raise UserError(f"{path}: no student in it", problem="empty", file=path)
    count = Counter(name for s in found for name in {normalised(n) for n in s.also})
    taken = set(ids) | {name for name, n in count.items() if n > 1}
    return [replace(s, also=tuple(n for n in s.also if normalised(n) not in taken)) for s in found]


def spelled(roster: Sequence[Enrolled]) -> dict[str, str]:
    """Each student's id by all normalised names of the student."""
    return {normalised(name): s.id for s in roster for name in (s.id, *s.also)}


def by_roster(
    work: Mapping[str, StudentSubmission], roster: Sequence[Enrolled]
) -> tuple[dict[str, StudentSubmission], list[str]]:
    """The work of everybody on the roster, in its order and spelling, of those who handed in nothing too; and who is not on it.

    Raises:
        UserError: nobody who handed in is on it.
    """
    names = spelled(roster)
    strangers = [name for name in work if normalised(name) not in names]
    if len(strangers) == len(work):
        ids = [s.id for s in roster]
        raise unknown("student (handed in, but not on the roster)", strangers[0], ids)
    handed = {s.id: StudentSubmission(also=s.also) for s in roster}
    for name, found in work.items():
        if name not in strangers:
            handed[names[normalised(name)]].add(found)
    return handed, strangers
