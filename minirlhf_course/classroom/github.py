"""A chapter as a template repository for GitHub Classroom: the students' files, and a workflow that checks each push.

The workflow uses GitHub Classroom's own actions ``classroom-resources/autograding-command-grader`` and
``autograding-grading-reporter``: one step for each exercise, passed where ``minirlhf check`` ends with status 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from minirlhf.core.errors import UserError
from minirlhf_course.classroom import release
from minirlhf_course.classroom.exercise import Exercise

WORKFLOW = """# Checks each push with `minirlhf check`; made by `minirlhf class export --to github`.
# If the repository with the exercises is private, give the organisation a secret MINIRLHF_TOKEN that may read it.
name: Autograding Tests
on: [push, workflow_dispatch]
permissions:
  checks: write
  actions: read
  contents: read
jobs:
  run-autograding-tests:
    runs-on: ubuntu-latest
    if: github.actor != 'github-classroom[bot]'
    steps:
      - uses: actions/checkout@v4
      - uses: actions/checkout@v4
        with:
          repository: {source}
          path: .course
          token: ${{{{ secrets.MINIRLHF_TOKEN || github.token }}}}
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
          cache: pip
          cache-dependency-path: .course/constraints.txt
      - name: Install the course
        run: |
          mv .course ~/course
          pip install --extra-index-url https://download.pytorch.org/whl/cpu -c ~/course/constraints.txt ~/course
{steps}
      - name: Report the points
        uses: classroom-resources/autograding-grading-reporter@v1
        env:
{results}
        with:
          runners: {ids}
"""
STEP = """\
      - name: {title}
        id: {id}
        uses: classroom-resources/autograding-command-grader@v1
        with:
          test-name: {title}
          setup-command: ""
          command: {command}
          timeout: 10
          max-score: {points}"""


def workflow(exercises: Sequence[Exercise], source: str) -> str:
    """The workflow file. ``source`` is the repository with the course and its exercises, ``OWNER/NAME``."""
    ids = [f"ex-{e.id.replace('.', '-')}" for e in exercises]
    steps = [
        STEP.format(
            title=_quoted(f"{e.id} {e.title}"),
            id=id,
            command=f"minirlhf check {e.id} --exercises ~/course/exercises",
            points=f"{e.points:g}",
        )
        for e, id in zip(exercises, ids, strict=True)
    ]
    results = [f'          {id.upper()}_RESULTS: "${{{{steps.{id}.outputs.result}}}}"' for id in ids]
    return WORKFLOW.format(source=source, steps="\n".join(steps), results="\n".join(results), ids=",".join(ids))


def _quoted(text: str) -> str:
    """A YAML string in single quotes."""
    return "'{}'".format(text.replace("'", "''"))


def check_source(source: str) -> None:
    """Raise a :class:`UserError` if ``source`` is not of the form ``OWNER/NAME``."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", source):
        message = f"--source {source or '(missing)'}: expected OWNER/NAME, the GitHub repository with the course and your exercises"
        raise UserError(message, argument="--source", value=source, expected="OWNER/NAME")


def write(exercises: Sequence[Exercise], out: Path, replace: bool = False, source: str = "") -> list[Path]:
    """Write one chapter's template repository into a folder of ``out``, and return its files.

    Raises:
        UserError: ``source`` is no ``OWNER/NAME``.
    """
    check_source(source)
    name = exercises[0].path.parent.name
    cells = release.cells(exercises)
    texts = {f"{name}.ipynb": release.notebook(cells), f"{name}.py": release.script(cells)}
    texts |= {".github/workflows/classroom.yml": workflow(exercises, source)}
    return release.place({out / f"{name}-github" / path: text for path, text in texts.items()}, replace)
