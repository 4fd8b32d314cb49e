"""Files that are being worked on: wait until one is saved. By looking at them, so that it works on every system."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

PAUSE = 0.5  # seconds between two looks


def modification_times(paths: Sequence[Path]) -> dict[Path, tuple[int, int]]:
    """Each file's time of change and size; a file that is not there at the moment is left out: editors replace files."""
    found = {}
    for path in paths:
        try:
            state = path.stat()
        except OSError:
            continue
        found[path] = (state.st_mtime_ns, state.st_size)
    return found


def saves(look: Callable[[], Sequence[Path]], pause: float = PAUSE) -> Iterator[list[Path]]:
    """The files that were changed, each time that something was saved; never ends.

    A change counts once two looks in a row find the same, so that a file which is still being written is not read.

    Args:
        look: the files to watch, asked at every look: new ones may come.
        pause: seconds between two looks.
    """
    seen = before = modification_times(look())
    while True:
        time.sleep(pause)
        now = modification_times(look())
        if now == before and now != seen:
            changed = [p for p, stamp in now.items() if seen.get(p) != stamp]
            seen = now
            if changed:
                yield changed
        before = now
