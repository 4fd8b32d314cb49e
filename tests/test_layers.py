"""Imports run downward through the layers and never in a circle, read from the syntax tree."""

import ast
import graphlib

import pytest
from facts import raises

from minirlhf.core import provenance
from minirlhf.core.errors import ArgumentError

LIBRARY, COURSE, CLI = provenance.PACKAGES
FLOORS = [
    {f"{LIBRARY}.core"},
    {f"{LIBRARY}.equations", f"{LIBRARY}.engine", f"{LIBRARY}.sandbox"},
    {f"{LIBRARY}.losses"},
    {f"{LIBRARY}.data"},
    {f"{LIBRARY}.models"},
    {f"{LIBRARY}.feedback"},
    {f"{LIBRARY}.recipes"},
    {f"{LIBRARY}.trainers", f"{LIBRARY}.tabular", f"{LIBRARY}.control"},
    {f"{LIBRARY}.stages"},
    {f"{LIBRARY}.notebook"},
    {f"{COURSE}.ledger", f"{COURSE}.evidence", f"{COURSE}.report"},
    {f"{COURSE}.chapters"},
    {f"{COURSE}.{room}" for room in ("classroom", "challenge", "tour", "gallery", "errata", "notebook")},
    {
        f"{CLI}.{room}"
        for room in (
            "files",
            "export",
            "reports",
            "settings",
            "foreign_options",
            "without_torch",
            "commands",
            "__main__",
        )
    }
    | {CLI},
]
LAYERS = {room: number for number, floor in enumerate(FLOORS) for room in floor}


def room(module: str) -> str:
    """``"minirlhf.core"`` of ``"minirlhf.core.exact"``."""
    return ".".join(module.split(".")[:2])


def layer_of(module: str) -> int:
    """The layer of a module. The library's and the course's root hold names only, and stand below everything."""
    return -1 if module in (LIBRARY, COURSE) else LAYERS[room(module)]


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
    homeless = {room(m) for m in provenance.all_modules()} - LAYERS.keys() - {LIBRARY, COURSE}
    assert not homeless, f"give these a layer in tests/test_layers.py: {sorted(homeless)}"


def test_package_root_holds_what_readers_import():
    assert sorted(path.name for path in (provenance.ROOT / LIBRARY).glob("*.py")) == [
        "__init__.py",
        "losses.py",
        "notebook.py",
    ]


def test_library_imports_neither_course_nor_command_line():
    """The door names where ``plot`` and ``verify`` come from, and nothing else does; the course never imports the command line."""
    above = {LIBRARY: {COURSE, CLI}, COURSE: {CLI}, CLI: set()}
    for name, targets in import_graph().items():
        package = name.split(".")[0]
        imported = {target for target in targets if target.split(".")[0] in above[package]}
        assert imported == ({f"{COURSE}.notebook"} if name == LIBRARY else set()), name


def test_layers_imports_run_downward():
    assert upward({name: targets for name, targets in import_graph().items() if name != LIBRARY}) == []


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
        assert "@equation" not in provenance.module_path(name).read_text(encoding="utf-8"), f"{name} claims an equation"


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """A function that turns ``{"minirlhf/core/a.py": source}`` into the import graph of packages with these files."""

    def plant(files: dict[str, str]) -> dict[str, frozenset[str]]:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text, encoding="utf-8")
        monkeypatch.setattr(provenance, "ROOT", tmp_path)
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
    files = {f"minirlhf/{name}__init__.py": "" for name in ("", "core/", "equations/")}
    files["minirlhf/equations/kl.py"] = "k3 = 0\n"
    assert upward(planted(files | {"minirlhf/core/exact.py": "import math\n"})) == []
    [found] = upward(planted(files | {"minirlhf/core/exact.py": line + "\n"}))
    assert found.startswith("minirlhf.core.exact (layer 0) imports minirlhf.equations")
    assert "minirlhf.equations.kl" in provenance.closure(["minirlhf.core.exact"])


@pytest.mark.parametrize("line", ["PAGE = open('page.html.jinja')", "PAGE = 'templates/page.html.jinja'"])
def test_upward_finds_a_planted_file_of_a_higher_layer(planted, line):
    files = {f"{name}/__init__.py": "" for name in ("minirlhf", "minirlhf/core", CLI, f"{CLI}/commands")}
    files[f"{CLI}/commands/page.html.jinja"] = ""
    [found] = upward(planted(files | {"minirlhf/core/exact.py": line + "\n"}))
    assert found == f"minirlhf.core.exact (layer 0) imports {CLI}.commands (layer {LAYERS[f'{CLI}.commands']})"


@pytest.mark.parametrize(("target", "complaints"), [("ch02_b.words", 1), ("ch01_a.words", 0), ("ch02_b", 1)])
def test_across_finds_a_planted_import_from_another_chapter(planted, target, complaints):
    files = {f"{COURSE}/chapters/{folder}__init__.py": "" for folder in ("", "ch01_a/", "ch02_b/")}
    files |= {f"{COURSE}/chapters/{folder}/words.py": "" for folder in ("ch01_a", "ch02_b")}
    lab = {f"{COURSE}/chapters/ch01_a/lab.py": f"import minirlhf_course.chapters.{target}\n"}
    assert len(across(planted({f"{COURSE}/__init__.py": ""} | files | lab))) == complaints


def test_circle_finds_planted_imports(planted):
    files = {
        "minirlhf/__init__.py": "",
        "minirlhf/core/__init__.py": "",
        "minirlhf/core/a.py": "from minirlhf.core import b\n",
        "minirlhf/core/b.py": "from minirlhf.core import c\n",
    }
    assert circle(planted(files | {"minirlhf/core/c.py": ""})) == []
    found = circle(planted(files | {"minirlhf/core/c.py": "def late():\n    from minirlhf.core.a import x\n"}))
    assert set(found) == {"minirlhf.core.a", "minirlhf.core.b", "minirlhf.core.c"}


def test_provenance_refuses_relative_imports(planted):
    with raises(ArgumentError, problem="relative", file="minirlhf.core.a", line=1):
        planted(
            {"minirlhf/__init__.py": "", "minirlhf/core/__init__.py": "", "minirlhf/core/a.py": "from . import b\n"}
        )


@pytest.mark.slow
def test_class_names_exist_once():
    """In all three packages, so that a search finds one thing."""
    homes: dict[str, list[str]] = {}
    for module in provenance.all_modules():
        for node in ast.parse(provenance.source(module)).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(module)
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}
