"""The outside of the boxes: start the server that forks them, open one, ask it, and be told how it ended."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from minirlhf.core import provenance
from minirlhf.sandbox import inside, wire

ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"),
    "MPLBACKEND": "Agg",
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
}


@dataclass(frozen=True)
class Limits:
    """What one boxed process may use."""

    cpu: int = 10  # seconds of computing
    wall: float = 60.0  # seconds of waiting for its answers
    memory: int = 1 << 30  # bytes beyond what the server takes
    file: int = 16 << 20  # bytes per file


class BoxEnded(Exception):
    """The boxed process is no longer there to answer; the message says how it ended."""

    def __init__(self, message: str, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class SandboxPool:
    """The process that forks boxed ones; a context manager.

    Args:
        guest: the module whose ``GUEST`` serves in the boxes, see :class:`minirlhf.sandbox.inside.SandboxWorker`.
        hidden: folders that no boxed process may read; the package's own is always one.
        at_most: the best isolation level to use, see :mod:`minirlhf.sandbox.isolation`.

    Attributes:
        level: the level that the system allowed.
    """

    def __init__(self, guest: str, hidden: Sequence[Path] = (), at_most: str = "namespaces") -> None:
        self.guest, self.at_most = guest, at_most
        self.hidden = [p.resolve() for p in (provenance.PACKAGE, *hidden)]
        self._lock = threading.Lock()
        self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        fd = theirs.fileno()
        start = (
            f"import sys; sys.path.insert(0, {str(provenance.PACKAGE.parent)!r}); "
            "from minirlhf.sandbox import inside; "
            f"inside.{inside.main.__name__}({fd}, {self.guest!r}, {self.at_most!r}, {[str(p) for p in self.hidden]!r})"
        )
        # A clean environment: what is in ours (tokens, paths) is none of a program's business.
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
            raise RuntimeError(f"the server of the boxes did not start (exit status {self._process.wait()})")
        self.level = json.loads(hello)["level"]

    def open(self, limits: Limits, more: bool = False) -> tuple[socket.socket, socket.socket]:
        """A new boxed process: its data and its control socket. A server that died is started again.

        ``more``: whether it will use what the guest's ``prepare_more`` makes ready.
        """
        data, their_data = socket.socketpair()
        control, their_control = socket.socketpair()
        # The supervisor's own time limit is a safety net; that of Box counts the waiting for answers only.
        request = inside.JOB.pack(limits.cpu, limits.memory, limits.file, 10 * limits.wall, more)
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
        with Sandbox(self, Limits()) as box:
            question = {"op": "probe", "level": self.level, "grader": os.getpid()}
            answer = box.ask({**question, "secrets": [str(p) for p in secrets]})
        if "ok" not in answer:
            raise RuntimeError(f"the box could not be probed: {answer}")
        found = wire.decode(answer["ok"])
        assert isinstance(found, dict)
        return found

    def close(self) -> None:
        """End the server."""
        self._socket.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Sandbox:
    """One boxed process: questions go in, data comes out; a context manager."""

    def __init__(self, boxes: SandboxPool, limits: Limits, more: bool = False) -> None:
        self.limits = limits
        self._data, self._control = boxes.open(limits, more)
        self._left = limits.wall  # seconds that the process may still take to answer; our own time does not count

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """What it answers: ``{"ok": data}``, or ``{"error": text}``.

        Raises:
            BoxEnded: it is gone, or has not answered in time, or not by a message. The box is then closed.
        """
        asked = time.monotonic()
        try:
            wire.send(self._data, question, asked + self._left)
            answer = wire.receive(self._data, asked + self._left)
        except TimeoutError as problem:
            self.close()
            raise BoxEnded(f"no answer within {self.limits.wall:g} seconds", timed_out=True) from problem
        except (wire.WireError, OSError) as problem:
            raise self._ended(f"the process sent {problem}" if isinstance(problem, wire.WireError) else "") from problem
        self._left -= time.monotonic() - asked
        if answer is None:
            raise self._ended("")
        return answer

    def _ended(self, why: str) -> BoxEnded:
        """For a process that is gone: what its supervisor reports. One that sent ``why``, no message, is not waited for."""
        if why:
            self.close()
            return BoxEnded(why)
        report: dict[str, Any] | None = None
        try:
            report = wire.receive(self._control, time.monotonic() + 30)
        except (TimeoutError, OSError, wire.WireError):
            why = "the process stopped answering"
        self.close()
        if why or report is None:
            return BoxEnded(why or "the process ended before it answered")
        if report["out_of_time"]:
            return BoxEnded(f"more than {self.limits.cpu} seconds of computing time", timed_out=True)
        code = report["exit"]
        cause = f"with exit status {code}" if code >= 0 else f"by signal {-code}"
        return BoxEnded(f"the process ended {cause} before it answered")

    def close(self) -> None:
        """End the process."""
        self._data.close()
        self._control.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
