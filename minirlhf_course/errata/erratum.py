"""Errata: a number as it is printed, the number by the corrected formula, and the same number by another method."""

from __future__ import annotations

import functools
import inspect
import math
import textwrap
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import NamedTuple

from minirlhf.core.errors import ArgumentError

#: Relative tolerance; absolute for numbers near zero.
TOLERANCE = 1e-4


class Found(NamedTuple):
    """The numbers that the computation of an erratum returns.

    Attributes:
        quantity: the quantity in words.
        printed: its value by the text's formula, listing or sentence; NaN if that gives no number.
        right: its value by the corrected formula, listing or sentence.
        exact: its value computed without the corrected formula.
    """

    quantity: str
    printed: float
    right: float
    exact: float

    @property
    def holds(self) -> bool:
        """Whether the text is wrong and the correction right."""
        return close(self.right, self.exact) and not close(self.printed, self.exact)


def close(a: float, b: float) -> bool:
    """Equal up to rounding; NaN equals nothing."""
    return math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


@dataclass(frozen=True)
class Erratum:
    """One error; its texts are in ``errata.toml``, under its name.

    Attributes:
        name: the name on the command line and the page.
        compute: the computation; the page shows its code.
    """

    name: str
    compute: Callable[[], Found]

    @property
    def title(self) -> str:
        """The title of the erratum."""
        return texts()[self.name]["title"]

    @property
    def where(self) -> str:
        """The text and the location in it."""
        text = texts()[self.name]
        return f"{sources()[text['source']]}, {text['place']}"

    @property
    def says(self) -> str:
        """What the text says there."""
        return texts()[self.name]["says"]

    @property
    def today(self) -> str:
        """Whether the statement still stands in the latest edition that we read."""
        return editions()[texts()[self.name]["today"]]

    @property
    def correction(self) -> str:
        """The correct statement, and where this book derives it."""
        return texts()[self.name]["correction"]

    @property
    def code(self) -> str:
        """The body of the computation."""
        body = inspect.getsource(self.compute).split("-> Found:\n", 1)[1]
        return textwrap.dedent(body).strip()


#: All errata, in the order of their registration.
REGISTERED: dict[str, Erratum] = {}


def erratum(name: str) -> Callable[[Callable[[], Found]], Callable[[], Found]]:
    """Register a computation as the erratum ``name``; a duplicate name is a ``ValueError``."""

    def register(compute: Callable[[], Found]) -> Callable[[], Found]:
        if name in REGISTERED:
            raise ArgumentError(
                f"erratum {name!r} is registered twice", argument="erratum", value=name, problem="duplicate"
            )
        REGISTERED[name] = Erratum(name, compute)
        return compute

    return register


def sources() -> dict[str, str]:
    """The source texts, by their letter."""
    return _file()["sources"]


def editions() -> dict[str, str]:
    """What a later edition can have done with a statement, by the key ``today`` of an erratum."""
    return _file()["editions"]


@functools.cache
def _file() -> dict[str, dict[str, str]]:
    return tomllib.loads(files("minirlhf_course.errata").joinpath("errata.toml").read_text(encoding="utf-8"))


def texts() -> dict[str, dict[str, str]]:
    """The texts of each erratum, in the order of the page."""
    return {name: text for name, text in _file().items() if name not in ("sources", "editions")}  # type: ignore[misc]
