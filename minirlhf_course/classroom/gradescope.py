"""A chapter as an autograder of Gradescope: a zip archive with ``setup.sh``, ``run_autograder`` and all that they need.

Source: Gradescope's documentation of autograders: "Autograder Specifications" (the archive, the folders below
``/autograder``, ``results.json``) and "Submission Metadata". In Gradescope's container :func:`main` grades one submission
in the same sandbox as ``minirlhf class grade``.
"""

from __future__ import annotations

import argparse
import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minirlhf.core import provenance
from minirlhf.core.errors import UserError
from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom import grading, release
from minirlhf_course.classroom.exercise import DEFAULT_STUDENT, Exercise
from minirlhf_course.classroom.grading import Outcome
from minirlhf_course.classroom.runner import Server
from minirlhf_course.classroom.submission import SUFFIXES, files_of, read_files

SETUP = """#!/usr/bin/env bash
# Runs once, as root, when Gradescope builds the image: Python 3.11 or newer, and the course with the exact versions that it was tested with.
set -euo pipefail
cd /autograder/source
PYTHON=python3
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  apt-get update && apt-get install -y software-properties-common
  add-apt-repository -y ppa:deadsnakes/ppa && apt-get update
  PYTHON=python3.12
fi
apt-get update && apt-get install -y "$PYTHON" "$PYTHON-venv"
"$PYTHON" -m venv /autograder/env
/autograder/env/bin/pip install --extra-index-url https://download.pytorch.org/whl/cpu -c course/constraints.txt ./course
"""
RUN = """#!/usr/bin/env bash
# Runs for each submission.
export MINIRLHF_EXERCISES=/autograder/source/exercises OMP_NUM_THREADS=1
exec /autograder/env/bin/python -m minirlhf_course.classroom.gradescope {chapter}
"""
PROJECT = ("pyproject.toml", "constraints.txt", "README.md", "LICENSE")


def needed(exercises: Sequence[Exercise]) -> list[Exercise]:
    """These exercises, and before them those of other chapters whose answers run in them."""
    found = {e.id: e for e in exercises}
    waiting = [name for e in exercises for name in e.uses]
    while waiting:
        for e in sources.load(exercises[0].path.parents[1], [waiting.pop()]):
            if e.id not in found:
                found[e.id] = e
                waiting += e.uses
    return sorted(found.values(), key=lambda e: e.id)


def exercise_files(exercises: Sequence[Exercise]) -> dict[str, bytes]:
    """The sources of these exercises and of those that they need, by their path in ``exercises``."""
    return {f"{e.path.parent.name}/{e.path.name}": e.path.read_bytes() for e in needed(exercises)}


def course_files() -> dict[str, bytes]:
    """The files that pip installs the three packages from, by their path in the repository.

    Raises:
        UserError: the packages were installed without their repository.
    """
    if not all((provenance.ROOT / name).is_file() for name in PROJECT):
        message = (
            f"no {PROJECT[0]} in {provenance.ROOT}; expected a clone of the repository, which the archive takes along"
        )
        raise UserError(message, file=provenance.ROOT, problem="missing")
    paths = [provenance.ROOT / name for name in PROJECT]
    paths += [p for p in provenance.files("*") if p.is_file() and "__pycache__" not in p.parts]
    return {p.relative_to(provenance.ROOT).as_posix(): p.read_bytes() for p in paths}


def write(exercises: Sequence[Exercise], out: Path, replace: bool = False) -> list[Path]:
    """Write one chapter's autograder into ``out``, and return the file. Raises as :func:`course_files`."""
    files: dict[str, str | bytes] = {"setup.sh": SETUP, "run_autograder": RUN.format(chapter=exercises[0].chapter)}
    files |= {f"exercises/{name}": content for name, content in exercise_files(exercises).items()}
    files |= {f"course/{name}": content for name, content in course_files().items()}
    path = out / f"{exercises[0].path.parent.name}-gradescope.zip"
    return release.place({path: release.archive(files)}, replace)


# -- in Gradescope's container ------------------------------------------------------------------------------------


def names_of(metadata: Path) -> list[str]:
    """All names that a student of the submission may have written into ``STUDENT``: address, its part before the @, name, id."""
    users = json.loads(metadata.read_text(encoding="utf-8")).get("users", []) if metadata.is_file() else []
    found = [str(user[key]) for user in users for key in ("email", "sid", "name", "id") if user.get(key)]
    return [*dict.fromkeys(x for name in found for x in (name, name.partition("@")[0]))] or [DEFAULT_STUDENT]


def _entry(outcome: Outcome) -> dict[str, Any]:
    """An exercise in the form of ``results.json``."""
    return {
        "name": f"{outcome.exercise.id} {outcome.exercise.title}",
        "score": outcome.points,
        "max_score": outcome.exercise.points,
        "status": "passed" if outcome.points == outcome.exercise.points else "failed",
        "output": "\n".join(grading.feedback_on(outcome)).strip(),
        "output_format": "md",
    }


def results(root: Path, exercises: Sequence[Exercise]) -> dict[str, Any]:
    """Grade the submission below ``root``, which is ``/autograder`` in the container, as ``results.json`` holds it."""
    names, seed = names_of(root / "submission_metadata.json"), secrets.randbits(31)
    secret = [p for p in (root / "source", root / "results", exercises[0].path.parents[1]) if p.exists()]
    with Server([p.resolve() for p in secret]) as server:
        paths = [p for p in files_of(root / "submission") if p.suffix in SUFFIXES]
        handed = read_files(paths, server.cut)
        handed.also = tuple(names[1:])
        [report] = grading.grade_class(server, {names[0]: handed}, exercises, seed, jobs=1)
        print(f"isolation: {server.level}; seed {seed}")
    said = [*report.problems, *([report.crash] if report.crash else [])]
    return {
        "output": "\n".join(grading.plain(line) for line in said),
        "stdout_visibility": "hidden",
        "tests": [_entry(outcome) for outcome in report.outcomes],
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Grade one submission of the chapter and write ``results/results.json``."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("chapter")
    parser.add_argument("--root", type=Path, default=Path("/autograder"))
    args = parser.parse_args(argv)
    found = results(args.root, sources.load(sources.folder(), [args.chapter]))
    path = args.root / "results" / "results.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
