"""What only one chapter needs, a folder each: its experiments, checks and studies, with a manifest.

The manifests (``chNN_name/manifest.toml``) are the only list of chapters; the book, the tools and the tests read it here. The library
below never imports a chapter, and a chapter never imports another: what two of them need moves down.
"""

from __future__ import annotations

import functools
import importlib
import re
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minirlhf.core.errors import UserError

if TYPE_CHECKING:
    from minirlhf_course.ledger.formulas.legends import Printings
    from minirlhf_course.ledger.registry import Ledger

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Chapter:
    """One manifest.

    Attributes:
        folder: of the chapter in this package; its name is ``chNN_name``.
        title: of the page.
        short: the title where there is little room, as in the map.
        outcome: what a reader can do when it is over: "derive …, and say …".
        part: of the book, ``"I"`` to ``"V"``.
        needs: numbers of the chapters that it builds on.
        place: column and row of its box in the map.
        finished: are text, notebook and exercises there, and does every label of its checks stand in the text?
        claims: public functions of the library that nothing uses yet and that this chapter is going to.
    """

    folder: Path
    title: str
    short: str
    outcome: str
    part: str
    needs: tuple[int, ...]
    place: tuple[int, int]
    finished: bool
    claims: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        """From the folder's name, as all names of the chapter's files."""
        return int(self.folder.name[2:4])

    @property
    def name(self) -> str:
        """``"13_group_relative_methods"``, as the notebook and the exercises' folder are called."""
        return self.folder.name[2:]

    @property
    def page(self) -> str:
        """``"13-group-relative-methods"``, as the text is called."""
        return self.name.replace("_", "-")

    @property
    def module(self) -> str:
        """``"minirlhf_course.chapters.ch13_group_relative_methods"``."""
        return f"{__name__}.{self.folder.name}"

    @property
    def checks(self) -> list[str]:
        """The modules that hold its checks: ``checks.py`` and ``checks_topic.py``."""
        return [f"{self.module}.{path.stem}" for path in sorted(self.folder.glob("checks*.py"))]

    @property
    def legends(self) -> list[str]:
        """The modules that say what its printed formulas are made of: ``legends.py`` and ``legends_topic.py``."""
        return [f"{self.module}.{path.stem}" for path in sorted(self.folder.glob("legends*.py"))]


def read(folder: Path) -> Chapter:
    """The manifest in a chapter's folder.

    Raises:
        UserError: a field that is missing, unknown, or not of its kind.
    """
    path = folder / "manifest.toml"
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as problem:
        raise UserError(f"{path}: {problem}", problem="syntax", file=path) from None
    known = {f.name for f in fields(Chapter)} - {"folder"}
    needed = known - {"claims"}
    if said.keys() - known or needed - said.keys():
        extra, missing = sorted(said.keys() - known), sorted(needed - said.keys())
        raise UserError(
            f"{path}: {', '.join(extra) or 'nothing'} is unknown, {', '.join(missing) or 'nothing'} is missing; "
            f"expected {', '.join(sorted(known))}",
            argument=", ".join(extra or missing),
            expected=sorted(known),
            problem="unknown" if extra else "missing",
            file=path,
        )
    kinds: dict[str, Any] = {"title": str, "short": str, "outcome": str, "part": str, "finished": bool}
    for key, value in said.items():
        kind = kinds.get(key, list)
        inner = str if key == "claims" else int
        if not isinstance(value, kind) or (kind is list and not all(type(x) is inner for x in value)):
            raise UserError(
                f"{path}: {key} = {value!r}; expected {'a list' if kind is list else kind.__name__}",
                argument=key,
                value=value,
                expected=kind.__name__,
                file=path,
            )
    if len(said["place"]) != 2:
        raise UserError(f"{path}: place = {said['place']}; expected column and row")
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in said.items()}
    return Chapter(folder, **values)


@functools.cache
def chapters() -> tuple[Chapter, ...]:
    """All chapters, in order."""
    return tuple(read(path.parent) for path in sorted(FOLDER.glob("ch[0-9][0-9]_*/manifest.toml")))


def chapter(number: int) -> Chapter:
    """The chapter of this number.

    Raises:
        UserError: there is none.
    """
    for found in chapters():
        if found.number == number:
            return found
    raise UserError(
        f"no chapter {number}; there are {', '.join(str(c.number) for c in chapters())}",
        argument="chapter",
        value=number,
        problem="missing",
    )


def read_labels() -> list[str]:
    """All labels that checks prove, sorted, read from the text of the checks: no module that computes is imported."""
    texts = (path.read_text(encoding="utf-8") for c in chapters() for path in sorted(c.folder.glob("checks*.py")))
    return sorted({label for text in texts for label in re.findall(r'"(eq:[a-z0-9-]+)"', text)})


def load_checks() -> Ledger:
    """Import the checks of every chapter and return the filled ledger."""
    from minirlhf_course.ledger.registry import LEDGER

    for found in chapters():
        for module in found.checks:
            importlib.import_module(module)
    return LEDGER


def load_legends() -> Printings:
    """Import the legends of every chapter and return them, with the formulas that are pinned."""
    from minirlhf_course.ledger.formulas.legends import PRINTINGS

    for found in chapters():
        for module in found.legends:
            importlib.import_module(module)
    return PRINTINGS
