"""Answers: the same words, the same number, or nearly."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable
from fractions import Fraction

_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3}){1,9}(?![0-9])|[0-9]{1,30}(?![0-9]))"
#: Words that make another number of the one before them.
ANOTHER = (
    r"(?:hundred|thousand|million|billion|trillion|dozen|half|halve|quarter|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|hundredth|thousandth)s?|"
    r"halves|squared|cubed|doubled|tripled|halved|factorial|percent of|over|divided|multiplied|plus|minus|mod|modulo|choose|below"
)
# What makes a number a part of something: signs, raised digits, fractions, letters (7k, 7x), operators in TeX and in words.
_GOES_ON = (
    r"\s*(?:\\?pi(?![a-zA-Z])|[π√])|[ \t]+[xyz](?![a-zA-Z])|\*[a-zA-Z]|[ \t]*[×·⋅][ \t]*[a-zA-Z]|"
    r"[-+:_.,][0-9]|[!\u00b2\u00b3\u00b9\u00bc-\u00be\u2070-\u207f\u2150-\u215f]|(?:[xyz]|\s*(?:[kKMB]|bn|mn))(?![a-zA-Z])|\([0-9]|"
    r"\s*(?:\^(?!\s*\{?\\circ)|\*\*\s*[-+(0-9.]|\*\*[a-zA-Z\\]|[*×·⋅÷/]\s*[0-9(]|/[a-zA-Z](?![a-zA-Z])|[-+]\s*[0-9]|x\s*[0-9]|"
    r"\\(?:times|cdot|div|frac|sqrt|pm)|(?:times|to)\s+[0-9])|"
    rf"[\s-]+(?i:{ANOTHER})\b"
)
# 72, -3.5, 1,080, .5, 3/4, 1 1/2, 2e3; neither number of 7-3 or 10 ^ 3, nor that of √7, 7², 7!, 7k or 7 million. At most 30 digits in a row: longer
# ones are no answers, and slow to calculate with.
_NUMBER = re.compile(
    r"(?<![0-9.√_±])(?<![0-9][-+*×·^])(?<![0-9]\*\*)(?P<sign>-?)(?P<whole>[0-9]{1,9} (?=[0-9]{1,9}/[0-9]))?"
    rf"(?P<value>(?:{_DIGITS}(?:\.[0-9]{{1,30}}(?![0-9]))?|\.[0-9]{{1,30}}(?![0-9])))"
    r"(?:[eE](?P<exponent>[+-]?[0-9]{1,9})(?![0-9])|(?![eE][+-]?[0-9]))"
    rf"(?:/(?P<below>{_DIGITS}))?(?!{_GOES_ON})"
)
# Words before a number that make another one of it, or take it back; and a second number behind one that is marked.
_DENIED = re.compile(
    r"(?i)(?:\\?\b(?:minus|negative|log|ln|sqrt|root of|half of|twice|not|never|neither|nor|least|most|than)\b|n['’]t\b|\\(?:sqrt|log|ln|frac|pm|neq?|overline)|\}(?=\{))\s*\{?\s*$"
)
_A_SECOND = re.compile(r"(?i)[ \t]*(?:[0-9]|,[ \t]*[0-9]|(?:or|and)[ \t]+[0-9a-z])")
# The power of a unit: cm^2, m3, \text{ft}^{2}.
_POWER = re.compile(
    r"(?<=[0-9])((?:\s|\\[,; ]|~)*(?:\\(?:text|mathrm)\{\s*)?(?:[kcdm]?m|ft|in|yd|mi|feet|inches|met(?:er|re)s)\}?)"
    r"(?:\^\{?|\*\*)?[23]\}?(?![0-9a-zA-Z])(?!\.[0-9])"
)
_UPRIGHT = re.compile(r"\\(?:text|mathrm|mbox)\{([^{}]*)\}")
_DASHES = re.compile("[‐‑‒–−－﹣]")
# **18**, *18*, __18__ and `18`; not 2**3 or 7*3.
_MARKUP = re.compile(
    r"(?<![\w)\]}*`])(\*{1,3}|__|`)(?=[^\s*`])([^*`\n]{1,300}?)(?<=[^\s*`])\1(?![\w(*`])|(?<=[\w.)])\*\*[ \t]*$",
    re.MULTILINE,
)
_LARGEST = 30  # powers of ten
MOST_COMPARED = 2_000  # characters: the distance takes their product in steps


def exact(completion: str, reference: str) -> float:
    """1 if the two are the same words in the same order."""
    return float(completion.split() == reference.split())


def contains(completion: str, reference: str) -> float:
    """1 if the reference stands in the completion as whole words, in any case: ``7`` stands neither in ``72`` nor in ``7.5``, ``-7``,
    ``1/7``, ``7^2`` or ``3 - 7``. A lone ``- 7`` contains it, since that may be the sign of a list. The stars of ``**7**`` are not looked at."""
    text, wanted = (" ".join(without_markup(words).casefold().split()) for words in (completion, reference))
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
    around the number is not compared: ``$20``, ``20 %``, ``20 km``, ``20 cm^2`` and ``20`` are the same answer, ``0.2`` is another. A number that is a part
    of something is no answer, and the text then has none: ``7-3``, ``10 ^ 3``, ``√7``, ``7²``, ``7π``, ``7:30``, ``1_000``, ``1 000``, ``7 million``, and behind
    a mark ``7 or 8`` and ``not 7``. ``7m`` is taken for seven metres. The stars of ``**72**`` are not looked at. These are lists of signs and words: what is on none of
    them (``7 score``, ``> 7``) is taken for what stands around.
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
    _, marked, after = _DASHES.sub("-", without_markup(text).replace("$", "")).rpartition("####")
    after = _UPRIGHT.sub(r" \1 ", _POWER.sub(r"\1", after))
    if marked:
        after = re.sub(r"^\s*-\s+(?=[0-9.])", "-", after)  # a sign with a blank behind it
    found = _NUMBER.search(after) if marked else _last(_NUMBER.finditer(after))
    if found is None:
        return None
    before, behind = after[: found.start()], after[found.end() :]
    if marked:
        part = re.search("[0-9]", before) or _A_SECOND.match(behind) or _DENIED.search(before)
    else:
        part = re.search("[0-9]", behind) or _DENIED.search(before[-30:])
    return None if part else _value(found)


def without_markup(text: str) -> str:
    """A text without Markdown's signs of stress: ``**18**`` as ``18``; ``2**3`` and ``7*3`` stay."""
    for _ in range(2):  # one within the other
        text = _MARKUP.sub(lambda found: found[2] or "", text)
    return text


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
