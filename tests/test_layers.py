"""Imports run downward through the layers and never in a circle, read from the syntax tree."""

import ast
import graphlib

import pytest
from facts import raises

from minirlhf.core import provenance
from minirlhf.core.errors import ArgumentError

FLOORS = [
    {"core"},
    {"equations", "engine", "sandbox"},
    {"losses"},
    {"data"},
    {"models"},
    {"feedback"},
    {"recipes"},
    {"trainers", "tabular", "control"},
    {"stages", "ledger", "evidence", "report"},
    {"chapters"},
    {"classroom", "tour", "gallery", "errata", "cli", "notebook"},
]
LAYERS = {room: number for number, floor in enumerate(FLOORS) for room in floor}


def layer_of(module: str) -> int:
    """The layer of a module; the package itself holds the version only and stands below everything."""
    parts = module.split(".")
    return LAYERS[parts[1]] if len(parts) > 1 else -1


def upward(graph: dict[str, frozenset[str]]) -> list[str]:
    """Imports from a higher layer."""
    return [
        f"{name} (layer {layer_of(name)}) imports {target} (layer {layer_of(target)})"
        for name, targets in graph.items()
        for target in sorted(targets)
        if layer_of(target) > layer_of(name)
    ]


def circle(graph: dict[str, frozenset[str]]) -> list[str]:
    """One circle of imports, or nothing."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as problem:
        return problem.args[1]
    return []


def import_graph() -> dict[str, frozenset[str]]:
    return {name: provenance.imports(name) for name in provenance.all_modules()}


def chapter_of(module: str) -> str:
    """The chapter's folder that a module lies in, or nothing."""
    parts = module.split(".")
    return parts[2] if len(parts) > 2 and parts[1] == "chapters" else ""


def across(graph: dict[str, frozenset[str]]) -> list[str]:
    """Imports from one chapter into another."""
    return [
        f"{name} imports {target}, which is another chapter's"
        for name, targets in graph.items()
        for target in sorted(targets)
        if chapter_of(name) and chapter_of(target) not in ("", chapter_of(name))
    ]


def test_layers_have_every_module():
    homeless = {m.split(".")[1] for m in provenance.all_modules() if "." in m} - LAYERS.keys()
    assert not homeless, f"give these a layer in tests/test_layers.py: {sorted(homeless)}"


def test_package_root_holds_what_readers_import():
    assert sorted(path.name for path in provenance.PACKAGE.glob("*.py")) == ["__init__.py", "losses.py", "notebook.py"]


def test_layers_imports_run_downward():
    assert upward(import_graph()) == []


def test_chapters_do_not_import_each_other():
    assert across(import_graph()) == []


def test_engine_imports_core_only_and_is_entered_by_two_modules():
    graph, doors = import_graph(), {"minirlhf.engine.reading", "minirlhf.engine.decoding"}
    for name, targets in graph.items():
        inside = name.startswith("minirlhf.engine")
        if inside:
            foreign = {t for t in targets if not t.startswith(("minirlhf.engine", "minirlhf.core"))}
            assert not foreign, f"{name} imports {foreign}"
        else:
            behind = {t for t in targets if t.startswith("minirlhf.engine")} - doors
            assert not behind, f"{name} imports {behind}; the doors are {sorted(doors)}"


def test_sandbox_imports_core_only():
    """Worlds, graders and the classroom use it, and what it imports lies in every box."""
    for name, targets in import_graph().items():
        if name.startswith("minirlhf.sandbox"):
            foreign = {t for t in targets if not t.startswith(("minirlhf.sandbox", "minirlhf.core"))}
            assert not foreign, f"{name} imports {foreign}"


def test_layers_have_no_circular_imports():
    assert circle(import_graph()) == []


