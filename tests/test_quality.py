"""Lint, format and types, with the settings of pyproject.toml: what `make lint` and `make types` run."""

import ast
import contextlib
import importlib
import re
import sys
from pathlib import Path

import pytest
from patience import finished

from minirlhf.core import provenance

ROOT = Path(__file__).resolve().parents[1]
STRICT = ("core", "equations", "recipes", "trainers")


@pytest.mark.parametrize(
    ("command", "usually"),
    [
        pytest.param("ruff check --no-fix .", 1, id="lint"),
        pytest.param("ruff format --check .", 1, id="format"),
        pytest.param("mypy", 60, id="types", marks=pytest.mark.slow),  # 2 s once .mypy_cache is there
    ],
)
def test_ruff_and_mypy_find_nothing(command, usually):
    done = finished([sys.executable, "-m", *command.split()], cwd=ROOT, usually=usually)
    assert done.returncode == 0, f"{command}\n{done.stdout}"


def missing_names(path: Path) -> list[str]:
    """What a file imports or takes from a module of ours, or replaces in it, that the module does not have."""
    missing, modules = [], {}
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in provenance.PACKAGES:
            for alias in node.names:
                with contextlib.suppress(ImportError):
                    modules[alias.asname or alias.name] = importlib.import_module(f"{node.module}.{alias.name}")
                    continue
                if not hasattr(importlib.import_module(node.module), alias.name):
                    missing.append(f"{path.name}: {node.module}.{alias.name}")
    for node in ast.walk(tree):
        taken = None
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "setattr" and len(node.args) > 1:
            owner, taken = node.args[0], getattr(node.args[1], "value", None)
        elif isinstance(node, ast.Attribute):
            owner, taken = node.value, node.attr
        if isinstance(taken, str) and isinstance(owner, ast.Name) and owner.id in modules:
            module = modules[owner.id]
            if not hasattr(module, taken):
                missing.append(f"{path.name} line {node.lineno}: {module.__name__}.{taken}")
    return missing


@pytest.mark.slow
def test_names_that_files_beside_the_package_take_from_it_exist():
    """A script that only a slow test starts, or a name that a test replaces, says nothing when what it names has moved."""
    folders = ("tests", "tools", "benchmarks", "examples", "notebooks")
    files = sorted(path for folder in folders for path in (ROOT / folder).glob("*.py"))
    assert [name for path in files for name in missing_names(path)] == []


def test_missing_names_are_found(tmp_path):
    (tmp_path / "a.py").write_text(
        "from minirlhf import losses\nfrom minirlhf.core.errors import UserError, nothing\n"
        "losses.dpo_loss, losses.dpo_los\nmonkeypatch.setattr(losses, 'gone', 1)\n"
    )
    missing = [name.rpartition(".")[2] for name in missing_names(tmp_path / "a.py")]
    assert sorted(missing) == ["dpo_los", "gone", "nothing"]


@pytest.mark.release
@pytest.mark.slow
def test_mypy_refuses_untyped_functions(tmp_path):
    """Guards the strictness itself: an untyped function placed in these packages would be an error."""
    (tmp_path / "minirlhf").mkdir()
    (tmp_path / "minirlhf" / "__init__.py").write_text("")
    for package in STRICT:
        (tmp_path / "minirlhf" / package).mkdir()
        (tmp_path / "minirlhf" / package / "__init__.py").write_text("")
        (tmp_path / "minirlhf" / package / "planted.py").write_text("def f(x: list):\n    return x\n")
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    done = finished(command, cwd=tmp_path, usually=5)
    assert done.returncode == 1
    for package in STRICT:
        said = "".join(line for line in done.stdout.splitlines() if line.startswith(f"minirlhf/{package}/planted.py"))
        assert "[no-untyped-def]" in said and "[type-arg]" in said, done.stdout


def test_attributes_of_a_docstring_are_attributes_of_its_class():
    """A class that is renamed inside keeps its docstring otherwise, and tells readers of fields that it does not have."""
    classes = [
        (path, node)
        for path in sorted(ROOT.glob("minirlhf*/**/*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    own = {node.name: attributes(node) for _, node in classes}
    bases = {node.name: [ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases] for _, node in classes}

    def known(name):
        return own.get(name, set()).union(*(known(base) for base in bases.get(name, ())))

    listed = re.compile(r"^    (\w+(?:, \w+)*): ", re.M)
    absent = [
        f"{path.relative_to(ROOT)}: {node.name}.{name}"
        for path, node in classes
        if "Attributes:" in (text := ast.get_docstring(node) or "")
        for names in listed.findall(re.split(r"\n(?=\S)", text.partition("Attributes:\n")[2])[0])
        for name in names.split(", ")
        if name not in known(node.name)
    ]
    assert absent == []


def attributes(node):
    """What a class and its methods assign or define."""
    names = {inner.name for inner in node.body if isinstance(inner, ast.FunctionDef)}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
            names.add(inner.attr)
        elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            names.add(inner.id)
    return names
