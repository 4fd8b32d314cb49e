"""Files outside this package: its cache folder, and atomic writes of small files."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from minirlhf.core.errors import UserError

#: Suffix of a file that is still being written.
PARTIAL = ".partial"


def cache_folder() -> Path:
    """The package's own cache: ``$MINIRLHF_CACHE``, or ``minirlhf`` in the user's cache folder."""
    if configured := os.environ.get("MINIRLHF_CACHE"):
        return Path(configured)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "minirlhf")


def require_writable(path: str | Path) -> None:
    """Raise :class:`UserError` if no file can be written at this path; call it before the content exists."""
    target = Path(path)
    if target.is_dir() or not target.name:
        raise UserError(f"{path}: this is a folder; expected the name of a file", expected="file", file=path)
    parent = next(folder for folder in target.absolute().parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise UserError(
            f"{path}: cannot be written ({parent} is {'read-only' if parent.is_dir() else 'a file'})",
            problem="not writable",
            file=path,
        )


def write_text_atomic(path: str | Path, text: str) -> None:
    """Write a small file completely or not at all, replacing an older one; create its parent folder if needed.

    Raises:
        UserError: the file cannot be written.
    """
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}{PARTIAL}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
        sync(target.parent)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise UserError(f"{target}: cannot be written ({error})", file=target, problem="not writable") from error


def sync(path: Path) -> None:
    """Flush a file or folder to the disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
