"""The plan of a run, its options, the costs that it keeps, and waiting."""

import importlib.util
import json
import os
import sys
import time
from pathlib import Path

import pytest
from patience import finished, limit, until
from plan import BY_CHAPTER, SEED, committed_costs, expected, longest_first, of_chapter, own_seed, seed, shuffled, unit

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def costs():
    spec = importlib.util.spec_from_file_location("costs", ROOT / "tools" / "costs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# -- the seed ----------------------------------------------------------------------------------------------------


def test_seed_is_constant_unless_replayed(monkeypatch):
    monkeypatch.delenv("MINIRLHF_TEST_SEED", raising=False)
    assert seed() == SEED
    before = own_seed("ex_01_1")
    monkeypatch.setenv("MINIRLHF_TEST_SEED", "7")
    assert seed() == 7 and own_seed("ex_01_1") not in (before, own_seed("ex_01_2"))


# -- units -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodeid", "expected_unit"),
    [
        ("tests/test_notebooks.py::test_notebook_runs[ch05-rlhf_problem]", "tests/test_notebooks.py ch05"),
        ("tests/test_notebooks.py::test_a_case[two-ch05-x]", "tests/test_notebooks.py ch05"),
        ("tests/test_notebooks.py::test_the_tool", "tests/test_notebooks.py"),
        ("tests/test_answers.py::test_right[ch05-05.1 x]", "tests/test_exercises.py ch05"),
        ("tests/test_exercises.py::test_proof[ch05-ex_05_1]", "tests/test_exercises.py ch05"),
        ("tests/test_ledger.py::test_check_holds[ch05-eq:k3-value]", "tests/test_ledger.py"),
    ],
)
def test_unit_is_a_file_or_one_chapter_of_it(nodeid, expected_unit):
    assert unit(nodeid) == expected_unit


def test_longest_first_starts_long_units_early_and_untimed_chapters_as_their_longest_kin():
    costs = {"n.py ch01": 30.0, "n.py ch04": 80.0, "tests/test_b.py": 50.0}
    assert expected("n.py ch22", costs) == 80.0
    assert expected("n.py", costs) == expected("tests/test_new.py", costs) == 0.0
    ids = ["tests/test_a.py::x", "tests/test_b.py::x", "tests/test_a.py::y", "tests/test_b.py::y"]
    assert list(longest_first(ids, costs).items()) == [("tests/test_b.py", ids[1::2]), ("tests/test_a.py", ids[::2])]


def test_shuffled_keeps_units_whole_and_repeats_by_its_seed():
    ids = [f"tests/test_{file}.py::{test}" for file in "abcdef" for test in "uvwxyz"]
    units = shuffled(ids, 1)
    assert units == shuffled(ids, 1) and list(units) != list(shuffled(ids, 2))
    assert sorted(nodeid for nodeids in units.values() for nodeid in nodeids) == sorted(ids)
    assert all(unit(nodeid) == name for name, nodeids in units.items() for nodeid in nodeids)
    assert units["tests/test_a.py"] != ids[:6]


def test_committed_costs_name_files_that_exist():
    """Names that no longer exist would let long units start late, unseen."""
    for name in [*committed_costs(), *BY_CHAPTER]:
        assert (ROOT / name.partition(" ")[0]).is_file(), f"{name}: run make costs ARGS=--keep"


def test_of_chapter_marks_the_case():
    case = of_chapter("05", 1, 2, id="x")
    assert case.values == (1, 2) and case.id == "ch05-x"
    assert [(mark.name, mark.args) for mark in case.marks] == [("chapter", (5,))]


# -- options of a run --------------------------------------------------------------------------------------------

MADE_UP = """
import pytest
from hypothesis import given, strategies

def test_plain(): pass
def test_drawing(suite_seed): pass
@given(strategies.integers())
def test_property(x): pass
@pytest.mark.release
def test_of_a_release(): pass
@pytest.mark.chapter(5)
def test_of_a_chapter(): pass
"""


CHOSEN = {
    "": {"plain", "drawing", "property", "of_a_chapter"},
    "--all --shuffle=1": {"plain", "drawing", "property", "of_a_chapter", "of_a_release"},
    "--random-inputs": {"drawing", "property"},
}
RUNS = f"""
import pytest

markers = ["-o", "markers=release: x\\nslow: x\\nchapter(n): x"]
for number, options in enumerate({[*CHOSEN]!r}):
    if pytest.main(["-q", f"--costs=costs-{{number}}.json", *markers, *options.split(), "."]) != 0:
        raise SystemExit(options)
"""


@pytest.mark.slow
def test_options_select_tests_and_costs_are_written(tmp_path):
    """All runs in one process, which takes seconds to start."""
    for name in ("conftest.py", "plan.py"):
        (tmp_path / name).write_text((ROOT / "tests" / name).read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "test_made_up.py").write_text(MADE_UP, encoding="utf-8")
    done = finished([sys.executable, "-c", RUNS], cwd=tmp_path, usually=8, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stdout
    for number, chosen in enumerate(CHOSEN.values()):
        run = json.loads((tmp_path / f"costs-{number}.json").read_text(encoding="utf-8"))
        assert {name.partition("::test_")[2] for name in run["tests"]} == chosen
        assert {test["outcome"] for test in run["tests"].values()} == {"passed"}


def test_costs_compares_the_outcomes_of_two_runs(costs):
    one = {"a": {"outcome": "passed"}, "b": {"outcome": "passed"}, "c": {"outcome": "skipped"}}
    other = {"a": {"outcome": "passed"}, "b": {"outcome": "failed"}}
    assert costs.differing(one, one) == []
    assert [line.split(":")[0] for line in costs.differing(one, other)] == ["b", "c"]


# -- waiting -----------------------------------------------------------------------------------------------------


def test_finished_allows_ten_times_the_usual_time(monkeypatch):
    assert limit(usually=90) == 900 and limit(usually=1) == 600
    monkeypatch.setattr("patience.CEILING", 0.1)
    command = [sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(60)"]
    with pytest.raises(pytest.fail.Exception, match=r"begun"):
        finished(command, usually=0.2)


def test_until_returns_the_first_true_answer_and_names_what_never_came():
    answers = iter([0, "", None, 7])
    assert until(lambda: next(answers), "seven") == 7
    start = time.monotonic()
    with pytest.raises(TimeoutError, match="nothing"):
        until(lambda: False, "nothing", ceiling=0.05)
    assert time.monotonic() - start >= 0.05
