"""The marks of a class as CSV files: rows, regrades, manual overrides, weights, late days and statistics.

A *row* holds the mark of one student in one exercise. All other tables are computed from the rows, so that a regrade
of one student, a manual override or a change of weights does not require grading the other students again.
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

from minirlhf.core.errors import UserError, unknown
from minirlhf_course.classroom.grading import Report, plain
from minirlhf_course.classroom.submission import normalised

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
    """The result of one test of one student: passed, failed or unanswered, and the well-known mistakes that matched."""

    exercise: str
    test: str
    result: str
    named: tuple[str, ...] = ()


def rows_of(report: Report) -> list[Mark]:
    """Return a report's rows."""
    return [Mark(report.student, o.exercise.id, o.points, o.exercise.points, o.reason) for o in report.outcomes]


def tried_of(report: Report) -> list[Tried]:
    """Return the result of each test in a report."""
    results = []
    for o in report.outcomes:
        for r in o.results:
            result = "passed" if r.passed else "unanswered" if r.unanswered else "failed"
            results.append(Tried(o.exercise.id, r.test.name, result, r.named))
    return results


def write(table: Iterable[Sequence[object]], path: Path) -> None:
    """Write a CSV file atomically, with cells made safe for spreadsheets (no formulas)."""
    with tempfile.NamedTemporaryFile("w", newline="", encoding="utf-8", dir=path.parent, delete=False) as file:
        csv.writer(file).writerows([plain(str(cell)) for cell in row] for row in table)
    os.chmod(file.name, 0o644)
    Path(file.name).replace(path)


