"""A template for a new exercise. It is valid as it is; the author replaces all its parts."""

from __future__ import annotations

import re
from pathlib import Path

from minirlhf.core.errors import UserError, unknown
from minirlhf_course.classroom import exercise as sources

FUNCTIONS = '''# ---
# title: TITLE
# kind: KIND
# minutes: 5
# ---

# %% [statement]
# A warm-up. Write `twice(x)` and `half(x)` for a tensor of numbers.

# %% [stub]
def twice(x):
    """x: (n,). Returns (n,)."""
    raise NotImplementedError


def half(x):
    """x: (n,). Returns (n,)."""
    raise NotImplementedError


# %% [solution]
def twice(x):
    return 2 * x


def half(x):
    return x / 2


# %% [tests]
from minirlhf_course.classroom.testing import expect, test, tidy


@test(
    points=2,
    against="the definition",
    hints=("Try it on one number.", "What do you get when you add a number to itself?"),
)
def doubles(sub, draw):
    "`twice` doubles."
    x = tidy(draw.uniform(3, low=3, high=9))
    expect(sub.twice(x), x + x, given={"x": x}, mistakes={"x is squared": x * x, "x itself": x})


@test(
    points=2,
    against="the definition",
    hints=("It undoes `twice`.", "Which number, times two, is x?"),
)
def halves(sub, draw):
    "`half` halves."
    x = tidy(draw.uniform(3, low=3, high=9))
    expect(sub.half(x), x - x / 2, given={"x": x}, mistakes={"twice x": 2 * x})


# %% [probes]
# no gradient: numbers are asked for, however they are computed

# %% [mutant] squares
# caught by: doubles
# says: x is squared
def twice(x):
    return x * x


# %% [mutant] does nothing
# caught by: doubles
# says: x itself
def twice(x):
    return x


# %% [mutant] the wrong way round
# caught by: halves
# says: twice x
def half(x):
    return 2 * x


# %% [partial] 2: no half yet
def half(x):
    raise NotImplementedError
'''

VALUES = '''# ---
# title: TITLE
# kind: KIND
# minutes: 5
# ---

# %% [statement]
# A warm-up with numbers of your own. `rolls(STUDENT)` holds the rewards of two replies. Answer
#
# 1. `mean`: their mean, right to 1 %;
# 2. `better`: which is larger, `"a"` for the first or `"b"` for the second.

# %% [given]
from minirlhf_course.ledger.registry import Draw


def rolls(student):
    """This student's two rewards."""
    draw = Draw("NUMBER", student)
    first = draw.integer(20, 60)
    second = first + [1, -1][draw.integer(0, 1)] * draw.integer(5, 15)
    return first / 10, second / 10


# %% [stub]
print(rolls(STUDENT))

mean = None
better = None

# %% [solution]
first, second = rolls(STUDENT)
mean = (first + second) / 2
better = "a" if first > second else "b"

# %% [tests]
from minirlhf_course.classroom.testing import expect, fail, test


@test(points=2, rounds=1, hints=("What is half way between the two?", "Add them, and divide by their number."))
def their_mean(sub, draw):
    "`mean` is half way between the two."
    first, second = rolls(sub.student)
    expect(
        sub.number("mean"),
        first + (second - first) / 2,
        what="`mean`",
        tolerance=0.01,
        reveal=False,
        mistakes={"they are added, not averaged": first + second, "it is the first": first},
    )


@test(points=1, rounds=1, hints=("Look at the two.", "Which of the two would you rather have?"))
def the_larger(sub, draw):
    "`better` is the larger one."
    first, second = rolls(sub.student)
    said = sub.choice("better", "ab")
    if (said == "a") != (first > second):
        fail(f"`better` is not {said!r}: the other one is larger")


# %% [mutant] a sum
# caught by: their_mean
# says: added
mean = first + second

# %% [mutant] the first
# caught by: their_mean
# says: the first
mean = first

# %% [mutant] the smaller
# caught by: the_larger
# says: the other one
better = "b" if first > second else "a"

# %% [partial] 2: the mean
better = None
'''


def text(number: str, kind: str, title: str) -> str:
    """Return the source of a new exercise that asks for functions, or for values if ``kind`` is numeric or choice."""
    body = VALUES if kind in ("numeric", "choice") else FUNCTIONS
    return body.replace("NUMBER", number).replace("KIND", kind, 1).replace("TITLE", title, 1)


def write(root: Path, number: str, kind: str, title: str) -> Path:
    """Write a new exercise into the folder of its chapter.

    Raises:
        UserError: the number is malformed, the title is empty, the kind or chapter is unknown, or the exercise exists.
    """
    match = re.fullmatch(r"(\d{1,2})\.([1-9]\d*)", number)
    if not match:
        message = f"{number!r} is no exercise's number; expected one like 14.7"
        raise UserError(message, argument="exercise", value=number, expected="14.7")
    if kind not in sources.KINDS:
        raise unknown("kind", kind, sources.KINDS)
    if not title.strip() or "\n" in title:
        raise UserError("--title is empty; expected one line", argument="--title", value=title, problem="empty")
    chapter = match[1].zfill(2)
    folders = {p.name[:2]: p for p in root.glob("[0-9][0-9]_*") if p.is_dir()}
    if chapter not in folders:
        raise unknown("chapter", chapter, folders)
    path = folders[chapter] / f"ex_{chapter}_{match[2]}.py"
    if path.exists():
        raise UserError(f"{path} already exists", file=path, problem="exists")
    path.write_text(text(f"{chapter}.{match[2]}", kind, title.strip()), encoding="utf-8")
    return path
