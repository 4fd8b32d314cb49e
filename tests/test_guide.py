"""The instructors' guide does what it says: its commands run, in their order, in an empty folder, and the class gets its marks."""

import csv
import os
import re
import sys
from pathlib import Path

import pytest
from patience import finished
from plan import of_chapter

from minirlhf.core import provenance
from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom import grading, rehearsal, release, roster

CLONE = provenance.ROOT
GUIDE = CLONE / "book" / "instructors.md"
BLOCK = re.compile(r"(?ms)^```(shell|python)\n(.*?)^```$")
CHAPTERS = sorted({p.parent.name[:2] for p in sources.sources(CLONE / "exercises")})
each_chapter = pytest.mark.parametrize("chapter", [of_chapter(c, c, id="class") for c in CHAPTERS])
PLACE = re.compile(r"`(exercises/\d\d_\w+/ex_\d\d_\d+\.py)`")


def script() -> str:
    """All shell blocks of the guide as one script; a Python block is a file, named in the text before it."""
    text = GUIDE.read_text(encoding="utf-8")
    lines = ["set -eu"]
    for block in BLOCK.finditer(text):
        if block[1] == "shell":
            lines.append(block[2])
        else:
            place = PLACE.findall(text[: block.start()])[-1]
            lines.append(f"cat > {place} <<'END OF FILE'\n{block[2]}END OF FILE\n")
    return "\n".join(lines)


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """The course folder that the guide's commands leave behind, and what they printed."""
    folder = tmp_path_factory.mktemp("guide")
    environment = {k: v for k, v in os.environ.items() if k != "MINIRLHF_EXERCISES"}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    environment |= {"CLONE": str(CLONE), "JUPYTER_CONFIG_DIR": str(folder / "j"), "IPYTHONDIR": str(folder / "i")}
    # Where the system isolates, the option changes nothing; elsewhere the made students may be trusted.
    commands = script().replace("minirlhf class grade ", "minirlhf class grade --allow-weak-isolation ")
    done = finished(["bash", "-c", commands], cwd=folder, env=environment, usually=150)
    assert done.returncode == 0, done.stdout[-6000:]
    return folder / "course", done.stdout


@pytest.mark.release
@pytest.mark.slow
def test_guide_commands_grade_class_as_expected(course):
    folder, printed = course
    totals = rows(folder / "marks" / "totals.csv")
    assert len(totals) == 30
    assert (folder / "class" / "expected.csv").read_text() == (folder / "marks" / "totals.csv").read_text()
    assert list(rows(folder / "marks" / "grades.csv")[0]) == ["student", "exercise", "points", "max", "reason"]
    assert len(list((folder / "marks" / "grades-feedback").glob("*.md"))) == 30
    assert (
        rows(folder / "marks" / "late-totals.csv")[0]["total"] == rows(folder / "marks" / "late-totals.csv")[0]["max"]
    )
    assert "--seed 7 " in printed
    back = rows(folder / "back" / "canvas.csv")
    assert len(back) == 11 and back[0]["Homework 05 (901)"] == rows(folder / "marks" / "05-totals.csv")[0]["max"]
    assert (folder / "back" / "canvas-feedback.zip").is_file()
    (late,) = [r for r in rows(folder / "homework" / "collected.csv") if r["late"]]
    assert late["student"] in (folder / "canvas" / "who.txt").read_text()
    assert (folder / "slope.png").is_file() and "04.5  0 of" in printed
    assert all(said in printed for said in re.findall(r'\|\| echo "(.+?)"', script())), (
        "the disputed mark was right after all"
    )
    assert "✓ 05.7 What odds cost" in printed
    assert "## 05.7 What odds cost" in (folder / "handout" / "05_rlhf_problem.py").read_text(encoding="utf-8")
    assert rows(folder / "nb" / "grades.csv")[0]["student_id"] == "ada"
    assert (folder / "nb" / "feedback" / "ada").is_dir()


def test_rehearsal_students_hold_each_kind_of_trouble():
    exercises = sources.load(CLONE / "exercises", ["05"])
    made = rehearsal.students(exercises, 30, seed=0)
    assert len({s.id for s in made}) == 30
    assert len({s.note for s in made if sum(s.points.values()) < sum(e.points for e in exercises)}) >= 10
    assert {*rehearsal.HOSTILE} <= {s.note for s in made} and [s.late for s in made].count(True) == 1
    works = [sum(s.points.values()) for s in made if s.note == "works"]
    assert len(set(works)) > 3, "the class is too much alike"


@each_chapter
def test_rehearsal_class_of_chapter_can_be_read(chapter, tmp_path, monkeypatch):
    monkeypatch.setattr(
        release, "_probed", lambda *_: ""
    )  # its sentences are no answers, and each runs a solution often
    exercises = sources.load(CLONE / "exercises", [chapter])
    made = rehearsal.write(exercises, tmp_path / "class", 20, seed=1)
    enrolled = [roster.Enrolled(s.id) for s in made]
    work, _ = roster.by_roster(grading.students(tmp_path / "class" / "submissions"), enrolled)
    for student in made:
        for e in exercises:
            handed = work[student.id].answer(e)
            if student.points[e.id] and not student.late:
                assert handed is not None and not handed.is_stub(e), (student.note, e.id)


def test_guide_rubrics_add_up_to_one_hundred():
    text = GUIDE.read_text(encoding="utf-8")
    for part in re.split(r"(?m)^### ", text.split("## Two capstones")[1].split("\n## ")[0])[1:]:
        assert sum(map(int, re.findall(r"(?m)^\| \*\*.+?\*\* \((\d+)\)", part))) == 100, part[:40]
    found = re.findall(r"\*\*Marks\*\*: (.+?)\. ?(?:Why|\n)", text, re.S)
    assert len(found) == 2
    for marks in found:
        assert sum(int(n) for n in re.findall(r"(?<!times )\b(\d+)\b(?=[ ,(]|$)", marks)) == 100, marks


def test_guide_names_exercises_with_personal_numbers():
    named = set(
        re.findall(r"\d\d\.\d", GUIDE.read_text(encoding="utf-8").split("**Personal numbers.**")[1].split("\n* ")[0])
    )
    assert named and named <= {e.id for e in sources.load(CLONE / "exercises") if e.is_personal}
