"""The self-learner's checker, in a notebook and on the command line; release and grade as commands."""

import csv
import json
import re
import shutil

import pytest
import torch
from facts import raises
from patience import CEILING

import minirlhf_cli as cli
from minirlhf.core import provenance
from minirlhf.core.errors import UserError
from minirlhf.sandbox import isolation
from minirlhf_course.classroom import check, release, watch
from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom.progress import Progress, following
from minirlhf_course.classroom.runner import Local, Server
from minirlhf_course.classroom.testing import Asked

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("shared_server")]

ROOT = provenance.ROOT / "exercises"


@pytest.fixture(autouse=True)
def fresh_progress(tmp_path, monkeypatch):
    """Hints begin anew in each test."""
    monkeypatch.setenv("MINIRLHF_CACHE", str(tmp_path / "cache"))


def loaded(number):
    (found,) = sources.load(ROOT, [number])
    return found


def policy(ref, rewards, beta):
    return torch.softmax(ref.log() + rewards / beta, -1)


def value(ref, rewards, beta):
    return beta * torch.logsumexp(ref.log() + rewards / beta, -1)


def greedy(ref, rewards, beta):
    return torch.nn.functional.one_hot(rewards.argmax(), len(ref)).double()


def hints(verdict):
    """The hints that a verdict shows, without their numbers."""
    return [line.split(": ", 1)[1] for line in verdict.hint.splitlines()]


def mistake(verdict):
    """The kind of the first failure."""
    return verdict.outcome.first_failure.problem


def test_check_of_right_answer_passes_with_proof_mark():
    verdict = check("05.1", best_policy=policy, best_value=value)
    assert verdict.passed and verdict.hint == ""
    assert "✓ 05.1" in repr(verdict)
    proved = [r for r in verdict.outcome.results if r.test.against]
    assert proved and all(r.test.against in repr(verdict) and r.worst < 1e-4 for r in proved)
    assert any(r.worst > 0 for r in proved), "nothing was compared; one test alone may agree to the last digit"


def test_check_finds_functions_by_name():
    space = {}
    exec(loaded("05.1").given + "\n" + loaded("05.1").solution, space)
    assert check("05.1", space["best_policy"], space["best_value"]).passed


def test_check_gives_counterexample_and_one_more_hint_each_time():
    tests = {t.name: t for t in loaded("05.1").tests}
    first, second, third = (check("05.1", best_policy=greedy, best_value=value) for _ in range(3))
    lines = first.outcome.first_failure.lines
    assert lines and all(line in repr(first) for line in lines)
    assert hints(first) == [tests["optimum"].hints[0]]
    assert hints(second) == hints(third) == list(tests["optimum"].hints), "a later mistake may be another one"
    other = check("05.1", best_policy=policy, best_value=lambda ref, rewards, beta: rewards.max())
    assert hints(other) == [tests["value"].hints[0]]
    assert check("05.1", best_policy=policy, best_value=value).passed
    again = check("05.1", best_policy=greedy, best_value=value)
    assert hints(again) == hints(first), "a solved exercise starts afresh"


def test_check_draws_fresh_counterexamples():
    shown = {check("05.1", best_policy=greedy, best_value=value).outcome.first_failure.lines for _ in range(3)}
    assert len(shown) > 1


def test_check_protects_grader_inputs_from_answer():
    def spoils(rewards, logps, ref_logps, mask, beta):
        logps.zero_(), ref_logps.zero_(), mask.zero_()
        return torch.zeros_like(logps)

    assert not check("05.4", token_rewards=spoils).passed


def test_check_of_personal_exercise_follows_student():
    space = {"STUDENT": "ada", "print": lambda *args: None}
    e = loaded("05.5")
    exec(e.given + "\n" + e.solution, space)
    answers = {name: space[name] for name in e.asks}
    assert check("05.5", **answers, student="ada").passed
    assert not check("05.5", **answers, student="grace").passed


def out_of_range(ref, rewards, beta):
    return ref[10]


