"""What a student hands in: notebooks or Python files, cut into the sections of their exercises.

A section begins at a cell whose first line is ``# exercise 05.2`` (``# %% exercise 05.2`` in a Python file) and ends where
the next one begins. What stands before the first section, such as imports, belongs to all sections of its file.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from minirlhf.classroom.cells import Cells, code_cells, text_of
from minirlhf.classroom.exercise import Exercise
from minirlhf.core.errors import UserError

MARKER = re.compile(r"#\s*(?:%%\s*)?exercise (\d\d\.\d+)\b")
MAX_BYTES = 5 << 20
SUFFIXES = (".ipynb", ".py")


@dataclass(frozen=True)
class Section:
    """The answer to one exercise in one file: the file's preamble and the exercise's own cells."""

    file: str
    preamble: Cells
    own: Cells
    whole: Cells = field(default_factory=list)  # all cells of the file
    at: int = 0  # where in it the section begins

    @property
    def before(self) -> Cells:
        """All cells above it: the preamble and other exercises."""
        return self.whole[: self.at]

    @property
    def cells(self) -> Cells:
        """All of it, in order."""
        return self.preamble + self.own

    def is_stub(self, exercise: Exercise) -> bool:
        """Whether it is what the student was given, unchanged."""
        return _bare("\n".join(code for _, code in self.own)) == _bare(f"{exercise.given}\n{exercise.stub}")


@dataclass
class StudentSubmission:
    """All that one student handed in. ``problems`` says what could not be read, one sentence each."""

    sections: dict[str, list[Section]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    digest: str = ""  # of all the files' bytes
    also: tuple[str, ...] = ()  # other names of the student

    def add(self, other: StudentSubmission) -> None:
        """Take in what the same student handed in elsewhere."""
        for exercise, found in other.sections.items():
            self.sections.setdefault(exercise, []).extend(found)
        self.problems += other.problems
        self.digest += other.digest

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


def named(path: Path) -> str:
    """A file's name as text: bytes that are no UTF-8 become question marks."""
    return path.name.encode("utf-8", "replace").decode("utf-8")


def normalised(student: str) -> str:
    """An id as it is compared: case, spaces and the way in which accents are composed do not matter."""
    return " ".join(unicodedata.normalize("NFC", student).split()).casefold()


def read_safely(path: Path) -> bytes:
    """The bytes of a file that somebody else wrote: a plain file of modest size, and no link to anything.

    Raises:
        UserError: it is a link, a device or a folder, or too large.
    """
    name = named(path)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as problem:
        message = f"{name} cannot be read ({problem.strerror}); links are not followed"
        raise UserError(message, file=name, problem="unreadable") from problem
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise UserError(f"{name} is not a plain file", file=name, problem="special")
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        message = f"{name} is larger than {MAX_BYTES >> 20} MB; clear its outputs and hand in again"
        raise UserError(message, expected=MAX_BYTES, file=name, problem="size")
    return raw


def sections(cells: Cells, file: str) -> dict[str, Section]:
    """The sections of one file's cells, by exercise."""
    preamble: Cells = []
    found: dict[str, Section] = {}
    current = preamble
    for i, (name, code) in enumerate(cells):
        first = code.lstrip().split("\n", 1)[0]
        if match := MARKER.match(first):
            current = found.setdefault(match[1], Section(file, preamble, [], cells, i)).own
        current.append((name, code))
    return found


def read_files(paths: Iterable[Path], cut: Callable[[str, str], Cells] = code_cells) -> StudentSubmission:
    """The sections of all these files. A file that cannot be read is a problem, not an error.

    Args:
        paths: notebooks and Python files.
        cut: takes a text and a name apart into cells; somebody else's files are cut in a box.
    """
    result, unmarked, digest = StudentSubmission(), [], hashlib.sha256()
    for path in sorted(paths, key=lambda p: (SUFFIXES.index(p.suffix), p.name)):
        name = named(path)
        try:
            raw = read_safely(path)
            digest.update(raw)
            found = sections(cut(text_of(raw, name), name), name)
        except UserError as problem:
            result.problems.append(str(problem))
            continue
        unmarked += [name] if not found else []
        for exercise, section in found.items():
            result.sections.setdefault(exercise, []).append(section)
    if unmarked and not result.sections:
        result.problems.append(f"{', '.join(unmarked[:5])}: no cell begins with a line like '# exercise 05.1'")
    result.digest = digest.hexdigest()
    return result


def files_of(folder: Path) -> list[Path]:
    """The files in a student's folder and the folders in it, hidden ones left out."""
    found = []
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        found += [Path(root, n) for n in sorted(names) if not n.startswith(".")]
    return found
