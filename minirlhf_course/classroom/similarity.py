"""Find pairs of similar long answers, which a person should inspect. Similarity does not prove copying.

Answers are compared as sequences of Python tokens. Names are numbered by their order of appearance; comments, layout,
the content of strings and the lines of the given code and the stub are ignored. So renaming and reformatting hide
nothing.
"""

from __future__ import annotations

import difflib
import io
import itertools
import keyword
import tokenize
from collections.abc import Mapping, Sequence

from minirlhf_course.classroom.exercise import Exercise
from minirlhf_course.classroom.submission import StudentSubmission

LONG = 80  # tokens; shorter correct answers resemble each other without copying
SHARE = 0.9
PIECE = 6  # length of an n-gram in tokens; pairs with few common n-grams are not compared further
LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)


def tokens(code: str) -> list[str]:
    """Return the tokens of Python code, with names numbered by appearance; if the code does not parse, its words."""
    try:
        python_tokens = list(tokenize.generate_tokens(io.StringIO(code).readline))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return code.split()
    names: dict[str, str] = {}
    result = []
    for token in python_tokens:
        if token.type in LAYOUT or token.type == tokenize.ENDMARKER:
            continue
        if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
            result.append(names.setdefault(token.string, f"n{len(names)}"))
        else:
            result.append("text" if token.type == tokenize.STRING else token.string)
    return result


def similar(work: Mapping[str, StudentSubmission], exercises: Sequence[Exercise]) -> list[tuple[str, str, str, float]]:
    """Return ``(exercise, student, student, similarity)`` of all pairs of similar long answers, most similar first."""
    pairs = []
    for e in exercises:
        given = set(e.given.splitlines()) | set(e.stub.splitlines())
        answers = {}
        for student, handed in work.items():
            section = handed.answer(e)
            if section is None or section.is_stub(e):
                continue
            own_lines = [line for _, code in section.own for line in code.splitlines() if line not in given]
            if len(words := tokens("\n".join(own_lines))) >= LONG:
                answers[student] = (words, {tuple(words[i : i + PIECE]) for i in range(len(words) - PIECE + 1)})
        for (a, (x, ngrams)), (b, (y, other_ngrams)) in itertools.combinations(answers.items(), 2):
            if len(ngrams & other_ngrams) >= 0.5 * max(len(ngrams), len(other_ngrams)):
                share = difflib.SequenceMatcher(None, x, y, autojunk=False).ratio()
                if share >= SHARE:
                    pairs.append((e.id, a, b, share))
    return sorted(pairs, key=lambda pair: -pair[3])
