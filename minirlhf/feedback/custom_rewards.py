"""A user-defined grader: a Python file and a function in it, ``my.py:fn``.

::

    def fn(completion: str, reference: str | None, messages: list[dict]) -> float:
        return float(completion.strip() == reference)

The function is called with the arguments that its parameters name (:mod:`.signatures`). The forms of two other libraries
work as they are: TRL's, ``fn(completions, **columns)``, which grades all completions at once, and verl's,
``compute_score(data_source, solution_str, ground_truth, extra_info)``. The function may be ``async``. It returns numbers,
``None`` where it does not apply, or verl's dictionary with a ``score``. The completion keeps the white space at the start
of its first line, because a program needs it.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minirlhf.core.errors import UserError, unknown
from minirlhf.data.records import Problem
from minirlhf.feedback.rewards import Part, WeightedReward
from minirlhf.feedback.signatures import PLACES, Signature

#: Number of timeouts after which the run is stopped. Otherwise a grader that never returns would waste hours.
PATIENCE = 3
#: Seconds within which a file must be imported. It may load a model, but it must not hang.
READING = 120.0
_TIMED_OUT = object()


def is_named(grader: str) -> bool:
    """Return whether ``grader`` names a function in a Python file."""
    return ".py:" in grader or grader.endswith(".py")


def parse_location(named: str, kind: str = "grader") -> tuple[Path, str]:
    """Split ``FILE.py:NAME`` into the file and the name.

    Raises:
        UserError: the text does not have this form, or the file does not exist.
    """
    path, _, name = named.rpartition(":")
    file = Path(path).expanduser()
    if not path or not name:
        message = f"{kind} {named!r}: expected FILE.py:FUNCTION"
        raise UserError(message, argument=kind, value=named, expected="FILE.py:FUNCTION")
    if not file.is_file():
        message = f"{kind} {named!r}: there is no file {file}"
        raise UserError(message, argument=kind, value=named, file=file, problem="missing")
    return file, name


def function(named: str) -> tuple[Path, Callable[..., Any]]:
    """Load the grader of ``FILE.py:NAME`` and return the file and the function.

    Raises:
        UserError: as :func:`load_function`, or the function has other parameters than a grader.
    """
    file, grade = load_function(named)
    Signature.of(grade, named)
    return file, grade


def load_function(named: str, kind: str = "grader") -> tuple[Path, Callable[..., Any]]:
    """Load the function of ``FILE.py:NAME`` and return the file and the function; ``kind`` is its name in errors.

    Raises:
        UserError: the file or the function does not exist, or importing the file fails.
    """
    file, name = parse_location(named, kind)
    spec = importlib.util.spec_from_file_location(f"{kind}_{file.stem}", file)
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
    if not callable(grade):
        message = f"{kind} {named!r} is a {type(grade).__name__}; expected a function"
        raise UserError(message, argument=kind, value=named, expected=list(PLACES), problem="parameters")
    return file, grade


def custom_reward(named: str, *, seconds: float = 10.0) -> WeightedReward:
    """Return a reward that calls the function of this name, with a time limit of ``seconds`` per completion.

    NaN, an exception or a timeout marks a sample that could not be graded; None, one to which the function does not
    apply.

    Raises:
        UserError: see :func:`function`; when called, if the function returns something that is not a number, or times
            out :data:`PATIENCE` times.
    """
    file, grade = function(named)
    custom = CustomReward(named, file, grade, Signature.of(grade, named), seconds)
    return WeightedReward((Part(named.rpartition(":")[2], custom),))


@dataclass(frozen=True)
class CustomReward:
    """The function of :func:`custom_reward`, with what is needed to call it."""

    named: str
    file: Path
    grade: Callable[..., Any]
    signature: Signature
    seconds: float

    def __call__(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[float | None]:
        """Return one score for each completion."""
        if not completions:
            return []
        if self.signature.is_batch:
            return self._all_at_once(problems, completions)
        values: list[Any] = []
        num_timeouts = 0
        for problem, text in zip(problems, completions, strict=True):
            arguments = self.signature.arguments(problem, text, self.named)
            try:
                value = self._called(*arguments, self.seconds)
            except _OutOfTimeError:
                num_timeouts += 1
                if len(problems) == 1:
                    message = f"{self.file.name}: the grader timed out after {self.seconds:g} s"
                    raise RuntimeError(message) from None
                if num_timeouts == PATIENCE:
                    raise self._too_slow(num_timeouts, text) from None
                value = math.nan
            values.append(value)
        if any(map(inspect.isawaitable, values)):
            values = self._awaited(values)
        return [self._number(value) for value in values]

    def _all_at_once(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[float | None]:
        arguments = self.signature.batch_arguments(problems, completions, self.named)
        seconds = self.seconds * len(completions)
        try:
            values = self._called(*arguments, seconds)
            if inspect.isawaitable(values):
                [values] = self._awaited([values], seconds)
        except _OutOfTimeError:
            raise self._too_slow(1, completions[0]) from None
        if isinstance(values, str | Mapping) or not hasattr(values, "__len__") or not hasattr(values, "__iter__"):
            raise self._wrong(values, "a list of numbers")
        if len(values) != len(completions):
            raise UserError(
                f"{self.named}: the grader returned {len(values)} numbers for {len(completions)} completions; expected one for each",
                argument="reward",
                value=len(values),
                expected=len(completions),
                file=self.file,
                problem="number",
            )
        return [self._number(value) for value in values]

    def _called(self, positional: Sequence[Any], by_name: Mapping[str, Any], seconds: float) -> Any:
        try:
            with _within(seconds, self.file):
                return self.grade(*positional, **by_name)
        except (Exception, SystemExit) as error:
            raise RuntimeError(f"{self.file.name}{_line(error, self.file)}: {_words(error)}") from error

    def _awaited(self, values: Sequence[Any], seconds: float | None = None) -> list[Any]:
        """Wait for what an ``async`` function returned, all at the same time; NaN for a timeout."""
        limit = self.seconds if seconds is None else seconds

        async def result(value: Any) -> Any:
            if not inspect.isawaitable(value):
                return value
            try:
                return await asyncio.wait_for(value, limit)
            except TimeoutError:
                return _TIMED_OUT

        async def every() -> list[Any]:
            return await asyncio.gather(*map(result, values), return_exceptions=True)

        with ThreadPoolExecutor(1) as thread:  # a notebook already runs a loop in this one
            results = thread.submit(asyncio.run, every()).result()
        for value in results:
            if isinstance(value, BaseException):
                raise RuntimeError(f"{self.file.name}{_line(value, self.file)}: {_words(value)}") from value
        num_timeouts = sum(value is _TIMED_OUT for value in results)
        if num_timeouts >= min(PATIENCE, len(values)):
            raise self._too_slow(num_timeouts, "")
        return [math.nan if value is _TIMED_OUT else value for value in results]

    def _number(self, value: Any) -> float | None:
        if isinstance(value, Mapping) and "score" in value:
            value = value["score"]
        if value is None:
            return None
        try:
            return float(value)
        except (TypeError, ValueError):
            raise self._wrong(value, "a number") from None

    def _wrong(self, value: Any, expected: str) -> UserError:
        return UserError(
            f"{self.named}: the grader returned {str(value)[:40]!r}, a {type(value).__name__}; expected {expected}",
            value=value,
            expected=expected.split()[-1],
            file=self.file,
        )

    def _too_slow(self, times: int, text: str) -> UserError:
        return UserError(
            f"{self.named}: timed out after {self.seconds:g} s per completion, {times} times; the last on {text[:60]!r}",
            value=times,
            file=self.file,
            problem="timeout",
        )


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


def failure(named: str, error: Exception, kind: str = "grader") -> UserError:
    """Return the error for a function of this name that raised; an error of minirlhf is returned as it is."""
    if isinstance(error, UserError):
        return error
    file, _ = parse_location(named, kind)
    message = f"{kind} {named!r}{_line(error, file)}: {_words(error)}"
    name, line = type(error).__name__, _line_number(error, file)
    return UserError(message, argument=kind, value=name, problem="fails", file=file, line=line)


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
