"""Submissions that cheat, crash, hang or bite: none earns a point, each is told why, and nobody else is harmed."""

import csv
import json
import os
import re
import sys
import tempfile
from pathlib import Path

import pytest
from patience import finished

from minirlhf.classroom import exercise as sources
from minirlhf.classroom import grading, marks
from minirlhf.classroom.runner import Limits, Server
from minirlhf.core import provenance
from minirlhf.sandbox import isolation

ROOT = provenance.PACKAGE.parent / "exercises"
HOSTILE = sorted((Path(__file__).parent / "hostile").glob("*.py"))
# Wall time is generous, so that a busy machine fails nobody; those who sleep through it get a short one.
LIMITS = Limits(cpu=2, wall=120.0, memory=1 << 29)
SHORT = Limits(cpu=2, wall=4.0)


def header(path, name):
    found = re.search(rf"(?m)^# {name}: (.+)$", path.read_text(encoding="utf-8"))
    return found[1] if found else ""


@pytest.fixture(scope="module")
def exercise():
    (found,) = sources.load(ROOT, ["05.1"])
    return found


def hand_in(folder, student, code):
    path = folder / student / "answers.py"
    path.parent.mkdir(parents=True)
    path.write_text(code, encoding="utf-8")
    return path


def honest(exercise):
    return f"# %% exercise {exercise.id}\n{exercise.given}\n{exercise.solution}\n"


def fingerprint(folder):
    return {str(p): p.stat().st_mtime_ns for p in folder.rglob("*") if "__pycache__" not in p.parts}


def grade(folder, exercise, paths, seed, at_most):
    """Grade these submissions with an honest student before, between and after them: reports by student, and the CSV's rows."""
    submissions = folder / "submissions"
    for path in paths:
        hand_in(submissions, path.stem, path.read_text(encoding="utf-8"))
    for name in ("aaa_honest", "m_honest", "zzz_honest"):
        hand_in(submissions, name, honest(exercise))
    before = fingerprint(ROOT), fingerprint(submissions)
    with Server([ROOT, submissions], at_most) as server:
        work = grading.students(submissions)
        sleepers = {name: work.pop(name) for name in list(work) if name.startswith("sleeps")}
        reports = list(grading.grade_class(server, work, [exercise], seed, jobs=4, limits=LIMITS))
        reports += grading.grade_class(server, sleepers, [exercise], seed, jobs=4, limits=SHORT)
        level = server.level
    marks.write_rows([row for r in reports for row in marks.rows_of(r)], folder / "grades.csv")
    assert (fingerprint(ROOT), fingerprint(submissions)) == before, "a submission changed a file"
    with open(folder / "grades.csv", newline="", encoding="utf-8") as file:
        rows = {row["student"]: row for row in csv.DictReader(file)}
    return level, {r.student: r for r in reports}, rows


@pytest.fixture(scope="module")
def server():
    with Server([ROOT]) as running:
        yield running


@pytest.fixture(scope="module")
def graded(server, tmp_path_factory, exercise, fresh_seed):
    """All hostile submissions graded in one run, at the best level of this system."""
    paths = [p for p in HOSTILE if isolation.isolated(server.level) or not header(p, "needs")]
    return grade(tmp_path_factory.mktemp("best"), exercise, paths, fresh_seed, "namespaces")


@pytest.fixture(scope="module")
def graded_by_limits(tmp_path_factory, exercise, fresh_seed):
    """Those that need no box, graded at the weakest level."""
    paths = [p for p in HOSTILE if not header(p, "needs")]
    return grade(tmp_path_factory.mktemp("limits"), exercise, paths, fresh_seed, "limits")


def assert_earns_nothing(path, outcome):
    level, reports, rows = outcome
    if path.stem not in reports:
        (pytest.fail if os.environ.get("MINIRLHF_CI") else pytest.skip)(f"level {level} has no file system of its own")
    (result,) = reports[path.stem].outcomes
    assert result.points == 0
    assert header(path, "says") in result.reason
    assert rows[path.stem]["points"] == "0"
    assert rows[path.stem]["reason"]


