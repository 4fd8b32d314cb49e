"""Graders of answers: equal words, equal numbers, or similar text."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import deque
from collections.abc import Iterable
from fractions import Fraction

from minirlhf.feedback.graders.thoughts import THOUGHTS, ThoughtTags, answer_part

_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3}){1,9}(?![0-9])|[0-9]{1,30}(?![0-9]))"
#: Words that change the value of the number before them.
ANOTHER = (
    r"(?:hundred|thousand|million|billion|trillion|dozen|half|halve|quarter|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|hundredth|thousandth)s?|"
    r"halves|squared|cubed|doubled|tripled|halved|factorial|percent of|over|divided|multiplied|plus|minus|mod|modulo|choose|below"
)
# Text after a number that makes it part of an expression: signs, superscripts, fractions, letters (7k, 7x), operators
# in TeX and in words.
_GOES_ON = (
    r"\s*(?:\\?pi(?![a-zA-Z])|[π√])|[ \t]+[xyz](?![a-zA-Z])|\*[a-zA-Z]|[ \t]*[×·⋅][ \t]*[a-zA-Z]|"
    r"[-+:_.,][0-9]|[!\u00b2\u00b3\u00b9\u00bc-\u00be\u2070-\u207f\u2150-\u215f]|(?:[xyz]|\s*(?:[kKMB]|bn|mn))(?![a-zA-Z])|\([0-9]|"
    r"\s*(?:\^(?!\s*\{?\\circ)|\*\*\s*[-+(0-9.]|\*\*[a-zA-Z\\]|[*×·⋅÷/]\s*[0-9(]|/[a-zA-Z](?![a-zA-Z])|[-+]\s*[0-9]|x\s*[0-9]|"
    r"\\(?:times|cdot|div|frac|sqrt|pm)|(?:times|to)\s+[0-9])|"
    rf"[\s-]+(?i:{ANOTHER})\b"
)
# Matches 72, -3.5, 1,080, .5, 3/4, 1 1/2 and 2e3. Matches neither number of 7-3 or 10 ^ 3, nor that of √7, 7², 7!, 7k
# or 7 million. At most 30 digits in a row: longer numbers are no answers, and slow to compute with.
_NUMBER = re.compile(
    r"(?<![0-9.√_±])(?<![0-9][-+*×·^])(?<![0-9]\*\*)(?P<sign>-?)(?P<whole>[0-9]{1,9} (?=[0-9]{1,9}/[0-9]))?"
    rf"(?P<value>(?:{_DIGITS}(?:\.[0-9]{{1,30}}(?![0-9]))?|\.[0-9]{{1,30}}(?![0-9])))"
    r"(?:[eE](?P<exponent>[+-]?[0-9]{1,9})(?![0-9])|(?![eE][+-]?[0-9]))"
    rf"(?:/(?P<below>{_DIGITS}))?(?!{_GOES_ON})"
)
# Words before a number that change or negate it; and a second number after one that ``####`` marks.
_DENIED = re.compile(
    r"(?i)(?:\\?\b(?:minus|negative|log|ln|sqrt|root of|half of|twice|not|never|neither|nor|least|most|than)\b|n['’]t\b|\\(?:sqrt|log|ln|frac|pm|neq?|overline)|\}(?=\{))\s*\{?\s*$"
)
_A_SECOND = re.compile(r"(?i)[ \t]*(?:[0-9]|,[ \t]*[0-9]|(?:or|and)[ \t]+[0-9a-z])")
# The exponent of a unit: cm^2, m3, \text{ft}^{2}.
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
MOST_COMPARED = 2_000  # characters: the cost of the distance is the product of both lengths


def exact(completion: str, reference: str, thoughts: ThoughtTags = THOUGHTS) -> float:
    """Return 1 if both texts have the same words in the same order."""
    given, expected = _answers(completion, reference, thoughts)
    return float(given.split() == expected.split())


def contains(completion: str, reference: str, thoughts: ThoughtTags = THOUGHTS) -> float:
    """Return 1 if the completion contains the reference as whole words, ignoring case.

    ``7`` is contained neither in ``72`` nor in ``7.5``, ``-7``, ``1/7``, ``7^2`` or ``3 - 7``. A lone ``- 7`` contains
    it, because the sign may mark a list item. The asterisks of ``**7**`` are ignored.
    """
    parts = _answers(completion, reference, thoughts)
    text, target = (" ".join(without_markup(words).casefold().split()) for words in parts)
    if not target:
        return math.nan
    before = (
        r"(?<!\w)(?<!\d[.,])(?<![-−–/*^~])(?<!\d[-−–+*×/^] )(?<!\d [-−–+*×/^] )" if target[0].isdigit() else r"(?<!\w)"
    )
    after = r"(?!\w)(?![.,/]\d)(?! ?\.\d)(?! ?[-−–+*×/^] ?\d)(?![*^])" if target[-1].isdigit() else r"(?!\w)"
    return float(bool(re.search(before + re.escape(target) + after, text)))


def edit(completion: str, reference: str, thoughts: ThoughtTags = THOUGHTS) -> float:
    """Return the similarity 1 − d/n of both texts: d is the edit distance in characters, n the longer length.

    Any white space counts as one space. Only the first :data:`MOST_COMPARED` characters are compared; n counts all.

    Source: Levenshtein (1966), "Binary codes capable of correcting deletions, insertions and reversals".
    """
    first, second = (" ".join(text.split()) for text in _answers(completion, reference, thoughts))
    max_length = max(len(first), len(second))
    if not max_length:
        return 1.0
    num_uncompared = max(max_length - MOST_COMPARED, 0)
    return 1 - (distance(first[:MOST_COMPARED], second[:MOST_COMPARED]) + num_uncompared) / max_length


def distance(one: str, other: str) -> int:
    """Return the least number of characters to insert, delete or replace that turns one text into the other."""
    row = list(range(len(other) + 1))  # of the empty prefix of `one`
    for i, left in enumerate(one, 1):
        diagonal, row[0] = row[0], i
        for j, right in enumerate(other, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (left != right))
    return row[-1]


def numeric(completion: str, reference: str, thoughts: ThoughtTags = THOUGHTS) -> float:
    """Return 1 if both texts give the same number: ``#### 1,080`` and ``1080.0``, ``$0.5`` and ``1/2``.

    The answer of a text is the first number after its last ``####``, as in GSM8K; without ``####``, its last number.
    The text around the number is ignored: ``$20``, ``20 %``, ``20 km``, ``20 cm^2`` and ``20`` are the same answer,
    ``0.2`` is another.

    A number that is part of an expression is no answer, and the text then has none: ``7-3``, ``10 ^ 3``, ``√7``,
    ``7²``, ``7π``, ``7:30``, ``1_000``, ``1 000``, ``7 million``, and after ``####`` also ``7 or 8`` and ``not 7``.
    ``7m`` is read as seven metres. The asterisks of ``**72**`` are ignored. These are lists of signs and words:
    anything else (``7 score``, ``> 7``) counts as text around the number.
    """
    given, expected = (answer_number(text) for text in _answers(completion, reference, thoughts))
    return math.nan if expected is None else float(given == expected)


def gsm8k(completion: str, reference: str, thoughts: ThoughtTags = THOUGHTS) -> float:
    """Return :func:`numeric`, or 0 if the completion has no ``####``: the format is part of the task."""
    score = numeric(completion, reference, thoughts)
    return score if "####" in answer_part(completion, thoughts) or math.isnan(score) else 0.0


