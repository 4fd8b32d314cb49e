"""Where files of this package live outside it."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """The package's own cache: ``$MINIRLHF_CACHE``, or ``minirlhf`` in the user's cache folder."""
    if named := os.environ.get("MINIRLHF_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "minirlhf")