@pytest.mark.parametrize(
    ("answers", "problem", "fact"),
    [
        ({"best_policy": out_of_range}, "raised", "IndexError"),
        ({"best_policy": lambda ref, rewards, beta: None}, "none", ""),
        ({"best_policy": lambda ref, rewards: ref}, "raised", "TypeError"),
        ({"best_policy": lambda ref, rewards, beta: object()}, "type", "object"),
        ({"best_value": value}, "missing", "`best_policy`"),
        ({"best_policy": 0.5}, "raised", "TypeError"),
    ],
)
def test_check_of_answer_that_does_not_run_names_cause(answers, problem, fact):
    verdict = check("05.1", **answers)
    assert mistake(verdict) == problem
    assert fact in verdict.outcome.first_failure.message and verdict.outcome.first_failure.message in repr(verdict)


@pytest.mark.parametrize(
    ("arguments", "answers", "facts"),
    [
        (("05.1",), {}, {"expected": 'check("05.1", best_policy, best_value)'}),
        (("05.1",), {"best_polcy": policy}, {"value": "best_polcy", "expected": "best_policy"}),
        (("05.1", greedy), {}, {"value": "greedy", "problem": "unknown"}),
        (("05",), {}, {"value": "05", "expected": "05.1"}),
        (("05.9",), {}, {"argument": "exercise", "value": "05.9"}),
        (("5.x",), {}, {"argument": "exercise", "value": "5.x"}),
    ],
)
def test_check_with_bad_arguments_raises(arguments, answers, facts):
    with raises(UserError, **facts):
        check(*arguments, **answers)


# -- commands ----------------------------------------------------------------------------------------------------


def answered(number, code, student="ada"):
    """A Python file that answers one exercise."""
    return f'STUDENT = "{student}"\n\n# %% exercise {number}\n{loaded(number).given}\n\n{code}\n'


