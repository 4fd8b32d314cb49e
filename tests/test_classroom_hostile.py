"""Submissions that cheat, crash, hang or bite: none earns a point, each is told why, and nobody else is harmed."""

import csv
import json
import os
import re
import sys
import tempfile
from pathlib import Path

import pytest
from facts import raises
from patience import finished

from minirlhf.core import provenance
from minirlhf.core.errors import UserError
from minirlhf.sandbox import isolation
from minirlhf_course.classroom import cells, grading, marks, submission
from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom.runner import Limits, SandboxedSubmission, Server

pytestmark = pytest.mark.slow

ROOT = provenance.ROOT / "exercises"
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


@pytest.fixture(scope="module", autouse=True)
def no_bomb():
    """What an earlier run may have left."""
    Path("/tmp/minirlhf-bomb").unlink(missing_ok=True)


@pytest.fixture(scope="module")
def graded(server, tmp_path_factory, exercise, suite_seed):
    """All hostile submissions graded in one run, at the best level of this system."""
    paths = [p for p in HOSTILE if isolation.isolated(server.level) or not header(p, "needs")]
    return grade(tmp_path_factory.mktemp("best"), exercise, paths, suite_seed, "namespaces")


@pytest.fixture(scope="module")
def graded_by_limits(tmp_path_factory, exercise, suite_seed):
    """Those that need no box, graded at the weakest level."""
    paths = [p for p in HOSTILE if not header(p, "needs")]
    return grade(tmp_path_factory.mktemp("limits"), exercise, paths, suite_seed, "limits")


def assert_earns_nothing(path, outcome):
    level, reports, rows = outcome
    if path.stem not in reports:
        (pytest.fail if os.environ.get("MINIRLHF_CI") else pytest.skip)(f"level {level} has no file system of its own")
    (result,) = reports[path.stem].outcomes
    failed = result.first_failure
    assert result.points == 0
    assert (failed.problem if failed else result.problem) == header(path, "problem")
    assert header(path, "error") in (str(failed.facts.get("value")) if failed else "")
    assert rows[path.stem]["points"] == "0"
    assert rows[path.stem]["reason"]


@pytest.mark.parametrize("path", HOSTILE, ids=lambda p: p.stem)
def test_hostile_submission_earns_nothing(path, graded):
    assert_earns_nothing(path, graded)


@pytest.mark.parametrize("path", [p for p in HOSTILE if not header(p, "needs")], ids=lambda p: p.stem)
def test_hostile_submission_earns_nothing_without_box(path, graded_by_limits):
    assert graded_by_limits[0] == "limits"
    assert_earns_nothing(path, graded_by_limits)


@pytest.mark.parametrize("outcome", ["graded", "graded_by_limits"])
def test_hostile_class_harms_no_honest_student(outcome, request, exercise):
    _, reports, rows = request.getfixturevalue(outcome)
    for name in ("aaa_honest", "m_honest", "zzz_honest"):
        assert rows[name]["reason"] == ""
        assert [o.points for o in reports[name].outcomes] == [exercise.points]


def test_hostile_text_is_harmless_in_csv_and_feedback(graded):
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


def test_hostile_pickle_is_not_loaded(graded, graded_by_limits):
    assert not Path("/tmp/minirlhf-bomb").exists()


def test_server_probe_of_box_holds(server):
    found = server.probe(
        [
            ROOT,
            ROOT / "ruff.toml",
            provenance.ROOT / "minirlhf_course" / "classroom" / "grading.py",
            Path("/etc/passwd"),
        ]
    )
    assert found["no new processes"]
    if not isolation.isolated(server.level):
        pytest.skip(f"level {server.level} has no file system of its own")
    assert {name for name, holds in found.items() if not holds} <= {"a user without rights"}
    assert found["a user without rights"] == (server.level == "namespaces")


def test_server_that_died_is_started_again(exercise, suite_seed, tmp_path):
    hand_in(tmp_path, "ada", honest(exercise))
    handed = grading.students(tmp_path)["ada"]
    with Server([ROOT]) as server:
        server._process.kill()
        server._process.wait()
        outcome = grading.grade_answer(server, exercise, handed, "ada", suite_seed)
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


IN_BOX = "hostile_submission or server_probe or hostile_class or hostile_text"
BY_LIMITS = "without_box or graded_by_limits"


