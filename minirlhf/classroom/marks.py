"""The marks of a class: rows that regrades merge into, overrides by hand, weights, late days, statistics; all of it CSV.

A *row* is one student's one exercise. Everything else is computed from the rows, so that a regrade of one student, a mark
set by hand and a change of weights each need no second grading of the rest.
"""

from __future__ import annotations

import csv
import os
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from minirlhf.classroom.grading import Report, plain
from minirlhf.classroom.submission import normalised
from minirlhf.core.errors import UserError, unknown

BY_HAND = "set by hand:"
COLUMNS = ("student", "exercise", "points", "max", "reason")


@dataclass(frozen=True)
class Mark:
    """The points of one student in one exercise."""

    student: str
    exercise: str
    points: float
    max: float
    reason: str = ""


@dataclass(frozen=True)
class Tried:
    """What became of one test of one student: passed, failed or unanswered, and the well-known mistakes that it was."""

    exercise: str
    test: str
    result: str
    named: tuple[str, ...] = ()


def rows_of(report: Report) -> list[Mark]:
    """A report's rows."""
    return [Mark(report.student, o.exercise.id, o.points, o.exercise.points, o.reason) for o in report.outcomes]


def tried_of(report: Report) -> list[Tried]:
    """What became of each test that was run."""
    found = []
    for o in report.outcomes:
        for r in o.results:
            result = "passed" if r.passed else "unanswered" if r.unanswered else "failed"
            found.append(Tried(o.exercise.id, r.test.name, result, r.named))
    return found


def write(table: Iterable[Sequence[object]], path: Path) -> None:
    """A CSV file, written whole or not at all; nothing in it is a formula."""
    with tempfile.NamedTemporaryFile("w", newline="", encoding="utf-8", dir=path.parent, delete=False) as file:
        csv.writer(file).writerows([plain(str(cell)) for cell in row] for row in table)
    os.chmod(file.name, 0o644)
    Path(file.name).replace(path)


