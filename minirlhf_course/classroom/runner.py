"""Run a submission: in this process (a reader's own functions) or in a sandboxed process (untrusted code)."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from minirlhf.core.errors import UserError
from minirlhf.sandbox import inside, wire
from minirlhf.sandbox.server import BoxEnded, Limits, Sandbox, SandboxPool
from minirlhf_course.classroom import handles, worker
from minirlhf_course.classroom.cells import Cells
from minirlhf_course.classroom.side_effects import SideEffects
from minirlhf_course.classroom.testing import Failure

# In a submission's process `check` does nothing, because the grader calls the functions.
QUIET_CHECK = {
    "minirlhf/__init__.py": "",
    "minirlhf_course/classroom/__init__.py": "def check(*args, **kwargs):\n    return None\n",
}
OPTIMISES = re.compile(r"\boptim\b")
CUTTING = Limits(cpu=5, wall=30.0)


class Ended(Failure):
    """The submission's process has ended or timed out."""

    def __init__(self, message: str, timed_out: bool = False) -> None:
        super().__init__(message, problem="timeout" if timed_out else "ended")
        self.timed_out = timed_out


class Missing(Failure):
    """The submission does not define a name that the exercise asks for."""


class Local:
    """A reader's own functions and values in this process; they receive copies of the data, as in another process.

    ``run``: runs the reader's code once more and returns its names.
    """

    def __init__(
        self, namespace: Mapping[str, Any], student: str, run: Callable[[], Mapping[str, Any]] | None = None
    ) -> None:
        self.namespace, self.student, self._effects, self._run = namespace, student, SideEffects(), run

    def fresh(self) -> Local:
        """As in :class:`minirlhf_course.classroom.testing.Submission`; of functions alone there is no fresh copy."""
        return Local(self._run(), self.student, self._run) if self._run else self

    def _find(self, name: str) -> Any:
        if name not in self.namespace:
            raise Missing(f"`{name}` is missing", argument=name, problem="missing")
        return self.namespace[name]

    def _watched(self, name: str) -> Any:
        return self._effects.watched(name, self._find(name))

    def _copied(self, value: Any) -> Any:
        return wire.decode(wire.encode(value))

    def _received(self, value: Any) -> Any:
        """Return a copy of what a submission receives, in which handles are functions."""
        known: list[handles.Handle] = []
        return handles.unpacked(self._copied(handles.packed(value, known)), lambda n: handles.copying(known[n]))

    def _answer(self, function: Any, *args: Any) -> Any:
        try:
            return self._copied(function(*args))
        except NotImplementedError as problem:
            message = "not written yet: it still raises NotImplementedError"
            raise Failure(message, problem="unwritten") from problem
        except wire.WireError as problem:
            raise Failure(f"the answer is {problem}", problem="type") from problem
        except Exception as problem:
            described = inside.describe(problem)
            raise Failure(f"your code raised {described}", value=described, problem="raised") from problem

    def call(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], world: Mapping[str, handles.Handle] = {}
    ) -> Any:
        """As in :class:`minirlhf_course.classroom.testing.Submission`."""
        copies = self._received((args, kwargs))
        with handles.replaced(self._find(name), self._received(dict(world))):
            return self._answer(lambda: self._watched(name)(*copies[0], **copies[1]))

    def gradient(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], wrt: int) -> Any:
        """As in :class:`minirlhf_course.classroom.testing.Submission`."""
        return self._answer(worker.gradient, self._watched(name), *self._copied((args, kwargs)), wrt)

    def seconds(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
        """As in :class:`minirlhf_course.classroom.testing.Submission`."""
        return float(self._answer(worker.seconds, self._find(name), *self._copied((args, kwargs))))

    def examine(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], wrt: list[int | str]) -> Any:
        """As in :class:`minirlhf_course.classroom.testing.Submission`."""
        return self._answer(worker.examine, self._watched(name), *self._copied((args, kwargs)), wrt)

    def effects(self) -> dict[str, Any]:
        """As in :class:`minirlhf_course.classroom.testing.Submission`."""
        return self._effects.noted

    def value(self, name: str) -> Any:
        """As in :class:`minirlhf_course.classroom.testing.Submission`."""
        value = self._find(name)
        return self._answer(lambda: value)


class Server(SandboxPool):
    """The process that forks the submissions' processes; a context manager.

    Args:
        hidden: folders that no submission may read.
        at_most: the strongest isolation level to use, see :mod:`minirlhf.sandbox.isolation`.

    Attributes:
        level: the isolation level that the system allowed.
    """

    def __init__(self, hidden: Sequence[Path] = (), at_most: str = "namespaces") -> None:
        super().__init__("minirlhf_course.classroom.worker", hidden, at_most)

    def cut(self, text: str, name: str) -> Cells:
        """Run :func:`minirlhf_course.classroom.cells.code_cells` in a sandbox.

        Raises:
            UserError: the file is not a notebook, or parsing it exceeds the limits ``CUTTING``.
        """
        encoded = base64.b64encode(text.encode("utf-8", "replace")).decode("ascii")
        try:
            with Sandbox(self, CUTTING) as box:
                result = wire.decode(box.ask({"op": "cut", "text": encoded, "name": name})["ok"])
        except (BoxEnded, KeyError, wire.WireError):
            result = None
        if not isinstance(result, dict):
            raise UserError(f"{name} cannot be read: it is too large or malformed", file=name, problem="unreadable")
        if "problem" in result:
            raise UserError(str(result["problem"]), file=name)
        return [(str(cell), str(code)) for cell, code in result["cells"]]


