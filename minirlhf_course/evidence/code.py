"""Properties of a study that a probe of a few steps cannot detect, read from the syntax tree.

They are the *shape* of its script, the *names* in the script, and the *sizes* in its lab. The lab consists of the
modules that were written for its chapter alone. The search follows names from the script's ``STUDY = Study(one_seed,
probe, ...)``; code that ``one_seed`` does not reach does not count. Moving a module, renaming a function or adding an
unused one changes none of these properties: a name of the library that no longer exists is replaced by a name whose
definition has the same words (:func:`definition`).
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minirlhf.core import provenance
from minirlhf.core.errors import UserError


@dataclass(frozen=True)
class Module:
    """The top level of a source text.

    Attributes:
        statements: name -> its definition or assignment, and other top-level statements that mention it.
        imports: local name -> dotted name, also of imports inside functions.
        bound: every name that is assigned somewhere.
    """

    statements: dict[str, list[ast.stmt]] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)
    bound: set[str] = field(default_factory=set)


def _is_guard(statement: ast.stmt) -> bool:
    """``if __name__ == "__main__":``"""
    return isinstance(statement, ast.If) and "__name__" in {
        node.id for node in ast.walk(statement.test) if isinstance(node, ast.Name)
    }


@functools.cache
def parsed(text: str) -> Module:
    """Parse the top level of a source text."""
    module, tree = Module(), ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:  # `import a.b` binds a, `import a.b as c` binds c
                local = alias.asname or alias.name.split(".")[0]
                module.imports[local] = alias.name if alias.asname else local
        elif isinstance(node, ast.ImportFrom):
            module.imports.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            module.bound.add(node.id)
        elif isinstance(node, ast.arg):
            module.bound.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            module.bound.add(node.name)
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            names = [statement.name]
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names = [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]
        elif isinstance(statement, ast.Import | ast.ImportFrom) or _is_guard(statement):
            names = []
        else:  # a loop that fills a table, a call that adds to one
            names = [node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and node.id in module.bound]
        for name in dict.fromkeys(names):
            module.statements.setdefault(name, []).append(statement)
    return module


def _dotted(node: ast.AST) -> list[str] | None:
    """Return ``a.b.c`` as a list, None for any other node."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        prefix = _dotted(node.value)
        return None if prefix is None else [*prefix, node.attr]
    return None


def _split(dotted: list[str], known: Collection[str]) -> tuple[str, list[str]] | None:
    """Split a dotted name after its longest prefix among the ``known`` modules; None for a name of another library."""
    for end in range(len(dotted), 0, -1):
        if (module := ".".join(dotted[:end])) in known:
            return module, dotted[end:]
    return None


def resolve(dotted: str, known: Collection[str]) -> str | None:
    """Follow imports to the definition of a dotted name of this package; None if no ``known`` module defines it."""
    match _split(dotted.split("."), known):
        case None:
            return None
        case (module, []):
            return module
        case (module, [name, *rest]):
            source = parsed(provenance.source(module))
            if name in source.statements:
                return ".".join([module, name, *rest])
            if name in source.imports and source.imports[name] != dotted:
                return resolve(".".join([source.imports[name], *rest]), known)
    return None


def definition(name: str) -> str | None:
    """Return a hash (16 hex digits) of the definition of a dotted name of this package, up to that name and its module.

    A method or a nested function has the hash of its enclosing definition. None if the name has no definition.
    """
    known = provenance.all_modules()
    match _split(name.split("."), known):
        case (module, [outermost, *_]) if statements := parsed(provenance.source(module)).statements.get(outermost):
            printer = _Words(module, outermost, known)
            return _hash("\n".join(printer.said(statement) for statement in statements))
        case (module, []):
            return _hash(provenance.code_without_docs(provenance.source(module)))
    return None


def renamed(was: str, now: str, defined: str | None) -> bool:
    """Return whether the name ``was`` of this package became ``now`` only because its definition moved or was renamed.

    Then the old name has no other meaning now, and the new definition has the hash ``defined`` of the old one.
    """
    if not (provenance.is_ours(was) and provenance.is_ours(now)):
        return False
    target = resolve(was, provenance.all_modules())
    return target == now or (target is None and defined is not None and defined == definition(now))


