"""The class run: what a single submission, a typing error or a power cut must not do to the others."""

import csv
import json
import os
import re
import shutil
import time
import unicodedata

import pytest
import torch
from facts import raises, require

import minirlhf_cli as cli
from minirlhf.core import provenance
from minirlhf.core.errors import UserError
from minirlhf_cli.commands import grade as grade_command
from minirlhf_course.classroom import cells, grading, journal, marks, proof, similarity, submission
from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom.runner import Server
from minirlhf_course.classroom.submission import normalised

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("shared_server")]

ROOT = provenance.ROOT / "exercises"
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
    return cli.dispatch(["class", "grade", str(folder / submissions), *files, *chapters, *options])


def table(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def points(folder):
    return {row["student"]: float(row["points"]) for row in table(folder / "g.csv")}


# -- what is handed in -------------------------------------------------------------------------------------------


def test_grade_writes_feedback_for_undecodable_file_names(tmp_path, capsys):
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


def test_grade_prints_seed_first(tmp_path, capsys, monkeypatch):
    hand_in(tmp_path, "ada/a.py", answered(EASY))

    def breaks(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(grading, "grade_class", breaks)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, "--seed", "77")
    assert "--seed 77 " in capsys.readouterr().err


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
def test_sections_cut_five_megabytes_in_linear_time(text):
    began = time.process_time()
    try:
        submission.sections(cells.code_cells(text, "a.py"), "a.py")
    except UserError as problem:
        require(problem, argument="cells", expected=cells.MAX_CELLS)
    assert time.process_time() - began < 30, (
        "a second of computing on an idle core, never the minutes of a quadratic one"
    )


def test_server_cuts_files_in_box():
    with Server([]) as server:
        assert server.cut("x = 1\n# %%\ny", "a.py") == [("cell 1", "x = 1\n"), ("cell 2", "# %%\ny")]
        with raises(UserError, file="b.ipynb"):
            server.cut("[" * 100_000, "b.ipynb")
        with raises(UserError, file="c.py", problem="unreadable"):
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
def test_text_of_reads_encodings_of_other_editors(raw, name):
    assert cells.text_of(raw, name).endswith("é = 1")


@pytest.mark.parametrize(
    "raw", [b"\xff\xfe\x00", "é".encode("latin-1"), b"# coding: no-such-thing\nx", b"# coding: utf-8\n\xff"]
)
def test_text_of_unreadable_encoding_raises(raw):
    with raises(UserError, file="a.py", expected="utf-8"):
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
def test_without_magics_drops_commands_and_keeps_python(code, kept):
    assert cells.without_magics(code) == kept


def test_sections_begin_at_a_marker_below_other_lines():
    written = "import numpy as np\n%matplotlib inline\n# exercise 05.1 (keep this line)\nx = 1"
    quoted = 'text = "# exercise 05.2"\n'
    found = submission.sections([("given-05-1", written), ("cell", quoted)], "a.ipynb")
    assert list(found) == ["05.1"] and len(found["05.1"].own) == 2


def test_grade_ignores_chapter_of_stray_marker(tmp_path, capsys):
    for name in ("ada", "bob", "eve"):
        hand_in(tmp_path, f"{name}/a.py", answered(EASY))
    hand_in(tmp_path, "eve/b.py", answered(PERSONAL, student="eve"))
    assert run(tmp_path, chapter=None) == 0
    assert " 05, in 1 of 3 " in capsys.readouterr().err
    assert {row["max"] for row in table(tmp_path / "t.csv")} == {f"{EASY.points:g}"}


# -- who it is ---------------------------------------------------------------------------------------------------


def test_normalised_ignores_case_spaces_and_accent_composition():
    composed, apart = unicodedata.normalize("NFC", "Zoë"), unicodedata.normalize("NFD", "Zoë")
    assert composed != apart and normalised(composed) == normalised(f"  {apart.upper()} ") == "zoë"


def test_grade_with_one_stranger_warns(tmp_path, capsys):
    hand_in(tmp_path, "ADA /a.py", answered(EASY))
    hand_in(tmp_path, "bobb.py", answered(EASY))
    (tmp_path / "roster.txt").write_text("ada\nbob\n")
    assert run(tmp_path, "--roster", str(tmp_path / "roster.txt")) == 0
    assert points(tmp_path) == {"ada": EASY.points, "bob": 0}
    (warning,) = [line for line in capsys.readouterr().err.splitlines() if "'bobb'" in line]
    assert "'bob'?" in warning


def test_grade_merges_two_folders_of_one_student(tmp_path):
    hand_in(tmp_path, "Ada/a.py", "print(1)\n")
    hand_in(tmp_path, "ada.py", answered(EASY))
    assert run(tmp_path, "--merge") == 0
    assert points(tmp_path) == {"Ada": EASY.points}


@pytest.mark.parametrize("names", [("ADA", "ada"), tuple(unicodedata.normalize(f, "José") for f in ("NFC", "NFD"))])
def test_grade_asks_whether_names_that_are_alike_are_one_student(names, tmp_path):
    for name in names:
        hand_in(tmp_path, f"{name}/a.py", answered(EASY))
    with raises(UserError, argument="--merge", value=tuple(sorted(names)), problem="alike"):
        run(tmp_path)
    assert not (tmp_path / "g.csv").exists()


def test_grade_uses_numbers_of_id_as_typed(tmp_path):
    hand_in(tmp_path, "ada/a.py", answered(PERSONAL, student=" Ada"))
    hand_in(tmp_path, "bob/a.py", answered(PERSONAL, student="ada"))
    assert run(tmp_path, chapter="05") == 0
    assert points(tmp_path) == {"ada": PERSONAL.points, "bob": 0}


# -- cut off, and graded again -----------------------------------------------------------------------------------


def test_grade_resumes_interrupted_run(tmp_path, capsys, monkeypatch):
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
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    assert not (tmp_path / "g.csv").exists()
    seed = capsys.readouterr().err.split("--seed ")[1].split()[0]
    hand_in(tmp_path, "bob/a.py", answered(EASY, PART))  # bob has handed in anew meanwhile
    assert run(tmp_path) == 0
    assert f"--seed {seed} " in capsys.readouterr().err
    assert asked == [["ada", "bob", "eve"], ["bob", "eve"]]
    assert points(tmp_path) == {"ada": EASY.points, "bob": EASY.partials[0].points, "eve": EASY.points}
    assert not (tmp_path / "g.journal").exists()
    assert len(list((tmp_path / "g-feedback").iterdir())) == 3


def test_journal_drops_cut_line_and_other_sources(tmp_path):
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


def test_grade_isolates_grader_error_and_tries_again(tmp_path, capsys, monkeypatch):
    for name in ("ada", "bob"):
        hand_in(tmp_path, f"{name}/a.py", answered(EASY))
    real = grading.grade_answer

    def breaks(server, exercise, handed, student, *rest):
        if student == "ada":
            raise RuntimeError("a bug of the grader")
        return real(server, exercise, handed, student, *rest)

    monkeypatch.setattr(grading, "grade_answer", breaks)
    assert run(tmp_path) == 1
    (crash,) = [line for line in capsys.readouterr().err.splitlines() if "RuntimeError: a bug of the grader" in line]
    assert "ada: 00.3 " in crash
    assert points(tmp_path) == {"ada": 0, "bob": EASY.points}
    monkeypatch.setattr(grading, "grade_answer", real)
    assert run(tmp_path) == 0
    assert points(tmp_path) == {"ada": EASY.points, "bob": EASY.points}


def test_grade_update_merges_and_keeps_class(tmp_path):
    for name in ("ada", "bob", "eve"):
        hand_in(tmp_path, f"{name}/a.py", answered(EASY, PART))
    assert run(tmp_path) == 0
    shutil.copytree(tmp_path / "submissions" / "bob", tmp_path / "dispute" / "Bob")
    (tmp_path / "dispute" / "Bob" / "a.py").write_text(answered(EASY))
    before = (tmp_path / "g.csv").read_bytes()
    with raises(UserError, argument="--update, --replace", value=["ada", "eve"]):
        run(tmp_path, submissions="dispute")
    assert (tmp_path / "g.csv").read_bytes() == before
    assert run(tmp_path, "--update", submissions="dispute") == 0
    part = EASY.partials[0].points
    assert points(tmp_path) == {"ada": part, "Bob": EASY.points, "eve": part}
    assert {r["student"]: float(r["total"]) for r in table(tmp_path / "t.csv")} == points(tmp_path)
    assert run(tmp_path, "--replace", submissions="dispute") == 0
    assert points(tmp_path) == {"Bob": EASY.points}


def test_grade_overrides_keep_mark_and_comment(tmp_path):
    hand_in(tmp_path, "ada/a.py", answered(EASY, PART))
    overrides = tmp_path / "o.csv"
    overrides.write_text("student,exercise,points,comment\nADA,00.3,3,the statement was unclear\n")
    assert run(tmp_path, "--overrides", str(overrides)) == 0
    (row,) = table(tmp_path / "g.csv")
    assert float(row["points"]) == 3
    assert row["reason"].startswith(marks.BY_HAND)
    assert "the statement was unclear" in row["reason"] and f"{EASY.partials[0].points:g})" in row["reason"]
    assert run(tmp_path, "--update") == 0
    assert table(tmp_path / "g.csv") == [row], "a regrade has taken the mark away"
    assert table(tmp_path / "t.csv")[0]["total"] == "3"


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("student,exercise,points\nada,00.3,3\n", {"argument": "comment", "problem": "missing"}),
        (
            "student,exercise,points,comment\nadda,00.3,3,x\n",
            {"argument": "student", "value": "adda", "expected": "ada", "line": 2},
        ),
        (
            "student,exercise,points,comment\nada,00.4,3,x\n",
            {"argument": "exercise", "value": "00.4", "expected": "00.3", "line": 2},
        ),
        (
            "student,exercise,points,comment\nada,00.3,9,x\n",
            {"argument": "points", "value": 9, "expected": "[0, 3]", "line": 2},
        ),
        ("student,exercise,points,comment\nada,00.3,many,x\n", {"value": "many", "expected": float}),
        ("student,exercise,points,comment\nada,00.3,1,\n", {"argument": "comment", "problem": "missing"}),
    ],
)
def test_marks_overridden_with_bad_line_raises(text, facts, tmp_path):
    (tmp_path / "o.csv").write_text(text)
    with raises(UserError, **facts) as caught:
        marks.overridden([marks.Mark("ada", "00.3", 1, 3)], tmp_path / "o.csv")
    assert "o.csv" in str(caught.value)


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


