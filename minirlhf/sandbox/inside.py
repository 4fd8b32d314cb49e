"""The server process: it imports once what its guests need, and forks one boxed process per job.

It is a fresh process without any data of the grader. It receives two sockets for each job. The *data* socket goes to
the boxed process and carries answers. The *control* socket stays with a supervisor that ends the job and reports how it
ended. :class:`minirlhf.sandbox.server.SandboxPool` starts the server.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import select
import signal
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from minirlhf.sandbox import isolation, wire

JOB = struct.Struct("!qqqd?")  # CPU seconds, bytes of memory, bytes per file, wall seconds, whether to import more
CLOCK = struct.Struct("!d")  # the answer to a byte on the control socket: seconds of computing
POLL = 0.005


class SandboxWorker:
    """The worker in a box: ``_on_NAME`` answers the question ``{"op": NAME, ...}`` with plain data."""

    WIDE = False  # the argument ``wide`` of :func:`minirlhf.sandbox.wire.encode` for its answers

    def __init__(self, sock: socket.socket, box: Path) -> None:
        self.sock, self.box = sock, box
        os.environ.update(dict.fromkeys(("HOME", "TMPDIR", "MPLCONFIGDIR", "TORCHINDUCTOR_CACHE_DIR"), str(box)))
        tempfile.tempdir = str(box)  # tempfile may have cached the folder from before the box existed

    @staticmethod
    def prepare() -> None:
        """Import what jobs use; called once, in the server, before its files are hidden."""

    @staticmethod
    def prepare_more() -> None:
        """Import what only some jobs use; called in the server for jobs that request it."""

    def serve(self) -> None:
        """Answer until the other side closes the socket."""
        while (question := wire.receive(self.sock)) is not None:
            try:
                answer = {"ok": wire.encode(getattr(self, f"_on_{question['op']}")(question), wide=self.WIDE)}
            except BaseException as error:
                answer = {"error": describe(error)}
            try:
                wire.send(self.sock, answer)
            except wire.WireError as error:
                wire.send(self.sock, {"error": describe(error)})

    def _on_probe(self, question: dict[str, Any]) -> Any:
        return isolation.probe(question["level"], question["secrets"], question["grader"])


def main(fd: int, guest: str, at_most: str) -> None:
    """Serve jobs until the other side closes the socket ``fd``; ``guest`` is the name of a module with a ``GUEST``.

    The first message holds the folders to hide. They are forgotten here before any job starts, because a job can read
    the variables of this function.
    """
    module: Any = importlib.import_module(guest)
    del sys.path[0]  # this package's folder
    server = socket.socket(fileno=fd)
    secrets = [Path(p) for p in (wire.receive(server) or {})["hidden"]]
    level = isolation.enter(secrets, at_most)
    module.GUEST.prepare()
    statm = Path("/proc/self/statm")
    base_memory = int(statm.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else 0
    if isolation.isolated(level):
        isolation.build_view(secrets)
    del secrets
    server.sendall(json.dumps({"level": level}).encode() + b"\n")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors are reaped by the kernel
    while True:
        request, fds, _, _ = socket.recv_fds(server, JOB.size, 2)
        if len(request) < JOB.size or len(fds) != 2:
            return
        *limits, needs_more = JOB.unpack(request)
        if needs_more:
            if isolation.isolated(level):
                os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(isolation.BOX)  # the folder must exist
            module.GUEST.prepare_more()
        if os.fork() == 0:
            server.close()
            _supervise(module.GUEST, level, base_memory, limits, *fds)
        for job_fd in fds:
            os.close(job_fd)


def _supervise(
    guest: type[SandboxWorker], level: str, base_memory: int, job: Sequence[float], data: int, control: int
) -> NoReturn:
    """Fork the boxed process, wait until it ends, exceeds its time limit or is cancelled, and report."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        cpu, memory, file_bytes = map(int, job[:3])
        wall = job[3]
        box = isolation.open_box(level)
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                _close_all_but(data)
                isolation.drop(level, box, cpu, base_memory + memory, file_bytes)
                guest(socket.socket(fileno=data), box).serve()
            finally:
                os._exit(0)
        os.close(data)
        deadline, cancelled = time.monotonic() + wall, False
        while True:
            done, status, usage = os.wait4(pid, os.WNOHANG)
            if done:
                break
            if not cancelled and select.select([control], [], [], POLL)[0]:
                cancelled = not os.read(control, 1)  # closed; a byte asks for the process's computing time
                if not cancelled:
                    os.write(control, CLOCK.pack(_processor_time(pid)))
            if cancelled or time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
        cpu_used = usage.ru_utime + usage.ru_stime
        report = {"exit": os.waitstatus_to_exitcode(status), "cpu": cpu_used, "out_of_time": cpu_used > cpu - 0.5}
        if not cancelled:
            wire.send(socket.socket(fileno=control), report)
        isolation.close_box(level, box)
    finally:
        os._exit(0)


def _processor_time(pid: int) -> float:
    """Return the seconds of computing of another process with all its threads; NaN where the system does not tell."""
    try:
        return time.clock_gettime(~pid << 3 | 2)  # the number that Linux gives to the clock of a process
    except OSError:
        return math.nan


def _close_all_but(data: int) -> None:
    """Redirect standard input, output and error to /dev/null, and close all other files but the data socket."""
    null = os.open("/dev/null", os.O_RDWR)
    for standard_fd in (0, 1, 2):
        os.dup2(null, standard_fd)
    os.closerange(3, data)
    os.closerange(data + 1, 4096)


def describe(problem: BaseException) -> str:
    """Describe an exception in one line, with the line of the cell that raised it."""
    try:
        text = str(problem)[:300]
    except BaseException:
        text = ""
    if isinstance(problem, SyntaxError):
        return f"{type(problem).__name__}: {problem.msg} ({problem.filename}, line {problem.lineno})"
    traceback, location = problem.__traceback__, ""
    while traceback:
        filename = traceback.tb_frame.f_code.co_filename
        if filename.startswith("cell "):
            location = f" ({filename}, line {traceback.tb_lineno})"
        traceback = traceback.tb_next
    return f"{type(problem).__name__}: {text}{location}" if text else f"{type(problem).__name__}{location}"