def _fields(node: ast.AST) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a node that affect behaviour: no types, no docstrings, no imports."""
    for name, value in ast.iter_fields(node):
        if name == "body" and isinstance(value, list):
            yield name, [s for s in value if not isinstance(s, ast.Import | ast.ImportFrom) and not _is_text(s)]
        elif name not in ("annotation", "returns", "type_comment", "type_params", "ctx", "kind", "simple"):
            yield name, value


def _is_text(statement: ast.AST) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _below(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the child nodes that affect behaviour."""
    for _, value in _fields(node):
        yield from (child for child in (value if isinstance(value, list) else [value]) if isinstance(child, ast.AST))


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes below, except those inside nested functions."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.Lambda):
            yield from _inside(child)


def _bound_in(function: ast.FunctionDef | ast.Lambda) -> set[str]:
    """Return the names that a function binds itself: parameters, variables, nested functions."""
    nodes = list(_inside(function))
    names = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    return (
        names
        | {node.arg for node in nodes if isinstance(node, ast.arg)}
        | {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    )


class _Reach:
    """The statements of a script and of its lab that names reach.

    Attributes:
        script, lab: the reached statements, in the order of the search.
    """

    def __init__(self, known: Collection[str], labs: Collection[str]) -> None:
        self._known, self._labs = known, labs
        self.script: dict[ast.stmt, None] = {}
        self.lab: dict[ast.stmt, None] = {}

    def follow(
        self, node: ast.AST, module: Module, found: dict[ast.stmt, None], inner: frozenset[str] = frozenset()
    ) -> None:
        """Follow the names in a node of ``module``, except the ``inner`` names, which its enclosing functions bind."""
        if (dotted := _dotted(node)) is None:
            if isinstance(node, ast.FunctionDef | ast.Lambda):
                inner |= _bound_in(node)
            for child in _below(node):
                self.follow(child, module, found, inner)
        elif dotted[0] in inner:
            return
        elif dotted[0] in module.statements:
            self._visit(dotted[0], module, found)
        elif dotted[0] in module.imports:
            self._enter([*module.imports[dotted[0]].split("."), *dotted[1:]])

    def _visit(self, name: str, module: Module, found: dict[ast.stmt, None]) -> None:
        for statement in module.statements[name]:
            if statement not in found:
                found[statement] = None
                self.follow(statement, module, found)

    def _enter(self, dotted: list[str]) -> None:
        match _split(dotted, self._known):
            case (name, rest) if name in self._labs:
                module = parsed(provenance.source(name))
                for symbol in rest[:1] or list(module.statements):  # a bare module: all of its names
                    if symbol in module.statements:
                        self._visit(symbol, module, self.lab)
                    elif symbol in module.imports:
                        self._enter(module.imports[symbol].split("."))


class _Eraser:
    """A printer of syntax trees that numbers this project's names in order; other libraries' names, and attributes,
    stay.

    Attributes:
        names: names of the library by the place of their definition, in order of appearance.
    """

    def __init__(self, module: Module, known: Collection[str]) -> None:
        self._module, self._known = module, known
        self._numbers: dict[str, int] = {}

    @property
    def names(self) -> list[str]:
        return [name for name in self._numbers if provenance.is_ours(name)]

    def _number(self, name: str) -> str:
        return f"#{self._numbers.setdefault(name, len(self._numbers))}"

    def said(self, node: Any) -> str:
        """Return the node as text."""
        if isinstance(node, list):
            return "[" + ",".join(map(self.said, node)) + "]"
        if not isinstance(node, ast.AST):
            return repr(node)
        if dotted := _dotted(node):
            return self._name(*dotted)
        if isinstance(node, ast.AnnAssign):  # an assignment, with or without a type
            return f"Assign([{self.said(node.target)}],{self.said(node.value)})"
        parts = [
            self._number(value) if isinstance(value, str) and self._is_name(node, name) else self.said(value)
            for name, value in _fields(node)
        ]
        return f"{type(node).__name__}({','.join(parts)})"

    @staticmethod
    def _is_name(node: ast.AST, name: str) -> bool:
        return name == "name" or (name == "arg" and isinstance(node, ast.arg))

    def _name(self, root: str, *rest: str) -> str:
        if root not in self._module.imports:  # an import wins over a local of the same name
            return ".".join([self._number(root) if root in self._module.bound else root, *rest])  # else a builtin
        dotted = [*self._module.imports[root].split("."), *rest]
        match _split(dotted, self._known):
            case None:
                return ".".join(dotted)
            case (module, [name, *attrs]):  # independent of the way it is imported
                return ".".join([self._number(resolve(f"{module}.{name}", self._known) or f"{module}.{name}"), *attrs])
            case (module, _):
                return self._number(module)
        raise AssertionError


class _Words(_Eraser):
    """A printer of syntax trees that keeps all names except the defined name itself and the prefix of its module."""

    def __init__(self, module: str, name: str, known: Collection[str]) -> None:
        super().__init__(parsed(provenance.source(module)), known)
        self._place, self._itself = f"{module}.", name

    def _number(self, name: str) -> str:
        return "#" if name.removeprefix(self._place) == self._itself else name.removeprefix(self._place)


def literals(node: ast.AST) -> Iterator[str]:
    """Yield numbers and strings below a node, as text: no docstrings, types, error messages or truth values."""
    match node:
        case ast.Raise():
            return
        case ast.Assert():
            yield from literals(node.test)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)):
            yield f"-{value!r}"
        case ast.Constant(value=value):
            if isinstance(value, int | float | str) and not isinstance(value, bool):
                yield repr(value)
        case _:
            for child in _below(node):
                yield from literals(child)


