"""The notebooks run within their budget and say what they said when they were committed; the tool that makes them, tested."""

import ast
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from facts import raises
from plan import of_chapter
from replayed import replay

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


def test_notebooks_have_sources() -> None:
    """And the other way round."""
    made = {p.stem for p in (ROOT / "notebooks").glob("*.ipynb")}
    assert made == {p.stem for p in SOURCES}


@pytest.mark.slow
@each_source
def test_notebook_is_built_from_its_source(source: Path) -> None:
    """Cell by cell, executed from top to bottom, with outputs where nbval compares, and with alternative texts."""
    assert tool.is_current(source), f"run tools/notebooks.py build {source.name[:2]}"
    made = json.loads(source.with_suffix(".ipynb").read_text(encoding="utf-8"))
    wanted = tool.cells(source)
    assert [(c["id"], "".join(c["source"])) for c in made["cells"]] == [(c.id, c.source) for c in wanted.cells]
    assert made["metadata"]["kernelspec"]["name"] == "python3"
    code = [c for c in made["cells"] if c["cell_type"] == "code"]
    # nbval compares nothing at all in a notebook without counts, and passes.
    assert [c["execution_count"] for c in code] == list(range(1, len(code) + 1))
    checked = [c for c in code if "nbval-check-output" in c["metadata"]["tags"]]
    assert checked and all(c["outputs"] for c in checked)
    drawn = [c for c in code if any("image/png" in out.get("data", {}) for out in c["outputs"])]
    assert drawn, "a chapter's notebook draws at least one figure"
    assert all(len(c["metadata"]["mystnb"]["image"]["alt"]) > 20 for c in drawn)


NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "eight": 8, "nine": 9}


COLUMN = 744  # pixels: the column of a page in a window of 1280
NAMED = {"xx-small": 0.579, "x-small": 0.694, "small": 0.833, "smaller": 0.833}  # as matplotlib has them


@each_source
def test_notebook_figures_have_legible_letters(source: Path) -> None:
    """None is below 7.5 pixels where the page has shrunk the figure to its column; the figures are drawn with 100 pixels an inch."""
    made = json.loads(source.with_suffix(".ipynb").read_text(encoding="utf-8"))
    usual = [float(size) for size in re.findall(r'"font\.size": ([\d.]+)', source.read_text(encoding="utf-8"))]
    assert len(usual) == 1
    small = {}
    for cell in made["cells"]:
        if not cell["id"].startswith("figure-"):
            continue
        asked = re.findall(r"""(?:fontsize|labelsize)=["']?([\w.-]+)""", "".join(cell["source"]))
        sizes = [NAMED[s] * usual[0] if s in NAMED else float(s) for s in asked if s in NAMED or s[0].isdigit()]
        shown = min(1.0, COLUMN / float(cell["metadata"]["mystnb"]["image"]["width"].removesuffix("px")))
        small[cell["id"]] = min([*usual, *sizes]) / 72 * 100 * shown
    assert {name: round(pixels, 1) for name, pixels in small.items() if pixels < 7.5} == {}
    assert small


@each_source
def test_notebook_code_cells_hold_no_markdown(source: Path) -> None:
    """A forgotten ``# %% [markdown]`` leaves headings and paragraphs as comments of a cell that may not even be shown."""
    code = [c.source for c in tool.cells(source).cells if c.cell_type == "code"]
    assert not [line for text in code for line in text.splitlines() if re.match(r"#\s*$|# #", line)]


@each_source
def test_notebook_alt_text_counts_panels(source: Path) -> None:
    """Where it says how many; and a figure of several has none but panels (a colour bar would be an axes, too)."""
    for cell in json.loads(source.with_suffix(".ipynb").read_text(encoding="utf-8"))["cells"]:
        alt = cell["metadata"].get("mystnb", {}).get("image", {}).get("alt", "")
        said = re.search(r"\b(\w+) (?:\w+ )?panels\b", alt)
        made = re.search(
            r"with (\d+) Axes",
            "".join("".join(o.get("data", {}).get("text/plain", "")) for o in cell.get("outputs", [])),
        )
        if said and made and said[1].lower() in NUMBERS:
            assert NUMBERS[said[1].lower()] == int(made[1]), alt


def code_cells(source: Path) -> list[tuple[dict[str, Any], str]]:
    """Metadata and code of each cell of the committed notebook but the first, which holds IPython's commands."""
    cells = json.loads(source.with_suffix(".ipynb").read_text(encoding="utf-8"))["cells"]
    return [(c["metadata"], "".join(c["source"])) for c in cells if c["cell_type"] == "code"][1:]


