"""The class run: what a single submission, a typing error or a power cut must not do to the others."""

import csv
import json
import os
import shutil
import time
import unicodedata

import pytest

from minirlhf import cli
from minirlhf.classroom import cells, grading, journal, marks, similarity, submission
from minirlhf.classroom import exercise as sources
from minirlhf.classroom.runner import Server
from minirlhf.classroom.submission import normalised
from minirlhf.cli import grade as grade_command
from minirlhf.core import provenance
from minirlhf.core.errors import UserError

ROOT = provenance.PACKAGE.parent / "exercises"
(EASY,) = sources.load(ROOT, ["00.3"])
(PERSONAL,) = sources.load(ROOT, ["05.5"])

PART = f"{EASY.solution}\n\n{EASY.partials[0].code}"
WRONG = f"{EASY.solution}\n\n{EASY.mutants[1].code}"


@pytest.fixture(autouse=True)
def one_exercise(monkeypatch):
    """The class is graded on two small exercises: 00.3 in chapter 00, 05.5 in chapter 05."""
    monkeypatch.setattr(sources, "load", lambda root, wanted=(): [e for e in (EASY, PERSONAL) if e.chapter in wanted])


def answered(exercise, code=None, student="ada"):
    return f'STUDENT = "{student}"\n\n# %% exercise {exercise.id}\n{exercise.given}\n\n{code or exercise.solution}\n'


def hand_in(folder, name, content):
    path = folder / "submissions" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def run(folder, *options, chapter="00", submissions="submissions"):
    files = ["--out", str(folder / "g.csv"), "--totals", str(folder / "t.csv"), "--allow-weak-isolation"]
    chapters = ["--chapter", chapter] if chapter else []
    return cli.main(["grade", str(folder / submissions), *files, *chapters, *options])


def table(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def points(folder):
    return {row["student"]: float(row["points"]) for row in table(folder / "g.csv")}


# -- what is handed in -------------------------------------------------------------------------------------------


def test_one_file_name_does_not_stop_the_feedback_of_a_class(tmp_path, capsys):
    hand_in(tmp_path, "ada/a.py", answered(EASY))
    (tmp_path / "submissions" / "bob").mkdir()
    with open(os.fsencode(tmp_path / "submissions" / "bob") + b"/\xff\xfe.py", "wb") as file:
        file.write(answered(EASY, PART).encode())
    with open(os.fsencode(tmp_path / "submissions") + b"/\xff.py", "wb") as file:
        file.write(b"\xff\xfe\x00")
    hand_in(tmp_path, "zoe/a.py", answered(EASY))
    assert run(tmp_path) == 0
    assert points(tmp_path)["ada"] == points(tmp_path)["zoe"] == EASY.points
    assert len(list((tmp_path / "g-feedback").iterdir())) == 4
    assert "bob" in points(tmp_path)


def test_the_seed_is_printed_before_anything_can_go_wrong(tmp_path, capsys, monkeypatch):
    hand_in(tmp_path, "ada/a.py", answered(EASY))

    def breaks(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(grading, "grade_class", breaks)
    assert run(tmp_path, "--seed", "77") == 130
    assert "--seed 77 replays this run" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "# %% exercise 00.3\n" * (5 * 2**20 // 19),
        ("# %% exercise 00.3\n" + "y = 1\n" * 170) * 4900,
        "%time x\n" + "(\n" * 2**21,
        "x = 1\n" * (5 * 2**20 // 6),
    ],
    ids=["markers", "cells", "brackets", "lines"],
)
def test_five_megabytes_are_cut_in_linear_time(text):
    began = time.process_time()
    try:
        submission.sections(cells.code_cells(text, "a.py"), "a.py")
    except UserError as problem:
        assert "at most 5000 are read" in str(problem)
    assert time.process_time() - began < 5, "a second on an idle core, and never the minutes of a quadratic one"


def test_files_are_cut_in_a_box():
    with Server([]) as server:
        assert server.cut("x = 1\n# %%\ny", "a.py") == [("cell 1", "x = 1\n"), ("cell 2", "# %%\ny")]
        with pytest.raises(UserError, match=r"b\.ipynb is not a notebook"):
            server.cut("[" * 100_000, "b.ipynb")
        with pytest.raises(UserError, match="too large or too strange"):
            server.cut("é" * (5 << 19), "c.py")
        assert server.cut("z", "a.py") == [("cell 1", "z")]


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ("é = 1".encode(), "a.py"),
        ("\ufeffé = 1".encode(), "a.py"),
        ("é = 1".encode("utf-16"), "a.py"),
        ("# -*- coding: latin-1 -*-\né = 1".encode("latin-1"), "a.py"),
        ("#!/usr/bin/python\n# vim: set fileencoding=cp1252 :\né = 1".encode("cp1252"), "a.py"),
    ],
)
def test_encodings_of_other_editors_are_read(raw, name):
    assert cells.text_of(raw, name).endswith("é = 1")


