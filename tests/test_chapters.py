"""A chapter is one number and four things; its manifest is the one place that lists it."""

import importlib.util
import re
import shutil
import sys
from pathlib import Path

import pytest
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf_course import chapters
from minirlhf_course.classroom import exercise, grading
from minirlhf_course.classroom.runner import Local

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))
import finished  # noqa: E402

FINISHED = [pytest.param(c, id=c.folder.name) for c in chapters.chapters() if c.finished]


def numbers(folder: str, pattern: str) -> set[str]:
    """What the files of a folder of the repository are called, without their endings."""
    return {path.stem for path in (ROOT / folder).glob(pattern)}


def test_manifests_count_from_one_without_a_gap():
    assert [c.number for c in chapters.chapters()] == list(range(1, len(chapters.chapters()) + 1))


def test_manifest_places_differ_and_needs_point_back():
    every = chapters.chapters()
    assert len({c.place for c in every}) == len(every)
    for c in every:
        assert all(need < c.number for need in c.needs), c.folder.name


def test_map_needs_lead_to_earlier_chapters_through_others():
    assert finished.before({1: [], 2: [1], 3: [2], 4: [1]}) == {1: set(), 2: {1}, 3: {1, 2}, 4: {1}}
    page = "# Title\n\nYou need {chapter}`3`\nand {chapter}`12`.\n\nLater {chapter}`5`.\n"
    assert finished.asked_for(page) == {3, 12} and finished.asked_for("# Title\n\nNothing.\n\n") == set()


@pytest.mark.parametrize("chapter", FINISHED)
def test_finished_chapter_has_notebook_exercises_slides_and_checks(chapter):
    """Page, title and length are the book's build's to ask (book/_ext/finished.py)."""
    assert (ROOT / "book" / f"{chapter.page}.md").is_file()
    assert (ROOT / "notebooks" / f"{chapter.name}.py").is_file()
    assert (ROOT / "notebooks" / f"{chapter.name}.ipynb").is_file()
    assert list((ROOT / "exercises" / chapter.name).glob("ex_*.py"))
    assert (ROOT / "book" / "slides" / f"{chapter.number:02d}.md").is_file()
    assert chapter.checks


def test_appendix_letters_follow_the_contents():
    """The title's letter and that of the equations, by place."""
    titles = {page: f"{letter} · {page}" for page, letter in zip("pqr", "ABC", strict=True)}
    assert finished.misnumbered(titles) == {}
    assert finished.misnumbered(titles | {"q": "C · q"}) == {"q": "B"}
    [(page, (letter, _)), *_] = finished.APPENDICES.items()
    assert finished.misnumbered({page: "A · losses"}) == {page: "A"} and letter != "A"


def test_notebooks_exercises_and_pages_all_have_a_manifest():
    known = {c.name for c in chapters.chapters()}
    assert numbers("notebooks", "[0-9][0-9]_*.py") <= known
    assert numbers("exercises", "[0-9][0-9]_*") - {"00_prerequisites"} <= known
    assert {page.replace("-", "_") for page in numbers("book", "[0-9][0-9]-*.md")} <= known


def test_readme_names_the_finished_chapters():
    said = re.search(r"chapters ((?:\d+(?: to \d+)?(?:, | and )?)+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert said is not None
    named = set()
    for low, high in re.findall(r"(\d+)(?: to (\d+))?", said[1]):
        named.update(range(int(low), int(high or low) + 1))
    assert named == {c.number for c in chapters.chapters() if c.finished}


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ("colour = 1", {"argument": "colour", "problem": "unknown"}),
        ("title = ", {"problem": "syntax"}),
        ('claims = "all"', {"argument": "claims", "value": "all", "expected": "list"}),
        ("claims = [1]", {"argument": "claims", "value": [1], "expected": "list"}),
    ],
)
def test_manifest_with_wrong_line_names_its_file(tmp_path, line, facts):
    good = (chapters.chapter(5).folder / "manifest.toml").read_text(encoding="utf-8")
    (tmp_path / "manifest.toml").write_text(good + line + "\n", encoding="utf-8")
    with raises(UserError, file=str(tmp_path / "manifest.toml"), **facts):
        chapters.read(tmp_path)


def test_manifest_with_missing_fields_names_them(tmp_path):
    (tmp_path / "manifest.toml").write_text('title = "x"\n', encoding="utf-8")
    with raises(UserError, argument="finished, needs, outcome, part, place, short", problem="missing"):
        chapters.read(tmp_path)


def test_chapter_of_unknown_number_is_refused():
    with raises(UserError, argument="chapter", value=99):
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


def test_chapter_tool_writes_all_parts_and_a_sound_exercise(tool, tmp_path, suite_seed):
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
        outcome = grading.run_tests(found, Local(namespace, "ada"), suite_seed)
        assert outcome.points == points, code


def test_chapter_tool_leaves_existing_files(tool, tmp_path):
    (tmp_path / "book" / "07-preference-data.md").write_text("mine")
    assert len(tool.write(chapters.chapter(7))) == 3
    assert (tmp_path / "book" / "07-preference-data.md").read_text() == "mine"
    assert tool.write(chapters.chapter(7)) == []


def test_chapter_tool_adds_a_new_number(tool, tmp_path, monkeypatch):
    for c in chapters.chapters():
        shutil.copytree(c.folder, tmp_path / "package" / c.folder.name)
    monkeypatch.setattr(chapters, "FOLDER", tmp_path / "package")
    chapters.chapters.cache_clear()
    new = len(chapters.chapters()) + 1
    with raises(UserError, argument="NAME", value="Too Big"):
        tool.make_manifest(new, "Too Big", "Too big")
    with raises(UserError, argument="TITLE", problem="missing"):
        tool.make_manifest(new, "memory", "")
    with raises(UserError, argument="CH", value=new + 1, expected=new):
        tool.make_manifest(new + 1, "memory", "Memory")
    tool.make_manifest(new, "memory", "Memory")
    assert (chapters.chapter(new).title, chapters.chapter(new).finished) == ("Memory", False)
