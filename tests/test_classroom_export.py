"""A chapter for Gradescope, GitHub Classroom and Otter: complete packages, whose graders give the points of `class grade`."""

import ast
import json
import subprocess
import zipfile

import pytest
import yaml
from commands import complaint
from facts import raises

import minirlhf_cli as cli
from minirlhf.core import provenance
from minirlhf.core.errors import UserError
from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom import github, gradescope, otter, release

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("shared_server")]

ROOT = provenance.ROOT / "exercises"
EASY, PERSONAL, USING = sources.load(ROOT, ["00.3", "05.5", "05.6"])
PART = f"{EASY.solution}\n\n{EASY.partials[0].code}"


def answer(exercise, code, student="ada"):
    return f'STUDENT = "{student}"\n\n# %% exercise {exercise.id}\n{exercise.given}\n\n{code}\n'


# -- Gradescope --------------------------------------------------------------------------------------------------


def test_gradescope_archive_holds_course_exercises_and_scripts(tmp_path):
    [path] = gradescope.write([USING], tmp_path)
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        modes = {n: archive.getinfo(n).external_attr >> 16 for n in ("setup.sh", "run_autograder")}
        for name in modes:
            text = archive.read(name)
            assert subprocess.run(["bash", "-n"], input=text, check=True).returncode == 0
        assert f" {USING.chapter}\n" in archive.read("run_autograder").decode()
    assert set(modes.values()) == {0o755}
    assert {"course/pyproject.toml", "course/minirlhf_course/classroom/gradescope.py"} <= names
    exercises = {n.removeprefix("exercises/") for n in names if n.startswith("exercises/")}
    assert USING.uses and exercises == {
        f"{e.path.parent.name}/{e.path.name}" for e in sources.load(ROOT, [USING.id, *USING.uses])
    }
    assert not [n for n in names if "__pycache__" in n or n.startswith("course/exercises")]


