"""Asking a submission: in this process (a reader's own function) or boxed in another (anybody's)."""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from minirlhf.classroom import wire, worker
from minirlhf.classroom.cells import Cells
from minirlhf.classroom.testing import Failure
from minirlhf.core import provenance
from minirlhf.core.errors import UserError

# In a submission's process `check` does nothing: the grader asks.
QUIET_CHECK = {
    "minirlhf/__init__.py": "",
    "minirlhf/classroom/__init__.py": "def check(*args, **kwargs):\n    return None\n",
}
ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"),
    "MPLBACKEND": "Agg",
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
}


OPTIMISES = re.compile(r"\boptim\b")


@dataclass(frozen=True)
class Limits:
    """What one submission may use for one exercise."""

    cpu: int = 10  # seconds of computing
    wall: float = 60.0  # seconds of waiting for its answers
    memory: int = 1 << 30  # bytes beyond what Python and torch take
    file: int = 16 << 20  # bytes per file


CUTTING = Limits(cpu=5, wall=30.0)


class Ended(Failure):
    """The submission's process is no longer there to answer."""

    def __init__(self, message: str, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class Missing(Failure):
    """The submission does not define a name that the exercise asks for."""


class Local:
    """A reader's own functions and values, asked in this process, by copies of the data as in any other."""

    def __init__(self, namespace: Mapping[str, Any], student: str) -> None:
        self.namespace, self.student = namespace, student

    def _find(self, name: str) -> Any:
        if name not in self.namespace:
            raise Missing(f"`{name}` is missing")
        return self.namespace[name]

    def _copied(self, value: Any) -> Any:
        return wire.decode(wire.encode(value))

    def _answer(self, f: Any, *args: Any) -> Any:
        try:
            return self._copied(f(*args))
        except NotImplementedError as problem:
            raise Failure("not written yet: it still raises NotImplementedError") from problem
        except wire.WireError as problem:
            raise Failure(f"the answer is {problem}") from problem
        except Exception as problem:
            raise Failure(f"your code raised {worker.describe(problem)}") from problem

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As in :class:`minirlhf.classroom.testing.Submission`."""
        f, copies = self._find(name), self._copied((args, kwargs))
        return self._answer(lambda: f(*copies[0], **copies[1]))

    def gradient(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], wrt: int) -> Any:
        """As in :class:`minirlhf.classroom.testing.Submission`."""
        return self._answer(worker.gradient, self._find(name), *self._copied((args, kwargs)), wrt)

    def examine(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], wrt: list[int | str]) -> Any:
        """As in :class:`minirlhf.classroom.testing.Submission`."""
        return self._answer(worker.examine, self._find(name), *self._copied((args, kwargs)), wrt)

    def value(self, name: str) -> Any:
        """As in :class:`minirlhf.classroom.testing.Submission`."""
        value = self._find(name)
        return self._answer(lambda: value)


class Server:
    """The process that forks submissions' processes; a context manager.

    Args:
        at_most: the best isolation level to use, see :mod:`minirlhf.classroom.sandbox`.
        hidden: folders that no submission may read.

    Attributes:
        level: the level that the system allowed.
    """

    def __init__(self, hidden: Sequence[Path] = (), at_most: str = "namespaces") -> None:
        self.hidden, self.at_most = [p.resolve() for p in (provenance.PACKAGE, *hidden)], at_most
        self._lock = threading.Lock()
        self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        fd = theirs.fileno()
        start = (
            f"import sys; sys.path.insert(0, {str(provenance.PACKAGE.parent)!r}); "
            "from minirlhf.classroom import worker; del sys.path[0]; "
            f"worker.main({fd}, {self.at_most!r}, {[str(p) for p in self.hidden]!r})"
        )
        # A clean environment: what is in ours (tokens, paths) is none of a submission's business.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", start],
            pass_fds=[fd],
            env=ENVIRONMENT,
            cwd="/",
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        self._socket = ours
        hello = ours.makefile("rb", buffering=0).readline()
        if not hello:
            raise RuntimeError(f"the grading server did not start (exit status {self._process.wait()})")
        self.level = json.loads(hello)["level"]

    def open(self, limits: Limits, optimises: bool = False) -> tuple[socket.socket, socket.socket]:
        """A new boxed process: its data and its control socket. A server that died is started again.

        ``optimises``: whether it will use ``torch.optim``, whose first step imports a compiler.
        """
        data, their_data = socket.socketpair()
        control, their_control = socket.socketpair()
        # The supervisor's own time limit is a safety net; the grader's, in Boxed, counts the waiting for answers only.
        request = worker.JOB.pack(limits.cpu, limits.memory, limits.file, 10 * limits.wall, optimises)
        fds = [their_data.fileno(), their_control.fileno()]
        with self._lock:
            try:
                socket.send_fds(self._socket, [request], fds)
            except OSError:
                self.close()
                self._start()
                socket.send_fds(self._socket, [request], fds)
        their_data.close()
        their_control.close()
        return data, control

    def probe(self, secrets: Sequence[Path]) -> dict[str, bool]:
        """What the box keeps out, measured inside one."""
        data, control = self.open(Limits())
        with data, control:
            deadline = time.monotonic() + 60
            question = {"op": "probe", "level": self.level, "grader": os.getpid()}
            wire.send(data, {**question, "secrets": [str(p) for p in secrets]}, deadline)
            answer = wire.receive(data, deadline)
        if answer is None or "ok" not in answer:
            raise RuntimeError(f"the box could not be probed: {answer}")
        found = wire.decode(answer["ok"])
        assert isinstance(found, dict)
        return found

    def cut(self, text: str, name: str) -> Cells:
        """:func:`minirlhf.classroom.cells.code_cells` in a box.

        Raises:
            UserError: the file is no notebook, or takes more than a modest file does.
        """
        data, control = self.open(CUTTING)
        with data, control:
            deadline = time.monotonic() + CUTTING.wall
            packed = base64.b64encode(text.encode("utf-8", "replace")).decode("ascii")
            try:
                wire.send(data, {"op": "cut", "text": packed, "name": name}, deadline)
                answer = wire.receive(data, deadline)
                found = wire.decode(answer["ok"]) if answer else None
            except (OSError, KeyError, wire.WireError):
                found = None
        if not isinstance(found, dict):
            raise UserError(f"{name} is too large or too strange to be read")
        if "problem" in found:
            raise UserError(str(found["problem"]))
        return [(str(cell), str(code)) for cell, code in found["cells"]]

    def close(self) -> None:
        """End the server."""
        self._socket.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Boxed:
    """A submission in a box: questions go in, data comes out. It starts at the first question.

    Args:
        server: forks the process.
        cells: ``(name, code)`` pairs, run in order.
        library: modules that it may import, ``{relative path: source}``.
        student: who handed it in; defined as ``STUDENT`` before the cells run.
    """

    def __init__(
        self,
        server: Server,
        cells: Sequence[tuple[str, str]],
        library: Mapping[str, str],
        student: str,
        limits: Limits | None = None,
    ) -> None:
        self.server, self.cells, self.student, self.limits = server, list(cells), student, limits or Limits()
        self.library = {**QUIET_CHECK, **library}
        self._sockets: tuple[socket.socket, socket.socket] | None = None
        self._left = 0.0  # seconds that the process may still take to answer; the grader's own time does not count
        self._errors: list[str] = []

    def _ask(self, question: dict[str, Any]) -> Any:
        if self._sockets is None:
            self._sockets = self.server.open(self.limits, any(OPTIMISES.search(code) for _, code in self.cells))
            self._left = self.limits.wall
            load = {"op": "load", "library": self.library, "cells": self.cells, "preset": {"STUDENT": self.student}}
            errors = self._exchange(load)
            self._errors = [e[:500] for e in errors if isinstance(e, str)] if isinstance(errors, list) else []
        return self._exchange(question)

    def _exchange(self, question: dict[str, Any]) -> Any:
        assert self._sockets is not None
        asked = time.monotonic()
        try:
            wire.send(self._sockets[0], question, asked + self._left)
            answer = wire.receive(self._sockets[0], asked + self._left)
        except TimeoutError as problem:
            self.close()
            raise Ended(f"no answer within {self.limits.wall:g} seconds", timed_out=True) from problem
        except (wire.WireError, OSError) as problem:
            raise self._ended(f"the process sent {problem}" if isinstance(problem, wire.WireError) else "") from problem
        self._left -= time.monotonic() - asked
        if answer is None:
            raise self._ended("")
        if "error" in answer:
            raise self._error(str(answer["error"])[:500], question)
        try:
            return wire.decode(answer["ok"])
        except Exception as problem:
            raise Failure("the answer is no plain data") from problem

    def _error(self, text: str, question: dict[str, Any]) -> Failure:
        """The :class:`Failure` for an error that the submission's side reported."""
        name = str(question.get("name", ""))
        if text == f"LookupError: {name}":
            cause = f": your code stopped with {self._errors[0]}" if self._errors else ""
            if "No module named 'minirlhf" in cause:
                cause += "; an answer may import torch, NumPy and what the exercise itself imports"
            return Missing(f"`{name}` is not defined{cause}")
        if text.startswith("NotImplementedError"):
            return Failure("not written yet: it still raises NotImplementedError")
        if text.startswith("WireError: "):
            return Failure(f"the answer is {text.removeprefix('WireError: ')}")
        return Failure(f"your code raised {text}")

    def _ended(self, why: str) -> Ended:
        """The :class:`Ended` for a process that is gone, with what its supervisor reports."""
        assert self._sockets is not None
        report: dict[str, Any] | None = None
        try:
            report = wire.receive(self._sockets[1], time.monotonic() + 30)
        except (TimeoutError, OSError, wire.WireError):
            why = why or "the process stopped answering"
        self.close()
        if why or report is None:
            return Ended(why or "the process ended before it answered")
        if report["out_of_time"]:
            return Ended(f"more than {self.limits.cpu} seconds of computing time", timed_out=True)
        code = report["exit"]
        cause = f"with exit status {code}" if code >= 0 else f"by signal {-code}"
        return Ended(f"the process ended {cause} before it answered")

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As in :class:`minirlhf.classroom.testing.Submission`."""
        return self._ask({"op": "call", "name": name, "args": wire.encode(args), "kwargs": wire.encode(kwargs)})

    def gradient(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], wrt: int) -> Any:
        """As in :class:`minirlhf.classroom.testing.Submission`."""
        packed = {"args": wire.encode(args), "kwargs": wire.encode(kwargs)}
        return self._ask({"op": "gradient", "name": name, "wrt": wrt, **packed})

    def examine(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], wrt: list[int | str]) -> Any:
        """As in :class:`minirlhf.classroom.testing.Submission`."""
        packed = {"args": wire.encode(args), "kwargs": wire.encode(kwargs)}
        return self._ask({"op": "examine", "name": name, "wrt": wrt, **packed})

    def value(self, name: str) -> Any:
        """As in :class:`minirlhf.classroom.testing.Submission`."""
        return self._ask({"op": "value", "name": name})

    def close(self) -> None:
        """End the process; a further question starts a fresh one."""
        if self._sockets is not None:
            for sock in self._sockets:
                sock.close()
            self._sockets = None