def test_marks_totals_weigh_exercises(tmp_path):
    (tmp_path / "course.toml").write_text(RULES.split("[late]")[0])
    course = marks.read_course(tmp_path / "course.toml")
    rows = [marks.Mark("ada", "00.3", 3, 3), marks.Mark("ada", "05.1", 2, 6), marks.Mark("bob", "05.1", 6, 6)]
    table = marks.totals(rows, course)
    assert table[0] == ["student", "00.3", "05.1", "total", "max"]
    assert table[1:] == [["ada", "3", "2", "7", "9"], ["bob", "0", "6", "3", "9"]]


def test_marks_lateness_counts_begun_days_and_free_days_once(tmp_path):
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
    ("text", "facts"),
    [
        ("[weight]\n", {"value": "weight", "expected": "weights"}),
        ('[weights]\n"05" = "two"\n', {"argument": "05", "value": "two", "expected": "[0, ∞)"}),
        ("[late]\nfree_days = 2\n", {"argument": "deadline", "problem": "missing"}),
        ("[late]\ndeadline = 2026-01-01T00:00:00\nfree_day = 2\n", {"value": "free_day", "expected": "free_days"}),
        ("[late]\ndeadline = 2026-01-01T00:00:00\nfree_days = -2\n", {"argument": "free_days", "value": -2}),
        ("weights", {"problem": "unreadable"}),
    ],
)
def test_marks_read_course_with_bad_rule_raises(text, facts, tmp_path):
    (tmp_path / "course.toml").write_text(text)
    with raises(UserError, **facts) as caught:
        marks.read_course(tmp_path / "course.toml")
    assert "course.toml" in str(caught.value)


