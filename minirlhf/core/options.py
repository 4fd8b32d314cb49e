"""The help text of an option stands at its dataclass field; no docstring repeats it."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def option(default: Any, text: str) -> Any:
    """Return a dataclass field with its help text."""
    return field(default=default, metadata={"help": text})
