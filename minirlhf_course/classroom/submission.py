"""A student's submission: notebooks or Python files, split into one section per exercise.

A section begins at a cell whose first line is ``# exercise 05.2`` (``# %% exercise 05.2`` in a Python file) and ends
where the next section begins. The cells before the first section, such as imports, belong to all sections of their
file.
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

from minirlhf.core.errors import UserError
from minirlhf_course.classroom.cells import Cells, code_cells, text_of
from minirlhf_course.classroom.exercise import Exercise

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
    at: int = 0  # index of the section's first cell in ``whole``

    @property
    def before(self) -> Cells:
        """All cells of the file above the section: the preamble and other exercises."""
        return self.whole[: self.at]

    @property
    def cells(self) -> Cells:
        """The cells to run, in order: the preamble and the exercise's own cells."""
        return self.preamble + self.own

    def is_stub(self, exercise: Exercise) -> bool:
        """Whether the section is the unchanged stub that the student received."""
        return _bare("\n".join(code for _, code in self.own)) == _bare(f"{exercise.given}\n{exercise.stub}")


@dataclass
class StudentSubmission:
    """All work that one student handed in. ``problems``: one sentence for each file that could not be read."""

    sections: dict[str, list[Section]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    digest: str = ""  # of all the files' bytes
    also: tuple[str, ...] = ()  # other names of the student

    def add(self, other: StudentSubmission) -> None:
        """Merge another submission of the same student into this one."""
        for exercise, sections in other.sections.items():
            self.sections.setdefault(exercise, []).extend(sections)
        self.problems += other.problems
        self.digest += other.digest

    def answer(self, exercise: Exercise) -> Section | None:
        """Return this exercise's section; of several, the first that differs from the stub (notebooks come first)."""
        sections = self.sections.get(exercise.id, [])
        return next((s for s in sections if not s.is_stub(exercise)), sections[0] if sections else None)

    def why_missing(self, exercise: Exercise) -> str:
        """Explain why there is no answer to this exercise, as far as the files show."""
        marker = f": no cell has the line '# exercise {exercise.id}'" if self.sections else ""
        return "; ".join([f"not handed in{marker}", *self.problems])


def _bare(code: str) -> str:
    """Strip comments, blank lines and calls of ``check``: answers that differ only in these count as equal."""
    lines = (line.split("#")[0].rstrip() for line in code.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("check("))


def named(path: Path) -> str:
    """Return a file's name as text: bytes that are not UTF-8 become question marks."""
    return path.name.encode("utf-8", "replace").decode("utf-8")


def normalised(student: str) -> str:
    """Return an id normalised for comparison: case, spaces and the Unicode form of accents do not matter."""
    return " ".join(unicodedata.normalize("NFC", student).split()).casefold()


def read_safely(path: Path) -> bytes:
    """Read the bytes of an untrusted file, which must be a regular file, not a link, of at most ``MAX_BYTES`` bytes.

    Raises:
        UserError: the file is a link, a device or a folder, or is too large.
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
    """Group the cells of one file into sections, by exercise."""
    preamble: Cells = []
    sections_by_exercise: dict[str, Section] = {}
    current = preamble
    for i, (name, code) in enumerate(cells):
        # A student may write above the marker: an import, a magic.
        if match := next(filter(None, map(MARKER.match, code.lstrip().split("\n"))), None):
            current = sections_by_exercise.setdefault(match[1], Section(file, preamble, [], cells, i)).own
        current.append((name, code))
    return sections_by_exercise


def read_files(paths: Iterable[Path], cut: Callable[[str, str], Cells] = code_cells) -> StudentSubmission:
    """Read the sections of all these files. A file that cannot be read is recorded in ``problems``; nothing is raised.

    Args:
        paths: notebooks and Python files.
        cut: splits a text, given with its file name, into cells; for untrusted files it runs in a sandbox.
    """
    result, unmarked, digest = StudentSubmission(), [], hashlib.sha256()
    for path in sorted(paths, key=lambda p: (SUFFIXES.index(p.suffix), p.name)):
        name = named(path)
        try:
            raw = read_safely(path)
            digest.update(raw)
            file_sections = sections(cut(text_of(raw, name), name), name)
        except UserError as problem:
            result.problems.append(str(problem))
            continue
        unmarked += [name] if not file_sections else []
        for exercise, section in file_sections.items():
            result.sections.setdefault(exercise, []).append(section)
    if unmarked and not result.sections:
        result.problems.append(f"{', '.join(unmarked[:5])}: no cell has a line like '# exercise 05.1'")
    result.digest = digest.hexdigest()
    return result


def files_of(folder: Path) -> list[Path]:
    """Return the files in a student's folder and its subfolders, without hidden files and folders."""
    paths = []
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        paths += [Path(root, n) for n in sorted(names) if not n.startswith(".")]
    return paths
