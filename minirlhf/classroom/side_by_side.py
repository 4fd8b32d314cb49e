"""What stands beside an answer while it is tested: the student's earlier answers, and our solution.

An exercise whose header says ``uses: 02.6`` runs with the student's own answer to 02.6 where that earns everything, and with ours otherwise, so
that what went wrong in one chapter is nobody's loss in another. Ours runs in the grader, like every solution, never in a submission's process.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from minirlhf.classroom import exercise as sources
from minirlhf.classroom.exercise import Exercise, compiled
from minirlhf.classroom.runner import Ended, Local
from minirlhf.classroom.testing import Asked, Failure, Submission
from minirlhf.ledger.registry import Draw

Curve = Callable[[Asked, Draw], Sequence[float]]


def solution(exercise: Exercise, student: str) -> dict[str, Any]:
    """The namespace that the exercise's solution leaves, for this student."""
    namespace: dict[str, Any] = {"__name__": "__main__", "STUDENT": student, "print": lambda *args, **kwargs: None}
    for code in (exercise.given, exercise.solution):
        exec(compiled(code, exercise.path), namespace)
    return namespace


def run_once(run: Curve, sub: Asked, base: int, k: int) -> list[float]:
    """The curve of seed ``k`` of those that begin at ``base``."""
    return [float(x) for x in run(sub, Draw(base, "run", k))]


class _Part(Asked):
    """An earlier answer of the student. What is wrong with it is said with its number."""

    def __init__(self, number: str, submission: Submission) -> None:
        super().__init__(submission)
        self._number = number

    def __getattr__(self, name: str) -> Callable[..., Any]:
        asked = super().__getattr__(name)

        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return asked(*args, **kwargs)
            except Ended:
                raise
            except Failure as problem:
                message = f"in your {self._number}, which runs here: {problem.message}"
                raise Failure(message, problem.lines, **(problem.facts | {"argument": self._number})) from problem

        return call


class Beside:
    """What stands beside an answer to ``exercise`` while it is tested: earlier answers, and our solution's runs.

    Args:
        earlier: the student's own answers to exercises that it uses, those that are right; ours take the place of others.
    """

    def __init__(self, exercise: Exercise, student: str, earlier: Mapping[str, Submission]) -> None:
        self.exercise, self.student, self.earlier = exercise, student, earlier

    def part(self, number: str) -> Asked:
        """The answer to an earlier exercise that this one uses."""
        if number not in self.exercise.uses:
            raise ValueError(f"{self.exercise.path}: the header does not say that it uses {number}")
        if number in self.earlier:
            return _Part(number, self.earlier[number])
        return _Ours(_ours(self.exercise.path.parents[1], number))

    def reference(self, run: Curve, base: int, k: int) -> Sequence[float]:
        """Our solution's curve of one seed. Computed once for a whole class."""
        of = (self.exercise.path, self.exercise.solution, self.exercise.given)
        key = (*of, run.__name__, base, k, self.student if self.exercise.is_personal else "")
        with _lock:
            known = _curves.get(key)
        if known is None:
            known = run_once(run, self.ours(), base, k)
            with _lock:
                while len(_curves) >= KEPT:
                    del _curves[next(iter(_curves))]
                _curves[key] = known
        return known

    def ours(self) -> Asked:
        """Our answer, with our earlier ones."""
        ours = Local(solution(self.exercise, self.student), self.student)
        return Asked(ours, Beside(self.exercise, self.student, {}))


KEPT = 4096
_curves: dict[tuple[Any, ...], list[float]] = {}
_lock = threading.Lock()


@functools.cache
def _ours(root: Path, number: str) -> Local:
    (exercise,) = sources.load(root, [number])
    return Local(solution(exercise, sources.DEFAULT_STUDENT), sources.DEFAULT_STUDENT)


class _Ours(Asked):
    """An earlier answer of ours. It is trusted with its inputs, so nothing is copied: a training asks thousands of times."""

    def __init__(self, local: Local) -> None:
        super().__init__(local)
        self._namespace = local.namespace

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        found: Callable[..., Any] = self._namespace[name]
        return found


def run_reference(needed: Exercise, why: str) -> str:
    """What a student reads where an earlier answer is replaced."""
    return f"Our own answer to {needed.id} ({needed.title}) runs here: yours {why}."


def run_submission(needed: Exercise) -> str:
    """What a student reads where it is not."""
    return f"Your own answer to {needed.id} ({needed.title}) runs here."
