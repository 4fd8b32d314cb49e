"""The self-learner's checker, in a notebook and on the command line; release and grade as commands."""

import csv
import json
import shutil

import pytest
import torch
from patience import CEILING

from minirlhf import cli
from minirlhf.classroom import check, release, watch
from minirlhf.classroom import exercise as sources
from minirlhf.classroom.runner import Local
from minirlhf.classroom.testing import Asked
from minirlhf.core import provenance
from minirlhf.core.errors import UserError

ROOT = provenance.PACKAGE.parent / "exercises"


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


def test_a_right_answer_is_told_so_with_a_proof_mark():
    verdict = check("05.1", best_policy=policy, best_value=value)
    assert verdict.passed
    assert "✓ 05.1" in repr(verdict)
    assert "✓ proved against a numerical search over all distributions: 3 fresh inputs, worst error" in repr(verdict)
    assert "Hint" not in repr(verdict)


def test_functions_are_found_by_their_own_names():
    space = {}
    exec(loaded("05.1").given + "\n" + loaded("05.1").solution, space)
    assert check("05.1", space["best_policy"], space["best_value"]).passed


def test_a_wrong_answer_gets_a_counterexample_and_one_more_hint_each_time():
    tests = {t.name: t for t in loaded("05.1").tests}
    first = repr(check("05.1", best_policy=greedy, best_value=value))
    assert "J of your policy = " in first and "J of the best one found = " in first
    assert f"Hint 1 of 2: {tests['optimum'].hints[0]}" in first
    second, third = (repr(check("05.1", best_policy=greedy, best_value=value)) for _ in range(2))
    for later in (second, third):
        assert f"  Hint 1 of 2: {tests['optimum'].hints[0]}\n" in later, "a later mistake may be another one"
        assert f"Hint 2 of 2: {tests['optimum'].hints[1]}" in later
    other = repr(check("05.1", best_policy=policy, best_value=lambda ref, rewards, beta: rewards.max()))
    assert f"Hint 1 of 2: {tests['value'].hints[0]}" in other
    assert check("05.1", best_policy=policy, best_value=value).passed
    assert "Hint 1 of 2" in repr(check("05.1", best_policy=greedy, best_value=value)), "a solved exercise starts afresh"


def test_no_verdict_holds_a_line_of_the_solution():
    for e in sources.load(ROOT):
        for variant in e.mutants:
            space = {"STUDENT": "ada", "print": lambda *args: None}
            exec("\n".join([e.given, e.solution, variant.code]), space)
            answers = {name: space[name] for name in e.asks} | {"student": "ada"}
            shown = repr(check(e.id, **answers))
            public = e.given + e.stub + e.statement
            for line in map(str.strip, e.solution.splitlines()):
                if len(line) > 20 and line not in public:
                    assert line not in shown


def test_the_counterexample_is_fresh_each_time():
    shown = {repr(check("05.1", best_policy=greedy, best_value=value)).split("Hint")[0] for _ in range(3)}
    assert len(shown) > 1


def test_an_answer_cannot_change_the_grader_s_inputs():
    def spoils(rewards, logps, ref_logps, mask, beta):
        logps.zero_(), ref_logps.zero_(), mask.zero_()
        return torch.zeros_like(logps)

    assert not check("05.4", token_rewards=spoils).passed


def test_personal_numbers_follow_the_student():
    space = {"STUDENT": "ada", "print": lambda *args: None}
    e = loaded("05.5")
    exec(e.given + "\n" + e.solution, space)
    answers = {name: space[name] for name in e.asks}
    assert check("05.5", **answers, student="ada").passed
    assert not check("05.5", **answers, student="grace").passed


def raises(ref, rewards, beta):
    return ref[10]


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ({"best_policy": raises}, "your code raised IndexError"),
        ({"best_policy": lambda ref, rewards, beta: None}, "is a `return` missing"),
        ({"best_policy": lambda ref, rewards: ref}, "your code raised TypeError"),
        ({"best_policy": lambda ref, rewards, beta: object()}, "the answer is a object"),
        ({"best_value": value}, "`best_policy` is missing"),
        ({"best_policy": 0.5}, "your code raised TypeError"),
    ],
)
def test_an_answer_that_does_not_run_is_told_why(answers, says):
    assert says in repr(check("05.1", **answers))


