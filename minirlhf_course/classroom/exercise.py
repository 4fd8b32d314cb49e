"""The source format of an exercise, and its parser.

``exercises/NN_chapter/ex_NN_K.py`` is exercise ``NN.K``. It is Python cut into blocks by ``# %% [name]`` lines::

    # ---
    # title: What is a completion worth?     the header
    # kind: implement                        implement | derive | numeric | choice | bughunt
    # minutes: 15
    # seconds: 30                            of computing, if ten are not enough (optional)
    # uses: 02.6, 12.1                       earlier answers that run in this one, see :mod:`.training` (optional)
    # ---
    # %% [statement]                         Markdown, as comments
    # %% [given]                             code that the student receives and does not need to change (optional)
    # %% [stub]                              what the student starts from
    # %% [solution]                          earns all points
    # %% [tests]                             hidden: functions (sub, draw) under @test(points=…, hints=(…, …))
    # %% [probes]                            automatic probes to switch off, and why, see :mod:`.probes` (optional)
    # %% [edges]                             which test asks each edge that the statement names (optional)
    # %% [shared]                            constants of the tests that students read, and why they may (optional)
    # %% [picture]                           hidden: ``picture(sub)``, the learner's and the correct curve (optional)
    # %% [mutant] what is wrong with it      a wrong answer: definitions that replace those of the solution
    # caught by: name_of_the_test            … the first test that fails, which decides the hint ("a or b": either)
    # says: words of its message             … (optional)
    # %% [partial] 2: what is right in it    an answer worth 2 points, written like a mutant
    # %% [cheat] what it does                an answer that must not earn the points of a training (see :mod:`.cheats`)

Statement, given and stub are public. Only the instructor has the other blocks.
"""

from __future__ import annotations

import ast
import os
import re
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from minirlhf.core import provenance
from minirlhf.core.errors import UserError, unknown
from minirlhf_course.classroom.testing import Asked, Picture, Test

KINDS = ("implement", "derive", "numeric", "choice", "bughunt")
BLOCK = re.compile(r"# %% \[(\w+)\][ \t]*(.*)")
RANGED = re.compile(r"# range (\d[\d.e-]*) to (\d[\d.e-]*)(?: of ([\w., ]+))?: \S.*")
SINGLE = ("statement", "given", "stub", "solution", "tests", "probes", "edges", "shared", "picture")
OPTIONAL = ("given", "probes", "edges", "shared", "picture")
NUMBERS = ("values", "ties", "gaps", "scale", "offset", "float32", "nan")  # the probes that replace numbers by others
PROBES = ("random", "again", "integers", "keywords", "size", "single", *NUMBERS, "gradient")
SWITCHES = (*PROBES, "cheats", "varied")  # what the block [probes] can switch off
RANGE = (1e-4, 1000.0)  # the size of the largest number of an argument, unless [probes] says otherwise
DEFAULT_STUDENT = "reader"
RESERVED = {name for name in dir(Asked) if not name.startswith("_")} | {"student"}  # the attributes of ``sub`` itself


@dataclass(frozen=True)
class Block:
    """One block of a source: its name, the rest of its first line, its text and the line on which the text begins."""

    name: str
    note: str
    text: str
    line: int


@dataclass(frozen=True)
class Variant:
    """A submission with a known result that tests the grader: a mutant or a partial answer."""

    note: str
    code: str
    caught_by: str = ""
    says: str = ""
    points: float = 0.0