def draws(part: ast.stmt) -> bool:
    """A statement that calls matplotlib, or a method of a figure or of axes by the names that the notebooks give them."""
    pictures = {"plt", "fig", "ax", "axes", "left", "middle", "right", "right_panel", "twin", "world_map", "image"}
    values = [part.value] if isinstance(part, ast.Expr | ast.Assign) else []
    for value in values:
        found = value.func if isinstance(value, ast.Call) else value
        while isinstance(found, ast.Attribute | ast.Subscript):
            found = found.value
        if isinstance(value, ast.Call) and isinstance(found, ast.Name) and found.id in pictures:
            return True
    return False


def only_for_show(body: list[ast.stmt]) -> bool:
    """Only statements that draw or assert, under conditions and in loops too."""
    return bool(body) and all(
        isinstance(part, ast.Assert)
        or draws(part)
        or (isinstance(part, ast.If | ast.For | ast.With) and only_for_show(part.body))
        for part in body
    )


@each_source
def test_notebook_hides_code_that_only_draws_or_asserts(source: Path) -> None:
    """Code that only draws or asserts is folded in JupyterLab, on Colab and on the site; visible code does neither."""
    for metadata, code in code_cells(source):
        body = ast.parse(code).body
        hidden = metadata.get("jupyter", {}).get("source_hidden", False)
        assert hidden == (metadata.get("cellView") == "form")
        assert hidden or not only_for_show(body), code
        if hidden:
            assert {"hide-input", "remove-input", "remove-cell"} & set(metadata["tags"]), code
        else:
            assert not any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(code))), code
            assert "plt." not in code.replace("plt.rcParams.update", ""), code
        assert not re.search(r"^# (NBVAL|figure:|alt:|slow)", code, re.MULTILINE), code


@each_source
def test_notebook_asks_predictions_before_results(source: Path) -> None:
    """Three to nine of them, each with its answer; what comes out in between is folded; their count stands before the exercises."""
    cells = code_cells(source)
    asked = [at for at, (metadata, _) in enumerate(cells) if "prediction" in metadata["tags"]]
    revealed = [at for at, (_, code) in enumerate(cells) for _ in range(code.count(".reveal("))]
    assert 3 <= len(asked) <= 9
    made = json.loads(source.with_suffix(".ipynb").read_text(encoding="utf-8"))["cells"]
    code = [c for c in made if c["cell_type"] == "code"][1:]
    for at, (metadata, _) in enumerate(cells):
        waiting = sum(a < at for a in asked) > sum(r < at for r in revealed)
        if waiting and at not in asked and "remove-cell" not in metadata["tags"]:
            assert metadata["collapsed"] and metadata["jupyter"]["outputs_hidden"] and "hide-output" in metadata["tags"]
    said = ["".join(text for out in code[at]["outputs"] for text in out.get("text", ())) for at in sorted({*revealed})]
    lettered = re.compile(r"(?m)^\w+: .*[a-j]  ")  # an answer, with the letter of its choice
    assert sum(len(lettered.findall(text)) for text in said) == len(asked)
    assert not any(lettered.match(text) for text in said)  # JupyterLab shows the first line of a folded output
    exercises = next(at for at, c in enumerate(made) if "".join(c["source"]).startswith("## Now you"))
    tally = "".join(made[exercises - 1]["outputs"][0]["text"])
    assert re.findall(r"\d+", tally) == [str(len(asked))]  # nobody was there: how many are asked for, and none is right
    text = source.read_text(encoding="utf-8")
    assert f'predict = Predictions("{source.name[:2]}")' in text and "**Predict" not in text


@each_source
def test_notebook_titles_have_one_style(source: Path) -> None:
    """``# NN · Title``; sections and titles without a full stop and in sentence case, the last one "Now you"; titles of figures in lower case."""
    made = json.loads(source.with_suffix(".ipynb").read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(c["source"]) for c in made if c["cell_type"] == "markdown")
    first, *sections = re.findall(r"^#+ .*", text, re.MULTILINE)
    assert re.fullmatch(rf"# {source.name[:2]} · \S.*[^.]", first)
    assert sections[-1] == "## Now you"
    for section in sections:
        assert re.fullmatch(r"## [A-Z].{1,60}[^.]", section), section
        assert not re.search(r"(?<![?:.]) [A-Z][a-z]+\b(?![A-Z-])", section.removeprefix("## ")), section
    assert not re.search(
        r"^\*\*(A|An)? ?failure", text, re.MULTILINE | re.IGNORECASE
    )  # a failure on purpose has a section
    for _, code in code_cells(source):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Call):
                named = [k.value for k in node.keywords if k.arg == "title"]
                if isinstance(node.func, ast.Attribute) and node.func.attr in ("set_title", "suptitle"):
                    named += node.args[:1]
                for value in named:
                    part = value.values[0] if isinstance(value, ast.JoinedStr) else value
                    if isinstance(part, ast.Constant):
                        assert re.match(r"[^A-Z]|[A-Z]+\b", str(part.value)) and not str(part.value).endswith("."), code


