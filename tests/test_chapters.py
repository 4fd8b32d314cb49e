"""A chapter is one number and four things; its manifest is the one place that lists it."""

import importlib
import importlib.util
import re
import shutil
from pathlib import Path

import pytest

from minirlhf import chapters
from minirlhf.classroom import exercise, grading
from minirlhf.classroom.runner import Local
from minirlhf.core.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
FINISHED = [pytest.param(c, id=c.folder.name) for c in chapters.chapters() if c.finished]


def numbers(folder: str, pattern: str) -> set[str]:
    """What the files of a folder of the repository are called, without their endings."""
    return {path.stem for path in (ROOT / folder).glob(pattern)}


def test_the_manifests_count_from_one_without_a_gap():
    assert [c.number for c in chapters.chapters()] == list(range(1, len(chapters.chapters()) + 1))


def test_no_two_chapters_share_a_place_in_the_map_and_none_needs_a_later_one():
    every = chapters.chapters()
    assert len({c.place for c in every}) == len(every)
    for c in every:
        assert all(need < c.number for need in c.needs), c.folder.name


def test_the_map_leads_to_every_chapter_that_the_first_lines_ask_for():
    """The arrows are ``needs``; what a chapter says that the reader needs must lie on a way of arrows to it."""
    before: dict[int, set[int]] = {}
    for c in chapters.chapters():
        before[c.number] = set(c.needs).union(*(before[need] for need in c.needs))
        text = (ROOT / "book" / f"{c.page}.md").read_text(encoding="utf-8")
        found = re.search(r"^You need (.*?)\n\n", text, re.S | re.M)
        asked = {int(n) for n in re.findall(r"\{chapter\}`(\d+)`", found[1])} if found else set()
        assert asked <= before[c.number], f"{c.page} asks for {sorted(asked - before[c.number])}; `needs` does not"


@pytest.mark.parametrize("chapter", FINISHED)
def test_a_finished_chapter_has_its_four_things_and_its_title(chapter):
    text = ROOT / "book" / f"{chapter.page}.md"
    assert text.read_text(encoding="utf-8").splitlines()[0] == f"# {chapter.title}"
    assert (ROOT / "notebooks" / f"{chapter.name}.py").is_file()
    assert (ROOT / "notebooks" / f"{chapter.name}.ipynb").is_file()
    assert list((ROOT / "exercises" / chapter.name).glob("ex_*.py"))
    assert (ROOT / "book" / "slides" / f"{chapter.number:02d}.md").is_file()
    assert chapter.checks


@pytest.mark.parametrize("chapter", FINISHED)
def test_the_labels_of_a_finished_chapters_page_are_those_of_its_checks(chapter, monkeypatch):
    """Of its page and of the appendix that belongs to it. Without building the book, which holds the same and runs the checks."""
    monkeypatch.syspath_prepend(str(ROOT / "book" / "_ext"))
    appendices = importlib.import_module("numbering").APPENDICES
    known = chapters.load_checks().checks.values()
    pages = [chapter.page, *(page for page, (_, number) in appendices.items() if number == chapter.number)]
    text = "\n".join((ROOT / "book" / f"{page}.md").read_text(encoding="utf-8") for page in pages)
    placed = set(re.findall(r"^\$\$ ?\((eq:[\w-]+)\)", text, flags=re.MULTILINE))
    assert {c.label for c in known if c.chapter == chapter.number} <= placed, (
        "its checks have labels that its page lacks"
    )
    assert placed <= {c.label for c in known if c.chapter in (chapter.number, 0)}, (
        "its page has labels that its checks lack"
    )


def test_each_appendix_has_a_letter_of_its_own_in_the_order_of_the_contents(monkeypatch):
    """The one that its title tells, and its equations carry."""
    monkeypatch.syspath_prepend(str(ROOT / "book" / "_ext"))
    library = (ROOT / "book" / "_ext" / "library.py").read_text(encoding="utf-8")  # writes the page of the functions
    pages = (ROOT / "book" / "index.md").read_text(encoding="utf-8").split(":caption: Appendices")[1].split()[:-1]
    titles = [
        re.search(
            r"# ([A-Z]) · ", library if page == "api/index" else (ROOT / "book" / f"{page}.md").read_text("utf-8")
        )
        for page in pages
    ]
    assert "".join(title[1] for title in titles) == "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[: len(pages)]
    for page, (letter, _) in importlib.import_module("numbering").APPENDICES.items():
        assert titles[pages.index(page)][1] == letter


def words(markdown):
    """How many words of prose a page has: without code, figures' captions, displayed and inline formulas, tables, and what is printed by a role.

    What opens when a question is answered is prose.
    """
    markdown = re.sub(r"(?ms)^(`{3,})\{predict\} \w+\n(.*?)^\1$", r"\2", markdown)
    text = re.sub(r"(?ms)^(`{3,}).*?^\1\s*$|^\$\$.*?\$\$(?: ?\(eq:[\w-]+\))?", "", markdown)
    text = "\n".join(line for line in text.splitlines() if not line.startswith("|"))
    text = re.sub(r"\{[\w:]+\}`[^`]*`|\$[^$]*\$", " ", text)
    return len(re.findall(r"[A-Za-z][A-Za-z'’-]*", text))