@pytest.mark.parametrize(
    ("arguments", "answers", "says"),
    [
        (("05.1",), {}, r"nothing to check; write check\(\"05.1\", best_policy, best_value\)"),
        (("05.1",), {"best_polcy": policy}, "did you mean 'best_policy'"),
        (("05.1", greedy), {}, "unknown function for exercise 05.1"),
        (("05",), {}, "is a chapter; name one of its exercises"),
        (("05.9",), {}, "unknown exercise '05.9'"),
        (("5.x",), {}, "unknown exercise"),
    ],
)
def test_a_bad_call_says_what_would_be_right(arguments, answers, says):
    with pytest.raises(UserError, match=says):
        check(*arguments, **answers)


# -- commands ----------------------------------------------------------------------------------------------------


def answered(number, code, student="ada"):
    """A Python file that answers one exercise."""
    return f'STUDENT = "{student}"\n\n# %% exercise {number}\n{loaded(number).given}\n\n{code}\n'


def test_release_check_and_solve(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["release", "--chapter", "05", "--out", "."]) == 0
    names = {p.name for p in tmp_path.iterdir() if p.is_file()}
    assert {p.rsplit(".", 1)[1] for p in names} == {"ipynb", "py"} and len(names) == 2
    capsys.readouterr()

    assert cli.main(["check", "05"]) == 1
    shown = capsys.readouterr().out
    assert shown.count("unchanged: this is what was given") == len(sources.load(ROOT, ["05"]))

    (notebook_path,) = tmp_path.glob("*.ipynb")
    notebook = json.loads(notebook_path.read_text())
    for cell in notebook["cells"]:
        if cell["id"] == "answer-05-4":
            cell["source"] = loaded("05.4").solution
    notebook_path.write_text(json.dumps(notebook))
    assert cli.main(["check", "05.4"]) == 0
    assert "✓ 05.4" in capsys.readouterr().out
    assert cli.main(["check", "05.4", "05.1"]) == 1
    assert "6 of 12 points" in capsys.readouterr().out


def test_check_reads_the_student_from_the_file_and_gives_hints(tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text(answered("05.5", loaded("05.5").solution, student="zoe"))
    assert cli.main(["check", "05.5", "--file", str(path)]) == 0
    path.write_text(answered("05.4", loaded("05.4").partials[0].code))
    for number in (1, 2):
        capsys.readouterr()
        assert cli.main(["check", "05.4", "--file", str(path)]) == 1
        assert f"Hint {number} of 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["check", "05", "--file", "nowhere.py"], "no file nowhere.py"),
        (["check", "05"], "'minirlhf release --chapter 05 --out .' writes the exercises"),
        (["check", "77"], "unknown chapter '77'"),
        (["check", "05", "--file", "broken.ipynb"], "broken.ipynb is not a notebook"),
        (["release", "--out", "x", "--chapter", "ninety"], "unknown chapter"),
        (["grade", "nowhere", "--out", "x.csv"], "no folder nowhere"),
        (["grade", "empty", "--out", "x.csv"], "holds no submissions"),
        (["grade", "foreign", "--out", "x.csv"], "no submission has a section"),
        (["grade", "foreign", "--out", "x.csv", "--chapter", "05", "--jobs", "0"], "--jobs 0; expected at least 1"),
        (["check", "05", "--exercises", "empty"], "unknown chapter '05'"),
    ],
)
def test_bad_input_is_one_line_and_status_2(command, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for folder in ("empty", "foreign/ada"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "foreign" / "ada" / "a.py").write_text("print(1)\n")
    (tmp_path / "broken.ipynb").write_text("{}")
    assert cli.main(command) == 2
    shown = [x for x in capsys.readouterr().err.strip().splitlines() if not x.startswith("isolation: ")]
    assert says in shown[-1]
    assert len(shown) == 1


def test_a_class_is_graded_in_one_command(tmp_path, capsys):
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
    command = ["grade", str(work), "--out", str(tmp_path / "out" / "grades.csv"), "--allow-weak-isolation"]
    assert cli.main(command) == 0
    assert "isolation: " in capsys.readouterr().err
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
    assert f"**{loaded('05.4').partials[0].points + 3:g} of {sum(e.points for e in exercises):g} points**" in page
    assert "Hint: " in page
    assert release.leaks(loaded("05.4"), page.split("*Hint")[0]) == []


def test_grading_is_refused_where_the_answers_are_in_reach(tmp_path, capsys, monkeypatch):
    from minirlhf.classroom.runner import Server
    from minirlhf.cli import grade

    monkeypatch.setattr(grade, "Server", lambda hidden: Server(hidden, "limits"))
    work = tmp_path / "submissions" / "ada"
    work.mkdir(parents=True)
    (work / "a.py").write_text(answered("05.5", loaded("05.5").solution))
    command = ["grade", str(tmp_path / "submissions"), "--out", str(tmp_path / "grades.csv")]
    assert cli.main(command) == 2
    assert "this system cannot give: exercise sources out of reach, grader out of reach" in capsys.readouterr().err
    assert not (tmp_path / "grades.csv").exists()
    assert cli.main([*command, "--allow-weak-isolation"]) == 0
    assert (tmp_path / "grades.csv").exists()


def test_the_same_seed_gives_the_same_feedback(tmp_path):
    work = tmp_path / "submissions" / "ada"
    work.mkdir(parents=True)
    (work / "a.py").write_text(answered("05.1", loaded("05.1").mutants[0].code))
    pages = []
    for i, seed in enumerate(("7", "7", "8")):
        out = tmp_path / str(i) / "grades.csv"
        command = ["grade", str(work.parent), "--out", str(out), "--seed", seed, "--allow-weak-isolation"]
        assert cli.main(command) == 0
        pages.append((out.parent / "grades-feedback" / "ada.md").read_text())
    assert pages[0] == pages[1] != pages[2]


def test_the_answer_that_was_worked_on_counts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["release", "--chapter", "05", "--out", "."]) == 0
    (script,) = tmp_path.glob("*.py")
    e = loaded("05.4")
    script.write_text(script.read_text().replace(e.stub, e.solution))
    assert cli.main(["check", "05.4"]) == 0


