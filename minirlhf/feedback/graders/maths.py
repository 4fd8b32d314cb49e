"""The grader of mathematical equivalence: ``\\frac{1}{2}``, ``0.5`` and ``2/4`` are the same answer."""

from __future__ import annotations

import math
import re
from fractions import Fraction

from minirlhf.feedback.graders.answers import without_markup
from minirlhf.feedback.graders.equality import same, same_words
from minirlhf.feedback.graders.notation import LONGEST, NO_UNIT, TEXT, plain
from minirlhf.feedback.graders.thoughts import THOUGHTS, ThoughtTags, answer_part
from minirlhf.feedback.graders.units import quantity

#: Words before a formula that negate or change it.
_TAKEN_BACK = re.compile(
    r"(?i)(?:\b(?:at (?:least|most)|but|doubt (?:that )?it is|(?:half|halves|quarters?|root|square|thirds?) of|minus|negative|neither|nor|or|"
    r"than|twice)|(?:\bnever|not\b|n['’]t)(?: (?:be|equal|equal to|is))?)\s*$"
)
#: The commands that frame an answer, with an opening brace or before a formula: ``\\boxed{7}``, ``\\boxed 7``.
_BOX = re.compile(r"\\(?:boxed|fbox|framebox|Boxed)(?![a-zA-Z])\s*(\{)?")
#: Between two boxes of one answer: ``\\boxed{1} and \\boxed{2}``.
_BETWEEN = re.compile(r"\}\s*\$?\s*(?:,|and|or|, and|\\text\{\s*(?:and|or)\s*\})\s*\$?\s*\\(?:boxed|fbox)\{")
_ANNOUNCED = re.compile(
    r"(?i)^\W*(?:(?:so|thus|therefore|hence),? )?(?:the |my )?(?:final |correct |right )?(?:answer|result|option|choice)(?: is| are| =|:)+\s+(?=\S)"
)
#: A line of its own that names the answer: Answer: D.
_NAMED = re.compile(r"(?i)\W*(?:the |my )?(?:final |correct )?answer\s*:\s*(\S.{0,300}?)\W*")
#: One of a few choices: A, (A), A., or with the words of the choice: (A) 12.
_CHOICE = re.compile(r"\(?\s*([A-J])\s*(?:\)|\.|$)")
_LABELLED = re.compile(r"\(\s*[A-J]\s*\)\s+(\S.*)", re.DOTALL)
_CHOSEN = re.compile(
    r"(?:(?:[Tt]he )?(?:correct |right |final )?(?:option|choice|answer|Option|Choice|Answer):?(?: is)?:?\s+)?(?:\(\s*([A-J])\s*\)(?=\s|$).*|([A-J])(?:[.:)](?=\s|$).*|,? (?:because|since|as) .*|$))",
    re.DOTALL,
)


#: A number in millions or dozens, with its currency or noun: 2 million, $1.5 billion, 12 dozen eggs.
_SCALED = re.compile(
    r"(\\?[$€£¥]|)\s*(-?[0-9]{1,3}(?:,[0-9]{3})+|-?[0-9]{1,15}(?:\.[0-9]{1,15})?)(?:\s|~|\\[,; ])*"
    r"(\\(?:text|mathrm|mbox)\{\s*|)(?i:(hundred|thousand|million|billion|trillion|dozen)s?)\b([a-zA-Z ]*\}?)\.?"
)
_SCALES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12}
#: A share of a hundred at the end: 28\\%, 28 percent, 28\\text{ pct}.
_SHARE = re.compile(r"(?:%|\b(?:percent(?:age)?|per cent|pct))[\s.$}]*$")
#: The integers that a parameter of a formula takes: \\frac{\\pi}{4}+k\\pi, k \\in \\mathbb{Z}.
_PARAMETER = re.compile(
    r"(.*(?<![a-zA-Z])([a-z])(?![a-zA-Z]).*?)(?:\s|,|\\[,;: ]|\\q?quad|~|\\(?:text|mathrm)\{\s*(?:where|for|with)\s*\})*(?<=[\s,}~;:\\])\(?\2\s*(?:\\in|∈)\s*"
    r"(?:\\mathbb\s*\{?Z\}?|\\Z|ℤ|Z)\)?\s*"
)
#: The half of the day at the end of a time, or the scale of a temperature: 8:00 a.m., 20°C, 300 K.
_MARK = re.compile(
    r"(?i)(?:(?<=[0-9])(?:\s|~|\\[,; ])*(?:\\(?:text|mathrm)\{\s*)?([ap])\.?\s?m\b\.?|"
    r"(?:°|\^\s*\{?\s*\\circ\s*\}?)\s*(?:\\(?:text|mathrm)\{\s*)?([CF])|"
    r"(?<=[0-9])(?:\s|~|\\[,; ])*(?:\\(?:text|mathrm)\{\s*)?(?-i:(K)))\s*\}?\s*$"
)