def test_release_and_check_commands_count_points(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exercises = sources.load(ROOT, ["05"])
    assert cli.dispatch(["class", "release", "--chapter", "05", "--out", "."]) == 0
    names = {p.name for p in tmp_path.iterdir() if p.is_file()}
    assert {p.rsplit(".", 1)[1] for p in names} == {"ipynb", "py"} and len(names) == 2
    capsys.readouterr()

    assert cli.dispatch(["check", "05"]) == 1
    shown = capsys.readouterr().out
    assert shown.count("✗ 05.") == shown.count("(0 of ") == len(exercises)

    (notebook_path,) = tmp_path.glob("*.ipynb")
    notebook = json.loads(notebook_path.read_text())
    for cell in notebook["cells"]:
        if cell["id"] == "answer-05-4":
            cell["source"] = loaded("05.4").solution
    notebook_path.write_text(json.dumps(notebook))
    assert cli.dispatch(["check", "05.4"]) == 0
    assert "✓ 05.4" in capsys.readouterr().out
    assert cli.dispatch(["check", "05.4", "05.1"]) == 1
    assert re.search(r"^6 \w+ 12 ", capsys.readouterr().out, re.M)


def test_check_command_reads_student_from_file_and_gives_hints(tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text(answered("05.5", loaded("05.5").solution, student="zoe"))
    assert cli.dispatch(["check", "05.5", "--file", str(path)]) == 0
    path.write_text(answered("05.4", loaded("05.4").partials[0].code))
    for number in (1, 2):
        capsys.readouterr()
        assert cli.dispatch(["check", "05.4", "--file", str(path)]) == 1
        shown = capsys.readouterr().out
        assert [[h in shown for h in t.hints] for t in loaded("05.4").tests if t.hints[0] in shown] == [
            [True, number == 2]
        ]


@pytest.mark.parametrize(
    ("command", "facts"),
    [
        (["check", "05", "--file", "nowhere.py"], {"argument": "--file", "file": "nowhere.py"}),
        (["check", "05"], {"value": ["05"], "problem": "missing"}),
        (["check", "77"], {"argument": "chapter", "value": "77"}),
        (["check", "05", "--file", "broken.ipynb"], {"file": "broken.ipynb"}),
        (["class", "release", "--out", "x", "--chapter", "ninety"], {"argument": "chapter"}),
        (["class", "grade", "nowhere", "--out", "x.csv"], {"file": "nowhere", "problem": "missing"}),
        (["class", "grade", "empty", "--out", "x.csv"], {"file": "empty", "problem": "empty"}),
        (["class", "grade", "foreign", "--out", "x.csv", "--allow-weak-isolation"], {"argument": "--chapter"}),
        (
            ["class", "grade", "foreign", "--out", "x.csv", "--jobs", "0"],
            {"argument": "--jobs", "value": 0, "expected": 1},
        ),
        (["check", "05", "--exercises", "empty"], {"argument": "chapter", "value": "05"}),
    ],
)
def test_check_release_and_grade_commands_with_bad_input_raise(command, facts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("empty", "foreign/ada"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "foreign" / "ada" / "a.py").write_text("print(1)\n")
    (tmp_path / "broken.ipynb").write_text("{}")
    with raises(UserError, **facts):
        cli.dispatch(command)


def test_grade_command_grades_class(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("minirlhf_cli.commands.grade.Server", Server)
    work = tmp_path / "submissions"
    for i in range(12):
        student = f"student{i:02}"
        path = work / student / "homework.py"
        path.parent.mkdir(parents=True)
        four, five = loaded("05.4"), loaded("05.5")
        code = answered("05.5", five.solution, student)
        code += f"\n# %% exercise 05.4\n{four.given}\n{four.partials[0].code if i % 2 else four.solution}\n"
        path.write_text(code)
    (work / "late.py").write_text("print('nothing')\n")
    command = ["class", "grade", str(work), "--out", str(tmp_path / "out" / "grades.csv"), "--allow-weak-isolation"]
    assert cli.dispatch(command) == 0
    assert isolation.ANSWERS_HIDDEN in capsys.readouterr().err, "what the box keeps out is said"
    with open(tmp_path / "out" / "grades.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    exercises = sources.load(ROOT, ["05"])
    assert list(rows[0]) == ["student", "exercise", "points", "max", "reason"]
    assert len(rows) == 13 * len(exercises)
    for row in rows:
        number = int(row["student"].removeprefix("student")) if row["student"] != "late" else None
        right = {"05.4": loaded("05.4").partials[0].points if number is not None and number % 2 else 6, "05.5": 3}
        expected = 0 if number is None else right.get(row["exercise"], 0)
        assert float(row["points"]) == expected, row
        assert bool(row["reason"]) == (expected < float(row["max"]))
    pages = sorted(p.name for p in (tmp_path / "out" / "grades-feedback").iterdir())
    assert pages == ["late.md", *(f"student{i:02}.md" for i in range(12))]
    page = (tmp_path / "out" / "grades-feedback" / "student01.md").read_text()
    assert f"**{loaded('05.4').partials[0].points + 3:g} of {sum(e.points for e in exercises):g} " in page
    assert any(hint in page for t in loaded("05.4").tests for hint in t.hints)
    assert set(release.leaks(loaded("05.4"), page)) <= {h for t in loaded("05.4").tests for h in t.hints}


def test_grade_command_without_isolation_raises(tmp_path, monkeypatch):
    from minirlhf_cli.commands import grade

    monkeypatch.setattr(grade, "Server", lambda hidden: Server(hidden, "limits"))
    work = tmp_path / "submissions" / "ada"
    work.mkdir(parents=True)
    (work / "a.py").write_text(answered("05.5", loaded("05.5").solution))
    command = ["class", "grade", str(tmp_path / "submissions"), "--out", str(tmp_path / "grades.csv")]
    with raises(UserError, argument="--allow-weak-isolation", value=list(grade.NEEDED)):
        cli.dispatch(command)
    assert not (tmp_path / "grades.csv").exists()
    assert cli.dispatch([*command, "--allow-weak-isolation"]) == 0
    assert (tmp_path / "grades.csv").exists()


def test_grade_command_with_same_seed_gives_same_feedback(tmp_path):
    work = tmp_path / "submissions" / "ada"
    work.mkdir(parents=True)
    (work / "a.py").write_text(answered("05.1", loaded("05.1").mutants[0].code))
    pages = []
    for i, seed in enumerate(("7", "7", "8")):
        out = tmp_path / str(i) / "grades.csv"
        command = ["class", "grade", str(work.parent), "--out", str(out), "--seed", seed, "--allow-weak-isolation"]
        assert cli.dispatch(command) == 0
        pages.append((out.parent / "grades-feedback" / "ada.md").read_text())
    assert pages[0] == pages[1] != pages[2]


def test_check_command_takes_answer_that_was_worked_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.dispatch(["class", "release", "--chapter", "05", "--out", "."]) == 0
    (script,) = tmp_path.glob("*.py")
    e = loaded("05.4")
    script.write_text(script.read_text().replace(e.stub, e.solution))
    assert cli.dispatch(["check", "05.4"]) == 0


def test_release_notebook_runs_and_checks(tmp_path, monkeypatch):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    assert cli.dispatch(["class", "release", "--chapter", "05", "--out", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("*.ipynb")
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell["id"].startswith("answer-"):
            cell["source"] = loaded(cell["id"].removeprefix("answer-").replace("-", ".")).solution
    patience = {"timeout": CEILING, "startup_timeout": int(CEILING)}
    nbclient.NotebookClient(notebook, **patience, resources={"metadata": {"path": str(tmp_path)}}).execute()
    verdicts = [c["outputs"][0]["data"]["text/plain"] for c in notebook.cells if c["id"].startswith("check-")]
    assert len(verdicts) == len(sources.load(ROOT, ["05"]))
    for verdict in verdicts:
        assert verdict.startswith("✓"), verdict


@pytest.mark.parametrize("chapters", [["--chapter", "05"], pytest.param([], marks=pytest.mark.release, id="all")])
def test_release_writes_same_files_each_time(chapters, tmp_path):
    for name in ("a", "b"):
        assert cli.dispatch(["class", "release", *chapters, "--out", str(tmp_path / name)]) == 0
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    shutil.rmtree(tmp_path / "a")


# -- what an instructor meets ------------------------------------------------------------------------------------


def graded(tmp_path, *options):
    """Grade ``tmp_path/submissions``; the rows of both files, each by what identifies it."""
    out = tmp_path / "marks"
    files = ["--out", str(out / "grades.csv"), "--totals", str(out / "totals.csv")]
    status = cli.dispatch(["class", "grade", str(tmp_path / "submissions"), *files, "--allow-weak-isolation", *options])
    assert status == 0
    with open(out / "grades.csv", newline="", encoding="utf-8") as one, open(out / "totals.csv", newline="") as two:
        rows = {(r["student"], r["exercise"]): r for r in csv.DictReader(one)}
        return rows, {r["student"]: r for r in csv.DictReader(two)}


def hand_in(tmp_path, name, content):
    path = tmp_path / "submissions" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def test_grade_command_gives_everybody_on_roster_row_and_total(tmp_path):
    hand_in(tmp_path, "ada/a.py", answered("05.4", loaded("05.4").partials[0].code))
    hand_in(tmp_path, "bob/homework.zip", b"PK")
    hand_in(tmp_path, "eve.pdf", b"%PDF")
    roster = tmp_path / "roster.txt"
    roster.write_text("zoe\nada\nbob\neve\n")
    rows, totals = graded(tmp_path, "--chapter", "05", "--roster", str(roster))
    assert list(totals) == ["zoe", "ada", "bob", "eve"]
    assert rows["zoe", "05.1"]["reason"]
    for student, named in (("ada", "05.1"), ("bob", "homework.zip"), ("eve", "eve.pdf")):
        assert named in rows[student, "05.1"]["reason"]
    exercises = sources.load(ROOT, ["05"])
    assert list(totals["ada"]) == ["student", *(e.id for e in exercises), "total", "max"]
    points = f"{loaded('05.4').partials[0].points:g}"
    most = f"{sum(e.points for e in exercises):g}"
    assert (totals["ada"]["05.4"], totals["ada"]["total"], totals["ada"]["max"]) == (points, points, most)
    assert totals["bob"]["total"] == totals["zoe"]["total"] == "0"


@pytest.mark.parametrize(
    ("names", "facts"),
    [
        ("adda\n", {"value": "ada", "problem": "unknown", "expected": "adda"}),
        ("ada\nada\n", {"value": "ada", "problem": "duplicate"}),
        ("\n", {"problem": "empty"}),
    ],
)
def test_grade_command_with_roster_that_does_not_fit_raises(names, facts, tmp_path):
    hand_in(tmp_path, "ada/a.py", answered("05.4", loaded("05.4").solution))
    (tmp_path / "roster.txt").write_text(names)
    command = [
        "class",
        "grade",
        str(tmp_path / "submissions"),
        "--out",
        str(tmp_path / "g.csv"),
        "--allow-weak-isolation",
    ]
    with raises(UserError, **facts):
        cli.dispatch([*command, "--roster", str(tmp_path / "roster.txt")])


def test_grade_command_runs_cells_above_for_missing_name(tmp_path):
    four, one = loaded("05.4"), loaded("05.1")
    helper = one.solution.replace("torch.softmax", "softer")
    above = f"# %% exercise 05.4\n{four.given}\nsofter = torch.softmax\nraise SystemExit\n"
    hand_in(tmp_path, "ada.py", f"{above}\n# %% exercise 05.1\n{one.given}\n{helper}\n")
    hand_in(tmp_path, "bob.py", f"# %% exercise 05.1\n{one.given}\n{helper}\n\n{above}")
    rows, _ = graded(tmp_path, "--chapter", "05")
    assert float(rows["ada", "05.1"]["points"]) == one.points
    assert float(rows["bob", "05.1"]["points"]) < one.points
    assert "'softer'" in rows["bob", "05.1"]["reason"]


def test_grade_command_reads_bom_and_windows_lines(tmp_path):
    code = answered("05.4", loaded("05.4").solution).split("\n", 2)[2]
    hand_in(tmp_path, "ada.py", b"\xef\xbb\xbf" + code.replace("\n", "\r\n").encode())
    rows, _ = graded(tmp_path)
    assert rows["ada", "05.4"]["reason"] == ""


def test_grade_feedback_names_file_and_student_id(tmp_path):
    hand_in(tmp_path, "Ada/a.py", answered("05.5", loaded("05.5").solution, "reader"))
    hand_in(tmp_path, "Bob/b.py", answered("05.5", loaded("05.5").solution, "Bob"))
    graded(tmp_path, "--chapter", "05")
    page = (tmp_path / "marks" / "grades-feedback" / "Ada.md").read_text()
    assert "STUDENT = 'Ada'" in page
    assert "`b.py`" in (tmp_path / "marks" / "grades-feedback" / "Bob.md").read_text()


def test_grade_command_gives_nothing_for_library_imports(tmp_path):
    code = "from minirlhf.equations.rlhf import optimal_logps\nbest_policy = best_value = optimal_logps"
    hand_in(tmp_path, "ada.py", answered("05.1", code))
    rows, _ = graded(tmp_path)
    assert "'minirlhf.equations'" in rows["ada", "05.1"]["reason"] and float(rows["ada", "05.1"]["points"]) == 0


def leaning_by_a_helper():
    from minirlhf.equations import rlhf

    return lambda ref, rewards, beta: rlhf.optimal_logps(ref.log(), rewards, beta).exp()


def test_check_allows_imports_that_grader_allows():
    from minirlhf.equations.rlhf import optimal_logps

    def imports(ref, rewards, beta):
        import minirlhf.equations.rlhf as library

        return library.optimal_logps(ref.log(), rewards, beta).exp()

    for answer in (optimal_logps, imports, leaning_by_a_helper()):
        verdict = check("05.1", best_policy=answer, best_value=value)
        assert verdict.outcome.problem == "import" and "minirlhf.equations.rlhf" in repr(verdict)
    space = {"STUDENT": "ada", "print": lambda *args: None}
    exec(loaded("12.3").given + "\n" + loaded("12.3").solution, space)
    answers = {name: space[name] for name in loaded("12.3").asks}
    assert check("12.3", **answers, student="ada").passed, "what the exercise imports is allowed"


def test_check_spends_no_hint_on_missing_name():
    assert check("05.1", best_value=value).hint == ""
    assert len(hints(check("05.1", best_policy=greedy, best_value=value))) == 1
    assert check("05.1", best_value=value).hint == "", "the second hint was given for a missing name"


def test_grade_feedback_of_chapters_stands_apart(tmp_path):
    hand_in(tmp_path, "ada/a.py", answered("05.4", loaded("05.4").solution))
    hand_in(tmp_path, "ada/b.py", answered("02.3", loaded("02.3").solution))
    for chapter in ("02", "05"):
        command = ["class", "grade", str(tmp_path / "submissions"), "--chapter", chapter, "--allow-weak-isolation"]
        assert cli.dispatch([*command, "--out", str(tmp_path / f"{chapter}.csv")]) == 0
    for chapter in ("02", "05"):
        assert f"| {chapter}.1 " in (tmp_path / f"{chapter}-feedback" / "ada.md").read_text()


def test_release_does_not_replace_changed_files(tmp_path):
    command = ["class", "release", "--chapter", "05", "--out", str(tmp_path)]
    assert cli.dispatch(command) == cli.dispatch(command) == 0, "what has not been changed may be written again"
    script = tmp_path / "05_rlhf_problem.py"
    script.write_text("my work")
    (tmp_path / "05_rlhf_problem.ipynb").unlink()
    with raises(UserError, argument="--replace", file=str(script)):
        cli.dispatch(command)
    assert script.read_text() == "my work" and not (tmp_path / "05_rlhf_problem.ipynb").exists()
    assert cli.dispatch([*command, "--replace"]) == 0
    assert "# %% exercise 05.1" in script.read_text()


def test_check_with_unwritable_cache_gives_first_hint(tmp_path, monkeypatch):
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("MINIRLHF_CACHE", str(tmp_path / "a file"))
    for _ in range(2):
        assert len(hints(check("05.1", best_policy=greedy, best_value=value))) == 1


# -- watching, progress, pictures --------------------------------------------------------------------------------


def test_watch_saves_waits_until_file_is_whole(tmp_path, monkeypatch):
    """Half a file is not read: the editor writes twice, and the change is told once, after the second."""
    path, other = tmp_path / "a.py", tmp_path / "b.py"
    path.write_text("1")
    other.write_text("1")
    steps = iter([lambda: path.write_text("12"), lambda: path.write_text("123"), lambda: None, lambda: path.unlink()])
    monkeypatch.setattr(watch.time, "sleep", lambda seconds: next(steps)())
    found = watch.saves(lambda: [path, other])
    assert next(found) == [path] and path.read_text() == "123"
    with pytest.raises(RuntimeError):  # a file that is gone is no change; the steps have run out
        next(found)


def test_check_watch_prints_only_changes(tmp_path, monkeypatch, capsys):
    script = tmp_path / "mine.py"
    one, four = loaded("05.1"), loaded("05.4")

    def save(code):
        script.write_text(
            f"# %% exercise 05.1\n{one.given}\n{code}\n\n# %% exercise 05.4\n{four.given}\n{four.solution}\n"
        )

    save(one.stub)
    edits = iter(
        [lambda: save(f"{one.mutants[0].code}\n\n{one.solution}"), lambda: save(one.solution + "\n"), lambda: None]
    )
    heard = []

    def saves(look):
        heard.append(capsys.readouterr().out)
        for edit in edits:
            edit()
            yield look()
            heard.append(capsys.readouterr().out)
        raise KeyboardInterrupt

    monkeypatch.setattr(watch, "saves", saves)
    monkeypatch.chdir(tmp_path)
    assert cli.dispatch(["check", "05.1", "05.4", "--watch"]) == 0
    first, solved, spaces, again = heard
    assert "✗ 05.1" in first and "✓ 05.4" in first and " 12 " in first
    assert "✓ 05.1" in solved and "05.4" not in solved
    assert not any(mark in later for mark in "✓✗" for later in (spaces, again))


def test_progress_command_keeps_best_and_names_next(capsys):
    one, chapter = loaded("05.1"), sources.load(ROOT, ["05"])
    assert check("05.1", best_policy=policy, best_value=value).passed
    check("05.1", best_policy=greedy, best_value=value)
    check("05.5", ppo_gb=1.0, student="ada")
    assert cli.dispatch(["check", "progress", "05"]) == 0
    shown = capsys.readouterr().out
    assert f"✓ 05.1  {one.points:g} of {one.points:g}  {one.title}" in shown and "· 05.5" in shown
    reached = Progress().reached
    assert (reached["05.1"].points, reached["05.1"].checks, reached["05.5"].points) == (one.points, 2, 0)
    assert following(chapter, reached).id == "05.5" and "05.5" in shown.splitlines()[-1], "what was begun comes first"
    check("05.5", **{n: float(v) for n, v in release.personal_answers(loaded("05.5"), "ada").items()}, student="ada")
    shortest = min((loaded(f"05.{k}") for k in (2, 3, 4)), key=lambda e: e.minutes)
    assert following(chapter, Progress().reached).id == shortest.id


def test_progress_command_without_or_with_broken_cache_shows_nothing(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "progress.json").write_text('{"05.1": 3}')
    for cache in (folder, tmp_path / "a file"):
        monkeypatch.setenv("MINIRLHF_CACHE", str(cache))
        (tmp_path / "a file").write_text("")
        assert cli.dispatch(["check", "progress", "05"]) == 0
        assert "  05.1  0 " in capsys.readouterr().out


@pytest.mark.parametrize(("number", "slip"), [("04.5", "maximum"), ("09.5", "multiplier"), ("14.1", "logarithm")])
def test_check_picture_shows_learner_curve_beside_right_one(number, slip, tmp_path, monkeypatch):
    """The solution's curves lie on the right ones, a mutant's do not; the notebook and the command line draw alike."""
    exercise = loaded(number)
    spaces = []
    mutant = next(m for m in exercise.mutants if slip in m.note)
    for code in (exercise.solution, f"{exercise.solution}\n\n{mutant.code}"):
        space = {"STUDENT": "ada"}
        exec(f"{exercise.given}\n{code}", space)
        spaces.append(space)
    right, wrong = (exercise.picture(Asked(Local(space, "ada"))) for space in spaces)
    for panel, other in zip(right.panels, wrong.panels, strict=True):
        gap = (panel.yours - panel.right).abs()
        assert float(gap.median()) < 1e-6, "at a kink a derivative by differences may be off"
        assert float((other.yours - panel.right).abs().max()) > 0.05
    answers = {name: spaces[1][name] for name in exercise.asks}
    verdict = check(number, **answers)
    assert not verdict.passed and verdict.image.startswith(b"\x89PNG")
    assert f'alt="{right.says[:20]}' in verdict._repr_html_() and "✗" in verdict._repr_html_()
    (tmp_path / "mine.py").write_text(f"# %% exercise {number}\n{exercise.given}\n{exercise.solution}\n")
    monkeypatch.chdir(tmp_path)
    assert cli.dispatch(["check", number, "--picture", "mine.png"]) == 0
    assert (tmp_path / "mine.png").read_bytes() != verdict.image
    with raises(UserError, argument="--picture", expected=[e.id for e in sources.load(ROOT) if e.picture]):
        cli.dispatch(["check", "05.1", "--picture", "x.png"])
