"""The definition of a failure of the gallery."""

from __future__ import annotations

import functools
import inspect
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from minirlhf.trainers.history import History

#: An object with the methods ``with_(**changes)`` and ``run(seed)``.
Run = Any


@dataclass(frozen=True)
class BrokenRun:
    """A run that one changed line breaks.

    Attributes:
        name: the name on the command line, in links, and in ``failures.toml``, which holds the texts.
        healthy: the run without the fault.
        change: the changed line: the name of the field or option, and its new value.
        panel: the metrics that show the failure.
        findings: the doctor should report one of these findings; empty for a fault that no metric shows.
    """

    name: str
    healthy: Run
    change: tuple[str, Any]
    panel: tuple[str, ...]
    findings: tuple[str, ...]

    @property
    def title(self) -> str:
        """A short name of the failure."""
        return texts()[self.name]["title"]

    @property
    def symptom(self) -> str:
        """What the metrics show."""
        return texts()[self.name]["symptom"]

    @property
    def cause(self) -> str:
        """The reason of the failure."""
        return texts()[self.name]["cause"]

    @property
    def fix(self) -> str:
        """The remedy."""
        return texts()[self.name]["fix"]

    @property
    def check(self) -> str:
        """A check that detects the fault before the run."""
        return texts()[self.name]["check"]

    @property
    def broken(self) -> Run:
        """The run with the fault."""
        name, value = self.change
        return self.healthy.with_(**{name: value})

    def run(self, seed: int) -> History:
        """Train the broken run; return its metrics."""
        history: History = self.broken.run(seed)
        return history

    @property
    def line(self) -> str:
        """The changed line, as in code."""
        name, value = self.change
        return f"{name}={_spelled(value)}"

    @property
    def source(self) -> str:
        """The source of the function in the changed line, if the gallery defines it; else an empty string."""
        value = self.change[1]
        return (
            inspect.getsource(value) if inspect.isfunction(value) and value.__module__.startswith(__package__) else ""
        )


@functools.cache
def texts() -> dict[str, dict[str, str]]:
    """Return the texts of all failures by name."""
    return tomllib.loads(files("minirlhf_course.gallery").joinpath("failures.toml").read_text(encoding="utf-8"))


def _spelled(value: Any) -> str:
    return value.__name__ if isinstance(value, Callable) else repr(value)  # type: ignore[arg-type]
