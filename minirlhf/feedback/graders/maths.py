"""Mathematical equivalence: ``\\frac{1}{2}``, ``0.5`` and ``2/4`` are one answer."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from minirlhf.feedback.graders.answers import ANOTHER, answer_number, without_markup
from minirlhf.sandbox import algebra

LONGEST = 300  # characters of an answer
_BRACKETS = {"(": ")", "[": "]", "{": "}"}
_A_NUMBER = r"-?(?:[0-9]+ [0-9]+/[0-9]+|[0-9]*\.?[0-9]+\.?(?:/[0-9.]+)?)"
_TEXT = r"\\(?:text|mathrm|mbox|textbf|mathbf)\{([^{}]*)\}"
#: Words that may stand before a number and say no more than that it is the answer.
_ANSWERS = frozenset(
    re.findall(
        "[a-z]+",
        "a an and answer are costs equal equals final find gets get gives has have he her his hence i in is it its must be result she so solution sum takes that "
        "the their there therefore they this thus to total value we which will x y z",
    )
)
#: Words behind a number that make another one of it, or take it back; all others behind a blank are taken for a unit.
_NO_UNIT = re.compile(
    rf"(?i)\b(?:{ANOTHER}|about|and|approximately|but|by|false|fewer|cos|exp|if|incorrect|is|isn|less|ln|log|more|never|nor|not|no|of [a-z]|only|or|pi|roughly|sin|sqrt|tan|than|times|to|was|wrong)\b"
)
#: What takes back the formula behind it, or makes another one of it.
_TAKEN_BACK = re.compile(
    r"(?i)(?:\b(?:at (?:least|most)|but|doubt (?:that )?it is|(?:half|halves|quarters?|root|square|thirds?) of|minus|negative|neither|nor|or|"
    r"than|twice)|(?:\bnever|not\b|n['’]t)(?: (?:be|equal|equal to|is))?)\s*$"
)
#: What is read as it stands, not as a product of its letters: words, rows of capitals, digits of a base above ten.
_WORD = re.compile(r"[a-zA-Z]{3,}|[A-Z]{2,}|(?=[0-9A-Z]*[0-9])(?=[0-9A-Z]*[A-Z])[0-9A-Z]+")
#: Units that may stand behind a number without a blank; where capitals tell a unit from a product (7kW, 7kw) they have to be there.
_GLUED = (
    r"[ckmd]?m|[mk]?g|[mcd]?l|lbs?|oz|ft|in|yds?|mi|h|hrs?|min|secs?|[mn]?s|am|pm|mph|km/?h|rpm|fps|psi|a|d|c|f|k|w|v|j|n|st|nd|rd|th|men|x|ac|cc|"
    r"k?cal|usd|eur|gbp|yrs?|mos?|wks?|deg|m?mol|px|gal|qts?|pts?|tsp|hp|[kmg]?hz|bce|[nu]m|[up]s|rad|ha|atm|bar|lx|lm|ppm|mpg|kph|pcs|pct|ct|yen|"
    r"-(?:days?|min|[ckm]m|[km]g|ml|ft|in|lbs?|oz|yds?|yrs?|hrs?|secs?|mi|mph|gal|hp|px)|"
    r"(?-i:BC|AD|CE|[mkKMG]W|[kM]J|[kKMGT]B|[KMG]iB|[MG]b|[kM]?eV|[hkMG]?Pa|dB|[mk]V|[mk]A|m?Ah|[kM]N|Nm|[kM]?Wh|[kMG]?Bq|m?Gy|m?Sv|CHF|JPY|CNY|CAD|AUD|INR)"
)
#: A product of letters behind a number, which is no unit: 7xy, 7 ab, 7-xy; not 7km.
_PRODUCT = re.compile(
    rf"(?<=[0-9])(?: ?(?!(?:am|ac|cc|by|my|ax|bay|cab|(?-i:BC))\b)[abcxyz]{{2,3}}|[-=]? ?[xyz]|(?!(?:{_GLUED})\b)[-=]?[a-zA-Z]{{1,3}})(?![a-zA-Z])",
    re.IGNORECASE,
)
#: In upright letters, and yet no unit: 7\mathrm{e}, 7\text{k}, 7\% \text{ of } x; not 300\text{ K}, 300 \mathrm{K}.
_FACTOR = re.compile(r"(?<!\s)\\[a-z]+\{K\s*\}|\{\s*(?:[eijkMBxyz]|of)\s*\}")
#: Behind a sum of money a K is a thousand and no kelvin.
_MONEY = re.compile(r"[$€£¥]\s*-?[0-9.,]+\s*$")


def _thousands(found: re.Match[str]) -> bool:
    return re.search(r"\{\s*K\b", found[0]) is not None and _MONEY.search(found.string, 0, found.start()) is not None


#: A unit: text behind a value, with a power of its own, up to the end of the part.
_UNIT = rf"(?<=[^\s(\[⦃,=])\s*(?:{_TEXT}\s*(?:\^\s*(?:\{{[^{{}}]*\}}|[0-9]))?\s*)+(?=$|[,.)\]⦄])"
_WORDS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"(?<=[0-9])\\[,!](?=[0-9]{3}(?![0-9]))|\{,\}", ""),
    (r"(?<!\\)\\[,;:! ]|~", " "),
    (
        _UNIT,
        lambda found: found[0] if _NO_UNIT.search(found[0]) or _FACTOR.search(found[0]) or _thousands(found) else "",
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


def maths(completion: str, reference: str) -> float:
    """1 if both give the same mathematical answer, written in LaTeX or plainly.

    The answer of a text stands in its last ``<answer>…</answer>``, if it has one; there, or else in the whole text, in its last
    ``\\boxed{…}`` or after its last ``####``, whichever comes later, else between its last dollar signs, unless words take that back (*not $7$*;
    *$7$ is wrong, it is 8*); else it is the last line. Two answers are the same if they are expressions of the same value
    (:func:`minirlhf.sandbox.algebra.same_value`); of ``x = …`` the right side counts; tuples and intervals agree part by part and in
    their brackets; words, rows of three letters or of capitals (*ABC*) and digits with capitals (*2A7*) are compared as text; sets ``\\{…\\}`` in any order. Units (``\\text{ cm}`` behind a value), currency and per cent signs are not compared, as
    in :func:`~minirlhf.feedback.graders.numeric`; ``1\\frac12`` is one and a half. No inequality, no matrix, no unit is understood: what is
    not an expression is compared as text. Of words about a number the number counts if these words only say that it is the answer
    (``The answer is 7``, ``7 apples``): who names two numbers, or says *at least*, *negative* or *squared*, has given another one or
    none. A short unit behind a number without a blank is read if it is on a list (*7km*), else as a product (*7pq*). Blanks in a formula do
    not count, but for those between digits. NaN for a reference without an answer.
    """
    asked = final_text(reference)
    wanted, given = (plain(text) if len(text) <= LONGEST else "" for text in (asked, final_text(completion)))
    if re.fullmatch(_TEXT, asked) and wanted.isalpha():
        return float(given.casefold() == wanted.casefold())
    return float(given != "" and _same(given, wanted)) if wanted else math.nan


def final_text(text: str) -> str:
    """What a text gives as its answer (see :func:`maths`), empty for none."""
    text = re.sub(r"(?<!\\)\\[()\[\]]|\$\$", "$", without_markup(text))  # \(7\), \[7\] and $$7$$
    if "<answer>" in text:
        text = text.rpartition("<answer>")[2].partition("</answer>")[0]
    boxed, marked = text.rfind("\\boxed{"), text.rfind("####")
    if boxed > marked:
        return _balanced(text[boxed + len("\\boxed{") :]).strip()
    if marked >= 0:
        return text[marked + len("####") :].strip().partition("\n")[0].strip()
    before, dollar, behind = text.rpartition("$")
    before, opened, inside = before.rpartition("$")
    if dollar and opened and inside.strip() and not _taken_back(before, behind):
        return inside.strip()
    lines = text.strip().splitlines()
    return lines[-1].strip().removesuffix(".") if lines else ""


def _taken_back(before: str, behind: str) -> bool:
    """Whether the words around a formula say that it is not the answer, or name a number behind it."""
    rest = re.split(r"[.;\n]", behind, maxsplit=1)[0]
    return bool(_TAKEN_BACK.search(before[-LONGEST:]) or _NO_UNIT.search(rest) or re.search("[0-9]", behind))


def _balanced(text: str) -> str:
    """A text up to the brace that closes what was opened before it; all of it where none does."""
    depth = 1
    for place, sign in enumerate(text[: 4 * LONGEST]):
        depth += {"{": 1, "}": -1}.get(sign, 0)
        if not depth:
            return text[:place]
    return text


def plain(text: str) -> str:
    """An answer in LaTeX as plain text: ``\\frac{1}{2}`` as ``((1)/(2))``; at most :data:`LONGEST` characters are expected."""
    text = text.replace("\\{", "⦃").replace("\\}", "⦄")
    for found, instead in _WORDS:
        text = re.sub(found, instead, text)
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
    """Without the commas that mark thousands; between brackets a comma parts two numbers."""
    depth, kept, last = 0, [], 0
    for found in re.finditer(r"[(\[⦃)\]⦄]|(?<=[0-9]),(?=[0-9]{3}(?![0-9]))", text):
        depth += (found[0] in "([⦃") - (found[0] in ")]⦄")
        if found[0] == "," and depth == 0:
            kept.append(text[last : found.start()])
            last = found.end()
    return "".join([*kept, text[last:]])


def _fraction(found: re.Match[str]) -> str:
    above, below = found[1] or found[2] or "", found[3] or found[4] or ""
    return f"(({above})/({below}))"


def _same(given: str, wanted: str) -> bool:
    if given == wanted or re.sub(r",\s+", ",", given) == re.sub(r",\s+", ",", wanted):
        return True
    given, wanted = (re.sub(r"^[a-zA-Z](?:\([a-zA-Z]\))? ?= ?(?!=)", "", text) for text in (given, wanted))
    parts = [_parts(text) for text in (given, wanted)]
    if parts[0] and parts[1]:
        (left, inner, right), (left_, inner_, right_) = parts[0], parts[1]
        if (left, right) != (left_, right_) or len(inner) != len(inner_):
            return False
        if left != "{":
            return all(map(_same, inner, inner_))
        rest = list(inner_)
        for one in inner:
            match = next((other for other in rest if _same(one, other)), None)
            if match is None:
                return False
            rest.remove(match)
        return True
    if any(parts):
        return False
    if given.casefold() == wanted.casefold() and len(given) > 1:
        return True
    if re.search(r"[<>≤≥=\\^_|]|^(?:[a-zA-Z] )+[a-zA-Z]$", wanted) and _joint(given) == _joint(wanted):
        return True
    if _is_number(given) and _is_number(wanted):
        numbers = [answer_number(text) for text in (given, wanted)]
        return numbers[0] is not None and numbers[0] == numbers[1]
    if re.fullmatch(r"[a-zA-Z0-9 .,'!/:=-]*[a-zA-Z]{2}[a-zA-Z0-9 .,'!/:=-]*", given) and _is_number(wanted):
        return _says_only(given) and answer_number(given) == answer_number(wanted)
    if all(_WORD.fullmatch(re.sub(r"[()\s]", "", text)) for text in (given, wanted)):
        return False
    return algebra.same_value(given, wanted)


def _joint(text: str) -> str:
    """A formula without blanks, but for those between digits; of these only such as part thousands go."""
    text = re.sub(r"(?<=[0-9])\s+(?=[0-9]{3}(?![0-9]))", "", text)
    return re.sub(r"(?<![0-9.])\s+|\s+(?![0-9.])", "", text)


def _says_only(text: str) -> bool:
    """Whether words about one number say no more than that it is the answer."""
    found = list(re.finditer(rf"(?<![a-zA-Z0-9.]){_A_NUMBER}(?![0-9])", text))
    if len(found) != 1:
        return False
    before, behind = text[: found[0].start()], text[found[0].end() :]
    if _PRODUCT.match(text, found[0].end()):
        return False
    known = set(re.split("[^a-z']+", before.casefold())) - {""} <= _ANSWERS
    return known and not _NO_UNIT.search(behind) and re.search("[0-9/^!]", behind) is None


def _is_number(text: str) -> bool:
    return re.fullmatch(_A_NUMBER, text) is not None


def _parts(text: str) -> tuple[str, list[str], str] | None:
    """Brackets and parts of ``(1, 2)``, ``[0, 1)``, ``{1, 2}``; None for what has no comma of its own or no brackets."""
    if len(text) < 2 or text[0] not in _BRACKETS or text[-1] not in _BRACKETS.values():
        return None
    depth, parts = 0, [""]
    for sign in text[1:-1]:
        depth += (sign in _BRACKETS) - (sign in _BRACKETS.values())
        if depth < 0:
            return None
        if sign == "," and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    inner = [part.strip() for part in parts]
    return (text[0], inner, text[-1]) if len(inner) > 1 or text[0] == "{" else None
