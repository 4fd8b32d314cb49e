"""The context of an answer under test: the student's earlier answers, and the reference solution.

An exercise whose header says ``uses: 02.6`` runs with the student's own answer to 02.6 if that answer earns full
marks, and with the reference solution otherwise. So a mistake in one chapter does not cost points in another.
Reference solutions run in the grader's process, never in a submission's process.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom.exercise import Exercise, compiled
from minirlhf_course.classroom.runner import Ended, Local
from minirlhf_course.classroom.testing import Asked, Failure, Submission
from minirlhf_course.ledger.registry import Draw

Curve = Callable[[Asked, Draw], Sequence[float]]


def solution(exercise: Exercise, student: str) -> dict[str, Any]:
    """Execute the exercise's solution for this student and return its namespace."""
    namespace: dict[str, Any] = {"__name__": "__main__", "STUDENT": student, "print": lambda *args, **kwargs: None}
    for code in (exercise.given, exercise.solution):
        exec(compiled(code, exercise.path), namespace)
    return namespace


def run_once(run: Curve, sub: Asked, base: int, k: int) -> list[float]:
    """Return the curve of the ``k``-th run; its random numbers are derived from ``base`` and ``k``."""
    return [float(x) for x in run(sub, Draw(base, "run", k))]


class _Part(Asked):
    """An earlier answer of the student. Its failures name its exercise number."""

    def __init__(self, number: str, submission: Submission) -> None:
        super().__init__(submission)
        self._number = number

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = super().__getattr__(name)

        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except Ended:
                raise
            except Failure as problem:
                message = f"in your {self._number}, which runs here: {problem.message}"
                raise Failure(message, problem.lines, **(problem.facts | {"argument": self._number})) from problem

        return call


class Beside:
    """The context of an answer to ``exercise`` under test: earlier answers, and the runs of the reference solution.

    Args:
        earlier: the student's correct answers to exercises that it uses; reference solutions replace the others.
    """

    def __init__(self, exercise: Exercise, student: str, earlier: Mapping[str, Submission]) -> None:
        self.exercise, self.student, self.earlier = exercise, student, earlier

    def part(self, number: str) -> Asked:
        """Return the answer to an earlier exercise that this one uses."""
        if number not in self.exercise.uses:
            raise ValueError(f"{self.exercise.path}: the header's 'uses' does not list {number}")
        if number in self.earlier:
            return _Part(number, self.earlier[number])
        return _Reference(_reference(self.exercise.path.parents[1], number))

    def reference(self, run: Curve, base: int, k: int) -> Sequence[float]:
        """Return the reference solution's curve for one seed, computed once for a whole class."""
        source = (self.exercise.path, self.exercise.solution, self.exercise.given)
        key = (*source, run.__name__, base, k, self.student if self.exercise.is_personal else "")
        with _lock:
            curve = _curves.get(key)
        if curve is None:
            curve = run_once(run, self.solution(), base, k)
            with _lock:
                while len(_curves) >= KEPT:
                    del _curves[next(iter(_curves))]
                _curves[key] = curve
        return curve

    def solution(self) -> Asked:
        """Return the reference solution, with reference solutions for the earlier exercises."""
        local = Local(solution(self.exercise, self.student), self.student)
        return Asked(local, Beside(self.exercise, self.student, {}))


KEPT = 4096
_curves: dict[tuple[Any, ...], list[float]] = {}
_lock = threading.Lock()


@functools.cache
def _reference(root: Path, number: str) -> Local:
    (exercise,) = sources.load(root, [number])
    return Local(solution(exercise, sources.DEFAULT_STUDENT), sources.DEFAULT_STUDENT)


class _Reference(Asked):
    """A reference solution of an earlier exercise. Inputs are not copied, because a training run calls it often."""

    def __init__(self, local: Local) -> None:
        super().__init__(local)
        self._namespace = local.namespace

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        function: Callable[..., Any] = self._namespace[name]
        return function


def run_reference(needed: Exercise, why: str) -> str:
    """Return the remark for an earlier answer that the reference solution replaces."""
    return f"Our own answer to {needed.id} ({needed.title}) runs here: yours {why}."


def run_submission(needed: Exercise) -> str:
    """Return the remark for an earlier answer of the student that runs in this one."""
    return f"Your own answer to {needed.id} ({needed.title}) runs here."
