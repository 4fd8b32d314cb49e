"""Find pairs of similar long answers, which a person should inspect. Similarity does not prove copying.

Answers are compared as sequences of Python tokens. Names are numbered by their order of appearance; comments, layout,
the content of strings and the lines of the given code and the stub are ignored. So renaming and reformatting hide
nothing.

Whatever is handed in, the comparison of two answers takes a bounded time: only the first ``MOST`` tokens are compared,
and their longest common subsequence is computed on the bits of whole numbers.
"""

from __future__ import annotations

import io
import itertools
import keyword
import tokenize
from collections.abc import Mapping, Sequence

from minirlhf_course.classroom.exercise import Exercise
from minirlhf_course.classroom.submission import StudentSubmission

LONG = 80  # tokens; shorter correct answers resemble each other without copying
MOST = 3000  # tokens of an answer that are compared
SHARE = 0.9
PIECE = 6  # length of an n-gram in tokens; pairs with few common n-grams are not compared further
LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)


def tokens(code: str) -> list[str]:
    """Return the first tokens of Python code, with names numbered by appearance; if it does not parse, its words."""
    try:
        python_tokens = list(itertools.islice(tokenize.generate_tokens(io.StringIO(code).readline), 2 * MOST))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return code.split(maxsplit=MOST)[:MOST]
    names: dict[str, str] = {}
    result = []
    for token in python_tokens:
        if token.type in LAYOUT or token.type == tokenize.ENDMARKER:
            continue
        if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
            result.append(names.setdefault(token.string, f"n{len(names)}"))
        else:
            result.append("text" if token.type == tokenize.STRING else token.string)
    return result[:MOST]


def common(x: Sequence[str], y: Sequence[str]) -> int:
    """Return the length of the longest common subsequence, in ``len(x)`` operations on numbers of ``len(y)`` bits.

    Bit j of ``rows`` is 0 where the subsequence of ``y[: j + 1]`` is longer than that of ``y[:j]`` (Hyyrö 2004).
    """
    places: dict[str, int] = {}
    for j, token in enumerate(y):
        places[token] = places.get(token, 0) | 1 << j
    every = (1 << len(y)) - 1
    rows = every
    for token in x:
        matches = rows & places.get(token, 0)
        rows = ((rows + matches) | (rows - matches)) & every
    return len(y) - rows.bit_count()


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
                share = 2 * common(x, y) / (len(x) + len(y))
                if share >= SHARE:
                    pairs.append((e.id, a, b, share))
    return sorted(pairs, key=lambda pair: -pair[3])
