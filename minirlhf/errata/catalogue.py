"""The errata, by name."""

from __future__ import annotations

from minirlhf.core.errors import unknown
from minirlhf.errata import listings, objectives  # noqa: F401 (they register)
from minirlhf.errata.erratum import REGISTERED, Erratum, texts


def errata() -> dict[str, Erratum]:
    """All of them by name, in the order of the page."""
    return {name: REGISTERED[name] for name in texts()}


def get(name: str) -> Erratum:
    """The erratum of this name; an unknown one is a ``UserError`` with the nearest."""
    found = errata()
    if name not in found:
        raise unknown("erratum", name, found)
    return found[name]
