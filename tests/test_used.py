"""Every public function of the library's floors 0 to 7 is there for somebody: a chapter, a command, a table, or a claim.

Tests do not count. A chapter that is still to come claims what it needs in its manifest,
``claims = ["minirlhf.equations.kl.full_kl", ...]``; what its checks prove counts as claimed too.
"""

import ast
import re
import tomllib
from pathlib import Path

from minirlhf.core import provenance

ROOT = Path(__file__).resolve().parent.parent
# Who may ask: floors 8 and 9, and all that lives outside the package but the tests.
UPPER = ("minirlhf.checks", "minirlhf.chapters", "minirlhf.classroom", "minirlhf.tour", "minirlhf.cli", "minirlhf.__main__")
OUTSIDE = ("book", "notebooks", "exercises", "tools", "studies", "benchmarks", "examples")


class Module:
    """What one file defines at its top level, what it imports, and what each of its definitions refers to."""

    def __init__(self, name, path):
        self.name, self.path = name, path
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        self.definitions = {
            node.name: node for node in self.tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)
        }
        self.names = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                base = ".".join(filter(None, [package if node.level else "", node.module or ""]))
                self.names |= {a.asname or a.name: f"{base}.{a.name}" for a in node.names}
            elif isinstance(node, ast.Import):
                self.names |= {a.asname or a.name.partition(".")[0]: a.name for a in node.names if a.asname}
        self.names |= {local: f"{name}.{local}" for local in self.definitions}

    def references(self, nodes):
        """Dotted names that these nodes refer to, as far as imports tell."""
        found = set()
        for top in nodes:
            for node in ast.walk(top):
                chain, inner = [], node
                while isinstance(inner, ast.Attribute):
                    chain.append(inner.attr)
                    inner = inner.value
                if isinstance(inner, ast.Name):
                    first = self.names.get(inner.id, inner.id)
                    found.add(".".join([first, *reversed(chain)]))
        return found


def library():
    return {name: Module(name, provenance.module_path(name)) for name in provenance.all_modules()}


def resolve(name, modules):
    """``package.reexported`` as the module that defines it; the longest part of the name that is a definition."""
    for _ in range(8):
        module = next((m for m in sorted(modules, key=len, reverse=True) if name == m or name.startswith(f"{m}.")), None)
        if module is None or name == module:
            return None
        first = name.removeprefix(f"{module}.").partition(".")[0]
        if first in modules[module].definitions:
            return f"{module}.{first}"
        target = modules[module].names.get(first)
        if target is None or target == f"{module}.{first}":
            return None
        name = target
    return None


def outside_references(modules):
    """What files beyond the package name: Python by its imports, text by dotted names or by the name in code."""
    found = set()
    by_name = {}
    for module in modules.values():
        for name in module.definitions:
            by_name.setdefault(name, set()).add(f"{module.name}.{name}")
    for folder in OUTSIDE:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix == ".py":
                outside = Module(path.stem, path)
                found |= {resolve(r, modules) for r in outside.references([outside.tree])}
            elif path.suffix in (".md", ".jinja"):
                text = path.read_text(encoding="utf-8")
                found |= {resolve(r, modules) for r in re.findall(r"minirlhf(?:\.\w+)+", text)}
                for code in re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL):
                    for word in re.findall(r"[A-Za-z_]\w+", code):
                        found |= by_name.get(word, set())
    return found


def claims():
    """What the manifests of coming chapters claim."""
    manifests = sorted((ROOT / "minirlhf" / "chapters").glob("*/manifest.toml"))
    return {claim for path in manifests for claim in tomllib.loads(path.read_text(encoding="utf-8")).get("claims", [])}


def unused(modules):
    """Public functions of floors 0 to 7 that nothing outside the tests leads to."""
    lower = {name: m for name, m in modules.items() if not name.startswith(UPPER)}
    wanted = outside_references(modules) | claims()
    for name, module in modules.items():
        top = [module.tree] if name not in lower else [
            node for node in module.tree.body if node not in module.definitions.values()
        ]
        wanted |= {resolve(r, modules) for r in module.references(top)}
        # A definition that a decorator enters into a table is wanted by the table.
        wanted |= {
            f"{name}.{node.name}" for node in module.definitions.values() if name in lower and _registered(node)
        }
    reached, frontier = set(), {name for name in wanted if name}
    while frontier:
        name = frontier.pop()
        reached.add(name)
        module, _, local = name.rpartition(".")
        if module in modules and local in modules[module].definitions:
            found = {resolve(r, modules) for r in modules[module].references([modules[module].definitions[local]])}
            frontier |= {r for r in found if r} - reached
    public = {
        f"{name}.{local}"
        for name, module in lower.items()
        for local, node in module.definitions.items()
        if isinstance(node, ast.FunctionDef) and not local.startswith("_")
    }
    return sorted(public - reached)


def _registered(node):
    return False


def test_every_public_function_is_used_or_claimed():
    assert unused(library()) == []
