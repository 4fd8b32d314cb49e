"""The measures of prose in tools/prose.py: what is running text, what is counted, and what an edit of words must keep."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def prose() -> ModuleType:
    """The tool as a module."""
    spec = importlib.util.spec_from_file_location("prose", ROOT / "tools" / "prose.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("markdown", "words"),
    [
        ("# A title\n\nTwo words, $x + y$.", [3]),
        ("One sentence. Then 12.5 of another one!", [2, 5]),
        ("* one item\n* two\n  lines", [2, 2]),
        ("Before\n\n$$\nx = \\text{if } y\n$$ (eq:a)\n\nit ends.", [1, 2]),
        ("| a | b |\n|---|---|\n| c | d |\n\nAfter the table.", [3]),
        ("```python\nx = 1\n```\n\n```{nbfigure} 05 a\n:name: fig-a\nA caption.\n```\n\nMore.", [2, 1]),
        ("````{predict} up\nIt rises.\n\n```python\nx = 1\n```\n````\nIt falls.", [2, 2]),
        ("(sec-a)=\n## Title\nThe {term}`KL <KL divergence>` of {numref}`fig-a` {cite:p}`ho2020`.", [4]),
    ],
)
def test_prose_measure_counts_running_text_only(prose: ModuleType, markdown: str, words: list[int]) -> None:
    _, said = prose.measure(markdown)
    assert [prose.length(sentence) for _, sentence in said] == words


def test_prose_measure_counts_decimals_and_private_phrases(prose: ModuleType) -> None:
    text = "It is .62, 0.4 or 12 in table 2. Whoever reads it sees the gold reward. The gold is {quoted}`01 3.5`."
    found, said = prose.measure(text)
    assert found["decimals"] * found["words"] / 100 == pytest.approx(3)
    assert [phrase[0].lower() for _, one in said for phrase in prose.PHRASES.finditer(one)] == ["whoever", "gold"]


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("The two cannot be told apart, and five seeds do not show why.", 2),
        ("Who reads it has it in the end.", 3),
        ("Who reads it?", 0),
        ("The gold reward, the Condorcet winner and the winner's curse, in proportion to $x$.", 0),
        ("A third completion loses a third of it, by itself.", 2),
        ("What stands behind the mask is a tenth.", 2),
    ],
)
def test_prose_private_phrases_spare_the_field_s_terms(prose: ModuleType, text: str, phrases: int) -> None:
    assert len(prose.PHRASES.findall(text)) == phrases


def test_prose_counts_nested_and_long_parentheses(prose: ModuleType) -> None:
    long = f"({' '.join(['word'] * prose.LONG)})"
    found, _ = prose.measure(f"One (and two (three)) and $f(g(x))$ (0.2 [0.1, 0.3]).\n\nThen {long}. And ({long[6:]}.")
    assert (found["nested"], found["long"]) == (1, 1)


def test_prose_deck_is_held_with_its_chapter(prose: ModuleType) -> None:
    decks = [page for page in prose.pages() if page.parent.name == "slides"]
    assert {prose.held(deck) for deck in decks if deck.stem == "01"} == {
        prose.held(ROOT / "book" / "01-introduction.md")
    }
    assert len(decks) == len(list((ROOT / "book").glob("[0-9]*.md")))


def test_prose_measured_role_counts_as_what_it_prints(prose: ModuleType) -> None:
    _, said = prose.measure("Gains {measured}`ch01 winners_gold vs gold_sft difference .2f` here.")
    assert len(re.findall(r"\d\.\d\d", said[0][1])) == 3


def test_prose_glossary_leaves_out_old_names(prose: ModuleType) -> None:
    found, _ = prose.measure(":::{glossary}\ngroup\n组\n  Completions of one prompt. Also dead group, reply.\n:::")
    assert found["private"] == 0


BEFORE = "(sec-a)=\n# T\n\nSee {cite:p}`b2020,a2021` and {measured}`ch01 x .2f`.\n\n$$\nx = y\n$$ (eq:a)"


@pytest.mark.parametrize(
    ("old", "new", "lost"),
    [
        ("See", "Look at", None),
        ("x = y", "x  =  y", None),
        ("x = y", "x = -y", "equation"),
        ("(eq:a)", "(eq:b)", "label"),
        ("(sec-a)=", "(sec-b)=", "label"),
        ("b2020,", "", "cite:p"),
        ("b2020,a2021", "a2021, b2020", None),
        ("x .2f", "x .3f", "measured"),
    ],
)
def test_prose_carried_differs_where_a_claim_does(prose: ModuleType, old: str, new: str, lost: str | None) -> None:
    before, now = prose.carried(BEFORE), prose.carried(BEFORE.replace(old, new))
    assert {kind for kind, _ in before - now} == ({lost} if lost else set())


def test_prose_carried_keeps_counts(prose: ModuleType) -> None:
    assert prose.carried(f"{BEFORE}\n\n{BEFORE}") - prose.carried(BEFORE) == prose.carried(BEFORE)


def test_prose_pages_that_say_so_are_held(prose: ModuleType) -> None:
    over = {
        str(page): {name: found[name] for name, most in prose.LIMITS.items() if found[name] > most}
        for page in prose.pages()
        if prose.held(page)
        for found in [prose.measure(page.read_text(encoding="utf-8"))[0]]
    }
    assert not {page: found for page, found in over.items() if found}


def test_glossary_lines_have_one_indent() -> None:
    """The glossary cuts as many letters from every line as its first indented one has blanks."""
    lines = (ROOT / "book" / "glossary.md").read_text(encoding="utf-8").splitlines()
    assert {len(line) - len(line.lstrip()) for line in lines if line.startswith(" ")} == {2}
