"""The library in the book: code by name, and one page per module on which each function names the section that derives it."""

import ast
import functools
import importlib
import inspect
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from details import fold
from docutils import nodes
from numbering import APPENDICES
from proofs import equation_link, equations, shows_outcomes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective

from minirlhf.core import provenance
from minirlhf.core.equation import Equation
from minirlhf_course.ledger.pages import homes

FIELD = re.compile(r"(Label|Source|Gradient|Args|Attributes|Returns|Raises):\s*(.*)")
ROLE_OR_LITERAL = re.compile(r"(?::\w+:)?`{1,2}~?([^`]+)`{1,2}|(?<![\w*])\*(\w[\w -]*)\*(?![\w*])")
API = "api"


@dataclass(frozen=True)
class Piece:
    """One definition of the library, cut into what the book shows."""

    name: str
    where: str
    path: Path
    code: str
    docstring: str


def find(name: str) -> Piece:
    """The function, class, method or constant called ``name``, e.g. ``minirlhf.equations.kl.k3``.

    Raises:
        ValueError: the library has no such thing.
    """
    known = _modules()
    module = next((m for m in sorted(known, key=len, reverse=True) if name.startswith(f"{m}.")), None)
    if module is None:
        raise ValueError(f"no module of the library holds {name!r}")
    path = provenance.module_path(module)
    source, found = _parsed(path)
    for part in name.removeprefix(f"{module}.").split("."):
        inside = [node for node in ast.iter_child_nodes(found) if part in _names(node)]
        if not inside:
            raise ValueError(f"module {module} has no {part!r}, named by {name!r}")
        found = inside[-1]
    code, docstring = _without_docstring(found, source.splitlines())
    where = f"{path.relative_to(provenance.ROOT)}:{found.lineno}"  # type: ignore[attr-defined]
    return Piece(name, where, path, code, docstring)


_modules = functools.cache(provenance.all_modules)


@functools.cache
def _parsed(path: Path) -> tuple[str, ast.AST]:
    """A module's source and tree; hundreds of functions are looked for in a few dozen modules."""
    source = path.read_text(encoding="utf-8")
    return source, ast.parse(source)


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [t.id for t in node.targets if isinstance(t, ast.Name)]
    return [node.target.id] if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else []


def _source(node: Any) -> str:
    """The paper that ``@equation(…, source="…")`` names, as a field of a docstring."""
    keywords = [k for d in node.decorator_list if isinstance(d, ast.Call) for k in d.keywords if k.arg == "source"]
    return "".join(f"\n\nSource: {ast.literal_eval(k.value)}" for k in keywords)


def _is_shown(decorator: ast.expr) -> bool:
    """Whether a reader needs it: not what labels an equation or validates arguments, which is no part of the formula."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = ast.unparse(called)
    return name not in ("equation", "takes") and not name.startswith("_")


def _without_docstring(node: Any, lines: list[str]) -> tuple[str, str]:
    """Code without its bookkeeping decorators and with its docstring down to one line, and the whole docstring."""
    shown = filter(_is_shown, getattr(node, "decorator_list", []))
    head = [line for d in shown for line in lines[d.lineno - 1 : d.end_lineno]]
    docstring = ast.get_docstring(node) if isinstance(node, ast.FunctionDef | ast.ClassDef) else None
    if not docstring:
        return textwrap.dedent("\n".join([*head, *lines[node.lineno - 1 : node.end_lineno]])), ""
    doc = node.body[0]
    short = f'{" " * doc.col_offset}"""{docstring.splitlines()[0]}"""'
    kept = [*head, *lines[node.lineno - 1 : doc.lineno - 1], short, *lines[doc.end_lineno : node.end_lineno]]
    return textwrap.dedent("\n".join(kept)), docstring + _source(node)


# -- docstrings as nodes -----------------------------------------------------------------------------------------


def inline(text: str) -> list[nodes.Node]:
    """Text in which ``code`` and roles become literals and *words* emphasis; all else, mathematics above all, stays as it is."""
    found: list[nodes.Node] = []
    at = 0
    for match in ROLE_OR_LITERAL.finditer(text):
        marked = nodes.literal("", match[1]) if match[1] else nodes.emphasis("", match[2])
        found += [nodes.Text(text[at : match.start()]), marked]
        at = match.end()
    return [*found, nodes.Text(text[at:])]


def _table(block: str) -> nodes.table:
    """A table of two columns between lines of ``=``; a row that begins with a space goes on with the one before."""
    lines = block.splitlines()[1:-1]
    cut = block.index(" ")
    rows: list[list[str]] = []
    for line in lines:
        name, rest = line[:cut].strip(), line[cut:].strip()
        if name:
            rows.append([name, rest])
        else:
            rows[-1][1] += f" {rest}"
    group = nodes.tgroup("", *(nodes.colspec("", colwidth=width) for width in (1, 3)), cols=2)
    entry = lambda text: nodes.entry("", nodes.paragraph("", "", *inline(text)))
    group += nodes.tbody("", *(nodes.row("", *map(entry, row)) for row in rows))
    return nodes.table("", group)


def _blocks(lines: list[str]) -> list[nodes.Node]:
    """Paragraphs, and code where a line ended in ``::`` or is indented."""
    found: list[nodes.Node] = []
    for block in re.split(r"\n\s*\n", "\n".join(lines).strip("\n")):
        if re.fullmatch(r"=+ +=+\n.*\n=+ +=+", block, re.S):
            found.append(_table(block))
        elif block.startswith("    "):
            code = textwrap.dedent(block)
            found.append(nodes.literal_block(code, code, language="python"))
        elif block.strip():
            found.append(nodes.paragraph("", "", *inline(" ".join(block.split()).replace("::", ":"))))
    return found


def _field(name: str, body: list[str]) -> nodes.field:
    """A field with its text; if each entry has its own indented line, as a list."""
    content = nodes.field_body()
    entries: list[str] = []
    for line in textwrap.dedent("\n".join(body[1:])).splitlines():
        if line.startswith(" ") and entries:
            entries[-1] += f" {line.strip()}"
        elif line.strip():
            entries.append(line.strip())
    if body[0].strip() or len(entries) < 2 or name == "Returns":
        content += nodes.paragraph("", "", *inline(" ".join([body[0], *entries]).strip()))
    else:
        items = (nodes.list_item("", nodes.paragraph("", "", *inline(entry))) for entry in entries)
        content += nodes.bullet_list("", *items)
    return nodes.field("", nodes.field_name("", name), content)


def docstring_nodes(docstring: str) -> list[nodes.Node]:
    """A docstring in the library's style: paragraphs, then fields, then what a reader may type and see."""
    docstring, prompt, typed = docstring.partition(">>> ")
    text: list[str] = []
    fields: list[tuple[str, list[str]]] = []
    for line in docstring.splitlines():
        match = FIELD.match(line)
        if match:
            # Several fields may share a line: "Args: … Returns: …".
            parts = re.split(r"\s+(?=(?:Returns|Raises):)", line)
            fields += [(m[1], [m[2]]) for m in map(FIELD.match, parts) if m]
        elif fields and (line.startswith(" ") or not line.strip()):
            fields[-1][1].append(line)
        else:
            fields, text = [], [*text, *(x for name, body in fields for x in (f"{name}:", *body)), line]
    listed = [_field(name, body) for name, body in fields if name != "Label"]
    session = f"{prompt}{typed}".rstrip()
    example = [nodes.literal_block(session, session, language="pycon")] if typed else []
    return [*_blocks(text), *([nodes.field_list("", *listed)] if listed else []), *example]


