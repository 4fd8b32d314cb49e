"""A bar for what takes more than a few seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from tqdm import tqdm

T = TypeVar("T")


def in_kernel() -> bool:
    """Does this run in a notebook's kernel? The package may be imported without one."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def is_shown() -> bool:
    """Is there somebody to see a bar: a terminal or a notebook, and no ``MINIRLHF_NO_BAR``?"""
    return (sys.stderr.isatty() or in_kernel()) and "MINIRLHF_NO_BAR" not in os.environ


def bar(total: int, what: str, *, initial: int = 0, quiet: bool = False) -> tqdm[Any]:
    """A bar that goes away at its end: ``with bar(…) as shown: … shown.update(n)``.

    Args:
        total: how much there is to do.
        what: stands before the bar.
        initial: how much of it is done already.
        quiet: show none.
    """
    return tqdm(total=total, initial=initial, desc=what, leave=False, disable=quiet or not is_shown())


def progress(items: Iterable[T], what: str) -> Iterator[T]:
    """The items, with a bar that goes away at the end; ``what`` stands before it."""
    yield from tqdm(items, desc=what, leave=False, disable=not is_shown())
