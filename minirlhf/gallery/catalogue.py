"""The failures of the gallery, by name."""

from __future__ import annotations

from minirlhf.core.errors import unknown
from minirlhf.gallery import given, online
from minirlhf.gallery.failure import BrokenRun


def gallery() -> dict[str, BrokenRun]:
    """All failures by name, in the order of the page."""
    return {failure.name: failure for failure in (*online.FAILURES, *given.FAILURES)}


def beside(failure: BrokenRun) -> str:
    """The name of the healthy run: that of the first failure that has it."""
    return next(name for name, other in gallery().items() if other.healthy == failure.healthy)


def get(name: str) -> BrokenRun:
    """The failure of this name; an unknown one is a ``UserError`` with the nearest."""
    found = gallery()
    if name not in found:
        raise unknown("failure", name, found)
    return found[name]
