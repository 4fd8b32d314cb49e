"""Waiting that a busy machine does not fail: for as long as ten times what is usual, and a failure says so."""

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

TIMES = 10
CEILING = 600.0  # seconds for what usually takes no time at all, such as an answer of the browser


def limit(usually: float) -> float:
    """Seconds after which something hangs that takes ``usually`` seconds of an idle core: ten times that, and not too few."""
    return max(CEILING, TIMES * usually)


def finished(command: Sequence[str | Path], *, usually: float, **options: Any) -> subprocess.CompletedProcess[str]:
    """A command that has ended, with standard output and standard error together in ``stdout``.

    Args:
        usually: how many seconds it takes on an idle core, as measured. A test fails after :func:`limit` of that.
        options: ``cwd`` and ``env``, or ``stderr=subprocess.PIPE`` for two texts.
    """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    try:
        return subprocess.run(list(command), text=True, timeout=limit(usually), **(pipes | options))
    except subprocess.TimeoutExpired as late:
        words = " ".join(map(str, command))[:200]
        said = late.output.decode(errors="replace") if isinstance(late.output, bytes) else late.output or ""
        pytest.fail(f"has not ended after {late.timeout:.0f} s (usually {usually:.0f}): {words}\n{said[-3000:]}")


def until(condition: Callable[[], T], what: str, ceiling: float = CEILING) -> T:
    """Ask again and again until the answer is true, and return it.

    Raises:
        TimeoutError: it never was; ``what`` was waited for.
    """
    deadline = time.monotonic() + ceiling
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {ceiling:.0f} s for {what}")
        time.sleep(0.02)
    return answer
