"""The grader of mathematical equivalence: ``\\frac{1}{2}``, ``0.5`` and ``2/4`` are the same answer."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from minirlhf.feedback.graders.answers import ANOTHER, answer_number, without_markup
from minirlhf.feedback.graders.thoughts import THOUGHTS, ThoughtTags, answer_part
from minirlhf.sandbox import algebra

LONGEST = 300  # characters of an answer
_BRACKETS = {"(": ")", "[": "]", "{": "}"}
_A_NUMBER = r"-?(?:[0-9]+ [0-9]+/[0-9]+|[0-9]*\.?[0-9]+\.?(?:/[0-9.]+)?)"
_TEXT = r"\\(?:text|mathrm|mbox|textbf|mathbf)\{([^{}]*)\}"
#: Words before a number that only introduce it as the answer.
_ANSWERS = frozenset(
    re.findall(
        "[a-z]+",
        "a an and answer are costs equal equals final find gets get gives has have he her his hence i in is it its must be result she so solution sum takes that "
        "the their there therefore they this thus to total value we which will x y z",
    )
)
#: Words after a number that change or negate it. Any other word after a space is read as a unit.
_NO_UNIT = re.compile(
    rf"(?i)\b(?:{ANOTHER}|about|and|approximately|but|by|false|fewer|cos|exp|if|incorrect|is|isn|less|ln|log|more|never|nor|not|no|of [a-z]|only|or|pi|roughly|sin|sqrt|tan|than|times|to|was|wrong)\b"
)
#: Words before a formula that negate or change it.
_TAKEN_BACK = re.compile(
    r"(?i)(?:\b(?:at (?:least|most)|but|doubt (?:that )?it is|(?:half|halves|quarters?|root|square|thirds?) of|minus|negative|neither|nor|or|"
    r"than|twice)|(?:\bnever|not\b|n['’]t)(?: (?:be|equal|equal to|is))?)\s*$"
)
#: Texts that are not read as a product of letters: words, sequences of capitals, digits of a base above ten.
_WORD = re.compile(r"[a-zA-Z]{3,}|[A-Z]{2,}|(?=[0-9A-Z]*[0-9])(?=[0-9A-Z]*[A-Z])[0-9A-Z]+")
#: Units that may follow a number without a space. Capitals are required if they tell a unit from a product (7kW, 7kw).
_GLUED = (
    r"[ckmd]?m|[mk]?g|[mcd]?l|lbs?|oz|ft|in|yds?|mi|h|hrs?|min|secs?|[mn]?s|am|pm|mph|km/?h|rpm|fps|psi|a|d|c|f|k|w|v|j|n|st|nd|rd|th|men|x|ac|cc|"
    r"k?cal|usd|eur|gbp|yrs?|mos?|wks?|deg|m?mol|px|gal|qts?|pts?|tsp|hp|[kmg]?hz|bce|[nu]m|[up]s|rad|ha|atm|bar|lx|lm|ppm|mpg|kph|pcs|pct|ct|yen|"
    r"-(?:days?|min|[ckm]m|[km]g|ml|ft|in|lbs?|oz|yds?|yrs?|hrs?|secs?|mi|mph|gal|hp|px)|"
    r"(?-i:BC|AD|CE|[mkKMG]W|[kM]J|[kKMGT]B|[KMG]iB|[MG]b|[kM]?eV|[hkMG]?Pa|dB|[mk]V|[mk]A|m?Ah|[kM]N|Nm|[kM]?Wh|[kMG]?Bq|m?Gy|m?Sv|CHF|JPY|CNY|CAD|AUD|INR)"
)
#: A product of letters after a number, which is not a unit: 7xy, 7 ab, 7-xy; not 7km.
_PRODUCT = re.compile(
    rf"(?<=[0-9])(?: ?(?!(?:am|ac|cc|by|my|ax|bay|cab|(?-i:BC))\b)[abcxyz]{{2,3}}|[-=]? ?[xyz]|(?!(?:{_GLUED})\b)[-=]?[a-zA-Z]{{1,3}})(?![a-zA-Z])",
    re.IGNORECASE,
)
#: Upright letters that are not a unit: 7\mathrm{e}, 7\text{k}, 7\% \text{ of } x; not 300\text{ K}, 300 \mathrm{K}.
_FACTOR = re.compile(r"(?<!\s)\\[a-z]+\{K\s*\}|\{\s*(?:[eijkMBxyz]|of)\s*\}")
#: After a sum of money, K means thousand, not kelvin.
_MONEY = re.compile(r"[$€£¥]\s*-?[0-9.,]+\s*$")


def _thousands(match: re.Match[str]) -> bool:
    return re.search(r"\{\s*K\b", match[0]) is not None and _MONEY.search(match.string, 0, match.start()) is not None


#: A unit: text after a value, with an exponent of its own, up to the end of the part.
_UNIT = rf"(?<=[^\s(\[⦃,=])\s*(?:{_TEXT}\s*(?:\^\s*(?:\{{[^{{}}]*\}}|[0-9]))?\s*)+(?=$|[,.)\]⦄])"
_WORDS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"(?<=[0-9])\\[,!](?=[0-9]{3}(?![0-9]))|\{,\}", ""),
    (r"(?<!\\)\\[,;:! ]|~", " "),
    (
        _UNIT,
        lambda match: match[0] if _NO_UNIT.search(match[0]) or _FACTOR.search(match[0]) or _thousands(match) else "",
    ),
    (_TEXT, r" \1 "),
    (
        r"\\(?:left|right|displaystyle|big|Big|quad|qquad)(?![a-zA-Z])|\\?[$€£¥]|\\?%|°|\^\{?\\circ\}?",
        " ",
    ),
    (r"(?<![\^0-9a-zA-Z.}])([0-9]+)\s*\\[dt]?frac(?:\{([0-9]+)\}\{([0-9]+)\}|([0-9])([0-9]))", r"(\1+\2\4/\3\5)"),  # 1½
    (r"\\(?:cdot|times)(?![a-zA-Z])|·|×", "*"),
    (r"\\div(?![a-zA-Z])|÷", "/"),
    (r"\\pi(?![a-zA-Z])|π", " pi "),
    (r"\\(?:ln|log)(?![a-zA-Z])|\bln\b", " log "),
    (r"\\(sin|cos|tan|exp|sqrt)(?![a-zA-Z])", r" \1 "),
    (r"\\[dt]frac(?![a-zA-Z])", r"\\frac"),
    (r"−|–", "-"),
    (r"√", " sqrt "),
)


def maths(completion: str, reference: str, thoughts: ThoughtTags = THOUGHTS) -> float:
    """Return 1 if both texts give the same mathematical answer, in LaTeX or in plain text.

    If a text has an ``<answer>…</answer>``, its answer is searched in the last one, else in the whole text. The answer
    is the last ``\\boxed{…}`` or the line after the last ``####``, whichever comes later. Without either, it is the
    text between the last two dollar signs, unless words negate it (*not $7$*; *$7$ is wrong, it is 8*); else it is the
    last line.

    Two answers are equal if they are expressions of the same value (:func:`minirlhf.sandbox.algebra.same_value`). Of
    ``x = …`` the right side counts. Tuples and intervals must agree in every part and in their brackets, sets
    ``\\{…\\}`` in any order. Words, sequences of three letters or of capitals (*ABC*) and digits with capitals (*2A7*)
    are compared as text. Units (``\\text{ cm}`` after a value), currency and per cent signs are ignored, as in
    :func:`~minirlhf.feedback.graders.numeric`; ``1\\frac12`` is one and a half. Inequalities, matrices and units are
    not understood: a text that is not an expression is compared as text.

    In words about a number, the number counts if the words only introduce it as the answer (``The answer is 7``, ``7
    apples``). A text with two numbers, or with *at least*, *negative* or *squared*, gives another answer or none. A
    short unit after a number without a space is read as a unit if it is on a list (*7km*), else as a product (*7pq*).
    Spaces in a formula are ignored, except between digits. NaN for a reference without an answer.
    """
    answer, given = (final_text(answer_part(text, thoughts)) for text in (reference, completion))
    expected, actual = (plain(text) if len(text) <= LONGEST else "" for text in (answer, given))
    if re.fullmatch(_TEXT, answer) and expected.isalpha():
        return float(actual.casefold() == expected.casefold())
    return float(actual != "" and _same(actual, expected)) if expected else math.nan


def final_text(text: str) -> str:
    """Return the answer of a text (see :func:`maths`), empty if there is none."""
    text = re.sub(r"(?<!\\)\\[()\[\]]|\$\$", "$", without_markup(text))  # \(7\), \[7\] and $$7$$
    if "<answer>" in text:
        text = text.rpartition("<answer>")[2].partition("</answer>")[0]
    boxed, marked = text.rfind("\\boxed{"), text.rfind("####")
    if boxed > marked:
        return _balanced(text[boxed + len("\\boxed{") :]).strip()
    if marked >= 0:
        return text[marked + len("####") :].strip().partition("\n")[0].strip()
    before, dollar, rest = text.rpartition("$")
    before, opening, inside = before.rpartition("$")
    if dollar and opening and inside.strip() and not _taken_back(before, rest):
        return inside.strip()
    lines = text.strip().splitlines()
    return lines[-1].strip().removesuffix(".") if lines else ""


def _taken_back(before: str, after: str) -> bool:
    """Return whether the words around a formula say that it is not the answer, or a number follows it."""
    rest = re.split(r"[.;\n]", after, maxsplit=1)[0]
    return bool(_TAKEN_BACK.search(before[-LONGEST:]) or _NO_UNIT.search(rest) or re.search("[0-9]", after))


def _balanced(text: str) -> str:
    """Return the text up to the brace that closes an opened one; all of it if there is none."""
    depth = 1
    for position, char in enumerate(text[: 4 * LONGEST]):
        depth += {"{": 1, "}": -1}.get(char, 0)
        if not depth:
            return text[:position]
    return text


def plain(text: str) -> str:
    """Turn a LaTeX answer into plain text: ``\\frac{1}{2}`` into ``((1)/(2))``; at most :data:`LONGEST` characters."""
    text = text.replace("\\{", "⦃").replace("\\}", "⦄")
    for pattern, replacement in _WORDS:
        text = re.sub(pattern, replacement, text)
    text = _joined(text)
    for _ in range(LONGEST):
        changed = re.sub(r"\\frac\s*(?:\{([^{}]*)\}|([0-9a-zA-Z]))\s*(?:\{([^{}]*)\}|([0-9a-zA-Z]))", _fraction, text)
        changed = re.sub(r"sqrt\s*\[([^][{}]*)\]\s*\{([^{}]*)\}", r"((\2)**(1/(\1)))", changed)
        changed = re.sub(r"(?:\^|\*\*)\s*\{([^{}]*)\}", r"**(\1)", changed)
        changed = re.sub(r"(sqrt|sin|cos|tan|exp|log)\s*\{([^{}]*)\}", r"\1(\2)", changed)
        changed = re.sub(r"(sqrt|sin|cos|tan|exp|log)\s+([0-9]+|[a-zA-Z])(?![a-zA-Z0-9(.])", r"\1(\2)", changed)
        if changed == text:
            break
        text = changed
    text = text.replace("^", "**").replace("⦃", "{").replace("⦄", "}")
    return " ".join(text.split()).removesuffix(".").strip()


def _joined(text: str) -> str:
    """Remove the commas that mark thousands. Between brackets a comma separates two numbers."""
    depth, pieces, end = 0, [], 0
    for match in re.finditer(r"[(\[⦃)\]⦄]|(?<=[0-9]),(?=[0-9]{3}(?![0-9]))", text):
        depth += (match[0] in "([⦃") - (match[0] in ")]⦄")
        if match[0] == "," and depth == 0:
            pieces.append(text[end : match.start()])
            end = match.end()
    return "".join([*pieces, text[end:]])


def _fraction(match: re.Match[str]) -> str:
    numerator, denominator = match[1] or match[2] or "", match[3] or match[4] or ""
    return f"(({numerator})/({denominator}))"


def _same(actual: str, expected: str) -> bool:
    if actual == expected or re.sub(r",\s+", ",", actual) == re.sub(r",\s+", ",", expected):
        return True
    actual, expected = (re.sub(r"^[a-zA-Z](?:\([a-zA-Z]\))? ?= ?(?!=)", "", text) for text in (actual, expected))
    parts = [_parts(text) for text in (actual, expected)]
    if parts[0] and parts[1]:
        (left, inner, right), (left_, inner_, right_) = parts[0], parts[1]
        if (left, right) != (left_, right_) or len(inner) != len(inner_):
            return False
        if left != "{":
            return all(map(_same, inner, inner_))
        remaining = list(inner_)
        for item in inner:
            match = next((other for other in remaining if _same(item, other)), None)
            if match is None:
                return False
            remaining.remove(match)
        return True
    if any(parts):
        return False
    if actual.casefold() == expected.casefold() and len(actual) > 1:
        return True
    if re.search(r"[<>≤≥=\\^_|]|^(?:[a-zA-Z] )+[a-zA-Z]$", expected) and _joint(actual) == _joint(expected):
        return True
    if _is_number(actual) and _is_number(expected):
        numbers = [answer_number(text) for text in (actual, expected)]
        return numbers[0] is not None and numbers[0] == numbers[1]
    if re.fullmatch(r"[a-zA-Z0-9 .,'!/:=-]*[a-zA-Z]{2}[a-zA-Z0-9 .,'!/:=-]*", actual) and _is_number(expected):
        return _says_only(actual) and answer_number(actual) == answer_number(expected)
    if all(_WORD.fullmatch(re.sub(r"[()\s]", "", text)) for text in (actual, expected)):
        return False
    return algebra.same_value(actual, expected)


def _joint(text: str) -> str:
    """Remove spaces from a formula. Between digits, only the spaces that mark thousands are removed."""
    text = re.sub(r"(?<=[0-9])\s+(?=[0-9]{3}(?![0-9]))", "", text)
    return re.sub(r"(?<![0-9.])\s+|\s+(?![0-9.])", "", text)


def _says_only(text: str) -> bool:
    """Return whether a text has one number and its words only introduce it as the answer."""
    numbers = list(re.finditer(rf"(?<![a-zA-Z0-9.]){_A_NUMBER}(?![0-9])", text))
    if len(numbers) != 1:
        return False
    before, after = text[: numbers[0].start()], text[numbers[0].end() :]
    if _PRODUCT.match(text, numbers[0].end()):
        return False
    introduces = set(re.split("[^a-z']+", before.casefold())) - {""} <= _ANSWERS
    return introduces and not _NO_UNIT.search(after) and re.search("[0-9/^!]", after) is None


def _is_number(text: str) -> bool:
    return re.fullmatch(_A_NUMBER, text) is not None


def _parts(text: str) -> tuple[str, list[str], str] | None:
    """Return brackets and parts of ``(1, 2)``, ``[0, 1)``, ``{1, 2}``; None for anything else.

    Tuples and intervals need a comma at the top level, sets do not.
    """
    if len(text) < 2 or text[0] not in _BRACKETS or text[-1] not in _BRACKETS.values():
        return None
    depth, parts = 0, [""]
    for char in text[1:-1]:
        depth += (char in _BRACKETS) - (char in _BRACKETS.values())
        if depth < 0:
            return None
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    inner = [part.strip() for part in parts]
    return (text[0], inner, text[-1]) if len(inner) > 1 or text[0] == "{" else None
