"""Dependencies between modules, read from the syntax tree: the import graph and source hashes.

The layer test, the checkpoint cache and the evidence use it.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path

from minirlhf.core.errors import ArgumentError

PACKAGE = Path(__file__).resolve().parents[1]
ROOT_NAME = PACKAGE.name
#: Suffixes of the package's files that are not modules. A module that names such a file depends on the file's package.
OPENED = frozenset({"jinja", "html", "css", "js", "yaml", "toml", "json"})


def module_path(name: str) -> Path:
    """The source file of a module of this package, e.g. ``minirlhf.core.masking``."""
    relative = PACKAGE.joinpath(*name.split(".")[1:])
    for candidate in (relative.with_suffix(".py"), relative / "__init__.py"):
        if candidate.is_file():
            return candidate
    raise ArgumentError(f"no module {name!r} in {ROOT_NAME}", argument="module", value=name, problem="unknown")


def all_modules() -> list[str]:
    """Every module of the package, sorted."""
    names = []
    for path in PACKAGE.rglob("*.py"):
        parts = [ROOT_NAME, *path.relative_to(PACKAGE).with_suffix("").parts]
        names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return sorted(names)


@functools.cache
def source(name: str) -> str:
    """The text of a module at the first call in this process: later edits during a long run are ignored."""
    return module_path(name).read_text(encoding="utf-8")


@functools.cache
def imports(name: str) -> frozenset[str]:
    """The package's modules that a module imports directly (also in functions or for typing) or names in a string."""
    return imported(source(name), name) - {name}


def imported(text: str, name: str) -> frozenset[str]:
    """Like :func:`imports` for a source text, also of a script outside the package; error messages call it ``name``."""
    known = set(all_modules())
    modules: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names if alias.name.split(".")[0] == ROOT_NAME)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ArgumentError(
                    f"{name} line {node.lineno}: relative import; expected an absolute import",
                    argument="import",
                    problem="relative",
                    file=name,
                    line=node.lineno,
                )
            if node.module and node.module.split(".")[0] == ROOT_NAME:
                for alias in node.names:
                    child = f"{node.module}.{alias.name}"
                    modules.add(child if child in known else node.module)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            modules.update(_named(node.value) & known)
        elif isinstance(node, ast.Attribute) and node.attr == "iter_modules":  # a package iterates over its modules
            modules.update(child for child in known if child.rpartition(".")[0] == name)
    return frozenset(modules)


def _named(text: str) -> set[str]:
    """Modules named by a string: a module name as for ``import_module``, or the package of a file that is opened."""
    if text.startswith(f"{ROOT_NAME}."):
        return {text}
    if text.rpartition(".")[2] in OPENED and "*" not in text:
        paths = (path.relative_to(PACKAGE) for path in PACKAGE.rglob(text.rpartition("/")[2]))
        return {".".join([ROOT_NAME, *path.parent.parts]) for path in paths}
    return set()


def closure(names: Iterable[str]) -> set[str]:
    """These modules and all modules of the package that they import, directly or indirectly."""
    visited: set[str] = set()
    queue = list(names)
    while queue:
        name = queue.pop()
        if name not in visited:
            visited.add(name)
            queue.extend(imports(name))
    return visited


@functools.cache
def code_without_docs(text: str) -> str:
    """The syntax tree of a source as text without comments and docstrings, so that rewording does not change it."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                node.body = node.body[1:]
    return ast.dump(tree)


def source_hash(*names: str) -> str:
    """Hash (16 hex digits) of the code of these modules and of all modules that they import."""
    digest = hashlib.sha256()
    for name in sorted(closure(names)):
        digest.update(f"{name}\n{code_without_docs(source(name))}\n".encode())
    return digest.hexdigest()[:16]
