"""A syllabus of the instructors' guide as a calendar file: an event for each week and one for its homework.

Source: RFC 5545, "Internet Calendaring and Scheduling" (lines of at most 75 octets, escaped text, all-day events).
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from minirlhf.core import provenance
from minirlhf.core.errors import UserError
from minirlhf_course.chapters import chapter

GUIDE = provenance.ROOT / "book" / "instructors.md"
SYLLABI = {4: "### Four weeks", 12: "### Twelve weeks", 15: "### Fifteen weeks"}
ROW = re.compile(r"(?m)^\| (\d+) \| (.+?) \| (.+?) \| (.+?) \|$")
WEEK = datetime.timedelta(days=7)


@dataclass(frozen=True)
class Week:
    """One row of a syllabus, as plain text; week 0 is before the course begins."""

    number: int
    read: str
    outcome: str
    homework: str


def _plain(text: str) -> str:
    """A cell of the guide without its markup."""
    text = re.sub(r"\{outcome\}`(\d+)`", lambda m: chapter(int(m[1])).outcome, text)
    text = re.sub(r"\{homework\}`(\d+)`", lambda m: f"the exercises of chapter {int(m[1])}", text)
    text = re.sub(r"\d\d: (the exercises of)", r"\1", text)
    text = re.sub(r"\{chapter\}`(\d+)`", r"chapter \1", text)
    return re.sub(r"\{doc\}`(\w+)`", r"\1", text).replace("**", "").replace("`", "")


def _section(text: str, heading: str) -> list[Week]:
    part = re.split(r"(?m)^##", text.partition(heading)[2])[0]
    return [Week(int(m[1]), *map(_plain, m.groups()[1:])) for m in ROW.finditer(part)]


def weeks(number: int) -> list[Week]:
    """The weeks of the syllabus of ``number`` weeks, from ``book/instructors.md``.

    Raises:
        UserError: no syllabus has this many weeks, or the guide is not there.
    """
    if number not in SYLLABI:
        message = f"--weeks {number}: expected one of {', '.join(map(str, SYLLABI))}, the syllabi of the guide"
        raise UserError(message, argument="--weeks", value=number, expected=list(SYLLABI))
    if not GUIDE.is_file():
        message = f"no file {GUIDE}; expected a clone of the repository, which holds the instructors' guide"
        raise UserError(message, file=GUIDE, problem="missing")
    text = GUIDE.read_text(encoding="utf-8")
    found = _section(text, SYLLABI[number])
    if found[0].number > 1:  # the longer course begins as the shorter one does
        found = [*(w for w in _section(text, SYLLABI[12]) if w.number < found[0].number), *found]
    return found


def dates(first: datetime.date, number: int, skipped: Sequence[datetime.date]) -> list[datetime.date]:
    """The first days of ``number`` weeks from ``first``; a week with a skipped day is left out."""
    found: list[datetime.date] = []
    day = first
    while len(found) < number:
        if not any(day <= other < day + WEEK for other in skipped):
            found.append(day)
        day += WEEK
    return found


def _folded(line: str) -> str:
    """The line in pieces of at most 75 octets, as the standard asks."""
    pieces = [""]
    for sign in line:
        if len((pieces[-1] + sign).encode()) > 75 - (len(pieces) > 1):
            pieces.append("")
        pieces[-1] += sign
    return "\r\n ".join(pieces)


def _event(name: str, day: datetime.date, summary: str, description: str) -> Iterator[str]:
    def text(value: str) -> str:
        return re.sub(r"([\\;,])", r"\\\1", value).replace("\n", "\\n")

    yield from ("BEGIN:VEVENT", f"UID:{name}-{day:%Y%m%d}@minirlhf", f"DTSTAMP:{day:%Y%m%d}T000000Z")
    yield from (f"DTSTART;VALUE=DATE:{day:%Y%m%d}", f"DTEND;VALUE=DATE:{day + datetime.timedelta(days=1):%Y%m%d}")
    yield from (f"SUMMARY:{text(summary)}", f"DESCRIPTION:{text(description)}", "TRANSP:TRANSPARENT", "END:VEVENT")


def calendar(number: int, first: datetime.date, skipped: Sequence[datetime.date] = ()) -> str:
    """The syllabus of ``number`` weeks as a calendar file, from the first day of week 1.

    The homework of a week is due when the next one begins. Week 0, if there is one, is the seven days before ``first``.
    Raises as :func:`weeks`.
    """
    course = weeks(number)
    days = dates(first, number + 1, skipped)
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//minirlhf//syllabus//EN", "CALSCALE:GREGORIAN"]
    for week in course:
        day = days[week.number - 1] if week.number else first - WEEK
        outcome = f"When it is over, students can {week.outcome}.".replace("..", ".")
        lines += _event(f"week-{week.number}", day, f"Week {week.number}: {week.read}", outcome)
        due = days[week.number]
        lines += _event(f"homework-{week.number}", due, f"Homework of week {week.number} due", week.homework)
    return "\r\n".join([*map(_folded, lines), "END:VCALENDAR", ""])
