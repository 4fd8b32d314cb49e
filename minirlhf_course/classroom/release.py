"""The release for students: a chapter's statements and stubs as a notebook and as a Python file, and nothing else.

The release contains public blocks only. An optional ``intro.md`` in the chapter's folder is the notebook's
introduction.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minirlhf.core.errors import UserError
from minirlhf_course.classroom import derivation, probes
from minirlhf_course.classroom.checker import call
from minirlhf_course.classroom.exercise import DEFAULT_STUDENT, Exercise, compiled
from minirlhf_course.classroom.testing import show

SETUP = f'''from minirlhf_course.classroom import check

STUDENT = "{DEFAULT_STUDENT}"  # your student id, if you hand this in: some exercises have your own numbers'''


PICKS = "; a wrong answer costs half of its points, one left `None` costs nothing"
WATCHED = """Every function must leave its inputs as they were, also what is in lists and dictionaries, and, unless the exercise says
otherwise, the global random numbers of torch, NumPy and Python. The same call must have the same answer whenever it is made, unless the answer may
be random. Most functions are also called with inputs that the tests do not use; each exercise says with which. *Awkward numbers* are equal ones,
ones that differ by a millionth, small and large ones, and numbers to all of which ten million is added, where the right result then stays the same.
Unless an exercise says otherwise, the largest number of an argument is between 0.0001 and 1,000 in size, and a probability is at least 0.00000001.
Integers may be a hundred times as large as in the tests, and inputs of other sizes have up to 250 entries along an axis."""
PROBED = {
    "keywords": "other values of its arguments",
    "size": "inputs of other sizes",
    "single": "a batch of one",
    "values": "fractions",
    **dict.fromkeys(probes.AWKWARD, "awkward numbers"),
    "float32": "inputs in float32",
    "nan": "NaN where a mask is False",
}


@dataclass(frozen=True)
class ReleaseCell:
    """One cell of a release. ``role`` is ``text``, ``setup``, ``given``, ``answer`` or ``check``."""

    kind: str  # "markdown" or "code"
    role: str
    text: str
    exercise: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)


def intro(exercises: Sequence[Exercise]) -> str:
    """Return the chapter's introduction with its table of exercises."""
    folder = exercises[0].path.parent
    intro_file = folder / "intro.md"
    name = folder.name[3:].replace("_", " ")
    text = intro_file.read_text(encoding="utf-8").strip() if intro_file.exists() else f"# Exercises: {name}"
    rows = [f"| {e.id} | {e.title} | {e.points:g} | {e.minutes} |" for e in exercises]
    text += f"\n\n{WATCHED}" if any("function" in e.asks.values() for e in exercises) else ""
    return "\n".join([text, "", "| exercise | | points | minutes |", "|---|---|---:|---:|", *rows])


def cells(exercises: Sequence[Exercise], seed: int = 0) -> list[ReleaseCell]:
    """Return the cells of a chapter's release. ``seed``: of the probes, of which the text names the kinds."""
    release_cells = [ReleaseCell("markdown", "text", intro(exercises)), ReleaseCell("code", "setup", SETUP)]
    for e in exercises:
        heading = f"## {e.id} {e.title}\n\n*{e.points:g} points, about {e.minutes} minutes{PICKS if e.kind == 'choice' else ''}*\n\n"
        release_cells.append(ReleaseCell("markdown", "text", heading + e.statement + _probed(e, seed) + _used(e), e.id))
        marker = f"# exercise {e.id} (keep this line)\n"
        if e.given:
            release_cells.append(ReleaseCell("code", "given", marker + e.given, e.id))
        release_cells.append(ReleaseCell("code", "answer", e.stub if e.given else marker + e.stub, e.id))
        release_cells.append(ReleaseCell("code", "check", call(e), e.id))
    return release_cells


