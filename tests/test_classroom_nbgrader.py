"""The nbgrader route, headless and whole: release, submissions, autograding, CSV, feedback."""

import csv
import html
import json
import os
import re
import sys
from pathlib import Path

import pytest
from patience import finished

import minirlhf_cli as cli
from minirlhf.core import provenance
from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom import release

pytestmark = [pytest.mark.slow, pytest.mark.release]  # the route that the guide describes for those who have nbgrader
ROOT = provenance.ROOT / "exercises"
CHAPTER = "05"
FORGERY = "import minirlhf_course.classroom.nbgrader as route\nroute.score = lambda number: 3.0\n"


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course folder in which three students were graded, and nbgrader's command."""
    folder = tmp_path_factory.mktemp("course")
    environment = os.environ | {"JUPYTER_CONFIG_DIR": str(folder / "jupyter"), "IPYTHONDIR": str(folder / "ipython")}
    # nbgrader calls alembic by name; the course's configuration must find it, wherever the caller's PATH leads.
    programs = str(Path(sys.executable).parent)
    environment["PATH"] = os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if p != programs)

    def nbgrader(*arguments):
        command = [sys.executable, "-m", "nbgrader", *arguments]
        done = finished(command, cwd=folder, env=environment, usually=20)
        assert done.returncode == 0, done.stdout

    assert cli.main(["class", "release", "--nbgrader", "--chapter", CHAPTER, "--out", str(folder)]) == 0
    (assignment,) = os.listdir(folder / "source")
    nbgrader("generate_assignment", assignment, "--create")
    released = (folder / "release" / assignment / f"{assignment}.ipynb").read_text(encoding="utf-8")
    exercises = sources.load(ROOT, [CHAPTER])
    hand_in(folder, assignment, released, "ada", {e.id: e.solution for e in exercises})
    hand_in(folder, assignment, released, "bob", {e.id: f"{e.solution}\n{e.partials[0].code}" for e in exercises})
    hand_in(folder, assignment, released, "mallory", {exercises[0].id: FORGERY})
    nbgrader("autograde", assignment, "--force")
    nbgrader("export", "--to", "grades.csv")
    nbgrader("generate_feedback", assignment)
    return folder, assignment, released, exercises


def hand_in(folder, assignment, released, student, answers):
    """Write a student's notebook: the release with these answers instead of the stubs."""
    notebook = json.loads(released.replace('STUDENT = \\"reader\\"', f'STUDENT = \\"{student}\\"'))
    for cell in notebook["cells"]:
        grade_id = cell["metadata"].get("nbgrader", {}).get("grade_id", "")
        number = grade_id.removeprefix("ex-").removesuffix("-answer").replace("-", ".")
        if number in answers:
            cell["source"] = answers[number]
    path = folder / "submitted" / student / assignment / f"{assignment}.ipynb"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(notebook), encoding="utf-8")


def test_nbgrader_release_holds_no_solutions(course):
    _, _, released, exercises = course
    for exercise in exercises:
        assert exercise.title in released
        assert release.leaks(exercise, release.plain_text(released)) == []


def test_nbgrader_exports_grades(course):
    folder, _, _, exercises = course
    with open(folder / "grades.csv", newline="", encoding="utf-8") as file:
        rows = {row["student_id"]: row for row in csv.DictReader(file)}
    most = sum(e.points for e in exercises)
    assert float(rows["ada"]["max_score"]) == most
    assert float(rows["ada"]["score"]) == most
    assert float(rows["bob"]["score"]) == sum(e.partials[0].points for e in exercises)


def test_nbgrader_feedback_shows_points_and_hints(course):
    folder, assignment, _, exercises = course
    page = (folder / "feedback" / "bob" / assignment / f"{assignment}.html").read_text(encoding="utf-8")
    text = html.unescape(re.sub("<[^>]+>", "", page))
    for exercise in exercises:
        assert f"({exercise.partials[0].points:g} of {exercise.points:g} " in text
        assert any(hint in text for t in exercise.tests for hint in t.hints)


def test_grade_command_reads_nbgrader_notebooks_and_sees_forgery(course, tmp_path):
    folder, _, _, exercises = course
    with open(folder / "grades.csv", newline="", encoding="utf-8") as file:
        forged = {row["student_id"]: float(row["score"]) for row in csv.DictReader(file)}["mallory"]
    assert forged > 0, "nbgrader's kernel is shared with the student; the guide warns of it"
    command = [
        "class",
        "grade",
        str(folder / "submitted"),
        "--out",
        str(tmp_path / "grades.csv"),
        "--allow-weak-isolation",
    ]
    assert cli.main(command) == 0
    with open(tmp_path / "grades.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    earned = {name: sum(float(r["points"]) for r in rows if r["student"] == name) for name in ("ada", "mallory")}
    assert earned == {"ada": sum(e.points for e in exercises), "mallory": 0}
    assert Path(tmp_path, "grades-feedback", "mallory.md").exists()
