"""What a failure of the gallery is."""

from __future__ import annotations

import functools
import inspect
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from minirlhf.trainers.history import History

#: Something that can be run and changed: ``with_(**changes)``, ``run(seed)``.
Run = Any


@dataclass(frozen=True)
class BrokenRun:
    """A run that one changed line breaks.

    Attributes:
        name: for the command line, and what the page is linked by; what there is to say stands under it in ``failures.toml``.
        healthy: the run without the fault.
        change: the line: the name of what is changed, and its new value.
        panel: the metrics to look at.
        findings: what the doctor should name, one of them; none for a fault that no metric shows.
    """

    name: str
    healthy: Run
    change: tuple[str, Any]
    panel: tuple[str, ...]
    findings: tuple[str, ...]

    @property
    def title(self) -> str:
        """What one would call it."""
        return _texts()[self.name]["title"]

    @property
    def symptom(self) -> str:
        """What the metrics show."""
        return _texts()[self.name]["symptom"]

    @property
    def cause(self) -> str:
        """Why."""
        return _texts()[self.name]["cause"]

    @property
    def fix(self) -> str:
        """What to do."""
        return _texts()[self.name]["fix"]

    @property
    def check(self) -> str:
        """What would have seen it before the run."""
        return _texts()[self.name]["check"]

    @property
    def broken(self) -> Run:
        """The run with the fault."""
        name, value = self.change
        return self.healthy.with_(**{name: value})

    def run(self, seed: int) -> History:
        """Train the broken one."""
        history: History = self.broken.run(seed)
        return history

    @property
    def line(self) -> str:
        """The changed line, as it would be typed."""
        name, value = self.change
        return f"{name}={_spelled(value)}"

    @property
    def source(self) -> str:
        """The function that the line names, if the gallery holds one; else nothing."""
        value = self.change[1]
        return (
            inspect.getsource(value) if inspect.isfunction(value) and value.__module__.startswith(__package__) else ""
        )


@functools.cache
def _texts() -> dict[str, dict[str, str]]:
    """What there is to say, by name."""
    return tomllib.loads(files("minirlhf.gallery").joinpath("failures.toml").read_text(encoding="utf-8"))


def _spelled(value: Any) -> str:
    return value.__name__ if isinstance(value, Callable) else repr(value)  # type: ignore[arg-type]
