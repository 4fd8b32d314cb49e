"""The inside: a server that imports what its guests need once, and forks one boxed process per job.

It is a fresh process that has seen nothing of what is graded. For each job it is handed two sockets: the *data* socket goes
to the boxed process and carries answers, the *control* socket stays with a supervisor that ends the job and reports how
it ended. Started by :class:`minirlhf.sandbox.server.SandboxPool`.
"""

from __future__ import annotations

import importlib
import json
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

JOB = struct.Struct("!qqqd?")  # CPU seconds, bytes of memory, bytes per file, wall seconds, whether it needs more
POLL = 0.005


class SandboxWorker:
    """What serves in a box: ``_on_NAME`` answers the question ``{"op": NAME, ...}`` with plain data."""

    WIDE = False  # whether its answers may be what :func:`minirlhf.sandbox.wire.encode` calls wide

    def __init__(self, sock: socket.socket, box: Path) -> None:
        self.sock, self.box = sock, box
        os.environ.update(dict.fromkeys(("HOME", "TMPDIR", "MPLCONFIGDIR", "TORCHINDUCTOR_CACHE_DIR"), str(box)))
        tempfile.tempdir = str(box)  # what it was before the box existed may have been looked up already

    @staticmethod
    def prepare() -> None:
        """Import what jobs use; called once, in the server, before the view hides where it is."""

    @staticmethod
    def prepare_more() -> None:
        """Import what only some jobs use; called in the server for the jobs that say so."""

    def serve(self) -> None:
        """Answer until the other side closes the socket."""
        while (question := wire.receive(self.sock)) is not None:
            try:
                answer = {"ok": wire.encode(getattr(self, f"_on_{question['op']}")(question), wide=self.WIDE)}
            except BaseException as problem:
                answer = {"error": describe(problem)}
            try:
                wire.send(self.sock, answer)
            except wire.WireError as problem:
                wire.send(self.sock, {"error": describe(problem)})

    def _on_probe(self, question: dict[str, Any]) -> Any:
        return isolation.probe(question["level"], question["secrets"], question["grader"])


def main(fd: int, guest: str, at_most: str, hidden: list[str]) -> None:
    """Serve jobs until the other side closes the socket ``fd``; ``guest`` names a module with a ``GUEST``."""
    module: Any = importlib.import_module(guest)
    del sys.path[0]  # this package's folder
    secrets = [Path(p) for p in hidden]
    level = isolation.enter(secrets, at_most)
    module.GUEST.prepare()
    size = Path("/proc/self/statm")
    base = int(size.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE") if size.exists() else 0
    if isolation.isolated(level):
        isolation.build_view(secrets)
    server = socket.socket(fileno=fd)
    server.sendall(json.dumps({"level": level}).encode() + b"\n")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors are reaped by the kernel
    while True:
        request, fds, _, _ = socket.recv_fds(server, JOB.size, 2)
        if len(request) < JOB.size or len(fds) != 2:
            return
        *limits, more = JOB.unpack(request)
        if more:
            if isolation.isolated(level):
                os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(isolation.BOX)  # it looks for a folder that is there
            module.GUEST.prepare_more()
        if os.fork() == 0:
            server.close()
            _supervise(module.GUEST, level, base, limits, *fds)
        for each in fds:
            os.close(each)


def _supervise(
    guest: type[SandboxWorker], level: str, base: int, job: Sequence[float], data: int, control: int
) -> NoReturn:
    """Fork the boxed process, wait for its end, its time limit or the other side's word, and report."""
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
                isolation.drop(level, box, cpu, base + memory, file_bytes)
                guest(socket.socket(fileno=data), box).serve()
            finally:
                os._exit(0)
        os.close(data)
        deadline, told = time.monotonic() + wall, False
        while True:
            done, status, usage = os.wait4(pid, os.WNOHANG)
            if done:
                break
            told = told or bool(select.select([control], [], [], POLL)[0])
            if told or time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
        spent = usage.ru_utime + usage.ru_stime
        report = {"exit": os.waitstatus_to_exitcode(status), "cpu": spent, "out_of_time": spent > cpu - 0.5}
        if not told:
            wire.send(socket.socket(fileno=control), report)
        isolation.close_box(level, box)
    finally:
        os._exit(0)


def _close_all_but(data: int) -> None:
    """Leave standard input, output and error on /dev/null, and the data socket."""
    null = os.open("/dev/null", os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.closerange(3, data)
    os.closerange(data + 1, 4096)


def describe(problem: BaseException) -> str:
    """An error of what runs here in one line, with the line of its cell that raised it."""
    try:
        text = str(problem)[:300]
    except BaseException:
        text = ""
    if isinstance(problem, SyntaxError):
        return f"{type(problem).__name__}: {problem.msg} ({problem.filename}, line {problem.lineno})"
    trace, place = problem.__traceback__, ""
    while trace:
        name = trace.tb_frame.f_code.co_filename
        if name.startswith("cell "):
            place = f" ({name}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return f"{type(problem).__name__}: {text}{place}" if text else f"{type(problem).__name__}{place}"