def test_core_exact_imports_no_equations():
    oracle = [name for name in provenance.all_modules() if name.startswith("minirlhf.core.exact")]
    assert oracle
    assert [m for m in provenance.closure(oracle) if m.startswith("minirlhf.equations")] == []
    for name in oracle:
        assert "Label:" not in provenance.module_path(name).read_text(encoding="utf-8"), f"{name} claims an equation"


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """A function that turns ``{"core/a.py": source}`` into the import graph of a package with these files."""

    def plant(files: dict[str, str]) -> dict[str, frozenset[str]]:
        package = tmp_path / "minirlhf"
        for name, text in files.items():
            (package / name).parent.mkdir(parents=True, exist_ok=True)
            (package / name).write_text(text, encoding="utf-8")
        monkeypatch.setattr(provenance, "PACKAGE", package)
        monkeypatch.setattr(provenance, "ROOT_NAME", "minirlhf")
        provenance.imports.cache_clear()
        provenance.source.cache_clear()
        return import_graph()

    yield plant
    provenance.imports.cache_clear()
    provenance.source.cache_clear()


@pytest.mark.parametrize(
    "line",
    [
        "from minirlhf.equations import kl",
        "from minirlhf.equations.kl import k3",
        "import minirlhf.equations.kl",
        "def f():\n    from minirlhf.equations import kl",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from minirlhf.equations import kl",
        "import importlib\nkl = importlib.import_module('minirlhf.equations.kl')",
    ],
)
def test_upward_finds_a_planted_import(planted, line):
    files = {"__init__.py": "", "core/__init__.py": "", "equations/__init__.py": "", "equations/kl.py": "k3 = 0\n"}
    assert upward(planted(files | {"core/exact.py": "import math\n"})) == []
    [found] = upward(planted(files | {"core/exact.py": line + "\n"}))
    assert found.startswith("minirlhf.core.exact (layer 0) imports minirlhf.equations")
    assert "minirlhf.equations.kl" in provenance.closure(["minirlhf.core.exact"])


@pytest.mark.parametrize("line", ["PAGE = open('page.html.jinja')", "PAGE = 'templates/page.html.jinja'"])
def test_upward_finds_a_planted_file_of_a_higher_layer(planted, line):
    files = {"__init__.py": "", "core/__init__.py": "", "cli/__init__.py": "", "cli/page.html.jinja": ""}
    [found] = upward(planted(files | {"core/exact.py": line + "\n"}))
    assert found == f"minirlhf.core.exact (layer 0) imports minirlhf.cli (layer {LAYERS['cli']})"


@pytest.mark.parametrize(("target", "complaints"), [("ch02_b.words", 1), ("ch01_a.words", 0), ("ch02_b", 1)])
def test_across_finds_a_planted_import_from_another_chapter(planted, target, complaints):
    files = {f"chapters/{folder}__init__.py": "" for folder in ("", "ch01_a/", "ch02_b/")}
    files |= {f"chapters/{folder}/words.py": "" for folder in ("ch01_a", "ch02_b")}
    lab = {"chapters/ch01_a/lab.py": f"import minirlhf.chapters.{target}\n"}
    assert len(across(planted({"__init__.py": ""} | files | lab))) == complaints


def test_circle_finds_planted_imports(planted):
    files = {
        "__init__.py": "",
        "core/__init__.py": "",
        "core/a.py": "from minirlhf.core import b\n",
        "core/b.py": "from minirlhf.core import c\n",
    }
    assert circle(planted(files | {"core/c.py": ""})) == []
    found = circle(planted(files | {"core/c.py": "def late():\n    from minirlhf.core.a import x\n"}))
    assert set(found) == {"minirlhf.core.a", "minirlhf.core.b", "minirlhf.core.c"}


def test_provenance_refuses_relative_imports(planted):
    with raises(ArgumentError, problem="relative", file="minirlhf.core.a", line=1):
        planted({"__init__.py": "", "core/__init__.py": "", "core/a.py": "from . import b\n"})


@pytest.mark.slow
def test_class_names_exist_once_in_the_package():
    """In the whole package, so that a search finds one thing."""
    homes: dict[str, list[str]] = {}
    for module in provenance.all_modules():
        for node in ast.parse(provenance.source(module)).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(module)
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}