@pytest.mark.slow
def test_the_released_notebook_runs_and_checks(tmp_path, monkeypatch):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    assert cli.main(["release", "--chapter", "05", "--out", str(tmp_path)]) == 0
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


@pytest.mark.every_chapter
def test_a_release_is_the_same_each_time(tmp_path):
    for name in ("a", "b"):
        assert cli.main(["release", "--out", str(tmp_path / name)]) == 0
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    shutil.rmtree(tmp_path / "a")


# -- what an instructor meets ------------------------------------------------------------------------------------


def graded(tmp_path, *options):
    """Grade ``tmp_path/submissions``; the rows of both files, each by what identifies it."""
    out = tmp_path / "marks"
    files = ["--out", str(out / "grades.csv"), "--totals", str(out / "totals.csv")]
    status = cli.main(["grade", str(tmp_path / "submissions"), *files, "--allow-weak-isolation", *options])
    assert status == 0
    with open(out / "grades.csv", newline="", encoding="utf-8") as one, open(out / "totals.csv", newline="") as two:
        rows = {(r["student"], r["exercise"]): r for r in csv.DictReader(one)}
        return rows, {r["student"]: r for r in csv.DictReader(two)}


def hand_in(tmp_path, name, content):
    path = tmp_path / "submissions" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def test_everybody_on_the_roster_has_a_row_and_a_total(tmp_path, capsys):
    hand_in(tmp_path, "ada/a.py", answered("05.4", loaded("05.4").partials[0].code))
    hand_in(tmp_path, "bob/homework.zip", b"PK")
    hand_in(tmp_path, "eve.pdf", b"%PDF")
    roster = tmp_path / "roster.txt"
    roster.write_text("zoe\nada\nbob\neve\n")
    rows, totals = graded(tmp_path, "--chapter", "05", "--roster", str(roster))
    assert list(totals) == ["zoe", "ada", "bob", "eve"]
    assert rows["zoe", "05.1"]["reason"] == "not handed in"
    assert rows["ada", "05.1"]["reason"] == "not handed in: no cell begins with '# exercise 05.1'"
    assert "homework.zip: expected a notebook" in rows["bob", "05.1"]["reason"]
    assert "eve.pdf: expected a notebook" in rows["eve", "05.1"]["reason"]
    exercises = sources.load(ROOT, ["05"])
    assert list(totals["ada"]) == ["student", *(e.id for e in exercises), "total", "max"]
    points = f"{loaded('05.4').partials[0].points:g}"
    most = f"{sum(e.points for e in exercises):g}"
    assert (totals["ada"]["05.4"], totals["ada"]["total"], totals["ada"]["max"]) == (points, points, most)
    assert totals["bob"]["total"] == totals["zoe"]["total"] == "0"


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ("adda\n", "did you mean 'adda'?"),
        ("ada\nada\n", "'ada' stands there twice"),
        ("\n", "is empty; expected one student id per line"),
    ],
)
def test_a_roster_that_does_not_fit_is_refused(names, says, tmp_path, capsys):
    hand_in(tmp_path, "ada/a.py", answered("05.4", loaded("05.4").solution))
    (tmp_path / "roster.txt").write_text(names)
    command = ["grade", str(tmp_path / "submissions"), "--out", str(tmp_path / "g.csv")]
    assert cli.main([*command, "--roster", str(tmp_path / "roster.txt")]) == 2
    assert says in capsys.readouterr().err