@pytest.fixture(name="replay")
def replay_fixture() -> Any:
    """The function of :mod:`replayed`, by whose name ``conftest`` knows that a test waits for another process."""
    return replay


@pytest.mark.slow
@each_source
def test_notebook_runs_and_prints_what_is_committed(source: Path, replay: Any) -> None:
    """Without Jupyter, on one thread, with the zoo filled. Of time a busy machine may take three times the budget."""
    tool.fill_zoo(source)
    seconds, memory, problem = replay(source.with_suffix(".ipynb"))
    assert problem == ""
    assert memory / tool.RSS_PER_MEGABYTE <= tool.MEGABYTES
    assert seconds <= 3 * tool.budget(source)


REPLAYED = {
    "print(x)": ("", "3\n"),
    "print(2)": ("prints", "3\n"),
    "print(x, end='')": ("prints", "3\n"),
    "assert x == 4": ("AssertionError", ""),
    "x.real()": ("TypeError", ""),
    "raise SystemExit": ("SystemExit", ""),
    "import os; os._exit(3)": ("ended with 3", ""),
    "import matplotlib.pyplot as plt; plt.title(r'$\\frac{1}$')": ("Parse", ""),
    "import inspect\ndef f(): return 1\nassert 'return 1' in inspect.getsource(f)": ("", ""),
    "import dataclasses\n@dataclasses.dataclass\nclass A:\n    x: 'int'\nassert A(1) == A(1)": ("", ""),
}


@pytest.mark.slow
@pytest.mark.parametrize("code", REPLAYED)
def test_replayed_notebook_with_planted_fault_has_problem(code: str, tmp_path: Path, replay: Any) -> None:
    """In what a cell prints, raises or draws; what only IPython understands stands in the first cell, and is left out."""
    problem, printed = REPLAYED[code]
    output = [{"output_type": "stream", "name": "stdout", "text": [printed]}] * bool(printed)
    made = [
        {"cell_type": "code", "id": str(n), "source": [text], "outputs": outputs, "metadata": {"tags": tags}}
        for n, (text, outputs, tags) in enumerate(
            [("%matplotlib inline", [], []), ("x = 3", [], []), (code, output, ["nbval-check-output"])]
        )
    ]
    path = tmp_path / "05_test.ipynb"
    path.write_text(json.dumps({"cells": made}), encoding="utf-8")
    found = replay(path)[2]
    assert problem in found and bool(found) == bool(problem)


@pytest.mark.release
@each_source
def test_notebook_runs_within_time_budget(source: Path) -> None:
    """Measured against how fast the machine is just then."""
    tool.fill_zoo(source)
    assert tool.report(source, tool.measured(tool.rerun, source))


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


def test_notebooks_tool_keeps_cell_ids(source: Path) -> None:
    """Only the new cell is new; equal cells are told apart."""
    before = [c.id for c in tool.cells(source).cells]
    source.write_text(GOOD.replace("# %%\n# NBVAL", "# %%\ny = 1\n\n# %%\ny = 1\n\n# %%\n# NBVAL"), encoding="utf-8")
    after = [c.id for c in tool.cells(source).cells]
    assert [i for i in after if i in before] == before and len(after) == len(before) + 2
    assert len(set(after)) == len(after)
    assert "figure-line" in after


@pytest.mark.parametrize(
    ("old", "new", "facts"),
    [
        ("# alt: A straight line that rises from one\n#   to three.\n", "", {"expected": ["figure", "alt"]}),
        ("# figure: line\n", "# figure: A line\n", {"argument": "figure", "value": "A line"}),
        ("# NBVAL", "# figure: line\n# alt: again\n# NBVAL", {"argument": "figure", "value": "line"}),
        ("# NBVAL", "# table: A table\n# NBVAL", {"argument": "table", "value": "A table"}),
    ],
)
def test_notebooks_tool_refuses_figure_without_name_or_text(
    old: str, new: str, facts: dict[str, Any], source: Path
) -> None:
    """Before anything runs."""
    source.write_text(GOOD.replace(old, new), encoding="utf-8")
    with raises(tool.Refused, **facts):
        tool.cells(source)