@pytest.mark.parametrize(
    "raw", [b"\xff\xfe\x00", "é".encode("latin-1"), b"# coding: no-such-thing\nx", b"# coding: utf-8\n\xff"]
)
def test_an_encoding_that_cannot_be_read_says_what_to_do(raw):
    with pytest.raises(UserError, match="save it as UTF-8"):
        cells.text_of(raw, "a.py")


@pytest.mark.parametrize(
    ("code", "kept"),
    [
        ("x = (7\n     % 3)", "x = (7\n     % 3)"),
        ('t = """\n%d\n! really\n"""', 't = """\n%d\n! really\n"""'),
        ("%matplotlib inline\nx = 1", "\nx = 1"),
        ("!ls\nx = 1\n  %time y", "\nx = 1\n"),
    ],
)
def test_notebook_commands_are_dropped_and_python_is_not(code, kept):
    assert cells.without_magics(code) == kept


def test_a_stray_marker_changes_nobody_s_total(tmp_path, capsys):
    for name in ("ada", "bob", "eve"):
        hand_in(tmp_path, f"{name}/a.py", answered(EASY))
    hand_in(tmp_path, "eve/b.py", answered(PERSONAL, student="eve"))
    assert run(tmp_path, chapter=None) == 0
    assert "chapter 05, in 1 of 3 submissions, is not graded" in capsys.readouterr().err
    assert {row["max"] for row in table(tmp_path / "t.csv")} == {f"{EASY.points:g}"}


# -- who it is ---------------------------------------------------------------------------------------------------


def test_ids_are_compared_without_case_spaces_and_accents_spelling():
    composed, apart = unicodedata.normalize("NFC", "Zoë"), unicodedata.normalize("NFD", "Zoë")
    assert composed != apart and normalised(composed) == normalised(f"  {apart.upper()} ") == "zoë"


def test_one_stranger_is_a_warning(tmp_path, capsys):
    hand_in(tmp_path, "ADA /a.py", answered(EASY))
    hand_in(tmp_path, "bobb.py", answered(EASY))
    (tmp_path / "roster.txt").write_text("ada\nbob\n")
    assert run(tmp_path, "--roster", str(tmp_path / "roster.txt")) == 0
    assert points(tmp_path) == {"ada": EASY.points, "bob": 0}
    assert (
        "warning: 'bobb' handed in, but is not on the roster, and is not graded; did you mean 'bob'?"
        in capsys.readouterr().err
    )


def test_two_folders_of_one_student_are_one_submission(tmp_path):
    hand_in(tmp_path, "Ada/a.py", "print(1)\n")
    hand_in(tmp_path, "ada.py", answered(EASY))
    assert run(tmp_path) == 0
    assert points(tmp_path) == {"Ada": EASY.points}


def test_numbers_are_those_of_the_id_as_it_was_typed(tmp_path):
    hand_in(tmp_path, "ada/a.py", answered(PERSONAL, student=" Ada"))
    hand_in(tmp_path, "bob/a.py", answered(PERSONAL, student="ada"))
    assert run(tmp_path, chapter="05") == 0
    assert points(tmp_path) == {"ada": PERSONAL.points, "bob": 0}