# -- {library}: code in the text ---------------------------------------------------------------------------------


class LibraryDirective(SphinxDirective):
    """``{library} minirlhf.equations.kl.k3``: the code as it is now, its docstring folded."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """One listing per name."""
        found: list[nodes.Node] = []
        for name in self.arguments[0].split():
            try:
                piece = find(name)
            except ValueError as problem:
                raise self.error(str(problem)) from None
            self.env.note_dependency(str(piece.path))
            code = nodes.literal_block(piece.code, piece.code, language="python")
            box = nodes.container("", classes=["library"])
            box += nodes.paragraph("", "", nodes.literal("", piece.where), classes=["library-where"])
            box += code
            if len(piece.docstring.splitlines()) > 1:
                box += fold("Docstring", *docstring_nodes(piece.docstring))
            found.append(box)
        return found


# -- {api}: a module's page --------------------------------------------------------------------------------------


class derived_in(nodes.General, nodes.Element):
    """Stands for the links to the sections that derive ``labels``, until all sections are known."""


class ApiDirective(SphinxDirective):
    """``{api} minirlhf.equations.kl``: every public function of a module, with the section that derives it."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """A section per function or class."""
        shows_outcomes(self.env)
        module = importlib.import_module(self.arguments[0])
        self.env.note_dependency(inspect.getsourcefile(module) or "")
        public = [
            name
            for name, thing in vars(module).items()
            if (inspect.isfunction(thing) or inspect.isclass(thing))
            and thing.__module__ == module.__name__
            and not name.startswith("_")
        ]
        return [*docstring_nodes(inspect.getdoc(module) or ""), *(self._entry(module, name) for name in public)]

    def _entry(self, module: Any, name: str) -> nodes.Node:
        thing, full = getattr(module, name), f"{module.__name__}.{name}"
        section = nodes.section("", nodes.title("", "", nodes.literal("", name)), ids=[full], names=[full])
        self.env.domains.python_domain.note_object(full, "class" if inspect.isclass(thing) else "function", full)
        try:
            signature = f"{name}{_with_names(inspect.signature(thing))}"
        except ValueError:
            signature = name
        signature = re.sub(r"(: |-> )'([^']*)'", r"\1\2", signature)  # annotations are texts, as are some defaults
        signature = re.sub(r"\b(?:torch|collections\.abc|typing)\.", "", signature)
        section += nodes.literal_block(signature, signature, language="python", classes=["signature"])
        docstring = inspect.getdoc(thing) or ""
        section += docstring_nodes(docstring)
        if labels := Equation.of(thing).labels:
            section += derived_in("", labels=[*labels])
        code = find(full).code
        section += fold("Code", nodes.literal_block(code, code, language="python"))
        return section


@dataclass(frozen=True)
class _Name:
    """A default value that is a function or a recipe, as a page writes it: by its name, not by its address."""

    text: str

    def __repr__(self) -> str:
        return self.text


def _with_names(signature: inspect.Signature) -> inspect.Signature:
    def named(parameter: inspect.Parameter) -> inspect.Parameter:
        default = parameter.default
        if inspect.isroutine(default):
            return parameter.replace(default=_Name(default.__name__))
        return parameter.replace(default=_Name(default.name.upper())) if hasattr(default, "with_") else parameter

    return signature.replace(parameters=[named(parameter) for parameter in signature.parameters.values()])


def _enclosing_section(node: nodes.Node) -> nodes.section:
    while not isinstance(node, nodes.section):
        node = node.parent
    return node


def find_sections(app: Sphinx, env: Any) -> None:
    """Remember the section in which each numbered equation stands."""
    app.equation_sections = {}  # type: ignore[attr-defined]
    for page in sorted(set(equations(env).values())):
        for node in env.get_doctree(page).findall(nodes.math_block):
            if node.get("label"):
                section = _enclosing_section(node)
                app.equation_sections[node["label"]] = (page, section["ids"][0], section[0].astext())  # type: ignore[attr-defined]


class DerivedIn(SphinxPostTransform):
    """Fill in where an equation is derived."""

    default_priority = 6

    def run(self, **kwargs: Any) -> None:
        """On each page as it is written."""
        page = self.env.docname
        for node in list(self.document.findall(derived_in)):
            text = nodes.paragraph("", classes=["derived-in"])
            for label in node["labels"]:
                text += self._sentence(label, page)
            node.replace_self(text)

    def _sentence(self, label: str, page: str) -> list[nodes.Node]:
        place = self.app.equation_sections.get(label)  # type: ignore[attr-defined]
        if place is None:
            return [nodes.Text("Checked as "), nodes.literal("", label), nodes.Text(". ")]
        target, anchor, title = place
        numbers = self.env.toc_secnumbers.get(target, {})  # an appendix has none
        number = numbers.get(f"#{anchor}") or numbers.get("") or (APPENDICES[target][0],)
        section = "§" + ".".join(map(str, number))
        address = f"{self.app.builder.get_relative_uri(page, target)}#{anchor}"
        link = nodes.reference("", f"{section} {title}", refuri=address, internal=True)
        return [
            nodes.Text("Derived in "),
            link,
            nodes.Text(", equation "),
            equation_link(label, page),
            nodes.Text(". "),
        ]


# -- the pages themselves ----------------------------------------------------------------------------------------


def write_pages(app: Sphinx, config: Any) -> None:
    """One source page per module that holds equations, and their index; touched only when they change."""
    folder = Path(app.srcdir) / API
    holders = {home.__module__ for things in homes().values() for home in things}
    modules = [m for m in provenance.all_modules() if m.startswith("minirlhf.equations.") or m in holders]
    modules = [m for m in modules if provenance.module_path(m).name != "__init__.py"]
    pages = {f"{m}.md": f"# `{m}`\n\n```{{api}} {m}\n```\n" for m in modules}
    entries = "\n".join(f"{_entry_title(m)} <{m}>" for m in modules)
    pages["index.md"] = (
        "# I · The equations in code\n\nEvery function names the section of this book that derives it. What only one chapter needs "
        "is listed under the chapter's name.\n\n"
        f"```{{toctree}}\n{entries}\n```\n"
    )
    for stale in set(folder.glob("*.md")) - {folder / name for name in pages}:
        stale.unlink()
    for name, text in pages.items():
        if not (folder / name).is_file() or (folder / name).read_text(encoding="utf-8") != text:
            (folder / name).write_text(text, encoding="utf-8")


def _entry_title(module: str) -> str:
    """``core.exact``, ``kl``, or ``ch06_nature_of_preferences`` for the equations that only chapter 6 needs."""
    chapter = re.fullmatch(r"minirlhf_course\.chapters\.(\w+)\.equations", module)
    return chapter[1] if chapter else module.removeprefix("minirlhf.").removeprefix("equations.")


def without_page(app: Sphinx, env: Any, node: Any, contnode: nodes.Node) -> nodes.Node | None:
    """A reference to something that the library has, but that no page describes, is its name without a link."""
    if node.get("refdomain") != "py" or not provenance.is_ours(node["reftarget"]):
        return None
    try:
        find(node["reftarget"])
    except ValueError:
        return contnode if node["reftarget"] in provenance.all_modules() else None
    return contnode


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the pages, then the directives that fill them."""
    app.setup_extension("proofs")
    app.add_node(derived_in)
    app.add_directive("library", LibraryDirective)
    app.add_directive("api", ApiDirective)
    app.add_post_transform(DerivedIn)
    app.connect("config-inited", write_pages)
    app.connect("env-updated", find_sections)
    app.connect("missing-reference", without_page)
    return {"version": "1", "parallel_read_safe": False, "parallel_write_safe": False}