def partial(completion: str, reference: str, thoughts: ThoughtTags = THOUGHTS) -> float:
    """Return 1 if :func:`gsm8k` does, ½ for a right number without its mark (:func:`numeric` alone), else 0."""
    return (numeric(completion, reference, thoughts) + gsm8k(completion, reference, thoughts)) / 2


def _answers(completion: str, reference: str, thoughts: ThoughtTags) -> tuple[str, str]:
    given, expected = answer_part(completion, thoughts), answer_part(reference, thoughts)
    return unicodedata.normalize("NFC", given), unicodedata.normalize("NFC", expected)


def answer_number(text: str) -> Fraction | None:
    """Return the number that a text gives as its answer (see :func:`numeric`), or None."""
    _, marked, after = _DASHES.sub("-", without_markup(text).replace("$", "")).rpartition("####")
    after = _UPRIGHT.sub(r" \1 ", _POWER.sub(r"\1", after))
    if marked:
        after = re.sub(r"^\s*-\s+(?=[0-9.])", "-", after)  # a sign followed by a space
    match = _NUMBER.search(after) if marked else _last(_NUMBER.finditer(after))
    if match is None:
        return None
    before, rest = after[: match.start()], after[match.end() :]
    if marked:
        rejected = re.search("[0-9]", before) or _A_SECOND.match(rest) or _DENIED.search(before)
    else:
        rejected = re.search("[0-9]", rest) or _DENIED.search(before[-30:])
    return None if rejected else _value(match)


def without_markup(text: str) -> str:
    """Remove Markdown emphasis from a text: ``**18**`` becomes ``18``; ``2**3`` and ``7*3`` stay."""
    for _ in range(2):  # emphasis may be nested
        text = _MARKUP.sub(lambda match: match[2] or "", text)
    return text


def _last(matches: Iterable[re.Match[str]]) -> re.Match[str] | None:
    return next(iter(deque(matches, maxlen=1)), None)


def _value(match: re.Match[str]) -> Fraction | None:
    """Return the value of a match of ``_NUMBER``; None for 1/0, and for an exponent too large for an answer."""
    exponent = int(match["exponent"] or 0)
    denom = Fraction((match["below"] or "1").replace(",", ""))
    if not denom or abs(exponent) > _LARGEST:
        return None
    value = Fraction(match["value"].replace(",", "")) * Fraction(10) ** exponent / denom + int(match["whole"] or 0)
    return -value if match["sign"] else value
