"""Files outside this package: its cache, and small files that appear whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from minirlhf.core.errors import UserError

#: Ending of what is being written.
PARTIAL = ".partial"


def cache_folder() -> Path:
    """The package's own cache: ``$MINIRLHF_CACHE``, or ``minirlhf`` in the user's cache folder."""
    if named := os.environ.get("MINIRLHF_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "minirlhf")


def require_writable(path: str | Path) -> None:
    """Raise :class:`UserError` if no file can be written there, before there is anything to write."""
    target = Path(path)
    if target.is_dir() or not target.name:
        raise UserError(f"{path}: a folder; expected the name of a file", expected="file", file=path)
    above = next(folder for folder in target.absolute().parents if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise UserError(
            f"{path}: cannot be written ({above} is {'read-only' if above.is_dir() else 'a file'})",
            problem="not writable",
            file=path,
        )


def write_text_atomic(path: str | Path, text: str) -> None:
    """Write a small file whole or not at all, replacing an older one; the folder above is made if needed.

    Raises:
        UserError: it cannot be written.
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
    except OSError as problem:
        with suppress(OSError):
            partial.unlink()
        raise UserError(f"{target}: cannot be written ({problem})", file=target, problem="not writable") from problem


def sync(path: Path) -> None:
    """Have the system write a file or folder to the disk now."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
