"""What a student hands in: notebooks or Python files, cut into the sections of their exercises.

A section begins at a cell whose first line is ``# exercise 05.2`` (``# %% exercise 05.2`` in a Python file) and ends where
the next one begins. What stands before the first section, such as imports, belongs to all sections of its file.
"""

from __future__ import annotations

import ast
import json
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from minirlhf.classroom.exercise import Exercise
from minirlhf.core.errors import UserError

MARKER = re.compile(r"#\s*(?:%%\s*)?exercise (\d\d\.\d+)\b")
MAX_BYTES = 5 << 20
SUFFIXES = (".ipynb", ".py")
Cells = list[tuple[str, str]]  # (name, code); "cell 3" counts the code cells of a file from 1


@dataclass(frozen=True)
class Section:
    """The answer to one exercise in one file: the file's preamble and the exercise's own cells."""

    file: str
    preamble: Cells
    own: Cells
    before: Cells = field(default_factory=list)  # all cells above it: the preamble and other exercises

    @property
    def cells(self) -> Cells:
        """All of it, in order."""
        return self.preamble + self.own

    def is_stub(self, exercise: Exercise) -> bool:
        """Whether it is what the student was given, unchanged."""
        return _bare("\n".join(code for _, code in self.own)) == _bare(f"{exercise.given}\n{exercise.stub}")


@dataclass
class HandedIn:
    """All that one student handed in. ``problems`` says what could not be read, one sentence each."""

    sections: dict[str, list[Section]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def answer(self, exercise: Exercise) -> Section | None:
        """The section for this exercise; of several, the first that was worked on (notebooks come first)."""
        found = self.sections.get(exercise.id, [])
        return next((s for s in found if not s.is_stub(exercise)), found[0] if found else None)

    def why_missing(self, exercise: Exercise) -> str:
        """Why there is no answer to this exercise, as far as the files tell."""
        marker = f": no cell begins with '# exercise {exercise.id}'" if self.sections else ""
        return "; ".join([f"not handed in{marker}", *self.problems])


def _bare(code: str) -> str:
    """Code without comments, blank lines and checks: two answers that differ in these only are the same."""
    lines = (line.split("#")[0].rstrip() for line in code.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("check("))


def read_safely(path: Path) -> str:
    """The text of a file that somebody else wrote: a plain file of modest size, and no link to anything.

    Raises:
        UserError: it is a link, a device or a folder, too large, or not UTF-8.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as problem:
        raise UserError(f"{path.name} cannot be read ({problem.strerror}); links are not followed") from problem
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise UserError(f"{path.name} is not a plain file")
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise UserError(f"{path.name} is larger than {MAX_BYTES >> 20} MB; clear its outputs and hand in again")
    try:
        return raw.decode("utf-8-sig")  # some editors begin a file with a mark
    except UnicodeDecodeError as problem:
        raise UserError(f"{path.name} is not UTF-8 text") from problem


def code_cells(text: str, name: str) -> Cells:
    """The code cells of a notebook, or of a Python file with ``# %%`` lines.

    Raises:
        UserError: the notebook is not one.
    """
    if name.endswith(".ipynb"):
        try:
            sources = [cell["source"] for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
            codes = [source if isinstance(source, str) else "".join(source) for source in sources]
        except (ValueError, KeyError, TypeError, RecursionError) as problem:
            raise UserError(f"{name} is not a notebook (nbformat 4)") from problem
    else:
        parts = re.split(r"(?m)^(?=# %%)", text)
        codes = [part for part in parts if part.strip() and not part.startswith("# %% [markdown]")]
    return [(f"cell {i}", without_magics(code)) for i, code in enumerate(codes, 1)]


def without_magics(code: str) -> str:
    """Notebook commands (``%…``, ``!…``) are no Python; they become blank lines, so that line numbers stay.

    Only where the cell is no Python as it stands: a line of an expression may begin with ``%``.
    """
    commands = [line.lstrip()[:1] in ("%", "!") for line in code.split("\n")]
    if not any(commands) or _is_python(code):
        return code
    lines = zip(code.split("\n"), commands, strict=True)
    return "\n".join("" if command else line for line, command in lines)


def _is_python(code: str) -> bool:
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def sections(cells: Cells, file: str) -> dict[str, Section]:
    """The sections of one file's cells, by exercise."""
    preamble: Cells = []
    found: dict[str, Section] = {}
    current = preamble
    for i, (name, code) in enumerate(cells):
        first = next((line for line in code.splitlines() if line.strip()), "")
        if match := MARKER.match(first):
            current = found.setdefault(match[1], Section(file, preamble, [], cells[:i])).own
        current.append((name, code))
    return found


def read_files(paths: Iterable[Path]) -> HandedIn:
    """The sections of all these files. A file that cannot be read is a problem, not an error."""
    result, unmarked = HandedIn(), []
    for path in sorted(paths, key=lambda p: (SUFFIXES.index(p.suffix), p.name)):
        try:
            found = sections(code_cells(read_safely(path), path.name), path.name)
        except UserError as problem:
            result.problems.append(str(problem))
            continue
        unmarked += [path.name] if not found else []
        for exercise, section in found.items():
            result.sections.setdefault(exercise, []).append(section)
    if unmarked and not result.sections:
        result.problems.append(f"{', '.join(unmarked[:5])}: no cell begins with a line like '# exercise 05.1'")
    return result


def files_of(folder: Path) -> list[Path]:
    """The files in a student's folder and the folders in it, hidden ones left out."""
    found = []
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        found += [Path(root, n) for n in sorted(names) if not n.startswith(".")]
    return found
