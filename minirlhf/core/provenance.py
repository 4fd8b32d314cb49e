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

ROOT = Path(__file__).resolve().parents[2]  # of the repository, or the folder of installed packages
#: The library that one reads, what makes it a course, and the command line.
PACKAGES: tuple[str, ...] = ("minirlhf", "minirlhf_course", "minirlhf_cli")
#: Suffixes of the packages' files that are not modules. A module that names such a file depends on the file's package.
OPENED = frozenset({"jinja", "html", "css", "js", "yaml", "toml", "json"})


def module_path(name: str) -> Path:
    """The source file of a module of these packages, e.g. ``minirlhf.core.masking``."""
    relative = ROOT.joinpath(*name.split("."))
    for candidate in (relative.with_suffix(".py"), relative / "__init__.py"):
        if is_ours(name) and candidate.is_file():
            return candidate
    raise ArgumentError(
        f"no module {name!r} in {', '.join(PACKAGES)}", argument="module", value=name, problem="unknown"
    )


def is_ours(name: str) -> bool:
    """Whether a dotted name begins with one of these packages."""
    return name.split(".")[0] in PACKAGES


def files(pattern: str) -> list[Path]:
    """The files of these packages whose name matches a pattern such as ``study*.py``, sorted."""
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob(pattern))


def all_modules() -> list[str]:
    """Every module of the packages, sorted."""
    names = []
    for path in files("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return sorted(names)


@functools.cache
def source(name: str) -> str:
    """The text of a module at the first call in this process: later edits during a long run are ignored."""
    return module_path(name).read_text(encoding="utf-8")


@functools.cache
def imports(name: str) -> frozenset[str]:
    """The packages' modules that a module imports directly (also in functions or for typing) or names in a string."""
    return imported(source(name), name) - {name}


def imported(text: str, name: str) -> frozenset[str]:
    """Like :func:`imports` for a source text, also of a script outside the package; error messages call it ``name``."""
    known = set(all_modules())
    modules: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names if is_ours(alias.name))
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ArgumentError(
                    f"{name} line {node.lineno}: relative import; expected an absolute import",
                    argument="import",
                    problem="relative",
                    file=name,
                    line=node.lineno,
                )
            if node.module and is_ours(node.module):
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
    if "." in text and is_ours(text):
        return {text}
    if text.rpartition(".")[2] in OPENED and "*" not in text:
        return {".".join(path.relative_to(ROOT).parent.parts) for path in files(text.rpartition("/")[2])}
    return set()


def closure(names: Iterable[str]) -> set[str]:
    """These modules and all modules of the packages that they import, directly or indirectly."""
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