def _probed(e: Exercise, seed: int) -> str:
    """Return the sentences about the probes that the functions of an exercise really have."""
    plan = derivation.plan(e, seed, DEFAULT_STUDENT)
    kinds = {name: {p.kind for p in plan.by_function.get(name, ())} for name in e.asks if e.asks[name] == "function"}
    tried: dict[str, list[str]] = {}
    for name, present in kinds.items():
        if inputs := _listed(list(dict.fromkeys(words for kind, words in PROBED.items() if kind in present))):
            tried.setdefault(f"also called with {inputs}", []).append(name)
    tried["required to answer in integers or bools where these are asked for"] = [
        n for n in kinds if "integers" in kinds[n]
    ]
    tried["differentiated: the gradients count, too"] = [n for n in kinds if "gradient" in kinds[n]]
    tried["free to use the global random numbers"] = [n for n in kinds if {"", n} & set(e.off.get("random", {}))]
    for name, present in kinds.items():
        of_function = {target: ends for target, ends in e.ranges.items() if target.split(".")[0] in ("", name)}
        for target, (least, largest) in of_function.items() if "scale" in present else ():
            where = f" in `{target.partition('.')[2]}`" if "." in target else ""
            tried.setdefault(
                f"called with numbers{where} of which the largest is between {_plain(least)} and {_plain(largest)} in size",
                [],
            ).append(name)
    sentences = [
        f"{_listed([f'`{n}`' for n in names])} {'are' if len(names) > 1 else 'is'} {words}."
        for words, names in tried.items()
        if names
    ]
    return f"\n\n*{' '.join(sentences)}*" if sentences else ""


def _plain(x: float) -> str:
    """Return a number without an exponent."""
    return f"{x:,.8f}".rstrip("0").rstrip(".")


def _listed(parts: Sequence[str]) -> str:
    """Return "a", "a and b", or "a, b and c"."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _used(e: Exercise) -> str:
    """Return a note about the earlier answers that run in this exercise."""
    if not e.uses:
        return ""
    numbers = " and ".join(e.uses)
    return f"""

*Your answer to {numbers} runs in it, if it is right: hand the file that holds it in beside this one, or in a notebook the function
itself to `check`. Otherwise ours does.*"""


def notebook(cells: Sequence[ReleaseCell]) -> str:
    """Return the cells as a notebook (nbformat 4.5), with cell ids that stay the same across releases."""
    body = []
    for i, cell in enumerate(cells):
        entry: dict[str, Any] = {
            "cell_type": cell.kind,
            "id": f"{cell.role}-{cell.exercise.replace('.', '-') or i}",
            "metadata": cell.metadata,
            "source": cell.text.splitlines(keepends=True),
        }
        if cell.kind == "code":
            entry |= {"execution_count": None, "outputs": []}
        body.append(entry)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    document = {
        "cells": body,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def script(cells: Sequence[ReleaseCell]) -> str:
    """Return the cells as a Python file in percent format."""
    parts = []
    for cell in cells:
        if cell.kind == "markdown":
            text = "\n".join(f"# {line}".rstrip() for line in cell.text.splitlines())
            parts.append(f"# %% [markdown]\n{text}\n")
        elif cell.text.startswith("# exercise "):
            parts.append(f"# %% {cell.text.removeprefix('# ')}\n")
        else:
            parts.append(f"# %%\n{cell.text}\n")
    return "\n".join(parts)


def texts(exercises: Sequence[Exercise], seed: int = 0) -> tuple[str, str]:
    """Return the texts that a student can read in the notebook and in the Python file; ``seed`` as in :func:`cells`."""
    release_cells = cells(exercises, seed)
    return plain_text(notebook(release_cells)), script(release_cells)


def write(exercises: Sequence[Exercise], out: Path, replace: bool = False) -> list[Path]:
    """Write one chapter's release into ``out`` and return the files. See :func:`place`."""
    release_cells = cells(exercises)
    name = exercises[0].path.parent.name
    texts = {out / f"{name}.ipynb": notebook(release_cells), out / f"{name}.py": script(release_cells)}
    return place(texts, replace)


