"""Where courses live: what Canvas, Moodle and GitHub Classroom hand out is read, and what they take back is written.

The samples are made here, in the forms that the platforms document or show in their public sources; none was tried
against a server.
"""

import csv
import io
import re
import zipfile
from datetime import datetime

import pytest
from facts import raises

import minirlhf_cli as cli
from minirlhf.core import provenance
from minirlhf.core.errors import UserError
from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom import rehearsal, roster

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("shared_server")]

(EASY,) = sources.load(provenance.ROOT / "exercises", ["00.3"])
(PERSONAL,) = sources.load(provenance.ROOT / "exercises", ["05.5"])

GRADEBOOK = """Student,ID,SIS User ID,SIS Login ID,Section,Homework 00 (901),Essay (902),Current Score
,,,,,Manual Posting,,
    Points Possible,,,,,3,10,(read only)
"Lovelace, Ada",71,S-1,ada,CS 7,,8,80
"Doe, Jane",72,S-2,jane,CS 7 and CS 8,,9,90
"Nobody, Zoë",73,S-3,zoe,CS 7,,,
"Student, Test",79,,b7d1,CS 7,,,
"""
WORKSHEET = """Identifier,Full name,Email address,Status,Grade,Maximum grade,Grade can be changed,Last modified (submission),Last modified (grade),Feedback comments
Participant 4001,Ada Lovelace,ada@example.edu,Submitted for grading,,30.00,Yes,"Friday, 20 November 2026, 11:59 PM",-,
Participant 4002,Jane_4001 Doe,jane@example.edu,Submitted for grading,,30.00,Yes,"Saturday, 21 November 2026, 12:10 AM",-,
Participant 4003,Zoë Nobody,zoe@example.edu,No submission,,30.00,Yes,-,-,
"""
CLASSROOM = """"identifier","github_username","github_id","name"
"ada","Ada-L","11",""
"jane","l","12",""
"zoe","","",""
"""
GRADES = """"assignment_name","assignment_url","starter_code_url","github_username","roster_identifier","student_repository_name","student_repository_url","submission_timestamp","points_awarded","points_available"
"hw","https://c/a/hw","https://g/s","Ada-L","ada","hw-Ada-L","https://g/hw-Ada-L","2026-11-20 23:59:00 UTC","0","0"
"hw","https://c/a/hw","https://g/s","l","jane","hw-l","https://g/hw-l","2026-11-21T00:10:00Z","0","0"
"""


def answer(exercise=EASY, student="ada", code=None):
    return f'STUDENT = "{student}"\n\n# %% exercise {exercise.id}\n{exercise.given}\n\n{code or exercise.solution}\n'


PART = f"{EASY.solution}\n\n{EASY.partials[0].code}"


def archive(path, files):
    with zipfile.ZipFile(path, "w") as file:
        for name, content in files.items():
            file.writestr(name, content)
    return path


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def collect(folder, platform, *downloads, export, **more):
    (folder / "export.csv").write_text(export, encoding="utf-8")
    options = [x for k, v in more.items() for x in (f"--{k}", *([str(v)] if v is not True else []))]
    command = ["class", "collect", platform, *map(str, downloads), "--roster", str(folder / "export.csv")]
    return cli.dispatch([*command, "--out", str(folder / "class"), *options])


def grade(folder, *options, chapter="00"):
    files = ["--out", str(folder / "marks" / "g.csv"), "--totals", str(folder / "marks" / "t.csv")]
    command = [
        "class",
        "grade",
        str(folder / "class" / "submissions"),
        "--roster",
        str(folder / "class" / "roster.csv"),
    ]
    return cli.dispatch([*command, *files, "--chapter", chapter, "--allow-weak-isolation", *options])


def hand_back(folder, platform, *options):
    marks = ["--totals", str(folder / "marks" / "t.csv"), "--feedback", str(folder / "marks" / "g-feedback")]
    where = [
        "--roster",
        str(folder / "export.csv"),
        "--collected",
        str(folder / "class"),
        "--out",
        str(folder / "back"),
    ]
    return cli.dispatch(["class", "export-grades", platform, *where, *marks, *options])


