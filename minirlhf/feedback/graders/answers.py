"""Answers: the same words, the same number, or nearly."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable
from fractions import Fraction

# 72, -3.5, 1,080, .5, 3/4, 1 1/2, 2e3; neither number of 7-3 or 10 ^ 3, nor that of √7, 7², 7!, 7k or 7 million: it is a part of something. At
# most 30 digits in a row: longer ones are no answers, and slow to calculate with.
_LARGE = r"\s*(?:[kKMB]|bn|mn|(?:hundred|thousand|million|billion|trillion|dozen)s?)(?![a-zA-Z])"
_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3}){1,9}(?![0-9])|[0-9]{1,30}(?![0-9]))"
_NUMBER = re.compile(
    r"(?<![0-9.√_])(?<![0-9][-+*×·^])(?P<sign>-?)(?P<whole>[0-9]{1,9} (?=[0-9]{1,9}/[0-9]))?"
    rf"(?P<value>(?:{_DIGITS}(?:\.[0-9]{{1,30}}(?![0-9]))?|\.[0-9]{{1,30}}(?![0-9])))"
    r"(?:[eE](?P<exponent>[+-]?[0-9]{1,9})(?![0-9])|(?![eE][+-]?[0-9]))"
    rf"(?:/(?P<below>{_DIGITS}))?"
    rf"(?![-+:_.,][0-9]|[²³!]|{_LARGE}|\s*(?:\*\*|[\^*×·/]\s*[0-9]|x\s*[0-9]))"
)
_LARGEST = 30  # powers of ten
MOST_COMPARED = 2_000  # characters: the distance takes their product in steps


def exact(completion: str, reference: str) -> float:
    """1 if the two are the same words in the same order."""
    return float(completion.split() == reference.split())


def contains(completion: str, reference: str) -> float:
    """1 if the reference stands in the completion as whole words, in any case: ``7`` stands neither in ``72`` nor in ``7.5``, ``-7``,
    ``1/7``, ``7^2`` or ``3 - 7``. A lone ``- 7`` contains it, since that may be the sign of a list."""
    text, wanted = (" ".join(words.casefold().split()) for words in (completion, reference))
    if not wanted:
        return math.nan
    before = (
        r"(?<!\w)(?<!\d[.,])(?<![-−–/*^~])(?<!\d[-−–+*×/^] )(?<!\d [-−–+*×/^] )" if wanted[0].isdigit() else r"(?<!\w)"
    )
    after = r"(?!\w)(?![.,/]\d)(?! ?\.\d)(?! ?[-−–+*×/^] ?\d)(?![*^])" if wanted[-1].isdigit() else r"(?!\w)"
    return float(bool(re.search(before + re.escape(wanted) + after, text)))


def edit(completion: str, reference: str) -> float:
    """How alike they are: 1 − d/n, where d is the least number of characters to insert, delete or replace, and n the longer length.

    White space counts as one space. Of each text the first :data:`MOST_COMPARED` characters are compared, and all count in n.

    Source: Levenshtein (1966), "Binary codes capable of correcting deletions, insertions and reversals".
    """
    one, other = (" ".join(text.split()) for text in (completion, reference))
    longer = max(len(one), len(other))
    if not longer:
        return 1.0
    beyond = max(longer - MOST_COMPARED, 0)
    return 1 - (distance(one[:MOST_COMPARED], other[:MOST_COMPARED]) + beyond) / longer


def distance(one: str, other: str) -> int:
    """The least number of characters to insert, delete or replace that makes one text of the other."""
    row = list(range(len(other) + 1))  # of the empty beginning of `one`
    for i, left in enumerate(one, 1):
        above, row[0] = row[0], i
        for j, right in enumerate(other, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (left != right))
    return row[-1]


def numeric(completion: str, reference: str) -> float:
    """1 if both give the same number: ``#### 1,080`` and ``1080.0``, ``$0.5`` and ``1/2``.

    The answer of a text is the first number after its last ``####``, as in GSM8K; without ``####``, its last number. What stands
    around the number is not compared: ``$20``, ``20 %``, ``20 km`` and ``20`` are the same answer, ``0.2`` is another. A number that is a part
    of something is no answer, and the text then has none: ``7-3``, ``10 ^ 3``, ``√7``, ``7²``, ``7:30``, ``1_000``, ``1 000``, ``7 million``.
    ``7m`` is taken for seven metres.
    """
    wanted = answer_number(reference)
    return math.nan if wanted is None else float(answer_number(completion) == wanted)


def gsm8k(completion: str, reference: str) -> float:
    """As :func:`numeric`, and the completion must mark its answer by ``####``: the format is part of the task."""
    found = numeric(completion, reference)
    return found if "####" in completion or math.isnan(found) else 0.0


def partial(completion: str, reference: str) -> float:
    """Half the credit for a right number without its mark: 1 as :func:`gsm8k`, ½ as :func:`numeric`, else 0."""
    return (numeric(completion, reference) + gsm8k(completion, reference)) / 2


def answer_number(text: str) -> Fraction | None:
    """The number that a text gives as its answer (see :func:`numeric`), or None."""
    _, marked, after = re.sub("[−–]", "-", text.replace("$", "")).rpartition("####")
    if marked:
        after = re.sub(r"^\s*-\s+(?=[0-9.])", "-", after)  # a sign with a blank behind it
    found = _NUMBER.search(after) if marked else _last(_NUMBER.finditer(after))
    if found is None:
        return None
    before, behind = after[: found.start()], after[found.end() :]
    part = (
        re.search("[0-9]", before) or re.match(" [0-9]{3}(?![0-9])", behind) if marked else re.search("[0-9]", behind)
    )
    return None if part else _value(found)


def _last(matches: Iterable[re.Match[str]]) -> re.Match[str] | None:
    return next(iter(deque(matches, maxlen=1)), None)


def _value(found: re.Match[str]) -> Fraction | None:
    """What is written there; None for what is no number, 1/0, or too large for an answer."""
    exponent = int(found["exponent"] or 0)
    below = Fraction((found["below"] or "1").replace(",", ""))
    if not below or abs(exponent) > _LARGEST:
        return None
    value = Fraction(found["value"].replace(",", "")) * Fraction(10) ** exponent / below + int(found["whole"] or 0)
    return -value if found["sign"] else value
