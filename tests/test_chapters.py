"""A chapter is one number and four things; its manifest is the one place that lists it."""

import re
from pathlib import Path

import pytest

from minirlhf import chapters
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


@pytest.mark.parametrize("chapter", FINISHED)
def test_a_finished_chapter_has_its_four_things_and_its_title(chapter):
    text = ROOT / "book" / f"{chapter.page}.md"
    assert text.read_text(encoding="utf-8").splitlines()[0] == f"# {chapter.title}"
    assert (ROOT / "notebooks" / f"{chapter.name}.py").is_file()
    assert (ROOT / "notebooks" / f"{chapter.name}.ipynb").is_file()
    assert list((ROOT / "exercises" / chapter.name).glob("ex_*.py"))
    assert (ROOT / "book" / "slides" / f"{chapter.number:02d}.md").is_file()
    assert chapter.checks


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
    ],
)
def test_a_manifest_that_is_not_one_is_an_error_that_names_its_file(tmp_path, line, complaint):
    good = (chapters.chapter(5).folder / "manifest.toml").read_text(encoding="utf-8")
    (tmp_path / "manifest.toml").write_text(good + line + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=complaint):
        chapters.read(tmp_path)


def test_a_missing_field_is_named(tmp_path):
    (tmp_path / "manifest.toml").write_text('title = "x"\n', encoding="utf-8")
    with pytest.raises(UserError, match="finished, needs, part, place, short is missing"):
        chapters.read(tmp_path)


def test_an_unknown_number_is_an_error():
    with pytest.raises(UserError, match="no chapter 23"):
        chapters.chapter(23)