def test_what_an_answer_took_from_another_exercise_s_cells_is_found(tmp_path):
    four, one = loaded("05.4"), loaded("05.1")
    helper = one.solution.replace("torch.softmax", "softer")
    above = f"# %% exercise 05.4\n{four.given}\nsofter = torch.softmax\nraise SystemExit\n"
    hand_in(tmp_path, "ada.py", f"{above}\n# %% exercise 05.1\n{one.given}\n{helper}\n")
    hand_in(tmp_path, "bob.py", f"# %% exercise 05.1\n{one.given}\n{helper}\n\n{above}")
    rows, _ = graded(tmp_path, "--chapter", "05")
    assert float(rows["ada", "05.1"]["points"]) == one.points
    assert float(rows["bob", "05.1"]["points"]) < one.points
    assert "NameError: name 'softer' is not defined" in rows["bob", "05.1"]["reason"]


def test_a_file_from_another_editor_is_read(tmp_path):
    code = answered("05.4", loaded("05.4").solution).split("\n", 2)[2]
    hand_in(tmp_path, "ada.py", b"\xef\xbb\xbf" + code.replace("\n", "\r\n").encode())
    rows, _ = graded(tmp_path)
    assert rows["ada", "05.4"]["reason"] == ""


def test_feedback_names_the_file_and_keeps_what_is_to_be_typed(tmp_path):
    hand_in(tmp_path, "Ada/a.py", answered("05.5", loaded("05.5").solution, "reader"))
    hand_in(tmp_path, "Bob/b.py", answered("05.5", loaded("05.5").solution, "Bob"))
    graded(tmp_path, "--chapter", "05")
    page = (tmp_path / "marks" / "grades-feedback" / "Ada.md").read_text()
    assert "set STUDENT = 'Ada'" in page
    assert "Graded: `b.py`" in (tmp_path / "marks" / "grades-feedback" / "Bob.md").read_text()


def test_an_answer_may_not_lean_on_the_library(tmp_path):
    code = "from minirlhf.equations.rlhf import optimal_logps\nbest_policy = best_value = optimal_logps"
    hand_in(tmp_path, "ada.py", answered("05.1", code))
    rows, _ = graded(tmp_path)
    assert "may import torch, NumPy and what the exercise itself imports" in rows["ada", "05.1"]["reason"]


def leaning_by_a_helper():
    from minirlhf.equations import rlhf

    return lambda ref, rewards, beta: rlhf.optimal_logps(ref.log(), rewards, beta).exp()


def test_the_notebook_s_check_allows_the_imports_that_the_grader_allows():
    from minirlhf.equations.rlhf import optimal_logps

    def imports(ref, rewards, beta):
        import minirlhf.equations.rlhf as library

        return library.optimal_logps(ref.log(), rewards, beta).exp()

    for answer in (optimal_logps, imports, leaning_by_a_helper()):
        verdict = check("05.1", best_policy=answer, best_value=value)
        assert not verdict.passed
        assert "it uses minirlhf.equations.rlhf; an answer may import torch, NumPy and what the exercise" in repr(
            verdict
        )
    space = {"STUDENT": "ada", "print": lambda *args: None}
    exec(loaded("12.3").given + "\n" + loaded("12.3").solution, space)
    answers = {name: space[name] for name in loaded("12.3").asks}
    assert check("12.3", **answers, student="ada").passed, "what the exercise imports is allowed"


def test_where_there_is_no_answer_to_judge_no_hint_is_spent():
    assert "Hint" not in repr(check("05.1", best_value=value))
    shown = repr(check("05.1", best_policy=greedy, best_value=value))
    assert "Hint 1 of 2" in shown
    assert "Hint" not in repr(check("05.1", best_value=value)), "the second hint was given for a missing name"


