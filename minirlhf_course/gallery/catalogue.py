"""The failures of the gallery, by name."""

from __future__ import annotations

from minirlhf_course.gallery import given, online
from minirlhf_course.gallery.failure import BrokenRun


def gallery() -> dict[str, BrokenRun]:
    """Return all failures by name, in the order of the page."""
    return {failure.name: failure for failure in (*online.FAILURES, *given.FAILURES)}


def beside(failure: BrokenRun) -> str:
    """Return the name of the healthy run: the name of the first failure that has this healthy run."""
    return next(name for name, other in gallery().items() if other.healthy == failure.healthy)