# -- cut off, and graded again -----------------------------------------------------------------------------------


def test_a_run_that_was_cut_off_goes_on(tmp_path, capsys, monkeypatch):
    for name in ("ada", "bob", "eve"):
        hand_in(tmp_path, f"{name}/a.py", answered(EASY))
    real = grading.grade_class
    asked = []

    def first_two(server, work, *rest):
        asked.append(list(work))
        for n, report in enumerate(real(server, work, *rest)):
            if n == 2 and len(asked) == 1:
                raise KeyboardInterrupt
            yield report

    monkeypatch.setattr(grade_command.grading, "grade_class", first_two)
    assert run(tmp_path) == 130
    assert not (tmp_path / "g.csv").exists()
    seed = capsys.readouterr().err.split("--seed ")[1].split()[0]
    hand_in(tmp_path, "bob/a.py", answered(EASY, PART))  # bob has handed in anew meanwhile
    assert run(tmp_path) == 0
    shown = capsys.readouterr().err
    assert f"--seed {seed} replays" in shown and "1 students were graded before" in shown
    assert asked == [["ada", "bob", "eve"], ["bob", "eve"]]
    assert points(tmp_path) == {"ada": EASY.points, "bob": EASY.partials[0].points, "eve": EASY.points}
    assert not (tmp_path / "g.journal").exists()
    assert len(list((tmp_path / "g-feedback").iterdir())) == 3


def test_a_line_that_was_cut_off_and_other_sources_start_afresh(tmp_path):
    path = tmp_path / "g.journal"
    with journal.Journal(path, [EASY], None, 7) as first:
        first.add({"student": "ada", "digest": "x", "rows": [], "tried": [], "page": ""})
    path.write_text(path.read_text() + '{"student": "bob", "dig')
    with journal.Journal(path, [EASY], None, 8) as second:
        assert second.seed == 7 and second.finished("ada", "x") and not second.finished("ada", "y")
        assert not second.finished("bob", "x")
    with journal.Journal(path, [EASY], 9, 8) as third:
        assert third.seed == 9 and not third.finished("ada", "x")
    with journal.Journal(path, [PERSONAL], None, 8) as other:
        assert other.seed == 8 and not other.done


def test_an_error_of_the_grader_costs_one_student_and_is_tried_again(tmp_path, capsys, monkeypatch):
    for name in ("ada", "bob"):
        hand_in(tmp_path, f"{name}/a.py", answered(EASY))
    real = grading.grade_answer

    def breaks(server, exercise, handed, student, *rest):
        if student == "ada":
            raise RuntimeError("a bug of the grader")
        return real(server, exercise, handed, student, *rest)

    monkeypatch.setattr(grading, "grade_answer", breaks)
    assert run(tmp_path) == 1
    assert "ada: 00.3 could not be graded (RuntimeError: a bug of the grader)" in capsys.readouterr().err
    assert points(tmp_path) == {"ada": 0, "bob": EASY.points}
    monkeypatch.setattr(grading, "grade_answer", real)
    assert run(tmp_path) == 0
    assert points(tmp_path) == {"ada": EASY.points, "bob": EASY.points}


def test_a_regrade_merges_and_never_loses_a_class(tmp_path, capsys):
    for name in ("ada", "bob", "eve"):
        hand_in(tmp_path, f"{name}/a.py", answered(EASY, PART))
    assert run(tmp_path) == 0
    shutil.copytree(tmp_path / "submissions" / "bob", tmp_path / "dispute" / "Bob")
    (tmp_path / "dispute" / "Bob" / "a.py").write_text(answered(EASY))
    before = (tmp_path / "g.csv").read_bytes()
    assert run(tmp_path, submissions="dispute") == 2
    assert "has grades of 2 students who are not in this run, such as 'ada'; --update merges" in capsys.readouterr().err
    assert (tmp_path / "g.csv").read_bytes() == before
    assert run(tmp_path, "--update", submissions="dispute") == 0
    part = EASY.partials[0].points
    assert points(tmp_path) == {"ada": part, "Bob": EASY.points, "eve": part}
    assert {r["student"]: float(r["total"]) for r in table(tmp_path / "t.csv")} == points(tmp_path)
    assert run(tmp_path, "--replace", submissions="dispute") == 0
    assert points(tmp_path) == {"Bob": EASY.points}