def read(path: Path, columns: Sequence[str], what: str) -> list[dict[str, str]]:
    """The rows of a CSV file with at least these columns.

    Raises:
        UserError: it cannot be read, or a column is missing.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            found = list(csv.DictReader(file, restval=""))
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise UserError(
            f"{path} cannot be read; expected {what}: a CSV file with the columns {', '.join(columns)}",
            file=path,
            problem="unreadable",
        ) from problem
    for row in found[:1]:
        if missing := [c for c in columns if c not in row]:
            raise UserError(
                f"{path} has no column {missing[0]!r}; {what} has {', '.join(columns)}",
                argument=missing[0],
                expected=list(columns),
                problem="missing",
                file=path,
            )
    return found


def number(text: str, where: str) -> float:
    """A number in a file that somebody wrote."""
    try:
        return float(text)
    except ValueError:
        raise UserError(f"{where}: {text!r} is no number", value=text, expected=float) from None


# -- rows --------------------------------------------------------------------------------------------------------


def read_rows(path: Path) -> list[Mark]:
    """The rows of a file that :func:`write_rows` wrote."""
    found = read(path, COLUMNS, "grades")
    where = f"{path}: points"
    return [
        Mark(r["student"], r["exercise"], number(r["points"], where), number(r["max"], where), r["reason"])
        for r in found
    ]


def write_rows(rows: Sequence[Mark], path: Path) -> None:
    """One line per row: student, exercise, points, max, reason."""
    write([COLUMNS, *([r.student, r.exercise, f"{r.points:g}", f"{r.max:g}", r.reason] for r in rows)], path)


def merged(old: Sequence[Mark], new: Sequence[Mark]) -> list[Mark]:
    """The old rows with the new ones in their places, and after them those that are new altogether.

    A mark that was set by hand stays.
    """
    fresh = {(normalised(r.student), r.exercise): r for r in new}
    found = []
    for row in old:
        regraded = fresh.pop((normalised(row.student), row.exercise), row)
        found.append(row if row.reason.startswith(BY_HAND) else regraded)
    return found + list(fresh.values())


def lost(old: Sequence[Mark], new: Sequence[Mark]) -> list[str]:
    """The students of the old rows whom the new ones do not have."""
    there = {normalised(r.student) for r in new}
    return list(dict.fromkeys(r.student for r in old if normalised(r.student) not in there))


def overridden(rows: Sequence[Mark], path: Path) -> list[Mark]:
    """The rows with the points that were set by hand, in a file of the columns student, exercise, points, comment.

    Raises:
        UserError: a line without a comment, for a row that there is not, or beyond what can be earned.
    """
    by_key = {(normalised(r.student), r.exercise): i for i, r in enumerate(rows)}
    found = list(rows)
    for n, line in enumerate(read(path, ("student", "exercise", "points", "comment"), "overrides"), 2):
        where = f"{path} line {n}"
        key = (normalised(line["student"]), line["exercise"].strip())
        if key not in by_key:
            if key[0] not in {student for student, _ in by_key}:
                raise unknown("student", line["student"], {r.student for r in rows}, file=path, line=n)
            raise unknown("exercise", key[1], {r.exercise for r in rows}, file=path, line=n)
        row, points = found[by_key[key]], number(line["points"], where)
        if not 0 <= points <= row.max:
            message = f"{where}: {points:g} points; expected 0 to {row.max:g}"
            raise UserError(message, argument="points", value=points, expected=f"[0, {row.max:g}]", file=path, line=n)
        if not line["comment"].strip():
            message = f"{where}: a mark set by hand needs a comment"
            raise UserError(message, argument="comment", problem="missing", file=path, line=n)
        reason = f"{BY_HAND} {line['comment'].strip()} (graded: {row.points:g})"
        found[by_key[key]] = replace(row, points=points, reason=reason)
    return found


# -- a course's rules --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Late:
    """What lateness costs. Days are begun days after the deadline and its grace.

    ``free_days`` are each student's own for the whole course; how many were spent stands in the file ``spent``.
    """

    deadline: datetime
    grace_minutes: float = 0.0
    free_days: int = 0
    cost_per_day: float = 0.1  # share of the points
    most_days: int = 7  # later than that earns nothing
    spent: str = ""

    def days(self, handed_in: datetime) -> int:
        """Begun days of lateness."""
        over = handed_in - self.deadline - timedelta(minutes=self.grace_minutes)
        return max(0, -(-over // timedelta(days=1)))


@dataclass(frozen=True)
class Course:
    """``weights``: what a point of an exercise ("05.3") or a chapter ("05") counts; 1 if not named."""

    weights: Mapping[str, float] = field(default_factory=dict)
    late: Late | None = None

    def weight(self, exercise: str) -> float:
        """Of one exercise."""
        return self.weights.get(exercise, self.weights.get(exercise.split(".")[0], 1.0))


def read_course(path: Path) -> Course:
    """The rules of a course, a TOML file with the tables ``[weights]`` and ``[late]``.

    Raises:
        UserError: it cannot be read, or holds something else.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        message = f"{path} cannot be read ({problem}); expected TOML with [weights] and [late]"
        raise UserError(message, file=path, problem="unreadable") from problem
    if extra := sorted(set(found) - {"weights", "late"}):
        raise unknown("table", extra[0], ("weights", "late"), file=path)
    weights = found.get("weights", {})
    for name, value in weights.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
            message = f'{path}: weight {name} = {value!r}; expected a number ≥ 0, such as "05.3" = 2'
            raise UserError(message, argument=name, value=value, expected="[0, ∞)", file=path)
    return Course(
        {str(k): float(v) for k, v in weights.items()}, _late(found["late"], path) if "late" in found else None
    )


def _late(table: dict[str, Any], path: Path) -> Late:
    known = [f.name for f in fields(Late)]
    if extra := sorted(set(table) - set(known)):
        raise unknown("rule of [late]", extra[0], known, file=path)
    deadline = table.get("deadline")
    if not isinstance(deadline, datetime):
        message = f"{path}: [late] needs a deadline, such as deadline = 2026-11-20T23:59:00"
        raise UserError(message, argument="deadline", problem="missing", file=path)
    for name, value in table.items():
        kind = str if name == "spent" else datetime if name == "deadline" else (int, float)
        if not isinstance(value, kind) or isinstance(value, bool) or (isinstance(value, int | float) and value < 0):
            raise UserError(
                f"{path}: [late] {name} = {value!r}; expected {'a file name' if name == 'spent' else 'a number ≥ 0'}",
                argument=name,
                value=value,
                expected=str if name == "spent" else 0,
                file=path,
            )
    spent = str(path.parent / table["spent"]) if table.get("spent") else ""
    return Late(**{**table, "deadline": _aware(deadline), "spent": spent})


def _aware(moment: datetime) -> datetime:
    """A time without a zone is one of this machine's."""
    return moment.astimezone() if moment.tzinfo is None else moment.astimezone(UTC)