# Limits alone are tried above, as the user of the tests, and as an ordinary one before a release.
@pytest.mark.parametrize(
    "which",
    [f"({IN_BOX}) and not ({BY_LIMITS})", pytest.param(BY_LIMITS, marks=pytest.mark.release)],
    ids=["box", "limits"],
)
def test_box_of_ordinary_user_holds(which, server):
    if server.level != "namespaces":
        pytest.skip("needs root, to become somebody else")
    repository = str(provenance.ROOT)
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        options = [
            "-q",
            "-p",
            "no:cacheprovider",
            f"--basetemp={folder}/tests",
            "-k",
            which,
        ]
        done = finished(
            [sys.executable, "-c", AS_ORDINARY_USER, sys.base_prefix, sys.prefix, repository, __file__, *options],
            usually=30,
            cwd=repository,
            env={
                **{name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"},
                "PYTHONDONTWRITEBYTECODE": "1",
                "HOME": folder,
                "MINIRLHF_CACHE": f"{folder}/cache",
            },
        )
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout, done.stdout


# -- what is handed in -------------------------------------------------------------------------------------------


def outcome_of(server, folder, exercise, seed):
    """The one outcome of a class of one student, who earns nothing; its reason stands in the CSV."""
    (report,) = grading.grade_class(
        server, grading.students(folder, server.cut), [exercise], seed, jobs=1, limits=LIMITS
    )
    marks.write_rows(marks.rows_of(report), folder.parent / "grades.csv")
    with open(folder.parent / "grades.csv", newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    (outcome,) = report.outcomes
    assert row["points"] == "0" and row["reason"]
    return outcome


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.py", b"# %% exercise 05.1\ndef best_policy(ref, rewards, beta)\n    return ref\n", "missing"),
        ("a.py", b"# %% exercise 05.1\nbest_policy = \x00\n", "missing"),
        ("a.py", b"", "missing"),
        ("a.py", b"# %% exercise 05.1\n\xff\xfe", {"file": "a.py", "expected": "utf-8"}),
        ("a.py", b"# %% exercise 05.1\n" + b"#" * (6 << 20), {"file": "a.py", "problem": "size"}),
        ("a.ipynb", b"not a notebook", {"file": "a.ipynb", "problem": "notebook"}),
        ("a.ipynb", b"[" * 100_000, {"file": "a.ipynb", "problem": "notebook"}),
        ("a.ipynb", b'{"cells": [{"cell_type": "code", "source": 7}]}', {"file": "a.ipynb", "problem": "notebook"}),
        (
            "a.ipynb",
            b'{"cells": [{"cell_type": "code", "source": ["# exercise 05.1", 7]}]}',
            {"file": "a.ipynb", "problem": "notebook"},
        ),
    ],
)
def test_grade_of_file_that_is_no_answer_is_zero(name, content, problem, server, exercise, suite_seed, tmp_path):
    path = tmp_path / "submissions" / "ada" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    outcome = outcome_of(server, tmp_path / "submissions", exercise, suite_seed)
    if isinstance(problem, str):
        failed = outcome.first_failure
        assert (failed.problem if failed else outcome.problem) == problem
        assert not failed or "SyntaxError" in failed.facts["value"]
    else:
        assert outcome.problem == "missing" and name in outcome.reason
        with raises(UserError, **problem):
            cells.code_cells(cells.text_of(submission.read_safely(path), name), name)


@pytest.mark.parametrize(("kind", "problem"), [("link", "unreadable"), ("fifo", "special")])
def test_grade_does_not_follow_links_nor_wait_for_fifos(kind, problem, server, exercise, suite_seed, tmp_path):
    path = tmp_path / "submissions" / "bob" / "answers.py"
    path.parent.mkdir(parents=True)
    if kind == "link":
        path.symlink_to(hand_in(tmp_path / "elsewhere", "ada", honest(exercise)))
    else:
        os.mkfifo(path)
    assert "answers.py" in outcome_of(server, tmp_path / "submissions", exercise, suite_seed).reason
    with raises(UserError, file="answers.py", problem=problem):
        submission.read_safely(path)


def test_grade_of_numbers_of_another_student_is_zero(server, suite_seed, tmp_path):
    (personal,) = sources.load(ROOT, ["05.5"])
    code = f'STUDENT = "ada"\n# %% exercise 05.5\n{personal.given}\n{personal.solution}\n'
    hand_in(tmp_path / "submissions", "bob", code)
    outcome = outcome_of(server, tmp_path / "submissions", personal, suite_seed)
    assert outcome.problem == "student" and "'ada'" in outcome.reason and "'bob'" in outcome.reason
    code += '\nSTUDENT = "zoe"\n'
    hand_in(tmp_path / "again", "zoe", code)
    assert outcome_of(server, tmp_path / "again", personal, suite_seed).first_failure is not None


def test_grade_goes_on_after_failing_cell(server, exercise, suite_seed, tmp_path):
    sources_of_cells = [
        "1 / 0",
        f"# exercise 05.1\n{exercise.given}",
        "%matplotlib inline\n!ls",
        exercise.solution,
        "undefined_name",
    ]
    notebook = {"cells": [{"cell_type": "code", "source": c} for c in sources_of_cells]}
    path = tmp_path / "ada" / "a.ipynb"
    path.parent.mkdir()
    path.write_text(json.dumps(notebook))
    (report,) = grading.grade_class(server, grading.students(tmp_path), [exercise], suite_seed, jobs=1)
    assert [o.points for o in report.outcomes] == [exercise.points]


def test_frames_of_a_box_hold_no_hidden_path(server):
    """What a submission finds in the variables and constants of the functions that called it."""
    code = """
import sys

def seen():
    found, frame = [], sys._getframe()
    while frame:
        for value in (*frame.f_locals.values(), *frame.f_code.co_consts):
            try:
                found.append(repr(value))
            except Exception:
                pass
        frame = frame.f_back
    return "\\n".join(found)
"""
    boxed = SandboxedSubmission(server, [("cell 1", code)], {}, "ada", LIMITS)
    text = boxed.call("seen", (), {})
    boxed.close()
    assert "sandbox" in text and str(ROOT) not in text