# -- what to teach again, and what to look at --------------------------------------------------------------------


def test_grade_statistics_count_tests_and_mistakes(tmp_path):
    for name in ("ada", "bob", "eve"):
        hand_in(tmp_path, f"{name}/a.py", answered(EASY, WRONG if name != "eve" else None))
    assert run(tmp_path) == 0
    rows = table(tmp_path / "g-statistics.csv")
    masks = [r for r in rows if r["test"] == EASY.mutants[1].caught_by]
    assert (masks[0]["students"], masks[0]["passed"], masks[0]["failed"]) == ("3", "1", "2")
    (mistake,) = {t.named for t in marks.tried_of(report_of(WRONG)) if t.named}
    assert (masks[1]["mistake"], masks[1]["students"]) == (*mistake, "2")


def report_of(code):
    """What grading one answer to the easy exercise gives."""
    outcome = grading.run_tests(EASY, proof.answer(EASY, code), 1)
    return grading.Report("ada", (outcome,), ())


LONG = "\n".join(f"def helper_{i}(x, y):\n    total = x * {i} + y\n    return total - {i}\n" for i in range(8))


def test_similarity_sees_through_renaming(tmp_path):
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


def test_common_is_length_of_longest_common_subsequence():
    """Against the table of all beginnings."""
    random = torch.Generator().manual_seed(3)
    for _ in range(40):
        sizes = torch.randint(0, 30, (2,), generator=random).tolist()
        x, y = ([str(k) for k in torch.randint(0, 5, (n,), generator=random).tolist()] for n in sizes)
        longest = [[0] * (len(y) + 1) for _ in range(len(x) + 1)]
        for i, a in enumerate(x, 1):
            for j, b in enumerate(y, 1):
                longest[i][j] = max(longest[i - 1][j], longest[i][j - 1], longest[i - 1][j - 1] + (a == b))
        assert similarity.common(x, y) == longest[-1][-1]


