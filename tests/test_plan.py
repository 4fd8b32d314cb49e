"""The plan of a run, the waiting, and the forecast: what is said of them holds."""

import importlib.util
import sys
import time
from pathlib import Path

import pytest
from patience import finished, limit, until
from plan import BY_CHAPTER, expected, known_costs, longest_first, of_chapter, unit

ROOT = Path(__file__).resolve().parents[1]


def load_forecast():
    spec = importlib.util.spec_from_file_location("forecast", ROOT / "tools" / "forecast.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# -- units -------------------------------------------------------------------------------------------------------


def test_a_notebook_is_a_unit_and_so_is_a_file():
    assert unit("tests/test_notebooks.py::test_it_runs[ch05-rlhf_problem]") == "tests/test_notebooks.py ch05"
    assert unit("tests/test_notebooks.py::test_a_case[two-ch05-x]") == "tests/test_notebooks.py ch05"
    assert unit("tests/test_notebooks.py::test_the_tool") == "tests/test_notebooks.py"
    assert unit("tests/test_ledger.py::test_it_holds[ch05-eq:k3-value]") == "tests/test_ledger.py"
    assert unit("tests/test_x.py::TestC::test_y[a::b]") == "tests/test_x.py"


def test_the_longest_start_first_and_a_chapter_never_timed_as_its_longest_kin():
    costs = {"n.py ch01": 30.0, "n.py ch04": 80.0, "tests/test_b.py": 50.0}
    assert expected("n.py ch22", costs) == 80.0
    assert expected("n.py", costs) == expected("tests/test_new.py", costs) == 0.0
    ids = ["tests/test_a.py::x", "tests/test_b.py::x", "tests/test_a.py::y", "tests/test_b.py::y"]
    assert list(longest_first(ids, costs).items()) == [("tests/test_b.py", ids[1::2]), ("tests/test_a.py", ids[::2])]


def test_every_unit_that_was_timed_is_there():
    """Names in costs.json that no longer exist would let long units start late, unseen."""
    for name in [*known_costs(), *BY_CHAPTER]:
        assert (ROOT / name.partition(" ")[0]).is_file(), f"{name}: run make forecast ARGS=--keep"


def test_a_case_says_its_chapter():
    case = of_chapter("05", 1, 2, id="x")
    assert case.values == (1, 2) and case.id == "ch05-x"
    assert [(mark.name, mark.args) for mark in case.marks] == [("chapter", (5,))]


# -- waiting -----------------------------------------------------------------------------------------------------


def test_a_command_may_take_ten_times_as_long_as_usual(monkeypatch):
    assert limit(usually=90) == 900 and limit(usually=1) == 600
    monkeypatch.setattr("patience.CEILING", 0.1)
    command = [sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(60)"]
    with pytest.raises(pytest.fail.Exception, match=r"has not ended after 2 s \(usually 0\)"):
        finished(command, usually=0.2)


def test_waiting_ends_when_it_is_true_and_says_what_for_when_it_never_is():
    answers = iter([0, "", None, 7])
    assert until(lambda: next(answers), "seven") == 7
    start = time.monotonic()
    with pytest.raises(TimeoutError, match="waited 0 s for nothing"):
        until(lambda: False, "nothing", ceiling=0.05)
    assert time.monotonic() - start >= 0.05


# -- the forecast ------------------------------------------------------------------------------------------------


def test_the_forecast_counts_chapters_by_kind():
    def test(cpu, chapter=None, grows=False):
        return {"cpu": cpu, "wall": cpu, "chapter": chapter, "grows": grows}

    tests = {
        "tests/test_a.py::fixed": test(100.0),
        "tests/test_b.py::all": test(4.0, grows=True),
        "tests/test_notebooks.py::n[ch04-a]": test(60.0, 4),
        "tests/test_notebooks.py::n[ch05-b]": test(20.0, 5),
        "tests/test_ledger.py::c[ch05-c]": test(10.0, 5),
        "tests/test_ledger.py::c[ch19-d]": test(1.0, 19),
    }
    rows = load_forecast().forecast(tests, 22)
    assert [(now, then) for _, now, then in rows] == [(100, 100), (4, 44), (60, 6 * 60), (30, 16 * 30), (1, 0)]