@dataclass(frozen=True)
class Exercise:
    """One exercise, read from its source."""

    id: str
    path: Path
    title: str
    kind: str
    minutes: int
    seconds: int  # of computing for one answer; 0: the default limit
    uses: tuple[str, ...]  # numbers of earlier exercises whose answers run in this one
    statement: str
    given: str
    stub: str
    solution: str
    tests: tuple[Test, ...]
    mutants: tuple[Variant, ...]
    partials: tuple[Variant, ...]
    cheats: tuple[Variant, ...]
    picture: Callable[[Asked], Picture] | None
    edges: tuple[tuple[str, str], ...]  # (name of a test, words of the statement or the stub that it asks)
    hidden: str  # the code of the tests
    shared: Mapping[float, str]  # constant that tests may have in common with what students read -> the reason
    off: Mapping[str, Mapping[str, str]]  # kind of probe -> "", function or function.argument -> the reason
    ranges: Mapping[str, tuple[float, float]]  # "", function or function.argument -> how large its numbers get

    @property
    def chapter(self) -> str:
        """The chapter's number, such as ``"05"``."""
        return self.id.split(".")[0]

    @property
    def points(self) -> float:
        """The sum of the points of all tests."""
        return sum(t.points for t in self.tests)

    @cached_property
    def asks(self) -> dict[str, str]:
        """The names that a student must define: ``{name: "function" | "value"}``, from the definitions of the stub."""
        kinds: dict[str, str] = {}
        for node in ast.parse(self.stub).body:
            if isinstance(node, ast.FunctionDef):
                kinds[node.name] = "function"
            elif isinstance(node, ast.Assign):
                kinds.update({t.id: "value" for t in node.targets if isinstance(t, ast.Name)})
        return kinds

    def range_of(self, function: str, argument: str) -> tuple[float, float]:
        """Return the least and the largest size of the largest number of an argument."""
        for target in (f"{function}.{argument}", function, ""):
            if target in self.ranges:
                return self.ranges[target]
        return RANGE

    @cached_property
    def is_personal(self) -> bool:
        """Whether the exercise's numbers depend on the student."""
        return "STUDENT" in self.given + self.stub

    @cached_property
    def library(self) -> dict[str, str]:
        """The modules of minirlhf that a graded answer may import, ``{relative path: source}``.

        These are the modules that the public blocks import, with their dependencies. They are sent to the student's
        process.
        """
        known = set(provenance.all_modules())
        imported: set[str] = set()
        for node in ast.walk(ast.parse(f"{self.given}\n{self.stub}")):
            if isinstance(node, ast.Import):
                imported.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                children = {f"{node.module}.{alias.name}" for alias in node.names} & known
                imported.update(children or {node.module})
        names = provenance.closure(imported & known)
        names |= {".".join(n.split(".")[:i]) for n in names for i in range(1, n.count(".") + 1)}
        return {_relative(name): provenance.module_path(name).read_text(encoding="utf-8") for name in sorted(names)}


def _relative(name: str) -> str:
    return provenance.module_path(name).relative_to(provenance.ROOT).as_posix()


def split(text: str, path: Path) -> tuple[dict[str, str], list[Block]]:
    """Split a source into its header and its blocks."""
    lines = text.splitlines()
    fences = [i for i, line in enumerate(lines) if line.rstrip() == "# ---"][:2]
    if len(fences) < 2 or fences[0] != 0:
        message = f"{path}: expected a header between two lines '# ---' at the top"
        raise UserError(message, argument="header", file=path, problem="missing")
    header = {}
    for line in lines[1 : fences[1]]:
        field = re.fullmatch(r"# (\w+): (.+)", line.rstrip())
        if not field:
            raise UserError(
                f"{path}: header line {line!r}; expected '# name: value'", argument="header", value=line, file=path
            )
        header[field[1]] = field[2]
    blocks: list[Block] = []
    start: tuple[str, str, int] | None = None
    for i in range(fences[1] + 1, len(lines) + 1):
        block_start = BLOCK.fullmatch(lines[i].rstrip()) if i < len(lines) else None
        if block_start or i == len(lines):
            if start:
                name, note, first = start
                blocks.append(Block(name, note, "\n".join(lines[first:i]).strip("\n"), first + 1))
            if block_start:
                start = (block_start[1], block_start[2], i + 1)
    return header, blocks


def compiled(code: str, path: Path, line: int = 1) -> Any:
    """Compile ``code`` so that a traceback names ``path`` and the correct line."""
    return compile("\n" * (line - 1) + code, str(path), "exec")