def test_one_chapter_s_feedback_does_not_replace_another_s(tmp_path):
    hand_in(tmp_path, "ada/a.py", answered("05.4", loaded("05.4").solution))
    hand_in(tmp_path, "ada/b.py", answered("02.3", loaded("02.3").solution))
    for chapter in ("02", "05"):
        command = ["grade", str(tmp_path / "submissions"), "--chapter", chapter, "--allow-weak-isolation"]
        assert cli.main([*command, "--out", str(tmp_path / f"{chapter}.csv")]) == 0
    for chapter in ("02", "05"):
        assert f"| {chapter}.1 " in (tmp_path / f"{chapter}-feedback" / "ada.md").read_text()


def test_a_release_does_not_replace_what_was_worked_on(tmp_path, capsys):
    command = ["release", "--chapter", "05", "--out", str(tmp_path)]
    assert cli.main(command) == cli.main(command) == 0, "what has not been changed may be written again"
    script = tmp_path / "05_rlhf_problem.py"
    script.write_text("my work")
    (tmp_path / "05_rlhf_problem.ipynb").unlink()
    assert cli.main(command) == 2
    assert "has been changed; name another folder" in capsys.readouterr().err
    assert script.read_text() == "my work" and not (tmp_path / "05_rlhf_problem.ipynb").exists()
    assert cli.main([*command, "--replace"]) == 0
    assert "# %% exercise 05.1" in script.read_text()


def test_a_cache_that_cannot_be_written_costs_no_verdict(tmp_path, monkeypatch):
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("MINIRLHF_CACHE", str(tmp_path / "a file"))
    for _ in range(2):
        assert "Hint 1 of 2" in repr(check("05.1", best_policy=greedy, best_value=value))


# -- watching, progress, pictures --------------------------------------------------------------------------------


def test_a_file_counts_when_two_looks_find_the_same(tmp_path, monkeypatch):
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


def test_watching_prints_only_what_has_changed(tmp_path, monkeypatch, capsys):
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
    assert cli.main(["check", "05.1", "05.4", "--watch"]) == 0
    first, solved, spaces, again = heard
    assert "✗ 05.1" in first and "✓ 05.4" in first and "6 of 12 points" in first
    assert "✓ 05.1" in solved and "05.4" not in solved and "12 of 12 points" in solved
    assert "saved; nothing has changed" in spaces and "saved; nothing has changed" in again


def test_progress_keeps_the_best_and_names_what_is_next(capsys):
    one = loaded("05.1")
    assert check("05.1", best_policy=policy, best_value=value).passed
    check("05.1", best_policy=greedy, best_value=value)
    check("05.5", ppo_gb=1.0, student="ada")
    assert cli.main(["progress", "05"]) == 0
    shown = capsys.readouterr().out
    assert f"✓ 05.1  {one.points:g} of {one.points:g}  {one.title} ({one.kind}, {one.minutes} min, 2 checks)" in shown
    assert "· 05.5  0 of 3" in shown and "  05.2  0 of 5" in shown
    assert "next: 05.5" in shown, "what was begun comes first"
    check("05.5", **{n: float(v) for n, v in release.personal_answers(loaded("05.5"), "ada").items()}, student="ada")
    assert cli.main(["progress", "05"]) == 0
    shortest = min((loaded(f"05.{k}") for k in (2, 3, 4)), key=lambda e: e.minutes)
    assert f"next: {shortest.id} " in capsys.readouterr().out


def test_progress_without_a_cache_and_with_a_broken_one(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "progress.json").write_text('{"05.1": 3}')
    for cache in (folder, tmp_path / "a file"):
        monkeypatch.setenv("MINIRLHF_CACHE", str(cache))
        (tmp_path / "a file").write_text("")
        assert cli.main(["progress", "05"]) == 0
        assert "0 of " in capsys.readouterr().out


@pytest.mark.parametrize(("number", "slip"), [("04.5", "maximum"), ("09.5", "multiplier"), ("14.1", "logarithm")])
def test_a_picture_shows_the_learner_s_curve_beside_the_right_one(number, slip, tmp_path, monkeypatch, capsys):
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
    assert cli.main(["check", number, "--picture", "mine.png"]) == 0
    assert (tmp_path / "mine.png").read_bytes() != verdict.image
    assert cli.main(["check", "05.1", "--picture", "x.png"]) == 2
    drawn = ", ".join(e.id for e in sources.load(ROOT) if e.picture)
    assert f"--picture is for one exercise that has a picture: {drawn}" in capsys.readouterr().err
