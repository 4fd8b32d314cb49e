"""Every formula of a chapter, typeset by MathJax in a few seconds: without errors, no wider than its column or a phone.

``test_book.py`` asks the same of a sample of the pages themselves, and of all before a release. Here a page is its Markdown in columns as
wide as theirs, followed by the signs of its legends.
"""

import html
import itertools
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin
from pages import LOOK, PHONE
from plan import of_chapter

from minirlhf_course.chapters import chapters, load_legends
from minirlhf_course.ledger.formulas.displays import displays

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
BOOK = ROOT / "book"
TEXTS = {c.number: BOOK / f"{c.page}.md" for c in chapters() if (BOOK / f"{c.page}.md").is_file()}
APPENDICES = [
    path for path in sorted(BOOK.glob("*.md")) if path not in TEXTS.values() and "$$" in path.read_text("utf-8")
]
SKELETON = """\
<!doctype html><html lang="en"><head><meta charset="utf-8"><title>formulas</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
/* The columns of a chapter's page in windows of 1280 and 390 pixels. */
body {{ margin: 0 auto; width: 744px; overflow-x: hidden; font: 16px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }}
@media (max-width: 600px) {{ body {{ width: 358px; }} }}
ul, ol {{ padding-left: 32px; }}
.frame {{ padding: 0 32px; }}
div.math {{ display: flex; overflow: hidden; }}
div.math mjx-container {{ flex: 1; overflow: hidden; }}
.number {{ order: 1; }}
table {{ display: block; overflow-x: auto; }}
</style>
<script>window.MathJax = {mathjax}</script><script defer src="{script}"></script>
</head><body>{body}</body></html>
"""


def typesetter(chapter: int) -> MarkdownIt:
    """Markdown with tables and with mathematics that is left for MathJax, beside the room that an equation's number takes."""

    def mathematics(content: str, options: dict) -> str:
        opening, closing = (r"\[", r"\]") if options["display_mode"] else (r"\(", r"\)")
        return f"{opening}{html.escape(content)}{closing}"

    count = itertools.count(1)

    def number(label: str) -> str:
        return f'<span class="number" style="width: {51 + 10 * len(f"{chapter}{next(count)}")}px"></span>'

    return (
        MarkdownIt("commonmark")
        .enable("table")
        .use(dollarmath_plugin, renderer=mathematics, label_renderer=number, double_inline=True)
    )


def bare(markdown: str) -> str:
    """A page's Markdown with captions as paragraphs and ``:::`` blocks as frames."""
    caption = re.compile(r"^```\{nbfigure\}.*\n(?::.*\n)*((?:.*\n)*?)```$", re.MULTILINE)
    opening = re.compile(r"^:{3,}\{.*\n(?::.*\n)*", re.MULTILINE)
    markdown = opening.sub('\n<div class="frame">\n\n', caption.sub(r"\n\1\n", markdown))
    return re.sub(r"^:{3,}$", "\n</div>\n", markdown, flags=re.MULTILINE)


def signs(markdown: str) -> list[str]:
    """What the legends of a page's formulas explain, as its second marks print it."""
    legends = load_legends().legends
    known = [legends[found.label] for found in displays(markdown) if found.label in legends]
    return sorted({sign.replace("#", r"\cdot") for legend in known for sign in legend.values(seed=0)})


def faults(chapter: int, markdown: str, keys: list[str], browser: Browser, folder: Path) -> list[str]:
    """What is wrong with the formulas of a chapter's text, and with these."""
    conf = runpy.run_path(str(BOOK / "conf.py"))
    script = BOOK / "_static" / "mathjax" / "tex-chtml-full.js"
    body = typesetter(chapter).render(bare(markdown)) + "".join(f"<p>\\({html.escape(key)}\\)</p>\n" for key in keys)
    page = folder / "formulas.html"
    text = SKELETON.format(mathjax=json.dumps(conf["mathjax3_config"]), script=script.as_uri(), body=body)
    page.write_text(text, encoding="utf-8")
    browser.resize(1280, 900)
    browser.open(page.as_uri())
    look = browser.ask(LOOK)
    assert browser.ask("document.querySelectorAll('mjx-container').length") > 0, "no formula on the page"
    browser.resize(390, 844)
    found = [f"MathJax error: {said}" for said in look["math"]]
    found += [f"wider than its column: {said}" for said in look["cut"]]
    return found + [f"in a line wider than a phone: {said}" for said in browser.ask(PHONE)]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory, system_tool) -> Iterator[Browser]:
    """One browser, and MathJax where the book keeps it."""
    fetch = "from book import BOOK, vendor_mathjax; vendor_mathjax(BOOK)"
    subprocess.run([sys.executable, "-c", fetch], cwd=ROOT / "tools", check=True)
    with Browser(system_tool("chromium"), tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.mark.parametrize("chapter", [of_chapter(number, number, id="formulas") for number in TEXTS])
def test_mathjax_typesets_formulas_of_a_chapter_and_they_fit(chapter: int, browser: Browser, tmp_path: Path) -> None:
    """Those of its page and of its legends."""
    markdown = TEXTS[chapter].read_text(encoding="utf-8")
    assert faults(chapter, markdown, signs(markdown), browser, tmp_path) == []


@pytest.mark.parametrize("text", APPENDICES, ids=lambda path: path.stem)
def test_mathjax_typesets_formulas_of_an_appendix_and_they_fit(text: Path, browser: Browser, tmp_path: Path) -> None:
    """Those of a page whose equations have numbers like H.3."""
    markdown = text.read_text(encoding="utf-8")
    assert faults(1, markdown, signs(markdown), browser, tmp_path) == []


@pytest.mark.parametrize(
    ("markdown", "keys", "said"),
    [
        (f"$$\n{'x + ' * 17}x\n$$", [], []),
        (f"$$\n{'x + ' * 30}x\n$$ (eq:long)", [], ["wider than its column: eq:long"]),
        (f"As ${'x + ' * 7}x$ says", [], []),
        (f"As ${'x + ' * 14}x$ says", [], ["in a line wider than a phone: "]),
        (f":::{{prf:algorithm}} A\n:label: a\n\n1. ${'x + ' * 7}x$\n:::", [], ["in a line wider than a phone: "]),
        (f"```{{nbfigure}} 05 a\n:name: a\nThe ${'x + ' * 14}x$\n```", [], ["in a line wider than a phone: "]),
        ("$a$", [r"\E_\piold"], ["MathJax error: "]),
        (r"$\nosuchmacro$", [], ["MathJax error: "]),
    ],
)
def test_formulas_faults_name_planted_fault(
    markdown: str, keys: list[str], said: list[str], browser: Browser, tmp_path: Path
) -> None:
    """TeX that MathJax refuses, and what is too wide for where it stands; the same is fine where there is room."""
    found = faults(12, markdown, keys, browser, tmp_path)
    assert {any(text.startswith(part) for text in found) for part in said} <= {True}
    assert bool(found) == bool(said), found