def maths(completion: str, reference: str, thoughts: ThoughtTags = THOUGHTS) -> float:
    """Return 1 if both texts give the same mathematical answer, in LaTeX or in plain text.

    If a text has an ``<answer>…</answer>``, its answer is searched in the last one, else in the whole text. The answer
    is the last ``\\boxed{…}``, the line after the last ``####``, or a last line *Answer: …*, whichever comes later. Without either, it is the
    text between the last two dollar signs, unless words negate it (*not $7$*; *$7$ is wrong, it is 8*); else it is the
    last line.

    Two answers are equal if they are expressions of the same value (:func:`minirlhf.sandbox.algebra.same_value`). Of
    ``x = …`` the right side counts. Tuples, intervals and matrices must agree in every part and in their brackets, sets
    and lists in any order; an inequality of one variable is an interval, and a bound on
    ``|x|`` an interval or a union; ``x < y`` is ``y > x``. Words, sequences of three letters or of
    capitals (*ABC*) and digits with capitals (*2A7*) are compared as text, and a choice by its letter. If both texts
    have a known unit, the quantities are compared; else units (``\\text{ cm}`` after a value) and currency are ignored,
    as in :func:`~minirlhf.feedback.graders.numeric`. 50 % is 50 or one half, ``1\\frac12`` one and a half, *2 million*
    2000000, and ``1{,}5`` 1.5. ``k \\in \\mathbb{Z}`` after a formula may be missing. A text that is none of this is
    compared as text.

    In words about a number, the number counts if the words only introduce it as the answer (``The answer is 7``, ``7
    apples``). A text with two numbers, or with *at least*, *negative* or *squared*, gives another answer or none. A
    short unit after a number without a space is read as a unit if it is on a list (*7km*), else as a product (*7pq*).
    Spaces in a formula are ignored, except between digits. Capitals count in names (*R* is not *r*) and not in words. NaN for a reference without an answer.
    """
    answer, given = (_in_ones(final_text(answer_part(text, thoughts))) for text in (reference, completion))
    integers = [_PARAMETER.fullmatch(text) if len(text) <= LONGEST else None for text in (answer, given)]
    if (integers[0] is None) != (integers[1] is None):  # one of them leaves it to the reader
        answer, given = (found[1] if found else text for found, text in zip(integers, (answer, given), strict=True))
    expected, actual = (plain(text) if len(text) <= LONGEST else "" for text in (answer, given))
    if not expected:
        return math.nan
    return float(actual != "" and _same_answer(given, answer, actual, expected))


def _same_answer(given: str, answer: str, actual: str, expected: str) -> bool:
    """Compare two answers, each as it was written and in plain notation."""
    choice = _CHOICE.fullmatch(expected)
    if choice is not None and (chosen := _CHOSEN.fullmatch(actual)):
        return choice[1] == (chosen[1] or chosen[2])
    labelled = [_LABELLED.fullmatch(text) for text in (actual, expected)]
    if (labelled[0] is None) != (labelled[1] is None) and not any(map(_CHOICE.fullmatch, (actual, expected))):
        actual, expected = (
            found[1] if found else text for found, text in zip(labelled, (actual, expected), strict=True)
        )
        return same(actual, expected)  # the words of the choice alone
    choice = _CHOICE.fullmatch(actual)  # and a reference with the words of the choice
    if choice is not None and (chosen := _CHOSEN.fullmatch(expected)):
        return choice[1] == (chosen[1] or chosen[2])
    marks = [_MARK.search(text) for text in (given, answer)]
    if marks[0] and marks[1]:
        values = [plain(text[: mark.start()]) for text, mark in ((given, marks[0]), (answer, marks[1]))]
        letters = [(mark[1] or mark[2] or mark[3]).casefold() for mark in (marks[0], marks[1])]
        return letters[0] == letters[1] and same(*values)
    if re.fullmatch(TEXT, answer) and expected.isalpha():
        return same_words(actual, expected)
    quantities = [quantity(text) if len(text) <= LONGEST else None for text in (given, answer)]
    if quantities[0] and quantities[1]:
        (value, size, kind), (value_, size_, kind_) = quantities[0], quantities[1]
        if kind.strip("+") != kind_.strip("+"):
            return False
        if size == size_:
            return same(plain(value), plain(value_))
        return same(f"({plain(value)})*({size})", f"({plain(value_)})*({size_})")
    elif any(found and found[2].endswith("+") for found in quantities):
        return actual == expected
    shares = [_SHARE.search(text) is not None for text in (given, answer)]
    if shares[0] != shares[1] and any(quantities):
        return False
    if same(actual, expected):
        return True
    if shares[0] != shares[1]:
        return same(f"({actual})/100", expected) if shares[0] else same(actual, f"({expected})/100")
    return False