def read(path: Path, columns: Sequence[str], what: str) -> list[dict[str, str]]:
    """Read the rows of a CSV file with at least these columns.

    Raises:
        UserError: the file cannot be read, or a column is missing.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file, restval=""))
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise UserError(
            f"{path} cannot be read; expected {what}: a CSV file with the columns {', '.join(columns)}",
            file=path,
            problem="unreadable",
        ) from problem
    for row in rows[:1]:
        if missing := [c for c in columns if c not in row]:
            raise UserError(
                f"{path} has no column {missing[0]!r}; {what} has {', '.join(columns)}",
                argument=missing[0],
                expected=list(columns),
                problem="missing",
                file=path,
            )
    return rows


def number(text: str, where: str) -> float:
    """Parse a number from an input file.

    Raises:
        UserError: the text is not a number.
    """
    try:
        return float(text)
    except ValueError:
        raise UserError(f"{where}: {text!r} is not a number", value=text, expected=float) from None


# -- rows --------------------------------------------------------------------------------------------------------


def read_rows(path: Path) -> list[Mark]:
    """Read the rows of a file that :func:`write_rows` wrote."""
    lines = read(path, COLUMNS, "grades")
    where = f"{path}: points"
    return [
        Mark(r["student"], r["exercise"], number(r["points"], where), number(r["max"], where), r["reason"])
        for r in lines
    ]


def write_rows(rows: Sequence[Mark], path: Path) -> None:
    """Write one line per row: student, exercise, points, max, reason."""
    write([COLUMNS, *([r.student, r.exercise, f"{r.points:g}", f"{r.max:g}", r.reason] for r in rows)], path)


def merged(old: Sequence[Mark], new: Sequence[Mark]) -> list[Mark]:
    """Replace old rows by new rows of the same student and exercise, and append the remaining new rows.

    A mark that was set by hand is not replaced.
    """
    new_by_key = {(normalised(r.student), r.exercise): r for r in new}
    result = []
    for row in old:
        regraded = new_by_key.pop((normalised(row.student), row.exercise), row)
        result.append(row if row.reason.startswith(BY_HAND) else regraded)
    return result + list(new_by_key.values())


def lost(old: Sequence[Mark], new: Sequence[Mark]) -> list[str]:
    """Return the students of the old rows who are missing from the new rows."""
    new_students = {normalised(r.student) for r in new}
    return list(dict.fromkeys(r.student for r in old if normalised(r.student) not in new_students))


def overridden(rows: Sequence[Mark], path: Path) -> list[Mark]:
    """Apply the points that were set by hand, from a file with the columns student, exercise, points, comment.

    Raises:
        UserError: a line has no comment, names a row that does not exist, or gives points outside 0 to the maximum.
    """
    by_key = {(normalised(r.student), r.exercise): i for i, r in enumerate(rows)}
    result = list(rows)
    for n, line in enumerate(read(path, ("student", "exercise", "points", "comment"), "overrides"), 2):
        where = f"{path} line {n}"
        key = (normalised(line["student"]), line["exercise"].strip())
        if key not in by_key:
            if key[0] not in {student for student, _ in by_key}:
                raise unknown("student", line["student"], {r.student for r in rows}, file=path, line=n)
            raise unknown("exercise", key[1], {r.exercise for r in rows}, file=path, line=n)
        row, points = result[by_key[key]], number(line["points"], where)
        if not 0 <= points <= row.max:
            message = f"{where}: {points:g} points; expected 0 to {row.max:g}"
            raise UserError(message, argument="points", value=points, expected=f"[0, {row.max:g}]", file=path, line=n)
        if not line["comment"].strip():
            message = f"{where}: a mark set by hand needs a comment"
            raise UserError(message, argument="comment", problem="missing", file=path, line=n)
        reason = f"{BY_HAND} {line['comment'].strip()} (graded: {row.points:g})"
        result[by_key[key]] = replace(row, points=points, reason=reason)
    return result


# -- a course's rules --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Late:
    """The rules for late submissions. Lateness is counted in begun days after the deadline and its grace period.

    ``free_days``: each student's late days without cost for the whole course; the file ``spent`` records those used.
    """

    deadline: datetime
    grace_minutes: float = 0.0
    free_days: int = 0
    cost_per_day: float = 0.1  # fraction of the points
    most_days: int = 7  # more days late earn 0 points
    spent: str = ""

    def days(self, handed_in: datetime) -> int:
        """Return the number of begun days of lateness."""
        over = handed_in - self.deadline - timedelta(minutes=self.grace_minutes)
        return max(0, -(-over // timedelta(days=1)))


@dataclass(frozen=True)
class Course:
    """The rules of a course. ``weights``: weight of a point of an exercise ("05.3") or a chapter ("05"); default 1."""

    weights: Mapping[str, float] = field(default_factory=dict)
    late: Late | None = None

    def weight(self, exercise: str) -> float:
        """Return the weight of one exercise."""
        return self.weights.get(exercise, self.weights.get(exercise.split(".")[0], 1.0))


def read_course(path: Path) -> Course:
    """Read the rules of a course, a TOML file with the tables ``[weights]`` and ``[late]``.

    Raises:
        UserError: the file cannot be read, or a table, name or value is invalid.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        message = f"{path} cannot be read ({problem}); expected TOML with [weights] and [late]"
        raise UserError(message, file=path, problem="unreadable") from problem
    if extra := sorted(set(data) - {"weights", "late"}):
        raise unknown("table", extra[0], ("weights", "late"), file=path)
    weights = data.get("weights", {})
    for name, value in weights.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
            message = f'{path}: weight {name} = {value!r}; expected a number ≥ 0, such as "05.3" = 2'
            raise UserError(message, argument=name, value=value, expected="[0, ∞)", file=path)
    return Course({str(k): float(v) for k, v in weights.items()}, _late(data["late"], path) if "late" in data else None)


def _late(table: dict[str, Any], path: Path) -> Late:
    known = [f.name for f in fields(Late)]
    if extra := sorted(set(table) - set(known)):
        raise unknown("rule of [late]", extra[0], known, file=path)
    deadline = table.get("deadline")
    if not isinstance(deadline, datetime):
        message = f"{path}: [late] needs a deadline, such as deadline = 2026-11-20T23:59:00"
        raise UserError(message, argument="deadline", problem="missing", file=path)
    for name, value in table.items():
        types = str if name == "spent" else datetime if name == "deadline" else (int, float)
        if not isinstance(value, types) or isinstance(value, bool) or (isinstance(value, int | float) and value < 0):
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
    """Add a time zone: a time without one is in this machine's local time zone."""
    return moment.astimezone() if moment.tzinfo is None else moment.astimezone(UTC)


def read_times(path: Path) -> dict[str, datetime]:
    """Read each student's last submission time from a file with the columns student and handed_in (ISO 8601)."""
    times: dict[str, datetime] = {}
    for n, line in enumerate(read(path, ("student", "handed_in"), "times"), 2):
        try:
            moment = _aware(datetime.fromisoformat(line["handed_in"].strip()))
        except ValueError:
            message = f"{path} line {n}: {line['handed_in']!r} is no time; expected 2026-11-20T23:59"
            raise UserError(message, argument="handed_in", value=line["handed_in"], file=path, line=n) from None
        key = normalised(line["student"])
        times[key] = max(moment, times.get(key, moment))
    return times