def read(path: Path) -> Exercise:
    """Read one source.

    Raises:
        UserError: something is missing or malformed; the message names the file and what is expected.
    """
    name_match = re.fullmatch(r"ex_(\d\d)_(\d+)\.py", path.name)
    if not name_match:
        raise UserError(f"{path}: expected a name like ex_05_2.py", value=path.name, file=path)
    header, blocks = split(path.read_text(encoding="utf-8"), path)
    fields = ("title", "kind", "minutes", "seconds", "uses")
    if extra := sorted(set(header) - set(fields)):
        raise unknown("header field", extra[0], fields, file=path)
    if "title" not in header or not header.get("minutes", "").isdigit():
        message = f"{path}: the header needs a title and minutes, a whole number"
        raise UserError(message, argument="title, minutes", value=header.get("minutes"), file=path)
    if not header.get("seconds", "1").isdigit() or int(header.get("seconds", "1")) < 1:
        raise UserError(
            f"{path}: seconds: {header['seconds']}; expected a whole number of seconds of computing, at least 1",
            argument="seconds",
            value=header["seconds"],
            expected=1,
            file=path,
        )
    if header.get("kind") not in KINDS:
        raise unknown("kind", header.get("kind", ""), KINDS, file=path)
    single: dict[str, Block] = {}
    variants: dict[str, list[Variant]] = {"mutant": [], "partial": [], "cheat": []}
    for block in blocks:
        if block.name in variants:
            variants[block.name].append(_variant(block, path))
        elif block.name not in SINGLE:
            raise unknown("block", block.name, (*SINGLE, *variants), file=path, line=block.line)
        elif block.name in single:
            message = f"{path} line {block.line}: a second [{block.name}]"
            raise UserError(message, argument=block.name, problem="duplicate", file=path, line=block.line)
        else:
            single[block.name] = block
    for name in SINGLE:
        if name not in single and name not in OPTIONAL:
            raise UserError(f"{path}: no block [{name}]", argument=name, problem="missing", file=path)
    _check_syntax(blocks, path)
    given = single["given"].text if "given" in single else ""
    tests, picture = _tests(single, path)
    exercise = Exercise(
        id=f"{name_match[1]}.{name_match[2]}",
        path=path,
        title=header["title"],
        kind=header["kind"],
        minutes=int(header["minutes"]),
        seconds=int(header.get("seconds", "0")),
        uses=_uses(header.get("uses", ""), path),
        statement=uncomment(single["statement"].text),
        given=given,
        stub=single["stub"].text,
        solution=single["solution"].text,
        tests=tests,
        mutants=tuple(variants["mutant"]),
        partials=tuple(variants["partial"]),
        cheats=tuple(variants["cheat"]),
        picture=picture,
        edges=_edges(single["edges"], path) if "edges" in single else (),
        hidden=single["tests"].text,
        shared=_shared(single["shared"], path) if "shared" in single else {},
        off=_switched_off(single["probes"], path) if "probes" in single else {},
        ranges=_ranges(single["probes"]) if "probes" in single else {},
    )
    _check_switches(exercise)
    if reserved := sorted(set(exercise.asks) & RESERVED):
        raise UserError(
            f"{path}: the name {reserved[0]!r} is reserved, because sub.{reserved[0]} has another meaning in a test",
            value=reserved[0],
            problem="reserved",
            file=path,
        )
    return exercise


def _uses(text: str, path: Path) -> tuple[str, ...]:
    """Parse the exercise numbers in the header's ``uses``."""
    numbers = tuple(part.strip() for part in text.split(",")) if text else ()
    for number in numbers:
        if not re.fullmatch(r"\d\d\.\d+", number):
            message = f"{path}: uses: {number!r}; expected numbers of exercises, such as '02.6, 12.1'"
            raise UserError(message, argument="uses", value=number, file=path)
    return numbers


def uncomment(text: str) -> str:
    """Return the Markdown of a block that is written as comments."""
    return "\n".join(line.removeprefix("#").removeprefix(" ") for line in text.splitlines()).strip()


def _variant(block: Block, path: Path) -> Variant:
    fields: dict[str, str] = {}
    for line in block.text.splitlines():
        match = re.fullmatch(r"# (caught by|says): (.+)", line)
        if not match:
            break
        fields[match[1]] = match[2].strip()
    where = f"{path} line {block.line}"
    if block.name == "mutant":
        if "caught by" not in fields or not block.note:
            message = f"{where}: a mutant says what is wrong on its first line and 'caught by:' on the next"
            raise UserError(message, argument="mutant", file=path, line=block.line)
        return Variant(block.note, block.text, fields["caught by"], fields.get("says", ""))
    if block.name == "cheat":
        if not block.note:
            raise UserError(f"{where}: a cheat says what it does on its first line", argument="cheat", file=path)
        return Variant(block.note, block.text)
    match = re.fullmatch(r"(\d+(?:\.\d+)?): (.+)", block.note)
    if not match:
        message = f"{where}: a partial answer begins like '# %% [partial] 2: what is right in it'"
        raise UserError(message, argument="partial", value=block.note, file=path, line=block.line)
    return Variant(match[2], block.text, points=float(match[1]))


