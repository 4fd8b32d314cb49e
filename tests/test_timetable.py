"""The calendar of a syllabus: all its weeks on the right days, in the form that calendar programs read."""

import datetime
import re

import pytest
from facts import raises

import minirlhf_cli as cli
from minirlhf.core.errors import UserError
from minirlhf_course.chapters import chapters
from minirlhf_course.classroom import timetable

FIRST = datetime.date(2027, 1, 11)


def events(text):
    """The events as dictionaries, from unfolded lines."""
    assert text.endswith("END:VCALENDAR\r\n") and not re.search(r"(?<!\r)\n", text)
    assert max(len(line.encode()) for line in text.split("\r\n")) <= 75
    lines = text.replace("\r\n ", "").split("\r\n")
    found = []
    for line in lines:
        if line == "BEGIN:VEVENT":
            found.append({})
        elif found:
            name, _, value = line.partition(":")
            found[-1].setdefault(name.split(";")[0], value)
    return found


@pytest.mark.parametrize("number", [4, 12, 15])
def test_calendar_has_each_week_and_its_homework(number):
    course = timetable.weeks(number)
    assert [w.number for w in course if w.number] == list(range(1, number + 1))
    found = events(timetable.calendar(number, FIRST))
    assert len({e["UID"] for e in found}) == len(found) == 2 * len(course)
    for week, lesson, homework in zip(course, found[::2], found[1::2], strict=True):
        day = FIRST + timetable.WEEK * (week.number - 1)
        assert (lesson["DTSTART"], homework["DTSTART"]) == (f"{day:%Y%m%d}", f"{day + timetable.WEEK:%Y%m%d}")
        assert str(week.number) in lesson["SUMMARY"] and not re.search(r"[{}`*]", "".join(lesson.values()))


def test_calendar_of_fifteen_weeks_reads_every_chapter():
    text = " ".join(week.read for week in timetable.weeks(15))
    assert {int(n) for n in re.findall(r"chapter (\d+)", text)} == {c.number for c in chapters()}


def test_calendar_leaves_out_skipped_week():
    days = timetable.dates(FIRST, 4, [FIRST + datetime.timedelta(days=9)])
    assert [(day - FIRST).days for day in days] == [0, 14, 21, 28]


def test_calendar_text_is_escaped_and_folded_between_letters():
    lines = list(timetable._event("x", FIRST, "a, b; c\\d", "é" * 200))
    assert r"SUMMARY:a\, b\; c\\d" in lines
    folded = timetable._folded("DESCRIPTION:" + "é" * 200)
    assert max(len(piece.encode()) for piece in folded.split("\r\n")) <= 75
    assert folded.replace("\r\n ", "") == "DESCRIPTION:" + "é" * 200


def test_class_calendar_writes_file_and_keeps_changed_one(tmp_path):
    command = ["class", "calendar", "--start", "2027-01-11", "--out", str(tmp_path / "c.ics")]
    assert cli.dispatch(command) == 0 == cli.dispatch(command)
    with raises(UserError, argument="--replace", problem="exists"):
        cli.dispatch([*command, "--skip", "2027-02-03"])


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        (["--start", "11.1.2027"], {"argument": "--start", "value": "11.1.2027"}),
        (["--start", "2027-01-11", "--skip", "soon"], {"argument": "--skip", "value": "soon"}),
        (["--start", "2027-01-11", "--weeks", "13"], {"argument": "--weeks", "value": 13, "expected": [4, 12, 15]}),
    ],
)
def test_class_calendar_names_what_is_wrong(options, facts, tmp_path):
    with raises(UserError, **facts):
        cli.dispatch(["class", "calendar", *options, "--out", str(tmp_path / "c.ics")])