@dataclass(frozen=True)
class Lateness:
    """One student's lateness: days late, how many of them are free, and the fraction of the points that is kept."""

    days: int = 0
    free: int = 0
    kept: float = 1.0


def lateness(rule: Late, times: Mapping[str, datetime], students: Iterable[str], homework: str) -> dict[str, Lateness]:
    """Return each student's lateness in this homework, and record the used free days in the file ``spent``.

    A student without a submission time counts as on time.
    """
    path = Path(rule.spent) if rule.spent else None
    columns = ("student", "homework", "days")
    ledger = read(path, columns, "spent late days") if path and path.exists() else []
    days_spent: Counter[str] = Counter()
    for line in ledger:
        if line["homework"] != homework:
            days_spent[normalised(line["student"])] += int(number(line["days"], str(path)))
    result = {}
    for student in students:
        key = normalised(student)
        days = rule.days(times[key]) if key in times else 0
        free = min(days, max(0, rule.free_days - days_spent[key]))
        fraction = 0.0 if days - free > rule.most_days else max(0.0, 1 - rule.cost_per_day * (days - free))
        result[student] = Lateness(days, free, fraction)
    if path:
        graded = {normalised(student) for student in result}
        others = [line for line in ledger if line["homework"] != homework or normalised(line["student"]) not in graded]
        spent = [[student, homework, late.free] for student, late in result.items() if late.free]
        write([columns, *([line[c] for c in columns] for line in others), *spent], path)
    return result


# -- totals and statistics ---------------------------------------------------------------------------------------


def totals(
    rows: Sequence[Mark], course: Course | None = None, late: Mapping[str, Lateness] | None = None
) -> list[list[str]]:
    """Return one line per student: points per exercise, total, max; with late rules, also days and fraction kept."""
    rules = course or Course()
    max_points = {r.exercise: r.max for r in rows}
    students = dict.fromkeys(r.student for r in rows)
    points = {(r.student, r.exercise): r.points for r in rows}
    max_total = sum(rules.weight(e) * m for e, m in max_points.items())
    head = ["student", *max_points, *(("days_late", "free_days", "kept") if late is not None else ()), "total", "max"]
    table = [head]
    for student in students:
        earned = [points.get((student, e), 0.0) for e in max_points]
        total = sum(rules.weight(e) * p for e, p in zip(max_points, earned, strict=True))
        cells = [f"{p:g}" for p in earned]
        if late is not None:
            student_lateness = late.get(student, Lateness())
            total *= student_lateness.kept
            cells += [str(student_lateness.days), str(student_lateness.free), f"{student_lateness.kept:g}"]
        table.append([student, *cells, f"{total:g}", f"{max_total:g}"])
    return table


def statistics(tried: Sequence[Tried]) -> list[list[str]]:
    """Return, for each test, how many students passed, failed or had no answer, and the count of each named mistake."""
    table = [["exercise", "test", "mistake", "students", "passed", "failed", "unanswered"]]
    for exercise, test in dict.fromkeys((t.exercise, t.test) for t in tried):
        results = [t for t in tried if (t.exercise, t.test) == (exercise, test)]
        counts = Counter(t.result for t in results)
        table.append(
            [exercise, test, "", str(len(results)), *(str(counts[k]) for k in ("passed", "failed", "unanswered"))]
        )
        for mistake, count in Counter(name for t in results for name in t.named).most_common():
            table.append([exercise, test, mistake, str(count), "", "", ""])
    return table


def as_data(report: Report, page: str, digest: str) -> dict[str, Any]:
    """Convert one student's grading to JSON data for the journal."""
    rows, tried = [asdict(r) for r in rows_of(report)], [asdict(t) for t in tried_of(report)]
    return {"student": report.student, "digest": digest, "rows": rows, "tried": tried, "page": page}


def from_data(data: Mapping[str, Any]) -> tuple[list[Mark], list[Tried]]:
    """Restore rows and test results from the data of :func:`as_data`."""
    tried = [Tried(t["exercise"], t["test"], t["result"], tuple(t["named"])) for t in data["tried"]]
    return [Mark(**r) for r in data["rows"]], tried
