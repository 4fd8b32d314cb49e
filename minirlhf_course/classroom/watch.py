"""Wait until a watched file is saved. The files are polled, so that this works on every operating system."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

PAUSE = 0.5  # seconds between two polls


def modification_times(paths: Sequence[Path]) -> dict[Path, tuple[int, int]]:
    """Return each file's modification time and size, without missing files: an editor may be replacing a file."""
    times = {}
    for path in paths:
        try:
            state = path.stat()
        except OSError:
            continue
        times[path] = (state.st_mtime_ns, state.st_size)
    return times


def saves(look: Callable[[], Sequence[Path]], pause: float = PAUSE) -> Iterator[list[Path]]:
    """Yield the changed files after each save; never ends.

    A change is reported once two consecutive polls agree, so that a file that is still being written is not read.

    Args:
        look: returns the files to watch; it is called at every poll, so that new files are found.
        pause: seconds between two polls.
    """
    reported = previous = modification_times(look())
    while True:
        time.sleep(pause)
        current = modification_times(look())
        if current == previous and current != reported:
            changed = [p for p, stamp in current.items() if reported.get(p) != stamp]
            reported = current
            if changed:
                yield changed
        previous = current
