"""Package a chapter for another platform. TARGET is one of

  scorm        its predictions and page exercises as SCORM 1.2, for Moodle, Canvas and other platforms
  gradescope   an autograder archive that grades each submission in the sandbox of `minirlhf class grade`
  github       a template repository for GitHub Classroom, whose workflow runs `minirlhf check` on each push
  otter        a master notebook for `otter assign`, whose hidden tests are those of the exercises

One file or folder per chapter is written into OUT. github and otter install the course from the GitHub repository --source.
See also `minirlhf class release` for notebooks, Python files and nbgrader.

examples:
  minirlhf class export --to scorm --chapter 05 --out packages
  minirlhf class export --to gradescope --chapter 05 --out packages
  minirlhf class export --to github --chapter 05 --source OWNER/NAME --out packages
"""

from __future__ import annotations

import argparse
from itertools import groupby
from pathlib import Path

from minirlhf.core.errors import UserError
from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom import github, gradescope, otter, scorm

TARGETS = {"scorm": scorm.write, "gradescope": gradescope.write, "github": github.write, "otter": otter.write}
FROM_GITHUB = ("github", "otter")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--to", choices=list(TARGETS), required=True, metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--chapter", action="append", required=True, help="a chapter, such as 05; repeat for more")
    parser.add_argument("--out", type=Path, required=True, help="folder to write into")
    parser.add_argument(
        "--source", metavar="OWNER/NAME", help="github, otter: the repository with course and exercises"
    )
    parser.add_argument("--replace", action="store_true", help="also replace files that were changed since")
    parser.add_argument("--exercises", type=Path, help="folder of the exercises' sources")


def run(args: argparse.Namespace) -> int:
    """Write the packages and print their names."""
    if args.source and args.to not in FROM_GITHUB:
        message = f"--source belongs to --to {' or '.join(FROM_GITHUB)}; {args.to} takes the course along"
        raise UserError(message, argument="--source", value=args.source, expected=FROM_GITHUB)
    more = {"source": args.source or ""} if args.to in FROM_GITHUB else {}
    selected = sources.load(sources.folder(args.exercises), args.chapter)
    for _, chapter in groupby(selected, lambda e: e.chapter):
        for path in TARGETS[args.to](list(chapter), args.out, args.replace, **more):
            print(f"{path}  ({path.stat().st_size / 1000:,.0f} kB)")
    return 0
