"""The skeleton of a chapter, green at once: ``make chapter CH=7``, or ``make chapter CH=25 NAME=memory TITLE="Memory"``.

Writes what a chapter consists of, each a small thing that works and is to be replaced: the folder in the package with its manifest,
the page, the notebook (which is executed), one exercise, the slides. What is there already is left alone.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from string import Template

from minirlhf.core.errors import UserError
from minirlhf_course import chapters
from minirlhf_course.chapters import Chapter
from minirlhf_course.classroom import skeleton

ROOT = Path(__file__).resolve().parents[1]
SKELETON = Path(__file__).resolve().parent / "skeleton"


def make_manifest(number: int, name: str, title: str) -> None:
    """The folder in the package of a chapter that is not in the list yet."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        raise UserError(
            f"NAME={name!r}; expected words in small letters joined by underscores, as in group_relative",
            argument="NAME",
            value=name,
        )
    if not title:
        raise UserError("TITLE is missing; it stands at the top of the page", argument="TITLE", problem="missing")
    every = chapters.chapters()
    if number != len(every) + 1:
        raise UserError(
            f"CH={number}; expected one of the {len(every)} chapters that are planned, or {len(every) + 1} for a new one",
            argument="CH",
            value=number,
            expected=len(every) + 1,
        )
    row = max(c.place[1] for c in every) + 1
    folder = chapters.FOLDER / f"ch{number:02d}_{name}"
    folder.mkdir()
    (folder / "__init__.py").write_text(f'"""Chapter {number}, {title}: what only it needs."""\n', encoding="utf-8")
    (folder / "manifest.toml").write_text(
        f'title = "{title}"\nshort = "{title}"\noutcome = "do what it teaches"\npart = "{every[-1].part}"\nneeds = [1]\nplace = [0, {row}]\n'
        "finished = false\n",
        encoding="utf-8",
    )
    chapters.chapters.cache_clear()


def files(chapter: Chapter) -> dict[Path, str]:
    """Where each part of the skeleton goes, and its text."""
    number = f"{chapter.number:02d}"
    values = {"number": number, "name": chapter.name, "title": chapter.title}

    def filled(template: str) -> str:
        return Template((SKELETON / template).read_text(encoding="utf-8")).substitute(values)

    return {
        ROOT / "book" / f"{chapter.page}.md": filled("page.md"),
        ROOT / "notebooks" / f"{chapter.name}.py": filled("notebook.py.txt"),
        ROOT / "exercises" / chapter.name / f"ex_{number}_1.py": skeleton.text(
            f"{number}.1", "implement", "Twice and half"
        ),
        ROOT / "book" / "slides" / f"{number}.md": filled("slides.md"),
    }


def write(chapter: Chapter) -> list[Path]:
    """Write what is missing; returns it."""
    made = []
    for path, text in files(chapter).items():
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            made.append(path)
    return made


def main() -> int:
    """Parse the arguments and make the chapter."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("number", type=int, help="of the chapter")
    parser.add_argument("--name", default="", help="of a new chapter's files: words in small letters, by underscores")
    parser.add_argument("--title", default="", help="of a new chapter's page")
    args = parser.parse_args()
    try:
        if args.number not in {c.number for c in chapters.chapters()}:
            make_manifest(args.number, args.name, args.title)
        chapter = chapters.chapter(args.number)
        made = write(chapter)
    except UserError as problem:
        print(f"chapter: {problem}", file=sys.stderr)
        return 2
    for path in made:
        print(f"chapter {chapter.number}: {path.relative_to(ROOT)}")
    source = ROOT / "notebooks" / f"{chapter.name}.py"
    if source in made:
        build = [sys.executable, str(ROOT / "tools" / "notebooks.py"), "build", f"{chapter.number:02d}"]
        if subprocess.run(build).returncode != 0:
            return 1
    print(
        f"chapter {chapter.number}: its own code and checks go into {chapter.folder.relative_to(ROOT)}/; "
        f"`make test CH={chapter.number:02d}`, `make lint` and `make slides` test it; when it is done, its manifest says finished = true"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