@pytest.fixture(autouse=True)
def small_chapters(monkeypatch):
    monkeypatch.setattr(sources, "load", lambda root, wanted=(): [e for e in (EASY, PERSONAL) if e.chapter in wanted])


# -- there and back ----------------------------------------------------------------------------------------------


def test_canvas_collect_grade_and_hand_back(tmp_path, capsys):
    download = archive(
        tmp_path / "submissions.zip",
        {
            "lovelaceada_71_5001_hw.py": answer(code=PART),
            "lovelaceada_71_5002_hw-1.py": answer(),
            "doejane_LATE_72_5003_hw.py": answer(code=PART),
            "strangerbob_99_5004_hw.py": answer(),
            "__MACOSX/._x": b"",
        },
    )
    assert collect(tmp_path, "canvas", download, export=GRADEBOOK) == 0
    said = capsys.readouterr()
    assert re.findall(r"\d+", said.out)[:3] == ["2", "3", "1"], "handed in, of all, late"
    assert "'strangerbob_99_5004_hw.py'" in said.err
    found = {r["student"]: r for r in rows(tmp_path / "class" / "collected.csv")}
    assert found["jane"]["late"] == "yes" and found["ada"]["late"] == ""
    assert found["ada"]["note"].startswith("hw.py: ") and found["zoe"]["note"] and not found["jane"]["note"]
    assert grade(tmp_path) == 0
    assert hand_back(tmp_path, "canvas", "--assignment", "Homework 00") == 0
    with open(tmp_path / "back" / "canvas.csv", newline="", encoding="utf-8") as file:
        table = list(csv.reader(file))
    part = f"{EASY.partials[0].points:g}"
    assert table == [
        ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "Homework 00 (901)"],
        ["    Points Possible", "", "", "", "", "3"],
        ["Lovelace, Ada", "71", "S-1", "ada", "CS 7", "3"],
        ["Doe, Jane", "72", "S-2", "jane", "CS 7 and CS 8", part],
        ["Nobody, Zoë", "73", "S-3", "zoe", "CS 7", "0"],
    ]
    with zipfile.ZipFile(tmp_path / "back" / "canvas-feedback.zip") as file:
        assert set(file.namelist()) == {"lovelaceada_71_5002_feedback.md", "doejane_LATE_72_5003_feedback.md"}
        assert b"**3 of 3 " in file.read("lovelaceada_71_5002_feedback.md")


def test_moodle_collect_grade_and_hand_back(tmp_path):
    download = archive(
        tmp_path / "hw.zip",
        {
            "Ada Lovelace_4001_assignsubmission_file_/deep/hw.py": answer(),
            "Ada Lovelace_4001_assignsubmission_onlinetext_/onlinetext.html": "<p>",
            "Jane_4001 Doe_4002_assignsubmission_file/hw.py": answer(code=PART),
        },
    )
    assert collect(tmp_path, "moodle", download, export=WORKSHEET) == 0
    assert [r["handed_in"] for r in rows(tmp_path / "class" / "times.csv")] == [
        "2026-11-20T23:59:00",
        "2026-11-21T00:10:00",
    ]
    (tmp_path / "course.toml").write_text("[late]\ndeadline = 2026-11-21T00:00:00\ncost_per_day = 0.5\n")
    late = ["--course", str(tmp_path / "course.toml"), "--times", str(tmp_path / "class" / "times.csv")]
    assert grade(tmp_path, *late) == 0
    with raises(UserError, argument="--scale", value=30, expected=3):
        hand_back(tmp_path, "moodle")
    assert hand_back(tmp_path, "moodle", "--scale") == 0
    (ada, jane, zoe), before = rows(tmp_path / "back" / "moodle.csv"), rows(tmp_path / "export.csv")
    assert (ada["Grade"], zoe["Grade"]) == ("30", "0")
    assert float(jane["Grade"]) == 5 * EASY.partials[0].points
    for new, old in zip((ada, jane, zoe), before, strict=True):
        assert {**new, "Grade": ""} == old, "only the grade is ours"
    with zipfile.ZipFile(tmp_path / "back" / "moodle-feedback.zip") as file:
        assert set(file.namelist()) == {
            "Ada Lovelace_4001_assignsubmission_file_/feedback.md",
            "Jane_4001 Doe_4002_assignsubmission_file/feedback.md",
        }


