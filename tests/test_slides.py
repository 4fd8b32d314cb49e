"""Slides: each deck builds, works offline, and nothing on a slide is cut off."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser
from facts import raises
from pages import faults, pages_of, served, static_faults, violations
from patience import finished
from plan import of_chapter

from minirlhf_course.chapters import chapters

ROOT = Path(__file__).resolve().parents[1]
BOOK = ROOT / "book"
sys.path.insert(0, str(ROOT / "tools"))
try:
    import slides
finally:
    sys.path.remove(str(ROOT / "tools"))

DECKS = {p.stem: p.stat().st_size for p in sorted((BOOK / "slides").glob("[0-9][0-9].md"))}
SAMPLE = {
    min(DECKS, key=DECKS.__getitem__),
    max(DECKS, key=DECKS.__getitem__),
}  # opened in every run, the others before a release
CASES = [of_chapter(n, n, id="deck", marks=[] if n in SAMPLE else [pytest.mark.release]) for n in DECKS]
CUT_OFF = """(() => {
  document.body.classList.remove("deck");
  const full = (e) => e.scrollHeight > e.clientHeight + 1 || e.scrollWidth > e.clientWidth + 1;
  return [...document.querySelectorAll("section")].filter(full).map((e) => e.id);
})()"""
pytestmark = pytest.mark.slow


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
    """The folder with all decks, built anew by the command."""
    out = tmp_path_factory.mktemp("decks")
    done = finished([sys.executable, str(ROOT / "tools" / "slides.py"), "--out", str(out), "--no-pdf"], usually=10)
    assert done.returncode == 0, done.stdout
    return out


def written(text: str, folder: Path) -> Path:
    """The deck of this Markdown, with the book's MathJax."""
    (folder / "05.md").write_text(text, encoding="utf-8")
    return slides.decks(folder, folder / "out", (BOOK / "_static" / "mathjax").as_uri())[0]


def test_slides_have_a_deck_for_each_finished_chapter_without_static_fault(decks: Path) -> None:
    """And nothing else is a page."""
    assert pages_of(decks) == [f"{number}.html" for number in DECKS]
    assert {f"{c.number:02}" for c in chapters() if c.finished} <= set(DECKS)
    assert static_faults(decks, pages_of(decks)) == {}


@pytest.mark.parametrize("number", CASES)
def test_slides_deck_works_in_a_browser_and_fits(number: str, decks: Path, browser: Browser) -> None:
    with served(decks) as base:
        assert faults(browser, base, decks, [f"{number}.html"]) == {}
    assert cut_off(browser, decks / f"{number}.html") == []


@pytest.mark.release
@pytest.mark.parametrize("number", [of_chapter(n, n, id="deck") for n in DECKS])
def test_slides_axe_finds_nothing(number: str, decks: Path, browser: Browser) -> None:
    assert violations(browser, (decks / f"{number}.html").as_uri()) == []


def test_slides_too_full_are_found_and_keys_turn_the_page(tmp_path: Path, browser: Browser, decks: Path) -> None:
    """Twenty lines do not fit, three do."""
    deck = written("# T\n\n---\n\n" + "* line\n" * 20 + "\n---\n\n* a\n* b\n\n$$x^2$$\n", tmp_path)
    assert cut_off(browser, deck) == ["2"]
    browser.open(deck.as_uri())
    for key, slide in (("Right", "2"), ("Right", "3"), ("Right", "3"), ("Left", "2")):
        browser.ask(f"dispatchEvent(new KeyboardEvent('keydown', {{key: 'Arrow{key}'}}))")
        browser.until(f"document.querySelector('section.shown').id == '{slide}'")
    assert browser.ask("document.querySelectorAll('mjx-container').length") == 1


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("# T\n\n---\n\nonly two", {"value": 2, "expected": "[3, 5]", "problem": "too few", "file": "05.md"}),
        ("# T" + "\n\n---\n\nx" * 5, {"value": 6, "expected": "[3, 5]", "problem": "too many"}),
        ("no title\n\n---\n\nb\n\n---\n\nc", {"problem": "no title"}),
        ("# T\n\n---\n\n![](05:no-such-figure)\n\n---\n\nc", {"argument": "figure", "value": "no-such-figure"}),
        ("# T\n\n---\n\n![](99:frontier)\n\n---\n\nc", {"file": "notebooks/99_*.ipynb", "value": 0, "expected": 1}),
    ],
)
def test_slides_refuse_a_bad_deck(text: str, facts: dict, tmp_path: Path) -> None:
    with raises(slides.Refused, **facts):
        written(text, tmp_path)
