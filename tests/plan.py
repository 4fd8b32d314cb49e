"""The plan of a test run: its seed, which tests form one unit of work, which chapter they belong to, and which start first.

A *unit* is what one process runs in one go, with its module-scoped fixtures built once: a file, or one chapter of a file in
:data:`BY_CHAPTER`, so that every notebook is a unit of its own, and the exercises of a chapter are one with the answers to them, which
are asked the same questions: a process derives these once. pytest-xdist hands units to whichever process is free, the
longest first. Every run keeps the processor seconds of its units (pytest's cache), and the next run schedules by them; a fresh
clone schedules by ``tests/costs.json``. A unit that was never timed counts as long as the longest other chapter of its file.
"""

import json
import os
import random
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from minirlhf.core.randomness import derive_seed

#: All random inputs of the tests follow from this number, so the same sources have the same outcome everywhere. Change it only to change
#: all inputs at once; ``make explore`` tries others.
SEED = 20_261_128

COSTS = Path(__file__).with_name("costs.json")
BY_CHAPTER = {  # the file, and that whose chapters its chapters belong to
    "tests/test_notebooks.py": "tests/test_notebooks.py",
    "tests/test_exercises.py": "tests/test_exercises.py",
    "tests/test_answers.py": "tests/test_exercises.py",
}
CHAPTER = re.compile(r"[\[-]ch(\d\d)-")


def seed() -> int:
    """The seed of this run: :data:`SEED`, or ``MINIRLHF_TEST_SEED`` to explore or replay another."""
    return int(os.environ.get("MINIRLHF_TEST_SEED", SEED))


def own_seed(*names: object) -> int:
    """The seed of one thing by its name (an exercise, a figure), so that it does not move when another one changes."""
    return derive_seed(seed(), *map(str, names))


def of_chapter(chapter: int | str, *values: Any, id: str, marks: Iterable[Any] = ()) -> Any:
    """A case for ``pytest.mark.parametrize`` that belongs to a chapter: its id begins with ``chNN-``."""
    return pytest.param(*values, id=f"ch{int(chapter):02}-{id}", marks=[pytest.mark.chapter(int(chapter)), *marks])


def unit(nodeid: str) -> str:
    """The unit of a test: ``tests/test_x.py``, or ``tests/test_x.py ch05`` in files that are run by chapter."""
    file, _, rest = nodeid.partition("::")
    found = CHAPTER.search(rest) if file in BY_CHAPTER else None
    return f"{BY_CHAPTER[file]} ch{found[1]}" if found else file


def committed_costs() -> dict[str, float]:
    """Processor seconds by unit, of those that take more than a second, as ``tools/costs.py --keep`` wrote them."""
    return json.loads(COSTS.read_text(encoding="utf-8")) if COSTS.is_file() else {}


def expected(unit: str, costs: Mapping[str, float]) -> float:
    """Seconds that a unit is expected to take."""
    file, _, chapter = unit.partition(" ")
    kin = [seconds for other, seconds in costs.items() if chapter and other.startswith(f"{file} ch")]
    return costs.get(unit, max(kin, default=0.0))


def units(nodeids: Iterable[str]) -> dict[str, list[str]]:
    """Tests by unit, in their order."""
    found: dict[str, list[str]] = {}
    for nodeid in nodeids:
        found.setdefault(unit(nodeid), []).append(nodeid)
    return found


def longest_first(nodeids: Iterable[str], costs: Mapping[str, float]) -> dict[str, list[str]]:
    """Units and their tests, longest unit first; equals, and the tests of a unit, stay in their order."""
    return dict(sorted(units(nodeids).items(), key=lambda item: -expected(item[0], costs)))


def shuffled(nodeids: Iterable[str], seed: int) -> dict[str, list[str]]:
    """Units in a random order, and in each unit its tests in a random order."""
    chance = random.Random(seed)
    found = [(name, chance.sample(tests, len(tests))) for name, tests in units(nodeids).items()]
    return dict(chance.sample(found, len(found)))