def _switched_off(block: Block, path: Path) -> dict[str, dict[str, str]]:
    """Parse the lines ``# no KIND, KIND of NAME, NAME: reason`` of a block [probes]."""
    reasons: dict[str, dict[str, str]] = {}
    for i, line in enumerate(block.text.splitlines(), block.line):
        if RANGED.fullmatch(line.rstrip()):
            continue
        match = re.fullmatch(r"# no ([\w, ]+?)(?: of ([\w., ]+))?: (\S.*)", line.rstrip())
        if not match:
            if line.strip():
                message = f"{path} line {i}: expected '# no KIND: reason', '# no KIND of FUNCTION: reason' or '# range 0.001 to 30 of FUNCTION: reason'"
                raise UserError(message, argument="probes", value=line, file=path, line=i)
            continue
        for kind in match[1].split(", "):
            if kind not in SWITCHES:
                raise unknown("probe", kind, SWITCHES, file=path, line=i)
            for target in match[2].split(", ") if match[2] else [""]:
                reasons.setdefault(kind, {})[target] = match[3]
    return reasons


def _ranges(block: Block) -> dict[str, tuple[float, float]]:
    """Parse the lines ``# range LEAST to LARGEST of NAME, NAME: reason`` of a block [probes]."""
    found: dict[str, tuple[float, float]] = {}
    for line in block.text.splitlines():
        if match := RANGED.fullmatch(line.rstrip()):
            found |= dict.fromkeys(match[3].split(", ") if match[3] else [""], (float(match[1]), float(match[2])))
    return found


def _edges(block: Block, path: Path) -> tuple[tuple[str, str], ...]:
    """Parse the lines ``# test: words of the statement`` of a block [edges]."""
    found: list[tuple[str, str]] = []
    for i, line in enumerate(block.text.splitlines(), block.line):
        match = re.fullmatch(r"# (\w+): (\S.*)", line.rstrip())
        if match:
            found.append((match[1], match[2]))
        elif line.strip():
            message = f"{path} line {i}: expected '# name_of_the_test: words of the statement'"
            raise UserError(message, argument="edges", value=line, file=path, line=i)
    return tuple(found)


def _shared(block: Block, path: Path) -> dict[float, str]:
    """Parse the lines ``# 0.1, 2.4: reason`` of a block [shared]."""
    reasons: dict[float, str] = {}
    for i, line in enumerate(block.text.splitlines(), block.line):
        match = re.fullmatch(r"# ([-\d.e]+(?:, [-\d.e]+)*): (\S.*)", line.rstrip())
        if match:
            reasons.update((float(number), match[2]) for number in match[1].split(", "))
        elif line.strip():
            message = f"{path} line {i}: expected '# 0.1, 2.4: reason'"
            raise UserError(message, argument="shared", value=line, file=path, line=i)
    return reasons


def _check_switches(exercise: Exercise) -> None:
    """Check that each function or argument for which a probe is switched off exists in the stub."""
    functions = {n.name: n for n in ast.parse(exercise.stub).body if isinstance(n, ast.FunctionDef)}
    for target in (t for targets in (*exercise.off.values(), exercise.ranges) for t in targets if t):
        name, _, argument = target.partition(".")
        if name not in functions:
            raise unknown("function", name, functions, file=exercise.path, place=f"[probes] of {exercise.path}")
        known = [
            a.arg
            for a in (*functions[name].args.posonlyargs, *functions[name].args.args, *functions[name].args.kwonlyargs)
        ]
        if argument and argument not in known:
            raise unknown(
                f"argument of {name}", argument, known, file=exercise.path, place=f"[probes] of {exercise.path}"
            )


