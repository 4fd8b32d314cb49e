"""A program that nobody has read, asked by tests that it cannot see: two boxes, and only data between them.

The program runs in one box and the tests in another. What crosses from the first to the second is what its function returned, as plain
data that is rebuilt on arrival (:mod:`.wire`). So the program can neither read what the tests expect nor patch what they compare with,
and no verdict ever leaves its box that it could forge. It can answer wrongly, hang, or die, and all three are failures.
"""

from __future__ import annotations

import ast
import atexit
import builtins
import contextlib
import functools
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
    """What the tests found: assertions that held and that failed; ``problem`` is why there was no more, or empty."""

    held: int
    failed: int
    problem: str = ""

    @property
    def share(self) -> float:
        """The share of assertions that held; 0 if the tests were broken off."""
        return 0.0 if self.problem else self.held / (self.held + self.failed)


def examine(
    program: str, name: str, *, setup: str, tests: str, limits: Limits = LIMITS, boxes: SandboxPool | None = None
) -> Examined | None:
    """Run ``program`` in one box, and in another ``setup`` and ``tests``, whose ``check(candidate)`` asks its function ``name``.

    Arguments and results are copies: a test that looks at what a function did to its argument sees nothing.

    Returns:
        what was found; None if the tests are none, whatever the program is: they do not compile, define no ``check``, or ask
        nothing.
    """
    boxes = boxes or shared_boxes()
    with Sandbox(boxes, limits) as theirs, Sandbox(boxes, limits) as ours:
        try:
            ready = ours.ask({"op": "tests", "setup": setup, "tests": tests, "name": name})
        except BoxEnded:
            return None
        if "error" in ready:
            return None
        try:
            said = ours.ask({"op": "check"})
            if "call" not in said:
                return None  # whatever went wrong, the program has no part in it
            loaded = theirs.ask({"op": "load", "code": program})
            if "error" in loaded:
                return Examined(0, 0, str(loaded["error"])[:500])
            return _asked(theirs, ours, name, said)
        except (BoxEnded, wire.WireError) as problem:
            return Examined(0, 0, str(problem) or type(problem).__name__)


def _asked(theirs: Sandbox, ours: Sandbox, name: str, said: dict[str, Any]) -> Examined:
    """Carry questions from the tests to the program and answers back, from the first one on that was ``said`` until the tests are done."""
    while "call" in said:
        answer = theirs.ask({"op": "call", "name": name, "call": said["call"]})
        if "ok" in answer:  # decoded and coded again: what arrives in the tests' box was written here
            answer = {"ok": wire.encode(wire.decode(answer["ok"], wide=True), wide=True)}
        else:
            answer = {"error": str(answer.get("error"))[:500]}
        said = ours.ask(answer)
    if "ok" not in said:
        return Examined(0, 0, str(said.get("error"))[:500])
    held, failed = said["ok"]
    return Examined(held, failed, "" if held + failed else "with these answers the tests assert nothing")


class ProgramFailed(Exception):
    """Why a program gave nothing, in one line."""


def result(program: str, name: str, *, limits: Limits = LIMITS, boxes: SandboxPool | None = None) -> Any:
    """What the program's function ``name`` gives, called without arguments, in a box of its own: plain data.

    Raises:
        ProgramFailed: it does not compile, raises, takes too long, or gives what is no plain data.
    """
    with Sandbox(boxes or shared_boxes(), limits) as box:
        try:
            loaded = box.ask({"op": "load", "code": program})
            answer = loaded if "error" in loaded else box.ask({"op": "call", "name": name, "call": _NOTHING})
            if "error" not in answer:
                return wire.decode(answer["ok"], wide=True)
        except (BoxEnded, wire.WireError) as problem:
            raise ProgramFailed(str(problem) or type(problem).__name__) from None
    raise ProgramFailed(str(answer["error"])[:500])


_NOTHING = wire.encode(([], {}), wide=True)


@functools.cache
def _boxes_of(process: int) -> SandboxPool:
    boxes = SandboxPool("minirlhf.sandbox.programs")
    atexit.register(boxes.close)
    return boxes


def shared_boxes() -> SandboxPool:
    """The server for programs of this process, started at its first use: a second, and then some milliseconds for each program."""
    return _boxes_of(os.getpid())


