"""The interface of the sandbox: start the server, open a box, ask it, and learn how it ended."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
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
    """Resource limits of one boxed process."""

    cpu: int = 10  # seconds of CPU time
    wall: float = 60.0  # seconds of waiting for its answers
    memory: int = 1 << 30  # bytes in addition to the memory of the server
    file: int = 16 << 20  # bytes per file


class BoxEnded(Exception):
    """The boxed process has ended and cannot answer; the message says how it ended."""

    def __init__(self, message: str, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class SandboxPool:
    """The server process that forks boxed processes; a context manager.

    Args:
        guest: the module whose ``GUEST`` serves in the boxes, see :class:`minirlhf.sandbox.inside.SandboxWorker`.
        hidden: folders that no boxed process may read, in addition to those of the packages.
        at_most: the best isolation level to use, see :mod:`minirlhf.sandbox.isolation`.

    Attributes:
        level: the level that the system allowed.
    """

    def __init__(self, guest: str, hidden: Sequence[Path] = (), at_most: str = "namespaces") -> None:
        self.guest, self.at_most = guest, at_most
        self.hidden = [p.resolve() for p in (*(provenance.ROOT / name for name in provenance.PACKAGES), *hidden)]
        self._lock = threading.Lock()
        self._start()

    def _start(self) -> None:
        parent_end, child_end = socket.socketpair()
        fd = child_end.fileno()
        code = (
            f"import sys; sys.path.insert(0, {str(provenance.ROOT)!r}); "
            "from minirlhf.sandbox import inside; "
            f"inside.{inside.main.__name__}({fd}, {self.guest!r}, {self.at_most!r})"
        )
        # A clean environment: programs must not see the variables of this process, such as tokens and paths.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", code],
            pass_fds=[fd],
            env=ENVIRONMENT,
            cwd="/",
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        child_end.close()
        self._socket = parent_end
        wire.send(parent_end, {"hidden": [str(p) for p in self.hidden]})
        greeting = parent_end.makefile("rb", buffering=0).readline()
        if not greeting:
            raise RuntimeError(f"the sandbox server did not start (exit status {self._process.wait()})")
        self.level = json.loads(greeting)["level"]

    def open(self, limits: Limits, more: bool = False) -> tuple[socket.socket, socket.socket]:
        """Open a boxed process and return its data and control sockets. A server that has died is started again.

        ``more``: whether the process needs the imports of the guest's ``prepare_more``.
        """
        data, worker_data = socket.socketpair()
        control, worker_control = socket.socketpair()
        # The supervisor's own time limit is a safety net; the limit in Sandbox counts only the waiting for answers.
        request = inside.JOB.pack(limits.cpu, limits.memory, limits.file, 10 * limits.wall, more)
        fds = [worker_data.fileno(), worker_control.fileno()]
        with self._lock:
            try:
                socket.send_fds(self._socket, [request], fds)
            except OSError:
                self.close()
                self._start()
                socket.send_fds(self._socket, [request], fds)
        worker_data.close()
        worker_control.close()
        return data, control

    def probe(self, secrets: Sequence[Path]) -> dict[str, bool]:
        """Return what a box keeps out, tested inside one."""
        with Sandbox(self, Limits()) as box:
            question = {"op": "probe", "level": self.level, "grader": os.getpid()}
            answer = box.ask({**question, "secrets": [str(p) for p in secrets]})
        if "ok" not in answer:
            raise RuntimeError(f"the box could not be probed: {answer}")
        result = wire.decode(answer["ok"])
        assert isinstance(result, dict)
        return result

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


def _asked(handles: Sequence[Callable[..., Any]], question: dict[str, Any]) -> dict[str, Any]:
    """Return the message with a handle's answer; whatever it raises for a bad question goes back as an error."""
    try:
        args, kwargs = wire.decode(question["args"])
        return {"ok": wire.encode(handles[question["handle"]](*args, **kwargs))}
    except Exception as problem:
        return {"error": f"{type(problem).__name__}: {str(problem)[:200]}"}


class Sandbox:
    """One boxed process that answers questions with data; a context manager."""

    def __init__(self, boxes: SandboxPool, limits: Limits, more: bool = False) -> None:
        self.limits = limits
        self._data, self._control = boxes.open(limits, more)
        self._left = limits.wall  # seconds left for answers; time between questions does not count

    def ask(self, question: dict[str, Any], handles: Sequence[Callable[..., Any]] = ()) -> dict[str, Any]:
        """Return the answer to a question: ``{"ok": data}``, or ``{"error": text}``.

        Until it answers, the process may ask the ``handles``: ``{"handle": number, "args": data}``. The time that a
        handle takes does not count.

        Raises:
            BoxEnded: the process has ended, did not answer in time, or did not send a message. The box is then closed.
        """
        message = question
        while True:
            answer = self._exchange(message)
            if "handle" not in answer or not handles:
                return answer
            message = _asked(handles, answer)

    def _exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send one message and return the next one."""
        start = time.monotonic()
        try:
            wire.send(self._data, message, start + self._left)
            answer = wire.receive(self._data, start + self._left)
        except TimeoutError as error:
            self.close()
            raise BoxEnded(f"no answer within {self.limits.wall:g} seconds", timed_out=True) from error
        except (wire.WireError, OSError) as error:
            raise self._ended(f"the process sent {error}" if isinstance(error, wire.WireError) else "") from error
        self._left -= time.monotonic() - start
        if answer is None:
            raise self._ended("")
        return answer

    def processor_time(self) -> float:
        """Return the seconds of computing so far, by a clock that the process cannot reach; NaN where there is none.

        Raises:
            BoxEnded: the process has ended.
        """
        try:
            self._control.settimeout(30)
            self._control.sendall(b"?")
            raw = self._control.recv(inside.CLOCK.size, socket.MSG_WAITALL)
        except OSError as error:
            raise self._ended("the process stopped answering") from error
        if len(raw) < inside.CLOCK.size:
            raise self._ended("the process ended before it answered")
        return float(inside.CLOCK.unpack(raw)[0])

    def _ended(self, why: str) -> BoxEnded:
        """The error for a process that has ended: the reason ``why`` if given, else from its supervisor's report."""
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
