"""A reader's own grader: a Python file and a function in it, ``my.py:fn``.

::

    def fn(completion: str, reference: str | None, messages: list[dict]) -> float:
        return float(completion.strip() == reference)

The completion begins with the white space of its first line, which a program needs. The second and third parameter may be missing: the
function is given as many as it takes.
"""

from __future__ import annotations

import importlib.util
import inspect
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from minirlhf.core.errors import UserError, unknown
from minirlhf.data.records import Problem
from minirlhf.feedback.rewards import Reward

#: Completions that may run out of time before the run is stopped: a grader that never ends would else take the night.
PATIENCE = 3
#: Seconds in which a file must be read: it may load a model, but not hang.
READING = 120.0


def is_named(grader: str) -> bool:
    """Is this the name of a function in a file?"""
    return ".py:" in grader or grader.endswith(".py")


def place(named: str) -> tuple[Path, str]:
    """The file and the name in ``FILE.py:NAME``.

    Raises:
        UserError: not of this form, or no such file.
    """
    before, _, name = named.rpartition(":")
    file = Path(before).expanduser()
    if not before or not name:
        message = f"grader {named!r}: expected FILE.py:FUNCTION"
        raise UserError(message, argument="grader", value=named, expected="FILE.py:FUNCTION")
    if not file.is_file():
        message = f"grader {named!r}: there is no file {file}"
        raise UserError(message, argument="grader", value=named, file=file, problem="missing")
    return file, name


def function(named: str) -> tuple[Path, Callable[..., Any]]:
    """The file and the function of ``FILE.py:NAME``.

    Raises:
        UserError: no such file or function, a file that fails when it is read, or a function with other parameters.
    """
    file, name = place(named)
    spec = importlib.util.spec_from_file_location(f"grader_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        with _within(READING, file):
            spec.loader.exec_module(module)
    except _OutOfTimeError:
        message = f"{file}: not read within {READING:g} s; what it does by itself must end"
        raise UserError(message, value=READING, file=file, problem="timeout") from None
    except (Exception, SystemExit) as problem:  # it is somebody's program
        message, line = f"{file}{_line(problem, file)}: {_words(problem)}", _line_number(problem, file)
        raise UserError(message, value=type(problem).__name__, file=file, line=line, problem="fails") from problem
    found = getattr(module, name, None)
    if found is None:
        raise unknown("function", name, [n for n, v in vars(module).items() if inspect.isroutine(v)], file=file)
    if not callable(found) or not 1 <= _count(found) <= 3:
        raise UserError(
            f"grader {named!r}: expected a function of (completion), (completion, reference) or (completion, reference, messages)",
            argument="grader",
            value=named,
            expected=["completion", "reference", "messages"],
        )
    return file, found


def custom_reward(named: str, *, seconds: float = 10.0) -> Reward:
    """Grade by the function of this name, one completion at a time, each within ``seconds``.

    What it gives for a completion must be a number; NaN, an error, or no answer in time mark a sample that could not be graded.

    Raises:
        UserError: see :func:`function`; when called, if it gives something that is no number, or does not answer
            :data:`PATIENCE` times.
    """
    file, grade = function(named)
    count = _count(grade)

    def reward(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
        values: list[float] = []
        late = 0
        for problem, text in zip(problems, completions, strict=True):
            try:
                with _within(seconds, file):
                    value = grade(*(text, problem.reference, problem.prompt)[:count])
            except _OutOfTimeError:
                late += 1
                if len(problems) == 1:
                    raise RuntimeError(f"{file.name}: no answer within {seconds:g} s") from None
                if late == PATIENCE:
                    raise UserError(
                        f"{named}: no answer within {seconds:g} s, {late} times; the last on {text[:60]!r}",
                        value=late,
                        file=file,
                        problem="timeout",
                    ) from None
                value = math.nan
            except (Exception, SystemExit) as problem_:
                raise RuntimeError(f"{file.name}{_line(problem_, file)}: {_words(problem_)}") from problem_
            try:
                values.append(float(value))
            except (TypeError, ValueError):
                raise UserError(
                    f"{named}: it gave {str(value)[:40]!r}, a {type(value).__name__}; expected a number",
                    value=value,
                    expected="number",
                    file=file,
                ) from None
        return values

    return reward


# -- inside ------------------------------------------------------------------------------------------------------


class _OutOfTimeError(BaseException):
    """Not an ``Exception``, so that a grader's own ``except Exception`` does not swallow it."""


@contextmanager
def _within(seconds: float, file: Path) -> Iterator[None]:
    """Stop the block after so much time, in the main thread; elsewhere there is no such signal and it runs on.

    A program that swallows the exception (``except:`` in an endless loop) cannot be stopped from within: after :data:`PATIENCE` more
    such spans of time the process ends, with exit status 2.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    left = PATIENCE

    def stop(*_: object) -> None:
        nonlocal left
        if left == 0:
            print(
                f"minirlhf: {file}: does not end within {seconds:g} s and swallows every exception",
                file=sys.stderr,
                flush=True,
            )
            os._exit(2)
        left -= 1
        raise _OutOfTimeError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _count(grade: Callable[..., Any]) -> int:
    """How many values it takes by position, 0 if that cannot be known."""
    try:
        parameters = inspect.signature(grade).parameters.values()
    except (TypeError, ValueError):
        return 0
    if any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters):
        return 0
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = sum(p.default is p.empty for p in places)
    return min(3, len(places)) if needed <= 3 else 0


def _words(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {' '.join(str(problem).split())}"


def _line(problem: BaseException, file: Path) -> str:
    """`` line 7`` of the file, if the problem came about there."""
    line = _line_number(problem, file)
    return f" line {line}" if line else ""


def _line_number(problem: BaseException, file: Path) -> int | None:
    """The line of the file in which the problem came about, None if it did not."""
    if isinstance(problem, SyntaxError) and problem.lineno:
        return problem.lineno
    line, trace = None, problem.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).resolve() == file.resolve():
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