FOLDED = """\
# %% [markdown]
# # 05 · A test

# %%
from minirlhf_course.classroom.predictions import Predictions

predict = Predictions("test")

# %%
rises = predict("Does it rise?", "yes", "no")

# %%
# NBVAL_CHECK_OUTPUT
ends = [1, 3]
print(ends)

# %% [markdown]
# Look again.

# %%
rises.reveal("yes" if ends[1] > ends[0] else "no")

# %%
# figure: line
# alt: A straight line that rises.
import matplotlib.pyplot as plt

plt.plot(ends);

# %%
if ends:
    assert ends[1] == 3

# %% [markdown]
# It rises.

# %%
print(ends)

# %%
# figure: again
# alt: The same straight line.
plt.plot(ends);
"""


def test_notebooks_tool_folds_by_cells(source: Path) -> None:
    """Imports and drawing on the site, drawing and asserts everywhere, results until the text after their reveal."""
    source.write_text(FOLDED, encoding="utf-8")
    setup, imports, asks, result, answer, line, asserts, after, again = [
        c for c in tool.cells(source).cells if c.cell_type == "code"
    ]
    assert [c.metadata["tags"] for c in (setup, imports, asks)] == [
        ["remove-cell"],
        ["hide-input"],
        ["prediction", "remove-input"],
    ]
    assert result.metadata["tags"] == ["nbval-check-output", "predicted", "hide-output"]
    assert answer.metadata["tags"] == ["predicted", "hide-output"]
    assert line.metadata["tags"] == ["predicted", "hide-output", "remove-input"]
    assert asserts.metadata["tags"] == ["remove-cell"]
    assert (after.metadata["tags"], again.metadata["tags"]) == ([], ["hide-input"])
    for cell in (result, answer, line):
        assert cell.metadata["jupyter"]["outputs_hidden"] and cell.metadata["collapsed"]
        assert cell.metadata["mystnb"]["code_prompt_show"]
    for cell in (line, asserts, again):
        assert cell.metadata["jupyter"]["source_hidden"] and cell.metadata["cellView"] == "form"
    assert result.source == "ends = [1, 3]\nprint(ends)"
    assert again.source == "plt.plot(ends);" and again.metadata["mystnb"]["image"]["alt"] == "The same straight line."


@pytest.mark.parametrize(
    ("old", "new", "facts"),
    [
        ("print(ends)\n\n# %% [markdown]\n# Look", "assert ends\n\n# %% [markdown]\n# Look", {"problem": "assert"}),
        ("ends = [1, 3]", "ends = [1, 3]\nend = dict(quiet=True)", {"argument": "quiet"}),
        ("plt.plot(ends);\n\n# %%\nif", "also = plt.plot(ends);\n\n# %%\nprint(also)\n\n# %%\nif", {"value": "also", "problem": "drawn"}),
        ('rises.reveal("yes" if ends[1] > ends[0] else "no")', "pass", {"value": "rises", "problem": "unanswered"}),
        ("print(ends)\n\n# %%\n# figure: again", 'rises.reveal("yes")\n\n# %%\n# figure: again', {"problem": "order"}),
        ('rises = predict("Does it rise?", "yes", "no")\n', 'rises = predict("Does it rise?", "yes", "no")\nrises.reveal("no")\n', {"problem": "order"}),
        ("rises = predict(", "x = 1\nrises = predict(", {"value": "rises", "problem": "shared cell"}),
        ("# Look again.\n", '# Look again.\n\n# %%\nrises = predict("Or falls?", "yes", "no")\n', {"problem": "order"}),
    ],
)  # fmt: skip
def test_notebooks_tool_refuses_what_cannot_be_folded(old: str, new: str, facts: dict[str, Any], source: Path) -> None:
    """Before anything runs."""
    assert FOLDED.count(old) == 1
    source.write_text(FOLDED.replace(old, new), encoding="utf-8")
    with raises(tool.Refused, **facts):
        tool.cells(source)


