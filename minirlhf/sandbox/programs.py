"""Run an untrusted program against tests that it cannot see: two boxes, and only data between them.

The program runs in one box and the tests in another. Only the return values of the program's function reach the tests'
box, as plain data that is rebuilt on arrival (:mod:`.wire`). So the program can neither read the expected values nor
patch them, and no verdict that it could forge leaves its box. The program can return a wrong value, hang, or die, and
all three are failures.
"""

from __future__ import annotations

import ast
import atexit
import builtins
import contextlib
import functools
import io
import os
import socket
import threading
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minirlhf.sandbox import wire
from minirlhf.sandbox.inside import SandboxWorker
from minirlhf.sandbox.server import BoxEnded, Limits, Sandbox, SandboxPool

LIMITS = Limits(cpu=5, wall=30.0, memory=256 << 20, file=1 << 20)


@dataclass(frozen=True)
class Examined:
    """Numbers of assertions that held and that failed; ``problem`` is why the tests were aborted, or empty."""

    held: int
    failed: int
    problem: str = ""

    @property
    def pass_rate(self) -> float:
        """The fraction of assertions that held; 0 if the tests were aborted."""
        return 0.0 if self.problem else self.held / (self.held + self.failed)


def examine(
    program: str, name: str, *, setup: str, tests: str, limits: Limits = LIMITS, boxes: SandboxPool | None = None
) -> Examined | None:
    """Run ``program`` in one box, and ``setup`` and ``tests`` in another.

    The ``check(candidate)`` of the tests calls the program's function ``name``. Arguments and results are copies, so a
    test cannot observe that the function modified its argument.

    Returns:
        The result of the tests. None if the tests are invalid for every program: they do not compile, do not define
        ``check``, or never call the function.
    """
    boxes = boxes or shared_boxes()
    with Sandbox(boxes, limits) as program_box, Sandbox(boxes, limits) as tests_box:
        try:
            setup_result = tests_box.ask({"op": "tests", "setup": setup, "tests": tests, "name": name})
        except BoxEnded:
            return None
        if "error" in setup_result:
            return None
        try:
            message = tests_box.ask({"op": "check"})
            if "call" not in message:
                return None  # the tests ended without a call, so the program did not cause it
            loaded = program_box.ask({"op": "load", "code": program})
            if "error" in loaded:
                return Examined(0, 0, str(loaded["error"])[:500])
            return _asked(program_box, tests_box, name, message)
        except (BoxEnded, wire.WireError) as error:
            return Examined(0, 0, str(error) or type(error).__name__)


def _asked(program_box: Sandbox, tests_box: Sandbox, name: str, message: dict[str, Any]) -> Examined:
    """Pass calls from the tests to the program and results back, from ``message`` on until the tests are done."""
    while "call" in message:
        answer = program_box.ask({"op": "call", "name": name, "call": message["call"]})
        if "ok" in answer:  # decode and encode again: the tests' box receives only data written by this process
            answer = {"ok": wire.encode(wire.decode(answer["ok"], wide=True), wide=True)}
        else:
            answer = {"error": str(answer.get("error"))[:500]}
        message = tests_box.ask(answer)
    if "ok" not in message:
        return Examined(0, 0, str(message.get("error"))[:500])
    held, failed = message["ok"]
    return Examined(held, failed, "" if held + failed else "with these answers the tests assert nothing")


class ProgramFailed(Exception):
    """The reason why a program returned no result, in one line."""


def result(program: str, name: str, *, limits: Limits = LIMITS, boxes: SandboxPool | None = None) -> Any:
    """Return the result of the program's function ``name``, called without arguments in its own box, as plain data.

    Raises:
        ProgramFailed: it does not compile, raises, takes too long, or returns something other than plain data.
    """
    with Sandbox(boxes or shared_boxes(), limits) as box:
        try:
            loaded = box.ask({"op": "load", "code": program})
            answer = loaded if "error" in loaded else box.ask({"op": "call", "name": name, "call": _NOTHING})
            if "error" not in answer:
                return wire.decode(answer["ok"], wide=True)
        except (BoxEnded, wire.WireError) as error:
            raise ProgramFailed(str(error) or type(error).__name__) from None
    raise ProgramFailed(str(answer["error"])[:500])


