"""The errata, by name."""

from __future__ import annotations

from minirlhf.core.errors import unknown
from minirlhf_course.errata import listings, objectives  # noqa: F401 (the imports register the errata)
from minirlhf_course.errata.erratum import REGISTERED, Erratum, texts


def errata() -> dict[str, Erratum]:
    """All errata by name, in the order of the page."""
    return {name: REGISTERED[name] for name in texts()}


def get(name: str) -> Erratum:
    """The erratum of this name; an unknown name is a ``UserError`` that suggests the nearest name."""
    by_name = errata()
    if name not in by_name:
        raise unknown("erratum", name, by_name)
    return by_name[name]