class Desk:
    """One box for many programs that can do each other no harm: a millisecond for each, where a box of its own takes fifty.

    For worlds whose words are harmless by themselves. It is opened anew after :data:`MOST` programs, and where it ended.
    """

    MOST = 500

    def __init__(self, boxes: SandboxPool) -> None:
        self.boxes = boxes
        self._box: Sandbox | None = None
        self._asked = 0
        self._lock = threading.Lock()

    def outputs(self, program: str, name: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """What the program's function gives for each of these arguments, None where it fails."""
        with self._lock:
            try:
                found = self._ask(program, name, arguments)
            except BoxEnded:
                found = None
                if (
                    self._asked > 1
                ):  # the box may have ended before: its time was up. In a new one the program answers for itself.
                    with contextlib.suppress(BoxEnded):
                        found = self._ask(program, name, arguments)
        return found if isinstance(found, list) and len(found) == len(arguments) else [None] * len(arguments)

    def _ask(self, program: str, name: str, arguments: Sequence[tuple[Any, ...]]) -> Any:
        """What the box answers, None for an error; a box that has ended is closed."""
        if self._box is not None and self._asked >= self.MOST:
            self._box.close()
            self._box = None
        if self._box is None:
            self._box, self._asked = Sandbox(self.boxes, LIMITS), 0
        self._asked += 1
        every = wire.encode(list(arguments), wide=True)
        try:
            answer = self._box.ask({"op": "each", "code": program, "name": name, "arguments": every})
            return wire.decode(answer["ok"], wide=True)
        except (BoxEnded, KeyError, wire.WireError) as problem:
            self._box.close()
            self._box = None
            if isinstance(problem, BoxEnded):
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
    """The program is gone; no test can go on. Not an ``Exception``, so that no test passes over it."""


class Program(SandboxWorker):
    """What serves in both boxes: in one it loads a program and calls its function, in the other it runs tests."""

    WIDE = True

    def __init__(self, sock: socket.socket, box: Path) -> None:
        super().__init__(sock, box)
        self.module = types.ModuleType("program")
        self.counts = [0, 0]

    @staticmethod
    def prepare() -> None:
        """Import what programs often use, once."""
        import typing  # noqa: F401

    def _on_load(self, question: dict[str, Any]) -> None:
        exec(compile(question["code"], "cell program", "exec"), self.module.__dict__)

    def _on_call(self, question: dict[str, Any]) -> Any:
        args, kwargs = wire.decode(question["call"], wide=True)
        return self.module.__dict__[question["name"]](*args, **kwargs)

    def _on_each(self, question: dict[str, Any]) -> list[Any]:
        space: dict[str, Any] = {}
        exec(compile(question["code"], "cell program", "exec"), space)
        found = []
        for args in wire.decode(question["arguments"], wide=True):
            try:
                found.append(space[question["name"]](*args))
            except Exception:
                found.append(None)
        return found

    def _on_tests(self, question: dict[str, Any]) -> None:
        space = self.module.__dict__
        space.update(_held=self._held, _broke=self._broke)
        exec(compile(question["setup"], "cell setup", "exec"), space)
        space[question["name"]] = self._candidate  # some tests call the function by its name
        tree = ast.fix_missing_locations(_Counted().visit(ast.parse(question["tests"])))
        exec(compile(tree, "cell tests", "exec"), space)
        if not callable(space.get("check")):
            raise LookupError("check")

    def _on_check(self, question: dict[str, Any]) -> list[int]:
        self.module.__dict__["check"](self._candidate)
        return self.counts

    def _candidate(self, *args: Any, **kwargs: Any) -> Any:
        """The program's function, as the tests see it."""
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


def _error(text: str) -> Exception:
    """The built-in exception that a text names (``ValueError: ...``), so that tests may expect it."""
    kind = getattr(builtins, text.partition(":")[0].partition(" ")[0], None)
    try:
        return kind(text) if isinstance(kind, type) and issubclass(kind, Exception) else RuntimeError(text)
    except TypeError:  # a kind that wants more than a text
        return RuntimeError(text)


class _Counted(ast.NodeTransformer):
    """``assert x`` counts whether x holds, in place of raising where it does not; an x that raises does not hold."""

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        """One assertion."""
        held = ast.Expr(ast.Call(ast.Name("_held", ast.Load()), [node.test], []))
        broke = ast.Expr(ast.Call(ast.Name("_broke", ast.Load()), [], []))
        kind = ast.Name("Exception", ast.Load())
        return ast.copy_location(ast.Try([held], [ast.ExceptHandler(kind, None, [broke])], [], []), node)


GUEST = Program