@pytest.mark.parametrize("path", HOSTILE, ids=lambda p: p.stem)
def test_hostile_submission_earns_nothing_and_is_told_why(path, graded):
    assert_earns_nothing(path, graded)


@pytest.mark.parametrize("path", [p for p in HOSTILE if not header(p, "needs")], ids=lambda p: p.stem)
def test_scores_cannot_be_forged_even_without_a_box(path, graded_by_limits):
    assert graded_by_limits[0] == "limits"
    assert_earns_nothing(path, graded_by_limits)


def test_honest_students_are_not_harmed(graded, graded_by_limits, exercise):
    for _, reports, rows in (graded, graded_by_limits):
        for name in ("aaa_honest", "m_honest", "zzz_honest"):
            assert rows[name]["reason"] == ""
            assert [o.points for o in reports[name].outcomes] == [exercise.points]


def test_a_spreadsheet_and_a_page_are_not_harmed(graded):
    _, reports, rows = graded
    for row in rows.values():
        for value in row.values():
            assert value[:1] not in ("=", "+", "-", "@")
            assert value.isprintable()
    page = grading.feedback(reports["injects_a_formula"])
    assert "\n# 6 of 6" not in page
    assert "\x1b" not in page
    for line in page.splitlines():
        if "<script>" in line:
            assert line.count("`") == 2 and line.index("`") < line.index("<script>") < line.rindex("`")


def test_no_bomb_went_off(graded, graded_by_limits):
    assert not Path("/tmp/minirlhf-bomb").exists()


def test_the_box_keeps_out_what_it_says(server):
    found = server.probe(
        [ROOT, ROOT / "ruff.toml", provenance.PACKAGE / "classroom" / "grading.py", Path("/etc/passwd")]
    )
    assert found["no new processes"]
    if not isolation.isolated(server.level):
        pytest.skip(f"level {server.level} has no file system of its own")
    assert {name for name, holds in found.items() if not holds} <= {"a user without rights"}
    assert found["a user without rights"] == (server.level == "namespaces")


def test_a_server_that_died_is_started_again(exercise, fresh_seed, tmp_path):
    hand_in(tmp_path, "ada", honest(exercise))
    handed = grading.students(tmp_path)["ada"]
    with Server([ROOT]) as server:
        server._process.kill()
        server._process.wait()
        outcome = grading.grade_answer(server, exercise, handed, "ada", fresh_seed)
    assert outcome.reason == ""


AS_ORDINARY_USER = """
import os, sys, tempfile
from pathlib import Path
from minirlhf.sandbox import isolation

# A private file system in which another user can reach Python and this repository, wherever they are.
isolation._call("unshare", isolation.NEW_MOUNT)
isolation._mount("none", Path("/"), None, isolation.RECURSIVE | isolation.PRIVATE)
held, closed = {}, set()
for folder in map(Path, sys.argv[1:4]):
    blocked = [p for p in folder.parents if not p.stat().st_mode & 1]
    if blocked:
        held[folder] = Path(tempfile.mkdtemp())
        isolation._mount(str(folder), held[folder], None, isolation.BIND)
        closed.add(blocked[-1])
for folder in closed:
    isolation._mount("none", folder, "tmpfs", 0, "mode=0755")
for folder, place in held.items():
    folder.mkdir(parents=True)
    isolation._mount(str(place), folder, None, 8192)  # move
    place.rmdir()
isolation._become_nobody()
os.execv(sys.executable, [sys.executable, "-m", "pytest", *sys.argv[4:]])
"""


@pytest.mark.slow
def test_the_box_of_an_ordinary_user_holds_as_well(server):
    if server.level != "namespaces":
        pytest.skip("needs root, to become somebody else")
    repository = str(provenance.PACKAGE.parent)
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        options = [
            "-q",
            "-p",
            "no:cacheprovider",
            f"--basetemp={folder}/tests",
            "-k",
            "hostile_submission or box_keeps or harmed",
        ]
        done = finished(
            [sys.executable, "-c", AS_ORDINARY_USER, sys.base_prefix, sys.prefix, repository, __file__, *options],
            usually=30,
            cwd=repository,
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "HOME": folder, "MINIRLHF_CACHE": f"{folder}/cache"},
        )
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout, done.stdout


