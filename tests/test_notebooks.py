"""The notebooks run within their budget and say what they said when they were committed; the tool that makes them, tested."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from patience import finished
from plan import of_chapter

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.py"))
each_source = pytest.mark.parametrize("source", [of_chapter(p.stem[:2], p, id=p.stem[3:]) for p in SOURCES])


def load_tool() -> ModuleType:
    """tools/notebooks.py as a module."""
    spec = importlib.util.spec_from_file_location("notebooks_tool", ROOT / "tools" / "notebooks.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


tool = load_tool()


# -- the notebooks of the repository -----------------------------------------------------------------------------


def test_every_notebook_has_its_source() -> None:
    """And the other way round."""
    made = {p.stem for p in (ROOT / "notebooks").glob("*.ipynb")}
    assert made == {p.stem for p in SOURCES}


@each_source
def test_the_committed_notebook_is_that_of_its_source(source: Path) -> None:
    """Cell by cell, executed from top to bottom, with outputs where nbval compares, and with alternative texts."""
    assert tool.is_current(source), f"run tools/notebooks.py build {source.name[:2]}"
    made = json.loads(source.with_suffix(".ipynb").read_text(encoding="utf-8"))
    wanted = tool.cells(source)
    assert [(c["id"], "".join(c["source"])) for c in made["cells"]] == [(c.id, c.source) for c in wanted.cells]
    assert made["metadata"]["kernelspec"]["name"] == "python3"
    code = [c for c in made["cells"] if c["cell_type"] == "code"]
    # nbval compares nothing at all in a notebook without counts, and passes.
    assert [c["execution_count"] for c in code] == list(range(1, len(code) + 1))
    checked = [c for c in code if "# NBVAL_CHECK_OUTPUT" in "".join(c["source"])]
    assert all(c["outputs"] for c in checked)
    drawn = [c for c in code if any("image/png" in out.get("data", {}) for out in c["outputs"])]
    assert drawn, "a chapter's notebook draws at least one figure"
    assert all(len(c["metadata"]["mystnb"]["image"]["alt"]) > 20 for c in drawn)


@pytest.mark.slow
@each_source
def test_the_notebook_runs_within_its_budget(source: Path) -> None:
    """Under nbval, on one thread, with the zoo filled."""
    command = [sys.executable, str(ROOT / "tools" / "notebooks.py"), "check", source.name[:2]]
    done = finished(command, usually=2 * tool.budget(source))  # twice if the first run takes too long
    assert done.returncode == 0, done.stdout[-5000:]


# -- the tool ----------------------------------------------------------------------------------------------------

GOOD = """\
# %% [markdown]
# # 05 · A test

# %%
# figure: line
# alt: A straight line that rises from one
#   to three.
import matplotlib.pyplot as plt

plt.plot([1, 2, 3]);

# %%
# NBVAL_CHECK_OUTPUT
x = 3
print(x)
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A small notebook's source."""
    path = tmp_path / "05_test.py"
    path.write_text(GOOD, encoding="utf-8")
    return path


def test_ids_stay_when_a_cell_is_put_in(source: Path) -> None:
    """Only the new cell is new; equal cells are told apart."""
    before = [c.id for c in tool.cells(source).cells]
    source.write_text(GOOD.replace("# %%\n# NBVAL", "# %%\ny = 1\n\n# %%\ny = 1\n\n# %%\n# NBVAL"), encoding="utf-8")
    after = [c.id for c in tool.cells(source).cells]
    assert [i for i in after if i in before] == before and len(after) == len(before) + 2
    assert len(set(after)) == len(after)
    assert "figure-line" in after


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("# alt: A straight line that rises from one\n#   to three.\n", "", "needs both '# figure:' and '# alt:'"),
        ("# figure: line\n", "# figure: A line\n", "figure name 'A line'"),
        ("# NBVAL", "# figure: line\n# alt: again\n# NBVAL", "figure name 'line'"),
    ],
)
def test_a_figure_without_name_or_text_is_refused(old: str, new: str, said: str, source: Path) -> None:
    """Before anything runs."""
    source.write_text(GOOD.replace(old, new), encoding="utf-8")
    with pytest.raises(tool.Refused, match=said):
        tool.cells(source)


@pytest.mark.slow
def test_build_check_and_what_they_refuse(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One source through its life: built, checked, outdated, changed behind the tool's back, failing, over budget."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    cost = tool.execute(source)
    assert 0 < cost.seconds < 40 and 50 < cost.megabytes < 2048
    made = source.with_suffix(".ipynb")
    first = made.read_bytes()
    assert tool.is_current(source) and tool.rerun(source).megabytes > 50
    tool.execute(source)
    assert made.read_bytes() == first  # the same text makes the same file

    made.write_bytes(first.replace(b'"3\\n"', b'"4\\n"'))
    with pytest.raises(tool.Refused, match="under nbval"):
        tool.rerun(source)
    assert tool.report(source, tool.Cost(41.0, 100.0)) is False
    assert tool.report(source, tool.Cost(1.0, 3000.0)) is False
    assert tool.report(source, tool.Cost(39.0, 1000.0)) is True
    assert tool.report(source, tool.Cost(41.0, 1000.0, slowness=1.1)) is True
    assert tool.report(source, tool.Cost(45.0, 1000.0, slowness=1.1)) is False
    assert tool.report(source, tool.Cost(30.0, 3000.0, slowness=2.0)) is False  # memory does not depend on speed

    for code, said in (
        ("import sys\nprint('x', file=sys.stderr)", "writes to stderr"),
        ("raise KeyError('k')", "KeyError"),
        ("import matplotlib.pyplot as plt\nplt.plot([1]);", "it needs '# figure: name'"),
    ):
        source.write_text(f"# %%\n{code}\n", encoding="utf-8")
        assert not tool.is_current(source)
        with pytest.raises(Exception, match=said):
            tool.execute(source)
    assert b"KeyError" not in made.read_bytes()  # what was refused was not written


def test_what_takes_too_long_goes_again_between_two_looks_at_the_machine(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shorter of both counts; a run within its budget needs no look."""
    looks, runs = iter([1.0, 1.5, 1.2, 1.0]), iter([39.0, 50.0, 45.0, 50.0, 54.0])
    monkeypatch.setattr(tool, "slowness", lambda: next(looks))

    def run(path: Path) -> object:
        return tool.Cost(next(runs), 5.0)

    assert tool.measured(run, source) == tool.Cost(39.0, 5.0)
    assert tool.measured(run, source) == tool.Cost(45.0, 5.0, slowness=1.25)
    assert tool.measured(run, source) == tool.Cost(50.0, 5.0, slowness=1.2)
    assert [*looks, *runs] == []


@pytest.mark.slow
def test_a_slow_machine_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a reference that needs no time and one that needs an hour; a faster machine gets nothing off."""
    took = tool.work()
    monkeypatch.setattr(tool, "work", lambda: took)
    monkeypatch.setattr(tool, "WORK_SECONDS", 1e-3)
    assert tool.slowness() > 100
    monkeypatch.setattr(tool, "WORK_SECONDS", 3600.0)
    assert tool.slowness() == 1.0


def test_budgets_are_those_of_the_chapters() -> None:
    """Ninety seconds for the five long ones."""
    assert [tool.budget(Path(f"{n:02}_x.py")) for n in (1, 4, 5, 12, 13, 14, 20, 22)] == [
        40,
        90,
        40,
        90,
        90,
        90,
        90,
        40,
    ]