def test_a_mark_set_by_hand_stays_with_its_comment(tmp_path, capsys):
    hand_in(tmp_path, "ada/a.py", answered(EASY, PART))
    overrides = tmp_path / "o.csv"
    overrides.write_text("student,exercise,points,comment\nADA,00.3,3,the statement was unclear\n")
    assert run(tmp_path, "--overrides", str(overrides)) == 0
    (row,) = table(tmp_path / "g.csv")
    assert float(row["points"]) == 3
    assert row["reason"] == f"set by hand: the statement was unclear (graded: {EASY.partials[0].points:g})"
    assert run(tmp_path, "--update") == 0
    assert table(tmp_path / "g.csv") == [row], "a regrade has taken the mark away"
    assert table(tmp_path / "t.csv")[0]["total"] == "3"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("student,exercise,points\nada,00.3,3\n", "no column 'comment'"),
        ("student,exercise,points,comment\nadda,00.3,3,x\n", "did you mean 'ada'"),
        ("student,exercise,points,comment\nada,00.4,3,x\n", "did you mean '00.3'"),
        ("student,exercise,points,comment\nada,00.3,9,x\n", "9 points; expected 0 to 3"),
        ("student,exercise,points,comment\nada,00.3,many,x\n", "'many' is no number"),
        ("student,exercise,points,comment\nada,00.3,1,\n", "needs a comment"),
    ],
)
def test_an_override_that_does_not_fit_names_its_line(text, says, tmp_path):
    (tmp_path / "o.csv").write_text(text)
    with pytest.raises(UserError, match=r"o\.csv") as caught:
        marks.overridden([marks.Mark("ada", "00.3", 1, 3)], tmp_path / "o.csv")
    assert says in str(caught.value)


# -- a course's rules --------------------------------------------------------------------------------------------

RULES = """
[weights]
"00.3" = 2
"05" = 0.5

[late]
deadline = 2026-11-20T12:00:00+00:00
grace_minutes = 10
free_days = 2
cost_per_day = 0.25
most_days = 2
spent = "spent.csv"
"""


def test_weights_count_in_totals(tmp_path):
    (tmp_path / "course.toml").write_text(RULES.split("[late]")[0])
    course = marks.read_course(tmp_path / "course.toml")
    rows = [marks.Mark("ada", "00.3", 3, 3), marks.Mark("ada", "05.1", 2, 6), marks.Mark("bob", "05.1", 6, 6)]
    table = marks.totals(rows, course)
    assert table[0] == ["student", "00.3", "05.1", "total", "max"]
    assert table[1:] == [["ada", "3", "2", "7", "9"], ["bob", "0", "6", "3", "9"]]


def test_late_days_are_begun_days_and_free_ones_are_spent_once(tmp_path):
    (tmp_path / "course.toml").write_text(RULES)
    rule = marks.read_course(tmp_path / "course.toml").late
    (tmp_path / "times.csv").write_text(
        "student,handed_in\nada,2026-11-20T12:10:00+00:00\nbob,2026-11-20T12:11:00+00:00\n"
        "eve,2026-11-23T12:00:00+00:00\nzoe,2026-11-20T11:00:00+00:00\nzoe,2026-11-26T12:00:00+00:00\n"
    )
    times = marks.read_times(tmp_path / "times.csv")
    names = ["ada", "Bob", "eve", "zoe", "max"]
    found = marks.lateness(rule, times, names, "05")
    assert {n: (x.days, x.free, x.kept) for n, x in found.items()} == {
        "ada": (0, 0, 1.0),
        "Bob": (1, 1, 1.0),
        "eve": (3, 2, 0.75),
        "zoe": (6, 2, 0.0),
        "max": (0, 0, 1.0),
    }
    assert marks.lateness(rule, times, names, "05") == found, "a regrade of the same homework spends nothing again"
    later = marks.lateness(rule, times, names, "12")
    assert (later["Bob"].free, later["eve"].free, later["eve"].kept) == (1, 0, 0.0)
    rows = [marks.Mark("eve", "05.1", 4, 6)]
    assert marks.totals(rows, late=found)[1] == ["eve", "4", "3", "2", "0.75", "3", "6"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[weight]\n", "did you mean 'weights'"),
        ('[weights]\n"05" = "two"\n', "expected a number ≥ 0"),
        ("[late]\nfree_days = 2\n", "needs a deadline"),
        ("[late]\ndeadline = 2026-01-01T00:00:00\nfree_day = 2\n", "did you mean 'free_days'"),
        ("[late]\ndeadline = 2026-01-01T00:00:00\nfree_days = -2\n", "expected a number ≥ 0"),
        ("weights", "cannot be read"),
    ],
)
def test_a_course_file_that_does_not_fit_says_so(text, says, tmp_path):
    (tmp_path / "course.toml").write_text(text)
    with pytest.raises(UserError, match=r"course\.toml") as caught:
        marks.read_course(tmp_path / "course.toml")
    assert says in str(caught.value)