def read_times(path: Path) -> dict[str, datetime]:
    """When each student handed in, from a file of the columns student and handed_in (ISO 8601); the last one counts."""
    found: dict[str, datetime] = {}
    for n, line in enumerate(read(path, ("student", "handed_in"), "times"), 2):
        try:
            moment = _aware(datetime.fromisoformat(line["handed_in"].strip()))
        except ValueError:
            message = f"{path} line {n}: {line['handed_in']!r} is no time; expected 2026-11-20T23:59"
            raise UserError(message, argument="handed_in", value=line["handed_in"], file=path, line=n) from None
        key = normalised(line["student"])
        found[key] = max(moment, found.get(key, moment))
    return found


@dataclass(frozen=True)
class Lateness:
    """One student's: days late, how many of them are free, and the share of the points that is kept."""

    days: int = 0
    free: int = 0
    kept: float = 1.0


def lateness(rule: Late, times: Mapping[str, datetime], students: Iterable[str], homework: str) -> dict[str, Lateness]:
    """Each student's lateness in this homework; what it spends of the free days is written down in the file ``spent``.

    Who has no time is in time.
    """
    path = Path(rule.spent) if rule.spent else None
    columns = ("student", "homework", "days")
    ledger = read(path, columns, "spent late days") if path and path.exists() else []
    before: Counter[str] = Counter()
    for line in ledger:
        if line["homework"] != homework:
            before[normalised(line["student"])] += int(number(line["days"], str(path)))
    found = {}
    for student in students:
        key = normalised(student)
        days = rule.days(times[key]) if key in times else 0
        free = min(days, max(0, rule.free_days - before[key]))
        kept = 0.0 if days - free > rule.most_days else max(0.0, 1 - rule.cost_per_day * (days - free))
        found[student] = Lateness(days, free, kept)
    if path:
        mine = {normalised(student) for student in found}
        others = [line for line in ledger if line["homework"] != homework or normalised(line["student"]) not in mine]
        spent = [[student, homework, late.free] for student, late in found.items() if late.free]
        write([columns, *([line[c] for c in columns] for line in others), *spent], path)
    return found


# -- totals and statistics ---------------------------------------------------------------------------------------


def totals(
    rows: Sequence[Mark], course: Course | None = None, late: Mapping[str, Lateness] | None = None
) -> list[list[str]]:
    """A table with one line per student: points per exercise, total, max; with late rules, the days and what they cost."""
    rules = course or Course()
    worth = {r.exercise: r.max for r in rows}
    students = dict.fromkeys(r.student for r in rows)
    points = {(r.student, r.exercise): r.points for r in rows}
    most = sum(rules.weight(e) * m for e, m in worth.items())
    head = ["student", *worth, *(("days_late", "free_days", "kept") if late is not None else ()), "total", "max"]
    table = [head]
    for student in students:
        earned = [points.get((student, e), 0.0) for e in worth]
        total = sum(rules.weight(e) * p for e, p in zip(worth, earned, strict=True))
        cells = [f"{p:g}" for p in earned]
        if late is not None:
            mine = late.get(student, Lateness())
            total *= mine.kept
            cells += [str(mine.days), str(mine.free), f"{mine.kept:g}"]
        table.append([student, *cells, f"{total:g}", f"{most:g}"])
    return table


def statistics(tried: Sequence[Tried]) -> list[list[str]]:
    """What to teach again: for each test how many passed, failed or did not answer, and below it each mistake by name."""
    table = [["exercise", "test", "mistake", "students", "passed", "failed", "unanswered"]]
    for exercise, test in dict.fromkeys((t.exercise, t.test) for t in tried):
        mine = [t for t in tried if (t.exercise, t.test) == (exercise, test)]
        results = Counter(t.result for t in mine)
        table.append(
            [exercise, test, "", str(len(mine)), *(str(results[k]) for k in ("passed", "failed", "unanswered"))]
        )
        for mistake, count in Counter(name for t in mine for name in t.named).most_common():
            table.append([exercise, test, mistake, str(count), "", "", ""])
    return table


def as_data(report: Report, page: str, digest: str) -> dict[str, Any]:
    """What is kept of one student's grading, as JSON."""
    rows, tried = [asdict(r) for r in rows_of(report)], [asdict(t) for t in tried_of(report)]
    return {"student": report.student, "digest": digest, "rows": rows, "tried": tried, "page": page}


def from_data(data: Mapping[str, Any]) -> tuple[list[Mark], list[Tried]]:
    """Rows and tests of :func:`as_data`."""
    tried = [Tried(t["exercise"], t["test"], t["result"], tuple(t["named"])) for t in data["tried"]]
    return [Mark(**r) for r in data["rows"]], tried