@pytest.mark.parametrize("line", ["x = [1, 2, 3]\n", "y = y + 1\n", "( "], ids=["lists", "sums", "brackets"])
def test_similarity_of_huge_answers_ends(line, tmp_path):
    """Two files of 2.5 MB, nearly equal: once hours of comparing, after the grades and before the totals."""
    for name in ("ada", "bob"):
        hand_in(tmp_path, f"{name}/a.py", answered(EASY, line * (5 * 2**19 // len(line)) + f"# {name}"))
    work = {name: submission.read_files([tmp_path / "submissions" / name / "a.py"]) for name in ("ada", "bob")}
    began = time.process_time()
    pairs = similarity.similar(work, [EASY])
    assert [(a, b) for _, a, b, _ in pairs] == [("ada", "bob")]
    assert time.process_time() - began < 30


def test_grade_writes_totals_before_it_compares_answers(tmp_path, monkeypatch):
    hand_in(tmp_path, "ada/a.py", answered(EASY))

    def breaks(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(similarity, "similar", breaks)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    assert table(tmp_path / "t.csv")[0]["student"] == "ada"


def test_marks_data_round_trip_for_journal():
    report = grading.Report("ada", (grading.Outcome(EASY, note="not handed in"),), ())
    rows, tried = marks.from_data(json.loads(json.dumps(marks.as_data(report, "page", "x"))))
    assert rows == marks.rows_of(report) and tried == marks.tried_of(report) == []


def test_release_key_holds_solutions_and_personal_numbers(tmp_path):
    command = ["class", "release", "--chapter", "05", "--key", "--student", "ada", "--out", str(tmp_path)]
    assert cli.dispatch(command) == 0
    (path,) = tmp_path.iterdir()
    text = path.read_text(encoding="utf-8")
    assert PERSONAL.solution in text and all(hint in text for t in PERSONAL.tests for hint in t.hints)
    assert all(v.note in text for v in (*PERSONAL.mutants, *PERSONAL.partials))
    space = {"STUDENT": "ada", "print": lambda *args: None}
    exec(f"{PERSONAL.given}\n{PERSONAL.solution}", space)
    assert re.search(rf"`ppo_gb` .*ada: {space['ppo_gb']:g}$", text, re.M)
    with raises(UserError, argument="--student", expected="--key"):
        cli.dispatch(["class", "release", "--chapter", "05", "--student", "ada", "--out", str(tmp_path)])