def _in_ones(text: str) -> str:
    """Return ``2 million`` as ``2000000``, and any other text as it is."""
    found = _SCALED.fullmatch(text.strip()) if len(text) <= LONGEST else None
    if found is None or NO_UNIT.search(found[5]):
        return text
    value = Fraction(found[2].replace(",", "")) * _SCALES[found[4].lower()]
    number = str(value.numerator) if value.denominator == 1 else f"{value.numerator}/{value.denominator}"
    return f"{found[1]}{number}{found[3]}{found[5]}"


def final_text(text: str) -> str:
    """Return the answer of a text (see :func:`maths`), empty if there is none."""
    text = re.sub(r"(?<!\\)\\[()\[\]]|\$\$", "$", without_markup(text))  # \(7\), \[7\] and $$7$$
    if "<answer>" in text:
        text = text.rpartition("<answer>")[2].partition("</answer>")[0]
    boxes, marked = list(_BOX.finditer(text)), text.rfind("####")
    if boxes and boxes[-1].start() > marked:
        lines = text[boxes[-1].end() :].rstrip().split("\n")
        named = _NAMED.fullmatch(lines[-1]) if len(lines) > 1 else None
        return named[1] if named else _boxed(text, boxes[-1])
    if marked >= 0:
        return text[marked + len("####") :].strip().partition("\n")[0].strip()
    before, dollar, rest = text.rpartition("$")
    before, opening, inside = before.rpartition("$")
    if dollar and opening and inside.strip() and not _taken_back(before, rest):
        return inside.strip()
    lines = text.strip().splitlines()
    return _ANNOUNCED.sub("", lines[-1].strip()).removesuffix(".") if lines else ""


def _boxed(text: str, box: re.Match[str]) -> str:
    """Return what stands in the last box, and in the boxes that are joined to it by a comma or *and*."""
    if box[1] is None:
        return (
            text[box.end() :].partition("$")[0].split(maxsplit=1)[0].rstrip(".,;") if text[box.end() :].strip() else ""
        )
    parts = [_balanced(text[box.end() :]).strip()]
    joint = list(_BETWEEN.finditer(text[: box.end()][-4 * LONGEST :]))
    offset = max(0, box.end() - 4 * LONGEST)
    end = box.end()
    for match in reversed(joint):
        if match.end() + offset != end:
            break
        opened = text.rfind("{", 0, match.start() + offset)
        box_before = next(
            (b for b in _BOX.finditer(text, max(0, opened - 20), opened + 1) if b.end() == opened + 1), None
        )
        if box_before is None:
            break
        parts.insert(0, text[opened + 1 : match.start() + offset].strip())
        end = opened + 1
    return ", ".join(parts)


def _taken_back(before: str, after: str) -> bool:
    """Return whether the words around a formula say that it is not the answer, or a number follows it."""
    rest = re.split(r"[.;\n]", after, maxsplit=1)[0]
    return bool(_TAKEN_BACK.search(before[-LONGEST:]) or NO_UNIT.search(rest) or re.search("[0-9]", after))


def _balanced(text: str) -> str:
    """Return the text up to the brace that closes an opened one; all of it if there is none."""
    depth = 1
    for position, char in enumerate(text[: 4 * LONGEST]):
        depth += {"{": 1, "}": -1}.get(char, 0)
        if not depth:
            return text[:position]
    return text