@dataclass(frozen=True)
class Code:
    """The code of a study.

    Attributes:
        shape: hash (16 hex digits) of the script's behaviour, without this project's names.
        names: the library's names in the script, by the place of their definition, in order of appearance.
        sizes: the numbers and strings in the lab, in the order in which the script reaches them.
        probe: hash of the code of the probe, in the script and in :mod:`.initial_models`, with all names.
        seeds: number of seeds, None for the default.
        reached: functions and methods of the lab that the script reaches: file and name each.
    """

    shape: str
    names: list[str]
    sizes: list[str]
    probe: str
    seeds: int | None
    reached: list[tuple[Path, str]] = field(repr=False)


def declaration(text: str) -> ast.Call | None:
    """Return the call of ``STUDY = Study(...)`` at a script's top level, or None."""
    for statement in ast.parse(text).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="STUDY")], value=ast.Call() as call):
                return call
    return None


def read(path: Path, text: str) -> Code:
    """Read a study's script and the code that it reaches in its lab: the modules in its folder, and its ``labs``.

    Raises:
        UserError: the script does not declare a study.
    """
    call = declaration(text)
    if call is None or len(call.args) != 2:
        raise UserError(
            f"{path}: no study is declared; expected 'STUDY = Study(one_seed, probe)' at its top level",
            argument="STUDY",
            problem="missing",
            file=path,
        )
    options = {keyword.arg: keyword.value for keyword in call.keywords}
    paths = {name: provenance.module_path(name) for name in provenance.all_modules()}
    labs = {name for name, file in paths.items() if file.is_relative_to(path.parent) and file != path}
    lab_names = ast.literal_eval(options.pop("labs")) if "labs" in options else ()
    labs |= {name for name in paths for lab in lab_names if f"{name}.".startswith(f"{lab}.")}
    module, reach = parsed(text), _Reach(paths.keys(), labs)
    roots = [call.args[0], *options.values()]  # the probe and the lab's folder may change
    for node in roots:
        reach.follow(node, module, reach.script)
    eraser = _Eraser(module, paths.keys())
    shape = "\n".join(eraser.said(node) for node in [*roots, *reach.script])
    probe = _Reach(paths.keys(), {f"{__package__}.initial_models"})
    probe.follow(call.args[1], module, probe.script)
    return Code(
        shape=_hash(shape),
        names=eraser.names,
        sizes=[literal for statement in reach.lab for literal in literals(statement)],
        probe=_hash("\n".join(provenance.code_without_docs(ast.unparse(s)) for s in [*probe.script, *probe.lab])),
        seeds=ast.literal_eval(options["seeds"]) if "seeds" in options else None,
        reached=[(paths[lab], name) for lab in sorted(labs) for name in _functions(lab, reach.lab)],
    )


def _functions(lab: str, reached: Collection[ast.stmt]) -> Iterator[str]:
    """Yield the qualified names of functions and methods of a lab in the reached statements."""
    for statement in (node for nodes in parsed(provenance.source(lab)).statements.values() for node in nodes):
        if statement in reached and isinstance(statement, ast.FunctionDef):
            yield statement.name
        elif statement in reached and isinstance(statement, ast.ClassDef):
            yield from (
                f"{statement.name}.{inner.name}" for inner in statement.body if isinstance(inner, ast.FunctionDef)
            )


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