def output(
    program: str, name: str, *, limits: Limits = LIMITS, boxes: SandboxPool | None = None
) -> tuple[str, list[Any]]:
    """Run a program in its own box, and its function ``name`` if it has one.

    Returns:
        What it printed, up to :data:`PRINTED` characters, and a list of the function's result as plain data, empty
        without such a function.

    Raises:
        ProgramFailed: it fails, as for :func:`result`, or it neither prints nor has the function.
    """
    with Sandbox(boxes or shared_boxes(), limits) as box:
        try:
            answer = box.ask({"op": "run", "code": program, "name": name})
            if "error" not in answer:
                printed, results = wire.decode(answer["ok"], wide=True)
                if not printed and not results:
                    raise ProgramFailed(f"the program prints nothing, and has no function {name}()")
                return printed, results
        except (BoxEnded, wire.WireError) as error:
            raise ProgramFailed(str(error) or type(error).__name__) from None
    raise ProgramFailed(str(answer["error"])[:500])


#: Maximum number of printed characters that are kept.
PRINTED = 100_000
_NOTHING = wire.encode(([], {}), wide=True)


@functools.cache
def _boxes_of(process: int) -> SandboxPool:
    boxes = SandboxPool("minirlhf.sandbox.programs")
    atexit.register(boxes.close)
    return boxes


def shared_boxes() -> SandboxPool:
    """Return this process's server for programs. Its start, at the first use, takes 1 s; a program takes some ms."""
    return _boxes_of(os.getpid())