def test_github_classroom_collect_grade_and_hand_back(tmp_path):
    for repository, code in (("hw-Ada-L", EASY.solution), ("hw-l", PART)):
        (tmp_path / "hw-submissions" / repository / ".git").mkdir(parents=True)
        (tmp_path / "hw-submissions" / repository / ".git" / "hw.py").write_text(answer())
        (tmp_path / "hw-submissions" / repository / "hw.py").write_text(answer(code=code))
    (tmp_path / "grades.csv").write_text(GRADES)
    folder = tmp_path / "hw-submissions"
    assert collect(tmp_path, "github", folder, export=CLASSROOM, grades=tmp_path / "grades.csv") == 0
    found = {r["student"]: r for r in rows(tmp_path / "class" / "collected.csv")}
    assert found["ada"]["key"] == "hw-Ada-L" and found["jane"]["key"] == "hw-l", "the longer user name fits better"
    assert datetime.fromisoformat(found["ada"]["handed_in"]) == datetime.fromisoformat("2026-11-20T23:59:00+00:00")
    assert grade(tmp_path) == 0
    (tmp_path / "export.csv").write_text(GRADES)
    assert hand_back(tmp_path, "github") == 0
    written = rows(tmp_path / "back" / "github.csv")
    assert list(written[0]) == next(csv.reader(io.StringIO(GRADES)))
    assert [(r["roster_identifier"], r["points_awarded"], r["points_available"]) for r in written] == [
        ("ada", "3", "3"),
        ("jane", f"{EASY.partials[0].points:g}", "3"),
    ]
    with zipfile.ZipFile(tmp_path / "back" / "github-feedback.zip") as file:
        assert set(file.namelist()) == {"hw-Ada-L/FEEDBACK.md", "hw-l/FEEDBACK.md"}


# -- what is collected -------------------------------------------------------------------------------------------


def test_collect_takes_last_download_and_last_time_in_name(tmp_path):
    first = archive(tmp_path / "1.zip", {"ada_71_1_hw.py": "old", "jane_72_2_hw.py": "kept"})
    second = archive(
        tmp_path / "2.zip",
        {"ada_71_3_hw 2026-11-20T23-59.py": "new", "ada_71_4_hw 2026-11-20_21-00.py": "older"},
    )
    assert collect(tmp_path, "canvas", first, second, export=GRADEBOOK) == 0
    assert [p.read_text() for p in (tmp_path / "class" / "submissions" / "ada").iterdir()] == ["new"]
    assert [p.read_text() for p in (tmp_path / "class" / "submissions" / "jane").iterdir()] == ["kept"]
    assert rows(tmp_path / "class" / "times.csv") == [{"student": "ada", "handed_in": "2026-11-20T23:59:00"}]


def test_collect_archive_cannot_escape_folder_or_fill_disk(tmp_path):
    folder = "Ada Lovelace_4001_assignsubmission_file_"
    files = {f"{folder}/../../../evil.py": "x", f"{folder}/..\\up.py": "y", f"/{folder}/root.py": "z"}
    download = archive(tmp_path / "x.zip", {**files, f"{folder}/big.py": b"0" * (6 << 20), f"{folder}/ok.py": "fine"})
    assert collect(tmp_path, "moodle", download, export=WORKSHEET) == 0
    home = tmp_path / "class" / "submissions" / "ada@example.edu"
    assert set(tmp_path.rglob("*.py")) == {home / "ok.py"}, "paths that leave their folder are dropped"
    assert "big.py" in rows(tmp_path / "class" / "collected.csv")[0]["note"]


