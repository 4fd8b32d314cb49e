"""The self-learner's checker: it shows a counterexample and gives the next hint, never the solution."""

from __future__ import annotations

import contextlib
import dis
import html
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from minirlhf.core import provenance
from minirlhf.core.errors import UserError, unknown
from minirlhf.core.folders import cache_folder
from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom.exercise import DEFAULT_STUDENT, Exercise
from minirlhf_course.classroom.grading import Outcome, exercise_limits, grade_answer, run_tests
from minirlhf_course.classroom.progress import Progress
from minirlhf_course.classroom.runner import Local, SandboxedSubmission, Server
from minirlhf_course.classroom.side_by_side import run_reference, run_submission
from minirlhf_course.classroom.submission import StudentSubmission
from minirlhf_course.classroom.testing import Asked, Submission
from minirlhf_course.report.plotting import PALETTE, data_uri, panels, png


@dataclass(frozen=True)
class Verdict:
    """The checker's result; its repr is the text that the learner reads."""

    outcome: Outcome
    hint: str = ""
    image: bytes = b""  # PNG: the answer's curve and the correct curve, if the exercise has a picture
    alt: str = ""

    @property
    def passed(self) -> bool:
        """Whether all points were earned."""
        return not self.outcome.reason

    @property
    def says(self) -> tuple[float, str, str]:
        """The parts that do not depend on the random inputs: points, name of the first failed test, and its message."""
        failed = self.outcome.first_failure
        note = self.outcome.note
        return (self.outcome.points, failed.test.name if failed else "", failed.message if failed else note)

    def _repr_html_(self) -> str:
        """The text with the picture below it, for a notebook."""
        text = f"<pre>{html.escape(repr(self))}</pre>"
        image = f'<img src="{data_uri(self.image)}" alt="{html.escape(self.alt)}" width="600">' if self.image else ""
        return text + image

    def __repr__(self) -> str:
        e, failed = self.outcome.exercise, self.outcome.first_failure
        head = f"{'✓' if self.passed else '✗'} {e.id} {e.title} ({self.outcome.points:g} of {e.points:g} points)"
        lines = [head]
        if self.outcome.note:
            lines.append(f"  {self.outcome.note}")
        lines += [f"  {remark}" for remark in self.outcome.remarks]
        for r in self.outcome.results:
            if r.passed and r.test.against:
                lines.append(
                    f"  ✓ proved against {r.test.against}: {r.test.rounds} fresh inputs, worst error {r.worst:.0e}"
                )
        if failed:
            lines += [f"  {failed.asks}", f"  {failed.message}", *(f"    {line}" for line in failed.lines)]
        lines += [f"  {hint}" for hint in self.hint.splitlines()]
        return "\n".join(lines)


class Hints:
    """How often each test has failed, stored between sessions. The first failure gets one hint, later ones both."""

    def __init__(self) -> None:
        self.path = cache_folder() / "hints.json"

    def _read(self) -> dict[str, int]:
        try:
            counts = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return {str(k): int(v) for k, v in counts.items()} if isinstance(counts, dict) else {}

    def after(self, outcome: Outcome) -> str:
        """Count this outcome's failure and return its hints; a passed exercise resets its counts."""
        counts = {
            k: v for k, v in self._read().items() if outcome.reason or not k.startswith(f"{outcome.exercise.id} ")
        }
        hint, failed = "", outcome.first_failure
        if failed and not failed.unanswered:
            key = f"{outcome.exercise.id} {failed.test.name} {failed.probe}".rstrip()
            counts[key] = counts.get(key, 0) + 1
            hint = "\n".join(f"Hint {n} of 2: {text}" for n, text in enumerate(failed.hints[: counts[key]], 1))
        with contextlib.suppress(OSError):  # if the cache is not writable, each failure counts as the first
            self.path.parent.mkdir(parents=True, exist_ok=True)
            draft = self.path.with_suffix(f".{os.getpid()}")
            draft.write_text(json.dumps(counts), encoding="utf-8")
            draft.replace(self.path)
        return hint