@pytest.mark.parametrize(
    ("markdown", "count"),
    [
        ("# One title\n\nTwo words, $x + y$.", 4),
        ("Seen in {numref}`fig-a`:\n\n```{nbfigure} 05 a\n:name: fig-a\nA caption.\n```\n\nmore", 3),
        ("It is\n\n$$\n\\text{if } x\n$$ (eq:a)\n\nthen.", 3),
        ("| a | b |\n|---|---|\n| c | d |\n\nA re-run isn't one.", 4),
        (
            "```{predict} up\nIt rises.\n```\n\n````{predict} down\nIt falls.\n\n```{nbfigure} 05 a\nA caption.\n```\n````\n\nmore",
            5,
        ),
    ],
)
def test_what_counts_as_a_word(markdown, count):
    assert words(markdown) == count


@pytest.mark.parametrize("chapter", FINISHED)
def test_a_chapter_is_no_longer_than_a_reader_can_follow_at_a_sitting(chapter):
    """What is left over belongs to an appendix, like the losses of chapter 14."""
    assert words((ROOT / "book" / f"{chapter.page}.md").read_text(encoding="utf-8")) <= 4500


def test_nothing_is_called_after_a_chapter_that_has_no_manifest():
    known = {c.name for c in chapters.chapters()}
    assert numbers("notebooks", "[0-9][0-9]_*.py") <= known
    assert numbers("exercises", "[0-9][0-9]_*") - {"00_prerequisites"} <= known
    assert {page.replace("-", "_") for page in numbers("book", "[0-9][0-9]-*.md")} <= known


def test_the_readme_names_the_chapters_that_are_there():
    said = re.search(r"chapters ((?:\d+(?: to \d+)?(?:, | and )?)+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert said is not None
    named = set()
    for low, high in re.findall(r"(\d+)(?: to (\d+))?", said[1]):
        named.update(range(int(low), int(high or low) + 1))
    assert named == {c.number for c in chapters.chapters() if c.finished}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("colour = 1", "colour is unknown, nothing is missing"),
        ("title = ", "manifest.toml"),
        ('claims = "all"', "claims = 'all'; expected a list"),
        ("claims = [1]", r"claims = \[1\]; expected a list"),
    ],
)
def test_a_manifest_that_is_not_one_is_an_error_that_names_its_file(tmp_path, line, complaint):
    good = (chapters.chapter(5).folder / "manifest.toml").read_text(encoding="utf-8")
    (tmp_path / "manifest.toml").write_text(good + line + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=complaint):
        chapters.read(tmp_path)


def test_a_missing_field_is_named(tmp_path):
    (tmp_path / "manifest.toml").write_text('title = "x"\n', encoding="utf-8")
    with pytest.raises(UserError, match="finished, needs, outcome, part, place, short is missing"):
        chapters.read(tmp_path)


def test_an_unknown_number_is_an_error():
    with pytest.raises(UserError, match="no chapter 99"):
        chapters.chapter(99)


# -- the skeleton ------------------------------------------------------------------------------------------------


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """tools/chapter.py, with an empty repository to write into."""
    spec = importlib.util.spec_from_file_location("chapter_tool", ROOT / "tools" / "chapter.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for folder in ("book/slides", "notebooks", "exercises", "package"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    yield module
    chapters.chapters.cache_clear()


def test_the_skeleton_has_all_parts_and_its_exercise_is_proved(tool, tmp_path, fresh_seed):
    made = tool.write(chapters.chapter(7))
    assert [path.relative_to(tmp_path).as_posix() for path in made] == [
        "book/07-preference-data.md",
        "notebooks/07_preference_data.py",
        "exercises/07_preference_data/ex_07_1.py",
        "book/slides/07.md",
    ]
    assert "# Preference data\n" in made[0].read_text() and "nbfigure} 07 first" in made[0].read_text()
    [found] = exercise.load(tmp_path / "exercises")
    for code, points in ((found.stub, 0), (found.solution, 4), (found.mutants[0].code, 0)):
        namespace: dict[str, object] = {}
        exec(code, namespace)
        outcome = grading.run_tests(found, Local(namespace, "ada"), fresh_seed)
        assert outcome.points == points, code


def test_what_is_there_is_left_alone(tool, tmp_path):
    (tmp_path / "book" / "07-preference-data.md").write_text("mine")
    assert len(tool.write(chapters.chapter(7))) == 3
    assert (tmp_path / "book" / "07-preference-data.md").read_text() == "mine"
    assert tool.write(chapters.chapter(7)) == []


def test_a_new_number_joins_the_list(tool, tmp_path, monkeypatch):
    for c in chapters.chapters():
        shutil.copytree(c.folder, tmp_path / "package" / c.folder.name)
    monkeypatch.setattr(chapters, "FOLDER", tmp_path / "package")
    chapters.chapters.cache_clear()
    new = len(chapters.chapters()) + 1
    with pytest.raises(UserError, match="NAME='Too Big'"):
        tool.make_manifest(new, "Too Big", "Too big")
    with pytest.raises(UserError, match="TITLE is missing"):
        tool.make_manifest(new, "memory", "")
    with pytest.raises(UserError, match=f"CH={new + 1}; expected .* or {new} for a new one"):
        tool.make_manifest(new + 1, "memory", "Memory")
    tool.make_manifest(new, "memory", "Memory")
    assert (chapters.chapter(new).title, chapters.chapter(new).finished) == ("Memory", False)
