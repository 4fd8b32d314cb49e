"""A hash of the code changes with the code, and with nothing else."""

import pytest
from facts import raises

from minirlhf.core import provenance
from minirlhf.core.errors import ArgumentError
from minirlhf.core.provenance import code_without_docs

CODE = '''"""Module."""
import math


class A:
    """Class."""

    def f(self, x: float) -> float:
        """Function."""
        return math.sqrt(x)  # root
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""Module."""', '"""Another text."""'),
        ('"""Module."""\n', ""),
        ('"""Class."""', '"""Another\n\n    text."""'),
        ('        """Function."""\n', ""),
        ("  # root", "  # √x"),
        ("import math\n", "import math\n\n\n\n"),
        ("math.sqrt(x)", "math.sqrt(\n            x\n        )"),
    ],
)
def test_code_without_docs_ignores_words_and_layout(old, new):
    changed = CODE.replace(old, new)
    assert changed != CODE
    assert code_without_docs(changed) == code_without_docs(CODE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("math.sqrt(x)", "math.sqrt(x) + 0"),
        ("x: float", "x: int"),
        ("def f", "def g"),
        ("import math", "import cmath as math"),
    ],
)
def test_code_without_docs_follows_the_code(old, new):
    assert code_without_docs(CODE.replace(old, new)) != code_without_docs(CODE)


def test_code_without_docs_keeps_strings_that_are_no_docstring():
    assert code_without_docs("def f():\n    x = 1\n    'a'\n") != code_without_docs("def f():\n    x = 1\n    'b'\n")


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A small package ``top -> middle -> bottom``, and ``aside``, in place of this one."""
    root = tmp_path / "minirlhf"
    root.mkdir()
    files = {
        "__init__.py": "",
        "bottom.py": '"""Docs."""\nx = 1\n',
        "middle.py": "from minirlhf.bottom import x\n",
        "top.py": "def f():\n    from minirlhf import middle\n",
        "aside.py": "y = 1\n",
    }
    for name, text in files.items():
        (root / name).write_text(text)
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    monkeypatch.setattr(provenance, "PACKAGES", ("minirlhf",))
    forget()
    yield root
    forget()


def forget():
    """As in a process that has read nothing yet."""
    provenance.source.cache_clear()
    provenance.imports.cache_clear()


def test_imports_and_closure_of_a_package(package):
    assert provenance.all_modules() == ["minirlhf"] + [f"minirlhf.{m}" for m in ("aside", "bottom", "middle", "top")]
    assert provenance.imports("minirlhf.top") == {"minirlhf.middle"}
    assert provenance.imports("minirlhf.middle") == {"minirlhf.bottom"}
    assert provenance.closure(["minirlhf.top"]) == {"minirlhf.top", "minirlhf.middle", "minirlhf.bottom"}
    with raises(ArgumentError, argument="module", value="minirlhf.nowhere"):
        provenance.module_path("minirlhf.nowhere")


def test_source_hash_follows_imported_code_and_no_other(package):
    before = provenance.source_hash("minirlhf.top")
    (package / "bottom.py").write_text('"""Other docs."""\nx = 1  # comment\n')
    (package / "aside.py").write_text("y = 2\n")
    forget()
    assert provenance.source_hash("minirlhf.top") == before
    (package / "bottom.py").write_text('"""Docs."""\nx = 2\n')
    assert provenance.source_hash("minirlhf.top") == before, "the code of this process, not of the file since"
    forget()
    assert provenance.source_hash("minirlhf.top") != before


def test_source_hash_does_not_depend_on_the_order_of_names(package):
    names = ["minirlhf.top", "minirlhf.aside"]
    assert provenance.source_hash(*names) == provenance.source_hash(*names[::-1])
    assert provenance.source_hash(*names) != provenance.source_hash("minirlhf.top")