class SandboxedSubmission:
    """A submission in a sandboxed process that receives requests and returns data. It starts at the first request.

    Args:
        server: forks the process.
        cells: ``(name, code)`` pairs, run in order.
        library: modules that the submission may import, ``{relative path: source}``.
        student: the submission's student; defined as ``STUDENT`` before the cells run.
        limits: limits of time and memory, see :func:`minirlhf_course.classroom.grading.exercise_limits`.
    """

    def __init__(
        self,
        server: Server,
        cells: Sequence[tuple[str, str]],
        library: Mapping[str, str],
        student: str,
        limits: Limits,
    ) -> None:
        self.server, self.cells, self.student, self.limits = server, list(cells), student, limits
        self.library = {**QUIET_CHECK, **library}
        self._box: Sandbox | None = None
        self._errors: list[str] = []

    def _ask(self, request: dict[str, Any], known: Sequence[handles.Handle] = ()) -> Any:
        if self._box is None:
            self._box = Sandbox(self.server, self.limits, any(OPTIMISES.search(code) for _, code in self.cells))
            load = {"op": "load", "library": self.library, "cells": self.cells, "preset": {"STUDENT": self.student}}
            errors = self._exchange(load)
            self._errors = [e[:500] for e in errors if isinstance(e, str)] if isinstance(errors, list) else []
        return self._exchange(request, known)

    def _exchange(self, request: dict[str, Any], known: Sequence[handles.Handle] = ()) -> Any:
        assert self._box is not None
        try:
            response = self._box.ask(request, known)
        except BoxEnded as problem:
            self.close()
            raise Ended(str(problem), problem.timed_out) from problem
        if "error" in response:
            raise self._error(str(response["error"])[:500], request)
        try:
            return wire.decode(response["ok"])
        except Exception as problem:
            raise Failure("the answer is no plain data", problem="type") from problem

    def _error(self, text: str, request: dict[str, Any]) -> Failure:
        """Return the :class:`Failure` for an error that the submission's process reported."""
        name = str(request.get("name", ""))
        if text == f"LookupError: {name}":
            cause = f": your code stopped with {self._errors[0]}" if self._errors else ""
            if "No module named 'minirlhf" in cause:
                cause += "; an answer may import torch, NumPy and what the exercise itself imports"
            errors = self._errors[0] if self._errors else None
            return Missing(f"`{name}` is not defined{cause}", argument=name, value=errors, problem="missing")
        if text.startswith("NotImplementedError"):
            return Failure("not written yet: it still raises NotImplementedError", problem="unwritten")
        if text.startswith("WireError: "):
            return Failure(f"the answer is {text.removeprefix('WireError: ')}", problem="type")
        return Failure(f"your code raised {text}", value=text, problem="raised")

    def call(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], world: Mapping[str, handles.Handle] = {}
    ) -> Any:
        """As in :class:`minirlhf_course.classroom.testing.Submission`."""
        known: list[handles.Handle] = []
        parts = {"args": args, "kwargs": kwargs, "world": dict(world)}
        sent = {part: wire.encode(handles.packed(value, known)) for part, value in parts.items()}
        return self._ask({"op": "call", "name": name, **sent}, known)

    def gradient(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], wrt: int) -> Any:
        """As in :class:`minirlhf_course.classroom.testing.Submission`."""
        inputs = {"args": wire.encode(args), "kwargs": wire.encode(kwargs)}
        return self._ask({"op": "gradient", "name": name, "wrt": wrt, **inputs})

    def seconds(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
        """As in :class:`minirlhf_course.classroom.testing.Submission`; the clock is the supervisor's, which it cannot reach.

        Where the system has no such clock, that of the process counts; if it reports no number, it took for ever.
        """
        request = {"op": "seconds", "name": name, "args": wire.encode(args), "kwargs": wire.encode(kwargs)}
        if self._box is None:
            self._ask({"op": "effects"})  # starts the process
        start = self._processor_time()
        reported = self._ask(request)
        measured = self._processor_time() - start
        if not math.isnan(measured):
            return measured
        return float(reported) if isinstance(reported, float) and reported >= 0 else math.inf

    def _processor_time(self) -> float:
        assert self._box is not None
        try:
            return self._box.processor_time()
        except BoxEnded as problem:
            self.close()
            raise Ended(str(problem), problem.timed_out) from problem

    def examine(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], wrt: list[int | str]) -> Any:
        """As in :class:`minirlhf_course.classroom.testing.Submission`."""
        inputs = {"args": wire.encode(args), "kwargs": wire.encode(kwargs)}
        return self._ask({"op": "examine", "name": name, "wrt": wrt, **inputs})

    def effects(self) -> dict[str, Any]:
        """As in :class:`minirlhf_course.classroom.testing.Submission`; a process that has ended has noted nothing."""
        noted = self._ask({"op": "effects"}) if self._box else {}
        return noted if isinstance(noted, dict) else {}

    def value(self, name: str) -> Any:
        """As in :class:`minirlhf_course.classroom.testing.Submission`."""
        return self._ask({"op": "value", "name": name})

    def fresh(self) -> SandboxedSubmission:
        """As in :class:`minirlhf_course.classroom.testing.Submission`."""
        return SandboxedSubmission(self.server, self.cells, self.library, self.student, self.limits)

    def close(self) -> None:
        """End the process; a further request starts a fresh one."""
        if self._box is not None:
            self._box.close()
            self._box = None
