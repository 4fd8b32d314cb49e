"""A user-defined grader: a Python file and a function in it, ``my.py:fn``.

::

    def fn(completion: str, reference: str | None, messages: list[dict]) -> float:
        return float(completion.strip() == reference)

The completion keeps the white space at the start of its first line, because a program needs it. The second and the
third parameter are optional: the function is called with as many arguments as it accepts.
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

#: Number of timeouts after which the run is stopped. Otherwise a grader that never returns would waste hours.
PATIENCE = 3
#: Seconds within which a file must be imported. It may load a model, but it must not hang.
READING = 120.0


def is_named(grader: str) -> bool:
    """Return whether ``grader`` names a function in a Python file."""
    return ".py:" in grader or grader.endswith(".py")


def parse_location(named: str) -> tuple[Path, str]:
    """Split ``FILE.py:NAME`` into the file and the name.

    Raises:
        UserError: the text does not have this form, or the file does not exist.
    """
    path, _, name = named.rpartition(":")
    file = Path(path).expanduser()
    if not path or not name:
        message = f"grader {named!r}: expected FILE.py:FUNCTION"
        raise UserError(message, argument="grader", value=named, expected="FILE.py:FUNCTION")
    if not file.is_file():
        message = f"grader {named!r}: there is no file {file}"
        raise UserError(message, argument="grader", value=named, file=file, problem="missing")
    return file, name


def function(named: str) -> tuple[Path, Callable[..., Any]]:
    """Load the function of ``FILE.py:NAME`` and return the file and the function.

    Raises:
        UserError: the file or the function does not exist, importing the file fails, or the function has other
            parameters.
    """
    file, name = parse_location(named)
    spec = importlib.util.spec_from_file_location(f"grader_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        with _within(READING, file):
            spec.loader.exec_module(module)
    except _OutOfTimeError:
        message = f"{file}: importing it took longer than {READING:g} s; expected module-level code that finishes"
        raise UserError(message, value=READING, file=file, problem="timeout") from None
    except (Exception, SystemExit) as error:  # user code may raise anything
        message, line = f"{file}{_line(error, file)}: {_words(error)}", _line_number(error, file)
        raise UserError(message, value=type(error).__name__, file=file, line=line, problem="fails") from error
    grade = getattr(module, name, None)
    if grade is None:
        raise unknown("function", name, [n for n, v in vars(module).items() if inspect.isroutine(v)], file=file)
    if not callable(grade) or not 1 <= _count(grade) <= 3:
        raise UserError(
            f"grader {named!r}: expected a function of (completion), (completion, reference) or (completion, reference, messages)",
            argument="grader",
            value=named,
            expected=["completion", "reference", "messages"],
        )
    return file, grade


def custom_reward(named: str, *, seconds: float = 10.0) -> Reward:
    """Return a reward that calls the function of this name for each completion, with a time limit of ``seconds`` per
    call.

    The function must return a number. NaN, an exception or a timeout marks a sample that could not be graded.

    Raises:
        UserError: see :func:`function`; when called, if the function returns something that is not a number, or times
            out :data:`PATIENCE` times.
    """
    file, grade = function(named)
    num_args = _count(grade)

    def reward(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
        values: list[float] = []
        num_timeouts = 0
        for problem, text in zip(problems, completions, strict=True):
            try:
                with _within(seconds, file):
                    value = grade(*(text, problem.reference, problem.prompt)[:num_args])
            except _OutOfTimeError:
                num_timeouts += 1
                if len(problems) == 1:
                    raise RuntimeError(f"{file.name}: the grader timed out after {seconds:g} s") from None
                if num_timeouts == PATIENCE:
                    raise UserError(
                        f"{named}: timed out after {seconds:g} s, {num_timeouts} times; the last on {text[:60]!r}",
                        value=num_timeouts,
                        file=file,
                        problem="timeout",
                    ) from None
                value = math.nan
            except (Exception, SystemExit) as error:
                raise RuntimeError(f"{file.name}{_line(error, file)}: {_words(error)}") from error
            try:
                values.append(float(value))
            except (TypeError, ValueError):
                raise UserError(
                    f"{named}: the grader returned {str(value)[:40]!r}, a {type(value).__name__}; expected a number",
                    value=value,
                    expected="number",
                    file=file,
                ) from None
        return values

    return reward


# -- inside ------------------------------------------------------------------------------------------------------


class _OutOfTimeError(BaseException):
    """A timeout. It is no ``Exception``, so that a grader's own ``except Exception`` does not catch it."""


@contextmanager
def _within(seconds: float, file: Path) -> Iterator[None]:
    """Interrupt the block after ``seconds``, in the main thread only: other threads get no such signal and run on.

    A grader that catches the exception (``except:`` in an endless loop) cannot be interrupted from within. After
    :data:`PATIENCE` more intervals of this length the process exits with status 2.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    num_left = PATIENCE

    def stop(*_: object) -> None:
        nonlocal num_left
        if num_left == 0:
            print(
                f"minirlhf: {file}: the grader does not return within {seconds:g} s and catches every exception",
                file=sys.stderr,
                flush=True,
            )
            os._exit(2)
        num_left -= 1
        raise _OutOfTimeError

    previous_handler = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous_handler)


def _count(grade: Callable[..., Any]) -> int:
    """Return how many positional arguments to pass, at most 3; 0 if unknown or if the function needs others."""
    try:
        parameters = inspect.signature(grade).parameters.values()
    except (TypeError, ValueError):
        return 0
    if any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters):
        return 0
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    num_required = sum(p.default is p.empty for p in positional)
    return min(3, len(positional)) if num_required <= 3 else 0


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _line(error: BaseException, file: Path) -> str:
    """Return `` line 7`` if the error arose in this file, else an empty string."""
    line = _line_number(error, file)
    return f" line {line}" if line else ""


def _line_number(error: BaseException, file: Path) -> int | None:
    """Return the line of the file in which the error arose, None if it arose elsewhere."""
    if isinstance(error, SyntaxError) and error.lineno:
        return error.lineno
    line, trace = None, error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).resolve() == file.resolve():
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