# -- what to teach again, and what to look at --------------------------------------------------------------------


def test_statistics_count_tests_and_named_mistakes(tmp_path):
    for name in ("ada", "bob", "eve"):
        hand_in(tmp_path, f"{name}/a.py", answered(EASY, WRONG if name != "eve" else None))
    assert run(tmp_path) == 0
    rows = table(tmp_path / "g-statistics.csv")
    masks = [r for r in rows if r["test"] == EASY.mutants[1].caught_by]
    assert (masks[0]["students"], masks[0]["passed"], masks[0]["failed"]) == ("3", "1", "2")
    assert (masks[1]["mistake"], masks[1]["students"]) == ("the sum is divided by all places", "2")


LONG = "\n".join(f"def helper_{i}(x, y):\n    total = x * {i} + y\n    return total - {i}\n" for i in range(8))


def test_renaming_hides_no_resemblance(tmp_path):
    renamed = LONG.replace("total", "summe").replace("helper", "hilfe").replace("x * ", "x  *  ") + "# mine alone\n"
    own = "\n".join(
        f"def f{i}(a):\n    b = []\n    for c in range({i}):\n        b.append(a ** c)\n    return b\n"
        for i in range(8)
    )
    for name, code in (("ada", LONG), ("bob", renamed), ("eve", own), ("zoe", "")):
        hand_in(tmp_path, f"{name}/a.py", answered(EASY, f"{EASY.solution}\n{code}"))
    work = grading.students(tmp_path / "submissions")
    pairs = similarity.similar(work, [EASY])
    assert [(a, b) for _, a, b, _ in pairs] == [("ada", "bob")] and pairs[0][3] > 0.99


def test_a_journal_holds_what_the_files_need(fresh_seed):
    report = grading.Report("ada", (grading.Outcome(EASY, note="not handed in"),), ())
    rows, tried = marks.from_data(json.loads(json.dumps(marks.as_data(report, "page", "x"))))
    assert rows == marks.rows_of(report) and tried == marks.tried_of(report) == []


def test_assistants_get_a_key_and_students_do_not(tmp_path, capsys):
    command = ["release", "--chapter", "05", "--key", "--student", "ada", "--out", str(tmp_path)]
    assert cli.main(command) == 0
    (path,) = tmp_path.iterdir()
    text = path.read_text(encoding="utf-8")
    assert PERSONAL.solution in text and all(hint in text for t in PERSONAL.tests for hint in t.hints)
    assert all(v.note in text for v in (*PERSONAL.mutants, *PERSONAL.partials))
    space = {"STUDENT": "ada", "print": lambda *args: None}
    exec(f"{PERSONAL.given}\n{PERSONAL.solution}", space)
    assert f"* `ppo_gb` for ada: {space['ppo_gb']:g}" in text
    assert cli.main(["release", "--chapter", "05", "--student", "ada", "--out", str(tmp_path)]) == 2
    assert "belongs to --key" in capsys.readouterr().err
