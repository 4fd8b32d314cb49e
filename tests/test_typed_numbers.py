"""Typed numbers in the chapters' words: which are found, what vouches for them, and that no more are left open than the list says."""

import importlib.util
import json
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from plan import of_chapter

from minirlhf.chapters import chapters

ROOT = Path(__file__).resolve().parents[1]


def loaded(name: str, path: Path) -> ModuleType:
    """A script as a module."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


numbers = loaded("typed_numbers", ROOT / "tools" / "typed_numbers.py")
LISTED = tomllib.loads(numbers.LIST.read_text(encoding="utf-8"))


def said(markdown: str) -> list[tuple[str, str]]:
    """Place and number of all that is typed on a page."""
    return [(one.place, one.said) for place, text in numbers.blocks(markdown) for one in numbers.typed(text, place)]


@pytest.mark.parametrize(
    ("markdown", "found"),
    [
        ("It is right in 43 % of 1,600 games, and .62 later.", ["43 %", "1,600", ".62"]),
        ("Rewards of 0 and 1 for two of 8 replies, in 2019.", []),
        ("It fell in four of five seeds, and in 18 of 20 runs.", ["four of five seeds", "18 of 20 runs"]),
        ("By $+.6$ for one word; $\\beta = .1$ is chosen; $1/.433 = 2.309$.", [".6", ".433", "2.309"]),
        ("Printed {measured}`ch05 rloo_2_gap .2f`, quoted {quoted}`01 0.47`, `code 12.5` and {eq}`eq:k3-45`.", []),
        ("| DPO | 12.5 |\n| IPO | {measured}`ch05 rloo_2_gap .2f` |", ["12.5"]),
        ("$$\nx = 12.5\n$$ (eq:x-99)\n\nand 77", ["77"]),
        ("```python\nx = 12.5\n```\n\n```{library} minirlhf.a.b12\n```\n", []),
        ("```{note}\nAbout 55 of them.\n```", ["55"]),
        ("````{predict} up\nAbout 55 of them.\n\n```python\nx = 12.5\n```\n````\n\nAnd 66.", ["55", "66"]),
        ("Llama 2 and GPT-3 in section 12, page 44.", []),
        ("A rate of 2e-4.", ["2e-4"]),
    ],
)
def test_what_counts_as_typed(markdown: str, found: list[str]) -> None:
    assert [number for _, number in said(markdown)] == found


def test_a_caption_is_a_place_of_its_own() -> None:
    page = "Text with 11.5.\n\n```{nbfigure} 05 frontier\n:name: fig-9.9\nIt ends at .47.\n```\n\nMore: 12.5."
    assert said(page) == [("text", "11.5"), ("caption", ".47"), ("text", "12.5")]


@pytest.fixture
def chapter(tmp_path: Path) -> Path:
    """A repository with one chapter, whose words hold one number of each kind, and its hint and alt text one each."""
    files = {
        "book/05-mine.md": "Of 512 games, as {cite:t}`me` says.\n\n800 tries. It is .75 by hand. It printed 3.141. It is allowed: 99. Open: .62 and 8 %.\n",
        "book/typed_numbers.toml": '[[allowed]]\nchapter = "05"\ntext = "allowed: 99"\nwhy = "a definition"\n',
        "notebooks/05_mine.py": "# figure: a\n# alt: It rises to\n#   7.7 at last.\nx = 2\n",
        "notebooks/05_mine.ipynb": json.dumps({"cells": [{"outputs": [{"text": ["pi is 3.141, about .62\n"]}]}]}),
        "exercises/05_mine/ex_05_1.py": 'graded(hints=("Try 6.5 first.",))\n',
        "minirlhf/chapters/ch05_mine/checks.py": "HALF = 0.75\n",
        "minirlhf/chapters/ch05_mine/study.json": json.dumps(
            {"probe": {"run: max_steps": 800, "loss": 0.62}, "seeds": {}}
        ),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_what_vouches_for_a_number(chapter: Path) -> None:
    vouchers = numbers.Vouchers("05", chapter)
    assert {one.said: vouchers.of(one) for one in numbers.of_chapter("05", chapter)} == {
        "512": "cited",
        "800": "setting",
        ".75": "check",
        "3.141": "output",
        "99": "allowed",
        ".62": "open",  # a notebook that prints so many numbers prints any two digits
        "8 %": "open",
        "7.7": "open",
        "6.5": "open",
    }
    assert numbers.table("05", chapter)["alt", "open"] == numbers.table("05", chapter)["hint", "open"] == 1


#: A chapter that is being written is held from the day on which it is finished.
HELD = [f"{c.number:02}" for c in chapters() if c.finished]


@pytest.mark.parametrize("number", [of_chapter(name, name, id=name) for name in HELD])
def test_no_more_numbers_are_open_than_the_list_says(number: str) -> None:
    counts = numbers.table(number)
    left = {place: counts[place, "open"] for place in numbers.PLACES}
    listed = LISTED["open"][number] | {"slide": LISTED["slides"][number]}
    over = {place: n for place, n in left.items() if n > listed[place]}
    assert not over, f"print them by {{measured}} or {{quoted}}, or cite: tools/typed_numbers.py --open {number}"


@pytest.mark.parametrize("place", range(len(LISTED.get("allowed", []))))
def test_what_is_allowed_is_there_and_has_a_reason(place: int) -> None:
    one = LISTED["allowed"][place]
    assert set(one) == {"chapter", "text", "why"} and len(one["why"]) > 10
    found = numbers.of_chapter(one["chapter"])
    assert any(one["text"] in number.sentence and number.said in one["text"] for number in found), "nothing needs it"