class Desk:
    """One box for many programs that cannot harm each other: 1 ms per program instead of 50 ms for a box of its own.

    It is for tasks whose tokens are harmless. A new box is opened after :data:`MOST` programs, or when it has ended.
    """

    MOST = 500

    def __init__(self, boxes: SandboxPool) -> None:
        self.boxes = boxes
        self._box: Sandbox | None = None
        self._asked = 0
        self._lock = threading.Lock()

    def outputs(self, program: str, name: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return the result of the program's function for each tuple of arguments, None where it fails."""
        with self._lock:
            try:
                results = self._ask(program, name, arguments)
            except BoxEnded:
                results = None
                if self._asked > 1:  # earlier programs may have used up the box's time; try again in a new box
                    with contextlib.suppress(BoxEnded):
                        results = self._ask(program, name, arguments)
        return results if isinstance(results, list) and len(results) == len(arguments) else [None] * len(arguments)

    def _ask(self, program: str, name: str, arguments: Sequence[tuple[Any, ...]]) -> Any:
        """Return the box's answer, or None for an error; close a box that has ended."""
        if self._box is not None and self._asked >= self.MOST:
            self._box.close()
            self._box = None
        if self._box is None:
            self._box, self._asked = Sandbox(self.boxes, LIMITS), 0
        self._asked += 1
        encoded = wire.encode(list(arguments), wide=True)
        try:
            answer = self._box.ask({"op": "each", "code": program, "name": name, "arguments": encoded})
            return wire.decode(answer["ok"], wide=True)
        except (BoxEnded, KeyError, wire.WireError) as error:
            self._box.close()
            self._box = None
            if isinstance(error, BoxEnded):
                raise
            return None


@functools.cache
def _desk_of(process: int) -> Desk:
    return Desk(_boxes_of(process))


def outputs(program: str, name: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
    """:meth:`Desk.outputs` at the desk of this process."""
    return _desk_of(os.getpid()).outputs(program, name, arguments)


# -- inside the boxes --------------------------------------------------------------------------------------------------


class ProgramEnded(BaseException):
    """The program has ended, so no test can continue. Not an ``Exception``, so that no test catches it."""


class Program(SandboxWorker):
    """The worker in both boxes: in one it loads a program and calls its function, in the other it runs tests."""

    WIDE = True

    def __init__(self, sock: socket.socket, box: Path) -> None:
        super().__init__(sock, box)
        self.module = types.ModuleType("program")
        self.counts = [0, 0]

    @staticmethod
    def prepare() -> None:
        """Import a module that programs often use, once."""
        import typing  # noqa: F401

    def _on_load(self, question: dict[str, Any]) -> None:
        exec(compile(question["code"], "cell program", "exec"), self.module.__dict__)

    def _on_call(self, question: dict[str, Any]) -> Any:
        args, kwargs = wire.decode(question["call"], wide=True)
        return self.module.__dict__[question["name"]](*args, **kwargs)

    def _on_run(self, question: dict[str, Any]) -> tuple[str, list[Any]]:
        namespace: dict[str, Any] = {"__name__": "__main__"}
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            with contextlib.suppress(_Finished):
                _run_main(compile(question["code"], "cell program", "exec"), namespace)
            results = [namespace[question["name"]]()] if callable(namespace.get(question["name"])) else []
        return printed.getvalue()[:PRINTED], results

    def _on_each(self, question: dict[str, Any]) -> list[Any]:
        namespace: dict[str, Any] = {}
        exec(compile(question["code"], "cell program", "exec"), namespace)
        results = []
        for args in wire.decode(question["arguments"], wide=True):
            try:
                results.append(namespace[question["name"]](*args))
            except Exception:
                results.append(None)
        return results

    def _on_tests(self, question: dict[str, Any]) -> None:
        namespace = self.module.__dict__
        namespace.update(_held=self._held, _broke=self._broke)
        exec(compile(question["setup"], "cell setup", "exec"), namespace)
        namespace[question["name"]] = self._candidate  # some tests call the function by its name
        tree = ast.fix_missing_locations(_Counted().visit(ast.parse(question["tests"])))
        exec(compile(tree, "cell tests", "exec"), namespace)
        if not callable(namespace.get("check")):
            raise LookupError("check")

    def _on_check(self, question: dict[str, Any]) -> list[int]:
        self.module.__dict__["check"](self._candidate)
        return self.counts

    def _candidate(self, *args: Any, **kwargs: Any) -> Any:
        """Stand in for the program's function in the tests' box."""
        wire.send(self.sock, {"call": wire.encode((list(args), kwargs), wide=True)})
        answer = wire.receive(self.sock)
        if answer is None:
            raise ProgramEnded
        if "error" in answer:
            raise _error(answer["error"])
        return wire.decode(answer["ok"], wide=True)

    def _held(self, value: object) -> None:
        self.counts[0 if value else 1] += 1

    def _broke(self) -> None:
        self.counts[1] += 1


class _Finished(Exception):
    """The program has ended itself without an error."""


def _run_main(code: types.CodeType, namespace: dict[str, Any]) -> None:
    try:
        exec(code, namespace)
    except SystemExit as end:
        if end.code in (None, 0):
            raise _Finished from None
        raise


def _error(text: str) -> Exception:
    """Return the built-in exception named in a text (``ValueError: ...``), so that tests can expect it."""
    kind = getattr(builtins, text.partition(":")[0].partition(" ")[0], None)
    try:
        return kind(text) if isinstance(kind, type) and issubclass(kind, Exception) else RuntimeError(text)
    except TypeError:  # an exception class that takes more than a text
        return RuntimeError(text)


class _Counted(ast.NodeTransformer):
    """Replace ``assert x`` by code that counts whether x holds instead of raising; an x that raises does not hold."""

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        """Replace one assertion."""
        held = ast.Expr(ast.Call(ast.Name("_held", ast.Load()), [node.test], []))
        failed = ast.Expr(ast.Call(ast.Name("_broke", ast.Load()), [], []))
        caught = ast.Name("Exception", ast.Load())
        return ast.copy_location(ast.Try([held], [ast.ExceptHandler(caught, None, [failed])], [], []), node)


GUEST = Program