def test_collect_does_not_replace_work_unasked(tmp_path):
    download = archive(tmp_path / "1.zip", {"ada_71_1_hw.py": "x"})
    assert collect(tmp_path, "canvas", download, export=GRADEBOOK) == 0
    with raises(UserError, argument="--replace"):
        collect(tmp_path, "canvas", download, export=GRADEBOOK)
    assert collect(tmp_path, "canvas", download, export=GRADEBOOK, replace=True) == 0


@pytest.mark.parametrize(
    ("platform", "export", "files", "facts"),
    [
        ("blackboard", GRADEBOOK, {"a_71_1_x.py": ""}, {"argument": "platform", "value": "blackboard"}),
        ("canvas", WORKSHEET, {"a_71_1_x.py": ""}, {"argument": "canvas", "problem": "mismatch"}),
        ("moodle", GRADEBOOK, {"a_71_1_x.py": ""}, {"argument": "moodle", "problem": "mismatch"}),
        ("canvas", GRADEBOOK, {"homework.py": ""}, {"value": "homework.py", "problem": "strangers"}),
        ("canvas", GRADEBOOK, None, {"problem": "unreadable"}),
        ("canvas", "", {"a_71_1_x.py": ""}, {"problem": "empty"}),
        ("canvas", "a,b\n1,2\n", {"a_71_1_x.py": ""}, {"argument": "--id", "problem": "missing"}),
        ("canvas", GRADEBOOK.replace(",jane,", ",ada,"), {"a_71_1_x.py": ""}, {"value": "ada", "problem": "duplicate"}),
        (
            "canvas",
            GRADEBOOK.replace(",jane,", ",,"),
            {"a_71_1_x.py": ""},
            {"argument": "SIS Login ID", "value": "Doe, Jane"},
        ),
        ("moodle", WORKSHEET.replace("Friday, 20 November", "Freitag, 20. November"), None, {"problem": "time"}),
    ],
)
def test_collect_with_bad_download_or_roster_raises(platform, export, files, facts, tmp_path):
    path = tmp_path / "d.zip"
    if files is not None:
        archive(path, files)
    elif platform == "moodle":
        archive(path, {"Ada Lovelace_4001_assignsubmission_file_/a.py": ""})
    else:
        path.write_text("no archive")
    with raises(UserError, **facts):
        collect(tmp_path, platform, path, export=export)
    assert not (tmp_path / "class").exists()


@pytest.mark.parametrize(
    ("options", "change", "facts"),
    [
        (["--assignment", "Homework 0"], "", {"value": "Homework 0", "expected": "Homework 00 (901)"}),
        ([], "", {"value": "", "problem": "unknown"}),
        (["--assignment", "Essay"], "", {"argument": "--scale", "value": 10, "expected": 3}),
        (["--assignment", "Essay", "--scale"], "Section", {"argument": "ID, Section", "problem": "missing"}),
    ],
)
def test_hand_back_that_does_not_fit_raises(options, change, facts, tmp_path):
    download = archive(tmp_path / "1.zip", {"ada_71_1_hw.py": answer()})
    assert collect(tmp_path, "canvas", download, export=GRADEBOOK) == 0
    (tmp_path / "marks" / "g-feedback").mkdir(parents=True)
    (tmp_path / "marks" / "t.csv").write_text("student,00.3,total,max\nada,3,3,3\n")
    if change:
        (tmp_path / "export.csv").write_text(GRADEBOOK.replace(change, "Part"))
    with raises(UserError, **facts):
        hand_back(tmp_path, "canvas", *options)
    assert not (tmp_path / "back").exists()


def test_hand_back_scale_writes_share(tmp_path):
    download = archive(tmp_path / "1.zip", {"ada_71_1_hw.py": answer()})
    assert collect(tmp_path, "canvas", download, export=GRADEBOOK.replace(",", ";").replace("; ", ", ")) == 0
    (tmp_path / "marks" / "g-feedback").mkdir(parents=True)
    (tmp_path / "marks" / "t.csv").write_text("student,00.3,total,max\nada,2,2,3\n")
    assert hand_back(tmp_path, "canvas", "--assignment", "Essay", "--scale") == 0
    lines = (tmp_path / "back" / "canvas.csv").read_text().splitlines()
    assert lines[0].startswith("Student;ID;") and lines[2].endswith(";CS 7;6.67"), "separated as it came"