def archive(files: Mapping[str, str | bytes]) -> bytes:
    """A zip archive of files by name, the same bytes for the same files. A file that begins with ``#!`` may be executed."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)
            raw = content.encode("utf-8") if isinstance(content, str) else content
            entry.external_attr = (0o755 if raw.startswith(b"#!") else 0o644) << 16
            file.writestr(entry, raw, zipfile.ZIP_DEFLATED)
    return made.getvalue()


def place(contents: Mapping[Path, str | bytes], replace: bool) -> list[Path]:
    """Write all files or none. An existing file with other content may hold a student's work and needs ``replace``.

    Raises:
        UserError: a file exists with other content, and ``replace`` is False.
    """
    raw = {p: text.encode("utf-8") if isinstance(text, str) else text for p, text in contents.items()}
    changed = [p for p, content in raw.items() if p.exists() and p.read_bytes() != content]
    if changed and not replace:
        raise UserError(
            f"{changed[0]} exists and has been changed; name another folder, or use --replace to overwrite it",
            argument="--replace",
            file=changed[0],
            problem="exists",
        )
    for path, content in raw.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return list(raw)


def key(exercises: Sequence[Exercise], student: str = "") -> str:
    """Return the answer key as Markdown: solutions, each test's description, its hints, and the mistakes that it names.

    Args:
        exercises: the exercises of one chapter.
        student: the student whose numbers the personal exercises use; if empty, their answers are left out.
    """
    parts = [f"# Answer key: {exercises[0].path.parent.name}", "For those who mark. Not for students."]
    for e in exercises:
        parts += [f"## {e.id} {e.title} ({e.points:g} points)", f"~~~python\n{e.solution}\n~~~"]
        if e.is_personal and student:
            values = personal_answers(e, student).items()
            parts.append("\n".join(f"* `{n}` for {student}: {v}" for n, v in values))
        for t in e.tests:
            known = [f"* {v.note}" + (f": *…{v.says}…*" if v.says else "") for v in e.mutants if v.caught_by == t.name]
            lines = [f"**{t.name}** ({t.points:g}): {t.asks}", "", f"1. {t.hints[0]}", f"2. {t.hints[1]}"]
            parts.append("\n".join([*lines, *(["", "Mistakes that it tells by name:", "", *known] if known else [])]))
        partials = [f"* {v.points:g}: {v.note}" for v in e.partials]
        parts.append("\n".join(["What parts are worth:", "", *partials]))
    return "\n\n".join(parts) + "\n"


def personal_answers(exercise: Exercise, student: str) -> dict[str, str]:
    """Return the correct values for this student."""
    namespace: dict[str, Any] = {"STUDENT": student, "print": lambda *args, **kwargs: None}
    for code in (exercise.given, exercise.solution):
        exec(compiled(code, exercise.path), namespace)
    return {name: show(namespace[name]) for name, kind in exercise.asks.items() if kind == "value"}


def write_key(exercises: Sequence[Exercise], out: Path, replace: bool = False, student: str = "") -> list[Path]:
    """Write one chapter's answer key into ``out`` and return the file."""
    return place({out / f"{exercises[0].path.parent.name}-key.md": key(exercises, student)}, replace)


def plain_text(notebook: str) -> str:
    """Return the sources of all cells of a notebook."""
    return "\n\n".join("".join(cell["source"]) for cell in json.loads(notebook)["cells"])


def leaks(exercise: Exercise, text: str) -> list[str]:
    """Return the lines of private blocks that occur in ``text``; lines that are also in public blocks do not count."""
    public = {
        line.strip() for block in (exercise.given, exercise.stub, exercise.statement) for line in block.splitlines()
    }
    private = [exercise.solution, *(v.code for v in (*exercise.mutants, *exercise.partials))]
    raw = exercise.path.read_text(encoding="utf-8").split("# %% [tests]")[1].split("# %% [")[0]
    raw += exercise.path.read_text(encoding="utf-8").partition("# %% [picture]")[2].split("# %% [")[0]
    lines = {line.strip() for block in (*private, raw) for line in block.splitlines()} - public
    lines |= {hint for t in exercise.tests for hint in t.hints}
    return sorted(line for line in lines if len(re.findall(r"\w+", line)) >= 2 and len(line) >= 12 and line in text)
