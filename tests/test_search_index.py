"""What the search knows of a page: read from small ones; and short formulas in letters."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def search() -> ModuleType:
    """The extension of the book."""
    sys.path.insert(0, str(ROOT / "book" / "_ext"))
    try:
        return importlib.import_module("search")
    finally:
        sys.path.pop(0)


@pytest.mark.parametrize(
    ("latex", "letters"),
    [
        (r"\KL(\pi\,\|\,\piref)", "KL(π ‖ πref)"),
        (r"\E_\pi[\pi/\mu]", "Eπ[π/μ]"),
        (r"r_t + \gamma V(s_{t+1})", "rₜ + γ V(sₜ₊₁)"),
        (r"\frac{1}{G-1}\sum_{j\ne i} r_j", "1/(G−1)Σ_(j≠ i) rⱼ"),
        (r"e^{x/\beta}", "e^(x/β)"),
        (r"x \in \{0, 1\}", "x ∈ {0, 1}"),
        (r"\hat A_t \mathrm{ref} \sqrt{T}", "Â" + "ₜ ref √T"),
        (r"\begin{cases} a \\ b \end{cases}", None),
        (r"\nosuchmacro", None),
        (r"\frac{1}{", None),
    ],
)
def test_search_letters_of_formula(search: ModuleType, latex: str, letters: str | None) -> None:
    found = search.letters(latex)
    assert (found and found.replace("A\u0302", "Â")) == letters


PAGE = r"""<main><p>outside</p><article><section id="top"><h1><span class="section-number">7. </span>Noise<a class="headerlink">#</a></h1>
<p>The mean <span class="math">\(\bar x_1\)</span> of <a href="glossary.html#term-token">tokens</a> (<a>7.2</a>).</p>
<div class="math" id="equation-eq-mean"><span class="eqno">(7.2)<a class="headerlink">#</a></span>\[x\]</div>
<table><tr><td>looked up</td></tr></table><pre>code()</pre><div class="proof-marks"><p>proved</p></div>
<div class="theorem"><section id="proof-content"><p>It holds.</p></section></div>
<details class="exercise" id="exercise-07-1"><summary><strong>07.1 · Sum</strong></summary><p>Add them.</p></details>
<section id="sub"><h2>Below</h2><p>More<br>here</p></section><p>After.</p></section></article><p>outside</p></main>"""
ENTRIES = """<article><section id="a"><h1>A</h1><dl class="glossary"><dt id="term-KL-x">KL x</dt><dt id="term-KL">KL 散度</dt><dd><p>KX: so.
Also 相对熵, relative entropy.</p></dd><dt id="term-b">b</dt><dt id="term-0">乙</dt><dd><p>Not this. It also 用.</p></dd></dl></section></article>"""


def test_search_read_page_by_sections(search: ModuleType) -> None:
    """Without code, tables, marks and display formulas; a theorem belongs to its section; a subsection, an equation and an exercise are entries."""
    reader = search.read("07-preference-data", PAGE)
    top, equation, exercise, sub = (section.entry() for section in reader.sections)
    assert equation == ["equation-eq-mean", "(7.2) mean", "x"]
    assert exercise == ["exercise-07-1", "07.1 · Sum", "Add them."]
    assert top[:2] == ["top", "Noise"] and top[3] == ["term-token"]
    assert top[2].replace("x\u0304", "x̄") == "The mean x̄₁ of tokens (7.2). It holds. After."
    assert sub == ["sub", "Below", "More here"]
    assert reader.equations == {"equation-eq-mean": r"\[x\]"}


def test_search_read_glossary_entries(search: ModuleType) -> None:
    """Its own anchor is the first name's; the second name may have an anchor of letters, too."""
    page, one, two = (section.entry() for section in search.read("glossary", ENTRIES).sections)
    assert page[:3] == ["a", "A", ""]
    assert one[:2] == ["term-KL-x", "KL x · KL 散度"] and one[2].startswith("KX: so.")
    assert one[4] == ["KL x", "KL 散度", "KX", "相对熵", "relative entropy"]
    assert two[0] == "term-b" and two[4] == ["b", "乙"]