def test_notebooks_tool_drops_bars_and_misses_them_in_slow_cells(source: Path) -> None:
    """What else a cell writes to stderr stays, and is refused later."""
    import nbformat

    def stream(name: str, text: str) -> Any:
        return nbformat.v4.new_output("stream", name=name, text=text)

    def took(seconds: int) -> dict[str, str]:
        return {"iopub.execute_input": "2030-01-01T00:00:00Z", "shell.execute_reply": f"2030-01-01T00:00:{seconds:02}Z"}

    bar = stream("stderr", "\rsteps:  50%|#####     | 5/10\r                 \r")
    cells = [
        nbformat.v4.new_code_cell("a", id="a", outputs=[stream("stdout", "1\n"), bar, stream("stdout", "2\n")]),
        nbformat.v4.new_code_cell("b", id="b", outputs=[stream("stderr", "\rsteps: 1/2\noh!\n")]),
        nbformat.v4.new_code_cell("c", id="c"),
        nbformat.v4.new_code_cell("from minirlhf import zoo", id="d"),
        nbformat.v4.new_code_cell("e", id="e"),
    ]
    for cell, seconds in zip(cells, (9, 9, 9, 9, 2), strict=True):
        cell.metadata["execution"] = took(seconds)
    notebook = nbformat.v4.new_notebook(cells=cells)
    assert tool.without_bars(notebook) == ["c (9 s)"]
    assert [out.text for out in notebook.cells[0].outputs] == ["1\n2\n"]
    with raises(tool.Refused, argument="b", problem="stderr"):
        tool.examine(notebook, source)
    picture = nbformat.v4.new_output("display_data", {"image/png": ""})
    folded = nbformat.v4.new_code_cell(
        "f", id="f", outputs=[picture], metadata={"mystnb": {"code_prompt_show": "open"}}
    )
    with raises(tool.Refused, argument="f", expected=["figure", "alt"]):
        tool.examine(nbformat.v4.new_notebook(cells=[folded]), source)
    assert not any(cell.metadata for cell in notebook.cells)


@pytest.mark.slow
def test_notebooks_tool_builds_checks_and_refuses(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One source through its life: built, checked, outdated, changed behind the tool's back, failing, over budget."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    cost = tool.execute(source)
    assert 0 < cost.seconds < 400 and 50 < cost.megabytes < 2048
    made = source.with_suffix(".ipynb")
    first = made.read_bytes()
    assert tool.is_current(source) and tool.rerun(source).megabytes > 50
    tool.execute(source)
    assert made.read_bytes() == first  # the same text makes the same file

    made.write_bytes(first.replace(b'"3\\n"', b'"4\\n"'))
    with raises(tool.Refused, problem="nbval"):
        tool.rerun(source)
    assert tool.report(source, tool.Cost(41.0, 100.0)) is False
    assert tool.report(source, tool.Cost(1.0, 3000.0)) is False
    assert tool.report(source, tool.Cost(39.0, 1000.0)) is True
    assert tool.report(source, tool.Cost(41.0, 1000.0, slowness=1.1)) is True
    assert tool.report(source, tool.Cost(45.0, 1000.0, slowness=1.1)) is False
    assert tool.report(source, tool.Cost(30.0, 3000.0, slowness=2.0)) is False  # memory does not depend on speed

    for code, refused in (
        ("import sys\nprint('x', file=sys.stderr)", raises(tool.Refused, problem="stderr")),
        ("raise KeyError('k')", pytest.raises(Exception, match="KeyError")),
        ("import matplotlib.pyplot as plt\nplt.plot([1]);", raises(tool.Refused, expected=["figure", "alt"])),
    ):
        source.write_text(f"# %%\n{code}\n", encoding="utf-8")
        assert not tool.is_current(source)
        with refused:
            tool.execute(source)
    assert b"KeyError" not in made.read_bytes()  # what was refused was not written


def test_notebooks_tool_measures_again_between_two_looks_at_machine(
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


def test_notebooks_tool_slowness_compares_with_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a reference that needs no time and one that needs an hour; a faster machine gets nothing off."""
    monkeypatch.setattr(tool, "WORK", "print(2.0)")
    monkeypatch.setattr(tool, "WORK_SECONDS", 0.5)
    assert tool.slowness() == 4.0
    monkeypatch.setattr(tool, "WORK_SECONDS", 3600.0)
    assert tool.slowness() == 1.0


def test_notebooks_tool_budgets_follow_chapters() -> None:
    """Ninety seconds for the long ones."""
    assert [tool.budget(Path(f"{n:02}_x.py")) for n in (1, 4, 5, 22)] == [40, 90, 40, 40]
