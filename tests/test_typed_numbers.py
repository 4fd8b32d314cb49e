"""Typed numbers in the chapters' words: which are found, what vouches for them."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


def loaded(name: str, path: Path) -> ModuleType:
    """A script as a module."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


numbers = loaded("typed_numbers", ROOT / "tools" / "typed_numbers.py")


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
def test_typed_finds_numbers_that_somebody_typed(markdown: str, found: list[str]) -> None:
    assert [number for _, number in said(markdown)] == found


def test_typed_in_a_caption_has_its_own_place() -> None:
    page = "Text with 11.5.\n\n```{nbfigure} 05 frontier\n:name: fig-9.9\nIt ends at .47.\n```\n\nMore: 12.5."
    assert said(page) == [("text", "11.5"), ("caption", ".47"), ("text", "12.5")]


@pytest.fixture
def chapter(tmp_path: Path) -> Path:
    """A repository with one chapter, whose words hold one number of each kind, and its hint and alt text one each."""
    files = {
        "book/05-mine.md": "Of 512 games, as {cite:t}`me` says.\n\n800 tries. It is .75 by hand. It printed 3.141. It is allowed: 99. Open: .62 and 8 %.\n",
        "book/typed_numbers.toml": '[[allowed]]\nchapter = "05"\ntext = "allowed: 99"\nwhy = "a definition"\n'
        '[open]\n"05" = { text = 1, caption = 0, alt = 0, hint = 1 }\n[slides]\n"05" = 0\n',
        "notebooks/05_mine.py": "# figure: a\n# alt: It rises to\n#   7.7 at last.\nx = 2\n",
        "notebooks/05_mine.ipynb": json.dumps({"cells": [{"outputs": [{"text": ["pi is 3.141, about .62\n"]}]}]}),
        "exercises/05_mine/ex_05_1.py": 'graded(hints=("Try 6.5 first.",))\n',
        "minirlhf_course/chapters/ch05_mine/checks.py": "HALF = 0.75\n",
        "minirlhf_course/chapters/ch05_mine/study.json": json.dumps(
            {"probe": {"run: max_steps": 800, "loss": 0.62}, "seeds": {}}
        ),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_vouchers_of_a_chapter(chapter: Path) -> None:
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


def test_over_counts_open_numbers_beyond_the_list(chapter: Path) -> None:
    assert numbers.over("05", chapter) == {"text": (2, 1), "alt": (1, 0)}


@pytest.mark.parametrize("number", numbers.chapters())
def test_typed_numbers_of_chapter_are_vouched_for(number):
    """As the book's build asks it (``book/_ext/finished.py``), in a second and without the book."""
    assert numbers.over(number) == {}, f"tools/typed_numbers.py --open {number}"
