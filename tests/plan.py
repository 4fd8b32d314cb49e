"""The plan of a test run: which tests belong together, which chapter they are of, and which start first.

A *unit* is what one process runs in one go, with its module-scoped fixtures built once: a file, or one chapter of a file in
:data:`BY_CHAPTER`, so that every notebook is a unit of its own. pytest-xdist hands units to whichever process is free, the
longest first, by the processor seconds in ``costs.json``. A unit that was never timed counts as long as the longest other
chapter of its file, so that a new chapter's notebook starts early too.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from minirlhf.core.randomness import derive_seed

COSTS = Path(__file__).with_name("costs.json")
BY_CHAPTER = ("tests/test_exercises.py", "tests/test_notebooks.py")
CHAPTER = re.compile(r"[\[-]ch(\d\d)-")


def of_chapter(chapter: int | str, *values: Any, id: str, marks: Iterable[Any] = ()) -> Any:
    """A case for ``pytest.mark.parametrize`` that belongs to a chapter: its id begins with ``chNN-``."""
    return pytest.param(*values, id=f"ch{int(chapter):02}-{id}", marks=[pytest.mark.chapter(int(chapter)), *marks])


def own_seed(*texts: str) -> int:
    """A seed that follows from what it is used for: an exercise's text, a reader's answer.

    An exercise of which one draw in a thousand is unlucky would make one suite in a few fail, at changes that have nothing to
    do with it. So the suite's draws change with the texts alone; ``tests/chance.py`` measures over many draws, and
    ``MINIRLHF_TEST_SEED`` changes these too.
    """
    return derive_seed(os.environ.get("MINIRLHF_EXERCISE_SEED", ""), *texts)


def seed_of_the_sources() -> int:
    """A seed that follows from every line of the library and its tests: the same sources give the same inputs on each machine.

    So any change draws fresh inputs, and what failed once fails again for whoever looks for the reason. What other
    draws would do, ``tests/chance.py`` measures.
    """
    root = Path(__file__).parent.parent
    files = sorted(file.relative_to(root) for folder in ("minirlhf", "tests") for file in (root / folder).rglob("*.py"))
    return (
        derive_seed(*(text for file in files for text in (file.as_posix(), (root / file).read_text("utf-8")))) % 2**31
    )


def unit(nodeid: str) -> str:
    """The unit of a test: ``tests/test_x.py``, or ``tests/test_x.py ch05`` in a file that is run by chapter."""
    file, _, rest = nodeid.partition("::")
    found = CHAPTER.search(rest) if file in BY_CHAPTER else None
    return f"{file} ch{found[1]}" if found else file


def known_costs() -> dict[str, float]:
    """Processor seconds by unit, of those that take more than a second, as ``tools/forecast.py --keep`` wrote them."""
    return json.loads(COSTS.read_text(encoding="utf-8")) if COSTS.is_file() else {}


def expected(unit: str, costs: Mapping[str, float]) -> float:
    """Seconds that a unit is expected to take."""
    file, _, chapter = unit.partition(" ")
    kin = [seconds for other, seconds in costs.items() if chapter and other.startswith(f"{file} ch")]
    return costs.get(unit, max(kin, default=0.0))


def longest_first(nodeids: Iterable[str], costs: Mapping[str, float]) -> dict[str, list[str]]:
    """Units and their tests, longest unit first; equals, and the tests of a unit, stay in their order."""
    units: dict[str, list[str]] = {}
    for nodeid in nodeids:
        units.setdefault(unit(nodeid), []).append(nodeid)
    return dict(sorted(units.items(), key=lambda item: -expected(item[0], costs)))