def named(exercise: Exercise, functions: Sequence[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Map answers to the names that the exercise asks for.

    Raises:
        UserError: an answer that the exercise does not ask for, or no answer.
    """
    function_names = [name for name, kind in exercise.asks.items() if kind == "function"]
    answers: dict[str, Any] = {}
    for f in functions:
        name = getattr(f, "__name__", "")
        if name not in function_names and len(function_names) == len(functions) == 1:
            name = function_names[0]
        if name not in function_names:
            raise unknown(f"function for exercise {exercise.id}", name or str(type(f)), function_names)
        answers[name] = f
    for name, value in values.items():
        if name not in exercise.asks:
            raise unknown(f"answer to exercise {exercise.id}", name, exercise.asks)
        answers[name] = value
    if not answers:
        raise UserError(f"nothing to check; write {call(exercise)}", expected=call(exercise), problem="missing")
    return answers


def call(exercise: Exercise) -> str:
    """Return the line of code that checks this exercise in a notebook."""
    arguments = [name if kind == "function" else f"{name}={name}" for name, kind in exercise.asks.items()]
    student_argument = ["student=STUDENT"] if exercise.is_personal else []
    return f'check("{exercise.id}", {", ".join(arguments + student_argument)})'


def foreign(answer: Any, exercise: Exercise) -> str:
    """Return the first library module that an answer uses but the grader will not provide; empty if there is none."""
    paths = (Path(relative).with_suffix("").parts for relative in exercise.library)
    allowed = {".".join(parts[:-1] if parts[-1] == "__init__" else parts) for parts in paths} | {
        __name__.rpartition(".")[0]
    }
    visited: set[int] = set()
    queue = [answer]
    while queue:
        value = queue.pop()
        if id(value) in visited:
            continue
        visited.add(id(value))
        name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        if isinstance(name, str) and provenance.is_ours(name):
            if name not in allowed:
                return name
        elif isinstance(value, FunctionType):
            queue += [cell.cell_contents for cell in value.__closure__ or () if cell.cell_contents is not value]
            for code in _codes(value.__code__):
                queue += [value.__globals__[n] for n in code.co_names if n in value.__globals__]
                for step in dis.get_instructions(code):
                    imported = str(step.argval) if step.opname == "IMPORT_NAME" else ""
                    if provenance.is_ours(imported) and imported not in allowed:
                        return imported
    return ""


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a function's code object and the code objects of its nested functions."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


def check_here(number: str, functions: Sequence[Any], values: Mapping[str, Any]) -> Verdict:
    """Check answers that are defined in this process. See :func:`minirlhf_course.classroom.check`."""
    if "." not in number:
        message = f"{number!r} is a chapter; name one of its exercises, such as '{number}.1'"
        raise UserError(message, value=number, expected=f"{number}.1")
    (exercise,) = sources.load(sources.folder(), [number])
    answers = dict(values)
    student = str(answers.pop("student", DEFAULT_STUDENT))
    seed = secrets.randbits(31)
    earlier, remarks, own = earlier_here(exercise, functions, student, seed)
    namespace = {**named(exercise, own, answers), "STUDENT": student}
    for answer in namespace.values():
        if module := foreign(answer, exercise):
            note = f"it uses {module}; an answer may import torch, NumPy and what the exercise itself imports"
            return Verdict(Outcome(exercise, note=note, problem="import"))
    answer_here = Local(namespace, student)
    outcome = run_tests(exercise, answer_here, seed, earlier=earlier)
    Progress().add(outcome)
    return Verdict(replace(outcome, remarks=remarks), Hints().after(outcome), *drawn(exercise, answer_here))


def earlier_here(
    exercise: Exercise, functions: Sequence[Any], student: str, seed: int
) -> tuple[dict[str, Local], tuple[str, ...], list[Any]]:
    """Split the functions given to ``check`` into correct answers to used exercises and the rest.

    Returns:
        The correct answers by exercise, one remark per used exercise, and the remaining functions.
    """
    earlier: dict[str, Local] = {}
    remarks, rest = [], list(functions)
    for needed in sources.load(sources.folder(), exercise.uses) if exercise.uses else ():
        names = set(needed.asks) - set(exercise.asks)
        given_functions = {f.__name__: f for f in rest if getattr(f, "__name__", "") in names}
        rest = [f for f in rest if f not in given_functions.values()]
        if not given_functions:
            remarks.append(run_reference(needed, "was not handed to check"))
            continue
        local = Local({**given_functions, "STUDENT": student}, student)
        outcome = run_tests(needed, local, seed)
        if outcome.reason:
            remarks.append(run_reference(needed, f"earns {outcome.points:g} of {needed.points:g} points"))
        else:
            earlier[needed.id] = local
            remarks.append(run_submission(needed))
    return earlier, tuple(remarks), rest


def drawn(exercise: Exercise, answer: Submission) -> tuple[bytes, str]:
    """Return the picture of this answer as PNG, and its text; both empty if there is none or drawing fails."""
    if exercise.picture is None:
        return b"", ""
    try:
        picture = exercise.picture(Asked(answer))
    except Exception:  # the answer has an unusable type, which its tests have reported
        return b"", ""
    figure, axes = panels(len(picture.panels), width=3.4, height=2.6)
    for ax, panel in zip(axes, picture.panels, strict=True):
        ax.plot(panel.x, panel.right, color=PALETTE["blue"], lw=4, alpha=0.45, label="right")
        ax.plot(panel.x, panel.yours, color=PALETTE["red"], lw=1.6, ls="--", label="yours")
        ax.set(title=panel.title, xlabel=panel.along, ylabel=panel.up)
    axes[0].legend(frameon=False)
    return png(figure), picture.says


def picture_of(server: Server, exercise: Exercise, handed: StudentSubmission, student: str) -> bytes:
    """Return the picture of an answer in a file; the answer runs in a sandbox.

    Raises:
        UserError: there is no answer, or it cannot be drawn.
    """
    section = handed.answer(exercise)
    sandboxed = SandboxedSubmission(
        server, section.cells if section else [], exercise.library, student, exercise_limits(exercise)
    )
    try:
        image, _ = drawn(exercise, sandboxed)
    finally:
        sandboxed.close()
    if not image:
        raise UserError(f"the answer to {exercise.id} cannot be drawn; check it first")
    return image


def student_of(handed: StudentSubmission) -> str:
    """Return the student named in the files, by the first ``STUDENT = "…"`` in them."""
    for section in (s for sections in handed.sections.values() for s in sections):
        for _, code in section.cells:
            if match := re.search(r"""(?m)^STUDENT = (["'])(.+?)\1""", code):
                return match[2]
    return DEFAULT_STUDENT


def check_files(
    server: Server, exercises: Sequence[Exercise], handed: StudentSubmission, student: str
) -> list[Verdict]:
    """Check a learner's own files, each exercise in its own process."""
    hints, progress = Hints(), Progress()
    verdicts = []
    for exercise in exercises:
        outcome = grade_answer(server, exercise, handed, student, secrets.randbits(31))
        progress.add(outcome)
        verdicts.append(Verdict(outcome, hints.after(outcome)))
    return verdicts