# -- rosters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("ada\nJane\n", {"ada": (), "Jane": ()}),
        ("student\nada\n", {"ada": ()}),
        ("name;student;email\nA L;ada;a@x\nA L;jane;j@x\n", {"ada": ("a@x",), "jane": ("j@x",)}),
        (
            GRADEBOOK,
            {
                "ada": ("Lovelace, Ada", "71", "S-1"),
                "jane": ("Doe, Jane", "72", "S-2"),
                "zoe": ("Nobody, Zoë", "73", "S-3"),
            },
        ),
        ("student,also\nada,Countess; a@x\n", {"ada": ("Countess", "a@x")}),
    ],
)
def test_roster_read_accepts_all_kinds(text, want, tmp_path):
    (tmp_path / "r.csv").write_text("\ufeff" + text, encoding="utf-8")
    assert {s.id: s.also for s in roster.read(tmp_path / "r.csv")} == want


def test_roster_other_names_of_student_are_accepted(tmp_path):
    """Numbers drawn from the e-mail address are the student's; those drawn from a neighbour's are not."""
    (tmp_path / "class" / "submissions" / "ada@x").mkdir(parents=True)
    (tmp_path / "class" / "submissions" / "jane").mkdir(parents=True)
    (tmp_path / "class" / "roster.csv").write_text("student,email\nada,ada@x\njane,jane@x\n")
    (tmp_path / "class" / "submissions" / "ada@x" / "a.py").write_text(answer(PERSONAL, "Ada@X"))
    (tmp_path / "class" / "submissions" / "jane" / "a.py").write_text(answer(PERSONAL, "ada@x"))
    assert grade(tmp_path, chapter="05") == 0
    earned = {r["student"]: float(r["total"]) for r in rows(tmp_path / "marks" / "t.csv")}
    assert earned == {"ada": PERSONAL.points, "jane": 0.0}


def test_roster_read_takes_named_id_column(tmp_path):
    (tmp_path / "r.csv").write_text(GRADEBOOK)
    assert [s.id for s in roster.read(tmp_path / "r.csv", "sis user id")] == ["S-1", "S-2", "S-3"]
    with raises(UserError, argument="Matrikel", problem="missing"):
        roster.read(tmp_path / "r.csv", "Matrikel")


@pytest.mark.parametrize("platform", list(rehearsal.DRESSES))
def test_rehearsal_class_comes_back_from_platform(platform, tmp_path):
    """Everybody's files are those that were handed in, whatever the platform has made of their names."""
    made, exercises = rehearsal.write([EASY], tmp_path / "made", 11, seed=1), [EASY]
    rehearsal.dress(made, exercises, platform, tmp_path / "made")
    export = (tmp_path / "made" / "export.csv").read_text()
    assert collect(tmp_path, platform, tmp_path / "made" / "download.zip", export=export) == 0
    for student in made:
        home = tmp_path / "class" / "submissions" / student.id
        files = [p.read_bytes() for p in home.rglob("*") if p.is_file()]
        assert sorted(files) == sorted(student.files.values()), student.note
    assert [s.id for s in roster.read(tmp_path / "class" / "roster.csv")] == [s.id for s in made]
    if platform != "canvas":
        return
    assert grade(tmp_path) == 0
    expected = {s.id: f"{sum(s.points.values()):g}" for s in made}
    assert {r["student"]: r["total"] for r in rows(tmp_path / "marks" / "t.csv")} == expected
    assert hand_back(tmp_path, platform, "--assignment", "Homework 00") == 0
    with open(tmp_path / "back" / "canvas.csv", newline="", encoding="utf-8") as file:
        assert [row[-1] for row in list(csv.reader(file))[2:]] == list(expected.values())