# -- what is handed in -------------------------------------------------------------------------------------------


def reason_for(server, folder, exercise, seed):
    (report,) = grading.grade_class(server, grading.students(folder), [exercise], seed, jobs=1, limits=LIMITS)
    marks.write_rows(marks.rows_of(report), folder.parent / "grades.csv")
    with open(folder.parent / "grades.csv", newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert row["points"] == "0"
    return row["reason"]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.py", b"# %% exercise 05.1\ndef best_policy(ref, rewards, beta)\n    return ref\n", "SyntaxError"),
        ("a.py", b"# %% exercise 05.1\nbest_policy = \x00\n", "not defined: your code stopped with"),
        ("a.py", b"# %% exercise 05.1\n\xff\xfe", "a.py is not UTF-8"),
        ("a.py", b"# %% exercise 05.1\n" + b"#" * (6 << 20), "a.py is larger than 5 MB"),
        ("a.ipynb", b"not a notebook", "a.ipynb is not a notebook"),
        ("a.ipynb", b"[" * 100_000, "a.ipynb is not a notebook"),
        ("a.ipynb", b'{"cells": [{"cell_type": "code", "source": 7}]}', "a.ipynb is not a notebook"),
        (
            "a.ipynb",
            b'{"cells": [{"cell_type": "code", "source": ["# exercise 05.1", 7]}]}',
            "a.ipynb is not a notebook",
        ),
        ("a.py", b"", "not handed in"),
    ],
)
def test_files_that_are_no_answers(name, content, says, server, exercise, fresh_seed, tmp_path):
    folder = tmp_path / "submissions"
    (folder / "ada").mkdir(parents=True)
    (folder / "ada" / name).write_bytes(content)
    assert says in reason_for(server, folder, exercise, fresh_seed)


def test_links_are_not_followed(server, exercise, fresh_seed, tmp_path):
    folder = tmp_path / "submissions"
    (folder / "bob").mkdir(parents=True)
    answers = hand_in(tmp_path / "elsewhere", "ada", honest(exercise))
    (folder / "bob" / "answers.py").symlink_to(answers)
    assert "links are not followed" in reason_for(server, folder, exercise, fresh_seed)


def test_a_fifo_does_not_hang_the_grader(server, exercise, fresh_seed, tmp_path):
    folder = tmp_path / "submissions"
    (folder / "bob").mkdir(parents=True)
    os.mkfifo(folder / "bob" / "answers.py")
    assert "not a plain file" in reason_for(server, folder, exercise, fresh_seed)


def test_somebody_elses_numbers_earn_nothing(server, fresh_seed, tmp_path):
    (personal,) = sources.load(ROOT, ["05.5"])
    code = f'STUDENT = "ada"\n# %% exercise 05.5\n{personal.given}\n{personal.solution}\n'
    hand_in(tmp_path / "submissions", "bob", code)
    assert "numbers of 'ada'; set STUDENT = 'bob'" in reason_for(server, tmp_path / "submissions", personal, fresh_seed)
    code += '\nSTUDENT = "zoe"\n'
    hand_in(tmp_path / "again", "zoe", code)
    assert "tests failed" in reason_for(server, tmp_path / "again", personal, fresh_seed)


def test_a_cell_that_fails_does_not_take_the_others_with_it(server, exercise, fresh_seed, tmp_path):
    cells = [
        "1 / 0",
        f"# exercise 05.1\n{exercise.given}",
        "%matplotlib inline\n!ls",
        exercise.solution,
        "undefined_name",
    ]
    notebook = {"cells": [{"cell_type": "code", "source": c} for c in cells]}
    path = tmp_path / "ada" / "a.ipynb"
    path.parent.mkdir()
    path.write_text(json.dumps(notebook))
    (report,) = grading.grade_class(server, grading.students(tmp_path), [exercise], fresh_seed, jobs=1)
    assert [o.points for o in report.outcomes] == [exercise.points]