def test_gradescope_needs_clone(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    with raises(UserError, file=str(tmp_path), problem="missing"):
        gradescope.course_files()


@pytest.fixture
def container(tmp_path):
    """A folder as ``/autograder`` with a submission of two exercises, one half right, one of a student by address."""
    (tmp_path / "submission" / "deep").mkdir(parents=True)
    (tmp_path / "submission" / "hw.py").write_text(answer(EASY, PART), encoding="utf-8")
    (tmp_path / "submission" / "deep" / "b.py").write_text(answer(PERSONAL, PERSONAL.solution), encoding="utf-8")
    users = {"users": [{"email": "ada@example.edu", "id": 7, "name": "Ada Lovelace"}]}
    (tmp_path / "submission_metadata.json").write_text(json.dumps(users), encoding="utf-8")
    return tmp_path


def test_gradescope_results_have_documented_form_and_points(container, monkeypatch):
    monkeypatch.setattr(sources, "load", lambda root, wanted=(): [EASY, PERSONAL])
    gradescope.main(["05", "--root", str(container)])
    found = json.loads((container / "results" / "results.json").read_text(encoding="utf-8"))
    assert found.keys() <= {
        "score",
        "execution_time",
        "output",
        "visibility",
        "stdout_visibility",
        "extra_data",
        "tests",
    }
    assert [(t["score"], t["max_score"], t["status"]) for t in found["tests"]] == [
        (EASY.partials[0].points, EASY.points, "failed"),
        (PERSONAL.points, PERSONAL.points, "passed"),
    ]
    assert any(hint in found["tests"][0]["output"] for t in EASY.tests for hint in t.hints)
    assert found["output"] == ""
    assert release.leaks(PERSONAL, found["tests"][1]["output"]) == []


def test_gradescope_names_numbers_of_another_student(container):
    (container / "submission_metadata.json").write_text('{"users": [{"email": "bob@example.edu"}]}', encoding="utf-8")
    [entry] = gradescope.results(container, [PERSONAL])["tests"]
    assert entry["score"] == 0 and "ada" in entry["output"]


def test_gradescope_reports_file_that_is_no_notebook(container):
    (container / "submission" / "hw.py").unlink()
    (container / "submission" / "deep" / "b.py").unlink()
    (container / "submission" / "hw.ipynb").write_text("{", encoding="utf-8")
    found = gradescope.results(container, [EASY])
    assert found["tests"][0]["score"] == 0 and "hw.ipynb" in found["output"]


# -- GitHub Classroom --------------------------------------------------------------------------------------------


def test_github_workflow_checks_and_reports_each_exercise(tmp_path):
    exercises = sources.load(ROOT, ["05"])
    paths = github.write(exercises, tmp_path, source="teacher/course")
    [file] = [p for p in paths if p.suffix == ".yml"]
    assert file.relative_to(tmp_path / "05_rlhf_problem-github").as_posix() == ".github/workflows/classroom.yml"
    workflow = yaml.safe_load(file.read_text(encoding="utf-8"))
    [job] = workflow["jobs"].values()
    steps = {s["id"]: s for s in job["steps"] if "id" in s}
    assert [s["with"]["max-score"] for s in steps.values()] == [e.points for e in exercises]
    for exercise, step in zip(exercises, steps.values(), strict=True):
        assert step["with"]["command"].split()[:3] == ["minirlhf", "check", exercise.id]
        assert complaint(step["with"]["command"]) is None
    reporter = job["steps"][-1]
    assert reporter["with"]["runners"].split(",") == list(steps)
    assert reporter["env"] == {f"{id.upper()}_RESULTS": f"${{{{steps.{id}.outputs.result}}}}" for id in steps}
    assert [s["with"]["repository"] for s in job["steps"] if "repository" in s.get("with", {})] == ["teacher/course"]
    for path in paths:
        assert not [line for e in exercises for line in release.leaks(e, path.read_text(encoding="utf-8"))]


# -- Otter -------------------------------------------------------------------------------------------------------


def test_otter_master_has_balanced_blocks_and_all_tests():
    exercises = sources.load(ROOT, ["05"])
    cells = json.loads(otter.master(exercises, "teacher/course"))["cells"]
    assert len({c["id"] for c in cells}) == len(cells)
    texts = [("".join(c["source"]), c["cell_type"]) for c in cells]
    config = yaml.safe_load(texts[0][0])
    assert f"exercises/{USING.path.parent.name}/{USING.path.name}" in config["autograder_files"]
    stack, tests, outside = [], [], []
    for text, kind in texts[1:]:
        word = text.removeprefix("# ").split("\n")[0].split()
        if kind == "raw" and word[0] == "BEGIN":
            stack.append(word[1])
        elif kind == "raw":
            assert (word[0], stack.pop()) == ("END", word[1])
        elif stack and stack[-1] == "TESTS":
            tests.append(text)
        elif "SOLUTION" not in stack:
            outside.append(text)
    assert stack == []
    assert not [line for e in exercises for line in release.leaks(e, "\n".join(outside))]
    for text, (e, test) in zip(tests, [(one, t) for one in exercises for t in one.tests], strict=True):
        [call] = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call)]
        assert [a.value for a in call.args[:2]] == [e.id, test.name]
        assert yaml.safe_load(text.split('"""')[1].split("\n", 1)[1]) == {"points": test.points, "hidden": True}


def test_otter_require_passes_and_fails_as_the_tests_do():
    def failures(code):
        env = {"STUDENT": "ada"}
        exec(f"{EASY.given}\n{code}", env)
        failed = []
        for t in EASY.tests:
            try:
                otter.require(EASY.id, t.name, env)
            except AssertionError as problem:
                failed.append(t)
                assert str(problem).strip()
        return failed

    assert failures(EASY.solution) == []
    missing = sum(t.points for t in failures(PART))
    assert missing == EASY.points - EASY.partials[0].points > 0


def test_otter_require_refuses_numbers_of_another_student():
    env = {"STUDENT": 5}
    with pytest.raises(AssertionError):
        otter.require(PERSONAL.id, PERSONAL.tests[0].name, env)


# -- the command -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "source", "facts"),
    [
        ("github", [], {"argument": "--source", "value": ""}),
        ("otter", ["--source", "https://example.org/x"], {"argument": "--source", "expected": "OWNER/NAME"}),
        ("gradescope", ["--source", "a/b"], {"argument": "--source", "value": "a/b"}),
    ],
)
def test_class_export_refuses_source_that_does_not_fit(target, source, facts, tmp_path):
    with raises(UserError, **facts):
        cli.dispatch(["class", "export", "--to", target, "--chapter", "00", *source, "--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


def test_class_export_keeps_changed_file(tmp_path):
    command = ["class", "export", "--to", "otter", "--chapter", "00", "--source", "a/b", "--out", str(tmp_path)]
    assert cli.dispatch(command) == 0 == cli.dispatch(command)
    [notebook] = tmp_path.glob("*/*.ipynb")
    notebook.write_text("{}", encoding="utf-8")
    with raises(UserError, argument="--replace", file=str(notebook), problem="exists"):
        cli.dispatch(command)
    assert cli.dispatch([*command, "--replace"]) == 0
