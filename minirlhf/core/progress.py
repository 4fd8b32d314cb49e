"""Progress bars for operations that take more than a few seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from tqdm import tqdm

T = TypeVar("T")


def in_kernel() -> bool:
    """Return whether this process is a notebook's kernel. IPython need not be installed."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def is_shown() -> bool:
    """Return whether to show bars: in a terminal or a notebook, unless ``MINIRLHF_NO_BAR`` is set."""
    return (sys.stderr.isatty() or in_kernel()) and "MINIRLHF_NO_BAR" not in os.environ


def bar(total: int, what: str, *, initial: int = 0, quiet: bool = False) -> tqdm[Any]:
    """Return a bar that disappears at its end: ``with bar(…) as shown: … shown.update(n)``.

    Args:
        total: number of units of work.
        what: label in front of the bar.
        initial: number of units that are done already.
        quiet: show no bar.
    """
    return tqdm(total=total, initial=initial, desc=what, leave=False, disable=quiet or not is_shown())


def progress(items: Iterable[T], what: str) -> Iterator[T]:
    """Yield the items and show a bar that disappears at the end; ``what`` is its label."""
    yield from tqdm(items, desc=what, leave=False, disable=not is_shown())
