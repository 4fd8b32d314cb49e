"""Long answers that resemble each other: which pairs a human should look at. No proof of anything.

Answers are compared as sequences of Python's tokens, in which names stand for their order of appearance and comments,
layout, strings and what everybody was given do not count; so renaming and reformatting hide nothing.
"""

from __future__ import annotations

import difflib
import io
import itertools
import keyword
import tokenize
from collections.abc import Mapping, Sequence

from minirlhf.classroom.exercise import Exercise
from minirlhf.classroom.submission import StudentSubmission

LONG = 80  # tokens: shorter right answers are alike by themselves
SHARE = 0.9
PIECE = 6  # tokens in a row; pairs with few such pieces in common are not compared further
LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)


def tokens(code: str) -> list[str]:
    """The tokens of a piece of Python, names by their order of appearance; of what does not parse, its words."""
    try:
        found = list(tokenize.generate_tokens(io.StringIO(code).readline))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return code.split()
    names: dict[str, str] = {}
    result = []
    for token in found:
        if token.type in LAYOUT or token.type == tokenize.ENDMARKER:
            continue
        if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
            result.append(names.setdefault(token.string, f"n{len(names)}"))
        else:
            result.append("text" if token.type == tokenize.STRING else token.string)
    return result


def similar(work: Mapping[str, StudentSubmission], exercises: Sequence[Exercise]) -> list[tuple[str, str, str, float]]:
    """``(exercise, student, student, share)`` of all pairs of long answers that are nearly alike, most alike first."""
    found = []
    for e in exercises:
        given = set(e.given.splitlines()) | set(e.stub.splitlines())
        answers = {}
        for student, handed in work.items():
            section = handed.answer(e)
            if section is None or section.is_stub(e):
                continue
            own = [line for _, code in section.own for line in code.splitlines() if line not in given]
            if len(mine := tokens("\n".join(own))) >= LONG:
                answers[student] = (mine, {tuple(mine[i : i + PIECE]) for i in range(len(mine) - PIECE + 1)})
        for (a, (x, pieces)), (b, (y, others)) in itertools.combinations(answers.items(), 2):
            if len(pieces & others) >= 0.5 * max(len(pieces), len(others)):
                share = difflib.SequenceMatcher(None, x, y, autojunk=False).ratio()
                if share >= SHARE:
                    found.append((e.id, a, b, share))
    return sorted(found, key=lambda pair: -pair[3])
