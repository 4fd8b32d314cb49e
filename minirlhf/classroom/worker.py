"""The other side: a server that imports torch once, and forks one boxed process per submission.

It is a fresh process that has never seen an exercise. For each job the grader hands it two sockets: the *data* socket goes
to the boxed process and carries answers, the *control* socket stays with a supervisor that ends the job and reports how
it ended. Started by :class:`minirlhf.classroom.runner.Server`.
"""

from __future__ import annotations

import base64
import json
import os
import select
import signal
import socket
import struct
import sys
import tempfile
import time
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from minirlhf.classroom import cells, sandbox, wire
from minirlhf.core.errors import UserError

JOB = struct.Struct("!qqqd?")  # CPU seconds, bytes of memory, bytes per file, wall seconds, whether it optimises
POLL = 0.005


def main(fd: int, at_most: str, hidden: list[str]) -> None:
    """Serve jobs until the grader closes the socket ``fd``."""
    secrets = [Path(p) for p in hidden]
    level = sandbox.enter(secrets, at_most)
    import numpy  # noqa: F401  imported for the submissions, before the view hides where it is
    import torch

    torch.set_num_threads(1)
    size = Path("/proc/self/statm")
    base = int(size.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE") if size.exists() else 0
    if sandbox.isolated(level):
        sandbox.build_view(secrets)
    server = socket.socket(fileno=fd)
    server.sendall(json.dumps({"level": level}).encode() + b"\n")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors are reaped by the kernel
    while True:
        request, fds, _, _ = socket.recv_fds(server, JOB.size, 2)
        if len(request) < JOB.size or len(fds) != 2:
            return
        *limits, optimises = JOB.unpack(request)
        if optimises:  # the first step of an optimiser imports a compiler: seconds, paid here once for all
            if sandbox.isolated(level):
                os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(sandbox.BOX)  # it looks for a folder that is there
            import torch._dynamo
        if os.fork() == 0:
            server.close()
            _supervise(level, base, limits, *fds)
        for each in fds:
            os.close(each)


def _supervise(level: str, base: int, job: Sequence[float], data: int, control: int) -> NoReturn:
    """Fork the boxed process, wait for its end, its time limit or the grader's word, and report."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        cpu, memory, file_bytes = map(int, job[:3])
        wall = job[3]
        box = sandbox.open_box(level)
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                _close_all_but(data)
                sandbox.drop(level, box, cpu, base + memory, file_bytes)
                Student(socket.socket(fileno=data), box).serve()
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
        sandbox.close_box(level, box)
    finally:
        os._exit(0)


def _close_all_but(data: int) -> None:
    """Leave standard input, output and error on /dev/null, and the data socket."""
    null = os.open("/dev/null", os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.closerange(3, data)
    os.closerange(data + 1, 4096)


class Student:
    """The boxed process: runs the submission's cells, then answers the grader's questions with data."""

    def __init__(self, sock: socket.socket, box: Path) -> None:
        self.sock, self.box = sock, box
        self.module = types.ModuleType("__main__")
        os.environ.update(dict.fromkeys(("HOME", "TMPDIR", "MPLCONFIGDIR", "TORCHINDUCTOR_CACHE_DIR"), str(box)))
        tempfile.tempdir = str(box)  # what it was before the box existed may have been looked up already

    def serve(self) -> None:
        """Answer until the grader closes the socket."""
        while (question := wire.receive(self.sock)) is not None:
            try:
                answer = {"ok": wire.encode(getattr(self, f"_on_{question['op']}")(question))}
            except BaseException as problem:
                answer = {"error": describe(problem)}
            try:
                wire.send(self.sock, answer)
            except wire.WireError as problem:
                wire.send(self.sock, {"error": describe(problem)})

    def _on_load(self, question: dict[str, Any]) -> list[str]:
        """Write the library, run the cells as a notebook would, and return the errors that they ended with."""
        library = self.box / "library"
        for relative, text in question["library"].items():
            path = library / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        for name in [m for m in sys.modules if m.split(".")[0] == "minirlhf"]:
            del sys.modules[name]
        sys.meta_path[:] = [f for f in sys.meta_path if "editable" not in repr(f)]
        sys.path.insert(0, str(library))
        sys.modules["__main__"] = self.module
        self.module.__dict__.update(question["preset"], display=print)
        errors = []
        for name, code in question["cells"]:
            try:
                exec(compile(code, name, "exec"), self.module.__dict__)
            except BaseException as problem:
                errors.append(describe(problem))
        return errors

    def _on_cut(self, question: dict[str, Any]) -> Any:
        """Take a file apart into cells, in place of running any."""
        text = base64.b64decode(question["text"]).decode("utf-8")
        try:
            return {"cells": cells.code_cells(text, question["name"])}
        except UserError as problem:
            return {"problem": str(problem)}

    def _find(self, name: str) -> Any:
        if name not in self.module.__dict__:
            raise LookupError(name)
        return self.module.__dict__[name]

    def _on_value(self, question: dict[str, Any]) -> Any:
        return self._find(question["name"])

    def _on_call(self, question: dict[str, Any]) -> Any:
        args, kwargs = wire.decode(question["args"]), wire.decode(question["kwargs"])
        return self._find(question["name"])(*args, **kwargs)

    def _on_gradient(self, question: dict[str, Any]) -> Any:
        args, kwargs = wire.decode(question["args"]), wire.decode(question["kwargs"])
        return gradient(self._find(question["name"]), args, kwargs, question["wrt"])

    def _on_examine(self, question: dict[str, Any]) -> Any:
        args, kwargs = wire.decode(question["args"]), wire.decode(question["kwargs"])
        return examine(self._find(question["name"]), args, kwargs, question["wrt"])

    def _on_probe(self, question: dict[str, Any]) -> Any:
        return sandbox.probe(question["level"], question["secrets"], question["grader"])


def gradient(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any], wrt: int) -> Any:
    """d(sum of ``f(*args)``)/d(``args[wrt]``) by autograd; zeros where it does not depend on it."""
    import torch

    chosen = args[wrt].detach().clone().requires_grad_()
    result = f(*args[:wrt], chosen, *args[wrt + 1 :], **kwargs)
    if not isinstance(result, torch.Tensor) or not result.requires_grad:
        raise TypeError("the result does not depend on the input in a way that autograd can follow")
    (found,) = torch.autograd.grad(result.sum(), chosen, allow_unused=True)
    return torch.zeros_like(chosen) if found is None else found


def examine(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any], wrt: list[int | str]) -> dict[str, Any]:
    """The result of ``f``, its inputs as they are afterwards, and gradients.

    ``gradients[i]`` is the derivative in argument ``wrt[i]`` (a position or a keyword) of all floating-point numbers of the
    result, each with a weight of its own, so that none cancels another; zeros where the result does not depend on it.
    """
    import torch

    inputs: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
    chosen = [inputs[key].detach().clone().requires_grad_() for key in wrt]
    inputs.update((key, leaf.clone()) for key, leaf in zip(wrt, chosen, strict=True))  # may be written into
    sent, named = [inputs[i] for i in range(len(args))], {name: inputs[name] for name in kwargs}
    result = f(*sent, **named)
    total, numbers = torch.zeros((), dtype=torch.float64), 0
    for leaf in _tensors(result):
        if leaf.is_floating_point():
            weights = torch.cos(0.7 * torch.arange(numbers, numbers + leaf.numel(), dtype=torch.float64))
            total, numbers = total + (weights * leaf.reshape(-1)).sum(), numbers + leaf.numel()
    found = (
        torch.autograd.grad(total, chosen, allow_unused=True)
        if chosen and total.requires_grad
        else [None] * len(chosen)
    )
    gradients = [torch.zeros_like(x) if g is None else g for x, g in zip(chosen, found, strict=True)]
    return {"result": result, "args": sent, "kwargs": named, "gradients": gradients}


def _tensors(value: Any) -> Iterator[Any]:
    """The tensors in lists, tuples and dictionaries."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple | dict):
        for v in value.values() if isinstance(value, dict) else value:
            yield from _tensors(v)


def describe(problem: BaseException) -> str:
    """An error of the submission in one line, with the line of the submission that raised it."""
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