def _check_syntax(blocks: Iterable[Block], path: Path) -> None:
    """Check that every code block is valid Python."""
    for block in blocks:
        if block.name not in ("statement", "probes", "edges", "shared"):
            try:
                compiled(block.text, path, block.line)
            except (SyntaxError, ValueError) as problem:
                line = getattr(problem, "lineno", None) or block.line
                message = f"{path} line {line}: [{block.name}] is no Python: {problem}"
                raise UserError(message, argument=block.name, problem="syntax", file=path, line=line) from problem


def _tests(single: dict[str, Block], path: Path) -> tuple[tuple[Test, ...], Callable[[Asked], Picture] | None]:
    """Execute the tests; return the hidden tests and the picture function, if there is one."""
    namespace: dict[str, Any] = {"__name__": f"exercise_{path.stem}"}
    for name in ("given", "tests", "picture"):
        if name in single:
            try:
                exec(compiled(single[name].text, path, single[name].line), namespace)
            except Exception as problem:
                lines = [f.lineno for f in traceback.extract_tb(problem.__traceback__) if f.filename == str(path)]
                error = f"{type(problem).__name__}: {problem}"
                hint = "; expected @test(points=…, hints=(…, …), rounds=…, against=…)" if "test()" in error else ""
                line = (lines or [single[name].line])[-1]
                message = f"{path} line {line}: [{name}] stops with {error}{hint}"
                kind = type(problem).__name__
                raise UserError(message, argument=name, value=kind, problem="raised", file=path, line=line) from problem
    tests = tuple(value for value in namespace.values() if isinstance(value, Test))
    if not tests:
        raise UserError(f"{path}: [tests] defines no @test", argument="tests", problem="empty", file=path)
    if "picture" in single and not callable(namespace.get("picture")):
        raise UserError(f"{path} line {single['picture'].line}: [picture] defines no picture(sub)")
    return tests, namespace["picture"] if "picture" in single else None


# -- finding exercises ------------------------------------------------------------------------------------------------


def folder(given: Path | None = None) -> Path:
    """Find the exercises' folder: ``given``, ``$MINIRLHF_EXERCISES``, beside the package, or in the working directory."""
    path = given or (Path(os.environ["MINIRLHF_EXERCISES"]) if "MINIRLHF_EXERCISES" in os.environ else None)
    if path:
        if not path.is_dir():
            message = f"no folder {path}; expected the exercises' sources, exercises/NN_chapter/ex_NN_K.py"
            raise UserError(message, file=path, problem="missing")
        return path
    for candidate in (provenance.ROOT / "exercises", Path("exercises")):
        if any(candidate.glob("[0-9][0-9]_*/ex_*.py")):
            return candidate
    raise UserError(
        "the exercises' sources were not found; set MINIRLHF_EXERCISES to their folder (in a course only your instructor has them: hand in your notebook)"
    )


def sources(root: Path, chapter: str | None = None) -> list[Path]:
    """Return the source files in the order of their numbers."""
    paths = root.glob(f"{chapter or '[0-9][0-9]'}_*/ex_*.py")
    return sorted(paths, key=lambda p: [int(n) for n in re.findall(r"\d+", p.stem)])


def load_chapter(root: Path, chapter: str) -> list[Exercise]:
    """Load all exercises of a chapter, given by its number or by its folder's name without it (``"prerequisites"``).

    Raises:
        UserError: the chapter has no exercises.
    """
    by_name = {p.parent.name[3:]: p.parent.name[:2] for p in sources(root)}
    number = by_name.get(chapter, chapter.zfill(2))
    paths = sources(root, number) if re.fullmatch(r"\d\d", number) else []
    if not paths:
        raise unknown("chapter", number, {*by_name, *by_name.values()})
    return [read(path) for path in paths]


def load(root: Path, wanted: Iterable[str] = ()) -> list[Exercise]:
    """Load the exercises named by chapter (``"05"``) or number (``"05.2"``); all exercises if no name is given."""
    names = list(wanted)
    if not names:
        return [read(path) for path in sources(root)]
    loaded: dict[str, Exercise] = {}
    for name in names:
        chapter, _, number = name.partition(".")
        exercises = load_chapter(root, chapter)
        selected = [e for e in exercises if not number or e.id.split(".")[1] == number]
        if not selected:
            raise unknown("exercise", name, [e.id for e in exercises])
        loaded.update({e.id: e for e in selected})
    return list(loaded.values())
