"""Slides: each deck builds, works offline, and nothing on a slide is cut off."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser
from pages import faults, pages_of, served, violations
from patience import finished
from plan import of_chapter

from minirlhf.chapters import chapters

ROOT = Path(__file__).resolve().parents[1]
DECKS = sorted(p.stem for p in (ROOT / "book" / "slides").glob("[0-9][0-9].md"))
CUT_OFF = """(() => {
  document.body.classList.remove("deck");
  const full = (e) => e.scrollHeight > e.clientHeight + 1 || e.scrollWidth > e.clientWidth + 1;
  return [...document.querySelectorAll("section")].filter(full).map((e) => e.id);
})()"""
pytestmark = pytest.mark.slow


def build(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Build the decks."""
    command = [sys.executable, str(ROOT / "tools" / "slides.py"), "--out", str(out), "--no-pdf", *arguments]
    return finished(command, usually=10)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory, system_tool) -> Iterator[Browser]:
    """One browser for all tests here."""
    with Browser(system_tool("chromium"), tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def cut_off(browser: Browser, deck: Path) -> list[str]:
    """The slides of a deck that do not fit, on a projector."""
    browser.resize(1280, 720)
    browser.open(deck.as_uri())
    return browser.ask(CUT_OFF)


@pytest.fixture(scope="module")
def decks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with all decks, built anew."""
    out = tmp_path_factory.mktemp("decks")
    done = build(out)
    assert done.returncode == 0, done.stdout
    return out


def test_each_chapter_has_its_deck(decks: Path) -> None:
    """Each that is finished; and nothing else is a page."""
    assert pages_of(decks) == [f"{number}.html" for number in DECKS]
    assert {f"{c.number:02}" for c in chapters() if c.finished} <= set(DECKS)


@pytest.mark.parametrize("number", [of_chapter(number, number, id="deck") for number in DECKS])
def test_a_deck_works(number: str, decks: Path, browser: Browser) -> None:
    """No fault on its page, and every slide fits."""
    with served(decks) as base:
        assert faults(browser, base, decks, [f"{number}.html"]) == {}
    assert cut_off(browser, decks / f"{number}.html") == []
    assert violations(browser, (decks / f"{number}.html").as_uri()) == []


def test_a_slide_that_is_too_full_is_found(tmp_path: Path, browser: Browser) -> None:
    """Twenty lines do not fit, three do; and the keys turn the page."""
    (tmp_path / "05.md").write_text(
        "# T\n\n---\n\n" + "* line\n" * 20 + "\n---\n\n* a\n* b\n\n$$x^2$$\n", encoding="utf-8"
    )
    assert build(tmp_path / "out", "--source", str(tmp_path)).returncode == 0
    assert cut_off(browser, tmp_path / "out" / "05.html") == ["2"]
    browser.open((tmp_path / "out" / "05.html").as_uri())
    for key, slide in (("Right", "2"), ("Right", "3"), ("Right", "3"), ("Left", "2")):
        browser.ask(f"dispatchEvent(new KeyboardEvent('keydown', {{key: 'Arrow{key}'}}))")
        browser.until(f"document.querySelector('section.shown').id == '{slide}'")
    assert browser.ask("document.querySelectorAll('mjx-container').length") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# T\n\n---\n\nonly two", "expected 3 to 5 slides"),
        ("no title\n\n---\n\nb\n\n---\n\nc", "the first with '# title'"),
        ("# T\n\n---\n\n![](05:no-such-figure)\n\n---\n\nc", "no-such-figure"),
        ("# T\n\n---\n\n![](99:frontier)\n\n---\n\nc", "expected one notebook notebooks/99_*.ipynb"),
    ],
)
def test_a_bad_deck_is_refused(text: str, said: str, tmp_path: Path) -> None:
    """With a sentence that says why."""
    (tmp_path / "05.md").write_text(text, encoding="utf-8")
    done = build(tmp_path / "out", "--source", str(tmp_path))
    assert done.returncode == 1
    assert said in done.stdout or (said == "no-such-figure" and "expected one notebook" in done.stdout)
