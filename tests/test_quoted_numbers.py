"""Numbers that a notebook prints and a page quotes come from the committed notebook, whatever machine executes it again."""

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
spec = importlib.util.spec_from_file_location("notebooks_of_quotes", ROOT / "tools" / "notebooks.py")
assert spec and spec.loader
tool = sys.modules["notebooks_of_quotes"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)

SOURCE = """\
# %% [markdown]
# # 05 · A test

# %%
loss = train(steps=60)

# %%
# figure: line
# alt: A straight line that rises.
draw(loss, size=8)

# %%
print(loss)
"""


def executed(path: Path, source: str, printed: str) -> Any:
    """The notebook of a source, as a machine leaves it on which each cell prints the same."""
    import nbformat  # takes seconds: not in every process that collects these tests

    path.write_text(source, encoding="utf-8")
    notebook = tool.cells(path)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=f"{printed}\n")]
    return notebook


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ((), [True] * 4),
        (("# A", "# Another"), [True] * 4),
        (("# alt: A straight", "# alt: Another straight"), [True] * 4),
        (("print(loss)", "# what is lost\nprint(loss)"), [True] * 4),
        (("size=8", "size=9"), [True, True, False, True]),
        (("print(loss)", "print(loss, 1)"), [True, True, True, False]),
        (("steps=60", "steps=61"), [True, False, False, False]),
    ],
    ids=["nothing", "words", "alt text", "comment", "figure", "last cell", "training"],
)
def test_keep_printed_changes_no_text_of_unchanged_code(
    change: tuple[str, ...], kept: list[bool], tmp_path: Path
) -> None:
    """Another machine prints -4.60 in place of -4.02; what code did not change is printed as it was committed."""
    path = tmp_path / "05_test.py"
    committed = executed(path, SOURCE, "-4.02")
    again = executed(path, SOURCE.replace(*change) if change else SOURCE, "-4.60")
    other = tool.keep_printed(again, committed)
    code = [cell for cell in again.cells if cell.cell_type == "code"]
    assert [cell.outputs[0]["text"] == "-4.02\n" for cell in code] == kept
    assert other == [cell.id for cell, same in zip(code, kept, strict=True) if same]
    assert tool.keep_printed(again, again) == []


def test_lineage_does_not_depend_on_where_a_function_is_imported_from() -> None:
    import nbformat

    def lineage(*lines: str) -> dict[str, str]:
        return tool.lineage(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("\n".join(lines), id="a")]))

    assert lineage("from a import f", "f(1)") == lineage("import a", "from b.c import d as f", "f(1)")
    assert lineage("from a import f", "f(1)") != lineage("from a import f", "f(2)")


@pytest.mark.parametrize("page", sorted((ROOT / "book").glob("*.md")), ids=lambda page: page.stem)
def test_quoted_numbers_of_a_page_are_printed(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the book's build asks it, in a second and without the book."""
    monkeypatch.syspath_prepend(str(ROOT / "book" / "_ext"))
    from quoted import quoted

    for text in re.findall(r"\{quoted\}`([^`]+)`", page.read_text(encoding="utf-8")):
        assert quoted(text)
