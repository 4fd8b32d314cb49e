"""Compare two answers in plain notation: by their form where they have one, else by their value."""

from __future__ import annotations

import re
from collections.abc import Sequence

from minirlhf.feedback.graders.answers import answer_number
from minirlhf.feedback.graders.notation import NO_UNIT
from minirlhf.sandbox import algebra

_BRACKETS = {"(": ")", "[": "]", "{": "}", "⟬": "⟭"}
A_NUMBER = r"-?(?:[0-9]+ [0-9]+/[0-9]+|[0-9]*\.?[0-9]+\.?(?:/[0-9.]+)?)"
#: Words before a number that only introduce it as the answer.
_ANSWERS = frozenset(
    re.findall(
        "[a-z]+",
        "a an and answer are costs equal equals final find gets get gives has have he her his hence i in is it its must be result she so solution sum takes that "
        "the their there therefore they this thus to total value we which will x y z",
    )
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
#: What may stand before an equals sign as a name: x, f(x), AB, ⟨x_1⟩, ∠ABC.
_NAME = re.compile(r"(?:[a-zA-Z'∠ ]|⟨[^⟩]*⟩|\*\*\(-1\)|\([a-zA-Z0-9, ⟨⟩_]*\))+")
_VARIABLE = r"[a-zA-Z]|⟨(?!oo⟩)[^⟩]*⟩"
#: A set with a condition, which is read as the condition: {x | x > 3}.
_CONDITION = re.compile(rf"^\{{\s*(?:{_VARIABLE})\s*(?:∈\s*\(-⟨oo⟩,⟨oo⟩\))?\s*[|:]\s*(.*)\}}$")
_SIDES = {"<": (")", "("), "≤": ("]", "["), ">": ("(", ")"), "≥": ("[", "]")}
_TURNED = {"<": ">", "≤": "≥", ">": "<", "≥": "≤"}


def same(actual: str, expected: str) -> bool:
    """Return whether two plain texts are the same answer.

    Lists, sets and unions are equal in any order, tuples and intervals in every part and in their brackets. Inequalities of
    one variable are intervals, and ``x = …`` is its right side. Whatever has no such form is compared as a number, an
    expression, or a text.
    """
    if actual == expected or re.sub(r",\s+", ",", actual) == re.sub(r",\s+", ",", expected):
        return True
    if len(actual) > 1 and same_words(actual, expected):
        return True
    actual, expected = (
        _as_interval(_of_distance(_CONDITION.sub(r"\1", _usual_brackets(text)))) for text in (actual, expected)
    )
    for form in (_rounded, _relations, _unions, _lists, _ranges, _equations, _brackets):
        verdict = form(actual, expected)
        if verdict is not None:
            return verdict
    return _alike(actual, expected)


def same_words(actual: str, expected: str) -> bool:
    """Return whether two texts differ at most in the capitals of words and choices: R and r are two names, *Yes* is *yes*.

    A word has three letters or more, with a vowel, or is *no*; a choice is a letter in brackets, or one from A to E. In
    a text of letters alone other words may also be in capitals as a whole, in one of the texts.
    """
    if actual.casefold() != expected.casefold():
        return False
    if re.fullmatch(r"\([a-zA-Z]\)|[A-E]", expected):
        return True
    words = (re.findall("⟨[^⟩]*⟩|[a-zA-Z]+", text) for text in (actual, expected))
    differing = [
        (one, other)
        for one, other in zip(*words, strict=True)
        if one != other and not re.fullmatch(r"(?i)no|(?=.*[aeiouy])[a-z]{3,}", one)
    ]
    if not differing or not re.fullmatch("[a-zA-Z ]{2,}", expected):
        return not differing
    sides = {"".join(side) for side in zip(*differing, strict=True)}
    return any({side, side.swapcase()} == sides for side in sides if side.isupper())


def _usual_brackets(text: str) -> str:
    """Turn the brackets of ``]0,1[`` into those of ``(0,1)``."""
    if not re.fullmatch(r"[\](\[][^][(){}⟬]*,[^][(){}⟬]*[\[)\]]", text):
        return text
    return f"{'(' if text[0] == ']' else text[0]}{text[1:-1]}{')' if text[-1] == '[' else text[-1]}"


def _rounded(actual: str, expected: str) -> bool | None:
    """Of ``x ≈ 3.14`` either side is an answer."""
    if "≈" not in actual + expected or actual.count("≈") > 1 or expected.count("≈") > 1:
        return None
    sides = [[side.strip() for side in text.split("≈") if side.strip()] for text in (actual, expected)]
    sides = [[side for i, side in enumerate(every) if i == 0 or _is_number(side)] for every in sides]
    return any(same(one, other) for one in sides[0] for other in sides[1])


def _relations(actual: str, expected: str) -> bool | None:
    """``x > y`` is ``y < x``, and ``x ≠ y`` is ``y ≠ x``; whether other pairs are equal is not said."""
    sides = [[part.strip() for part in re.split("([<>≤≥≠])", text)] for text in (actual, expected)]
    if not all(len(parts) == 3 and parts[0] and parts[2] for parts in sides):
        return None
    (left, sign, right), (left_, sign_, right_) = sides
    turned = _TURNED.get(sign, sign) == sign_ and same(left, right_) and same(right, left_)
    return True if turned or (sign == sign_ and same(left, left_) and same(right, right_)) else None


def _unions(actual: str, expected: str) -> bool | None:
    parts = [_split(text, "∪") for text in map(_as_union, (actual, expected))]
    if max(map(len, parts)) == 1:
        return None
    names = {name[1] for text in (actual, expected) if (name := re.match(rf"({_VARIABLE})\s*[∈<>≤≥≠]", text))}
    return len(names) < 2 and _same_in_any_order(*parts)


_POSITIVE = r"[0-9./]+|\(\([0-9.]+\)/\([0-9.]+\)\)"
#: A distance: |x| < 2, |x-1| ≥ 3, |2x+1| = 5.
_DISTANCE = re.compile(
    rf"abs\(\s*([0-9]*)\s*({_VARIABLE})\s*(?:([-+])\s*({_POSITIVE})\s*)?\)\s*([<>≤≥=])\s*({_POSITIVE})"
)
_TURNED_DISTANCE = re.compile(rf"({_POSITIVE})\s*([<>≤≥=])\s*(abs\(.*\))")


def _of_distance(text: str) -> str:
    """Return ``|x| < 2`` as ``x ∈ (-2,2)``, ``|x| > 2`` as a union, and ``|x| = 2`` as ``{-2,2}``."""
    text = text.strip()
    turned = _TURNED_DISTANCE.fullmatch(text)
    bound = _DISTANCE.fullmatch(f"{turned[3]}{_TURNED.get(turned[2], '=')}{turned[1]}" if turned else text)
    if bound is None:
        return text
    factor, name, sign, shift, relation, distance = bound.groups()
    center = f"{'-' if sign == '+' else ''}{shift}" if shift else "0"
    low, high = (f"(({center}{side}{distance})/{factor or 1})" for side in "-+")
    if relation == "=":
        return f"{{{low},{high}}}"
    outer, inner = _SIDES[relation]
    if relation in "<≤":
        return f"{name} ∈ {inner}{low},{high}{outer}"
    return f"{name} ∈ (-⟨oo⟩,{low}{inner}∪{outer}{high},⟨oo⟩)"


def _as_interval(text: str) -> str:
    """Return ``x > 1 and x < 3`` as ``x ∈ (1,3)``."""
    both = [_range(part) for part in re.split(r"\s+and\s+", text)]
    if len(both) == 2 and both[0] and both[1] and both[0][0] == both[1][0]:
        lower, upper = sorted((side[1] for side in both if side), key=lambda side: side.startswith("(-⟨oo⟩"))
        if lower.endswith(",⟨oo⟩)") and upper.startswith("(-⟨oo⟩,"):
            return f"{both[0][0]} ∈ {lower.removesuffix('⟨oo⟩)')}{upper.removeprefix('(-⟨oo⟩,')}"
    return text


def _as_union(text: str) -> str:
    """Return ``x < 1 or x > 3``, ``x ≠ 1`` and ``R ∖ {1}`` as a union of intervals."""
    variable = re.match(rf"({_VARIABLE})\s*∈\s*(?=.*[∪∖])", text)
    text = text[variable.end() :] if variable else text
    hole = re.fullmatch(rf"(?:{_VARIABLE})\s*≠([^,=≠]+)|\(-⟨oo⟩,⟨oo⟩\)\s*∖\s*\{{([^,{{}}]+)\}}", text)
    if hole:
        point = (hole[1] or hole[2]).strip()
        return f"(-⟨oo⟩,{point})∪({point},⟨oo⟩)"
    ranges = [_range(part) for part in re.split(r"\s+or\s+", text)]
    if len(ranges) > 1 and all(ranges) and len({found[0] for found in ranges if found}) == 1:
        return "∪".join(found[1] for found in ranges if found)
    return text


def _lists(actual: str, expected: str) -> bool | None:
    parts = [_items(text) for text in (actual, expected)]
    if parts[0] is None and parts[1] is None:
        return None
    named = [_coordinates(text) for text in (actual, expected)]
    if named[0] and named[1]:
        return named[0].keys() == named[1].keys() and all(same(named[0][name], named[1][name]) for name in named[0])
    if parts[0] is not None and parts[1] is not None:
        if any(named):  # x = 1, y = 2 is 1, 2 in this order, and not x = 1 or x = 2
            if "=" in (expected if named[0] else actual):
                return False
            left, right = [*named[0].values()] or parts[0], [*named[1].values()] or parts[1]
            if len({name.strip("⟨⟩").partition("‗")[0] for name in named[0] or named[1]}) == 1:  # x_1 = 3, x_2 = 2
                return _same_in_any_order(left, right)
            return len(left) == len(right) and all(map(same, left, right))
        names = {name[1] for text in (actual, expected) if (name := re.match(_LIST_NAME, text))}
        return len(names) < 2 and _same_in_any_order(parts[0], parts[1])
    (items, found), other = ((parts[0], named[0]), expected) if parts[0] else ((parts[1] or [], named[1]), actual)
    if found and [*found] == sorted(found):
        return same(f"({', '.join(found.values())})", other)  # x = 1, y = 2 is (1, 2)
    return bool(items) and all(same(item, other) for item in items)  # 7/2 or 3.5


def _coordinates(text: str) -> dict[str, str]:
    """Return the values of ``x = 1, y = 2`` by their different names; empty for anything else."""
    pieces = [part for piece in _split(text, ",") for part in re.split(r"\s+and\s+", piece)]
    matches = [re.fullmatch(rf"\s*(?:and\s+)?({_VARIABLE})\s*=\s*([^=]+)", piece) for piece in pieces]
    found = {match[1]: match[2].strip() for match in matches if match}
    return found if len(found) == len(pieces) > 1 else {}


#: The name in front of a list: x = 1, 2; x ∈ {1, 2}.
_LIST_NAME = rf"({_VARIABLE})\s*(?:=|∈\s*(?=\{{))\s*(?=.*[,{{±]|.*\s(?:or|and)\s)"


def _items(text: str) -> list[str] | None:
    """Return the parts of ``1, 2``, ``1 and 2``, ``{1, 2}`` or ``±1``; None for anything else."""
    name = re.match(_LIST_NAME, text)
    body = text[name.end() :] if name else text
    is_set = body.startswith("{") and _split(body, ",") == [body.strip()] and body.rstrip().endswith("}")
    inner = body.strip()[1:-1] if is_set else body
    parts = [part for piece in _split(inner, ",") for part in re.split(r"\s+(?:and|or)\s+|;", piece) if part.strip()]
    if name:
        parts = [re.sub(rf"^\s*{re.escape(name[1])}\s*=", "", part) for part in parts]
    parts = [re.sub(r"^\s*(?:and|or)\s+", "", part).strip() for part in parts]
    both = [part.replace("±", sign) for part in parts for sign in ("+-" if part.count("±") == 1 else "+")]
    return [part.removeprefix("+") for part in both] if is_set or len(both) > 1 else None


def _same_in_any_order(actual: Sequence[str], expected: Sequence[str]) -> bool:
    if len(actual) != len(expected) or len(actual) > 12:
        return len(actual) == len(expected) and all(map(same, actual, expected))
    remaining = list(expected)
    for item in actual:
        match = next((other for other in remaining if same(item, other)), None)
        if match is None:
            return False
        remaining.remove(match)
    return True


def _ranges(actual: str, expected: str) -> bool | None:
    found = [_range(_as_union(text)) for text in (actual, expected)]
    if not any(found):
        return None
    if _joint(actual) == _joint(expected):
        return True
    if all(found):
        return found[0][0] == found[1][0] and same(found[0][1], found[1][1])  # type: ignore[index]
    [(_, interval)] = [one for one in found if one]
    other = expected if found[0] else actual
    return _parts(other) is not None and same(interval, other)


def _range(text: str) -> tuple[str, str] | None:
    """Return the variable and the interval of ``0 < x ≤ 1``, ``3 > x`` or ``x ∈ [0, 1)``; None for anything else."""
    member = re.fullmatch(rf"({_VARIABLE})\s*∈\s*(.*)", text)
    if member:
        return member[1], member[2]
    parts = [part.strip() for part in re.split("([<>≤≥])", text)]
    if len(parts) == 3 and re.fullmatch(_VARIABLE, parts[2]) and not re.fullmatch(_VARIABLE, parts[0]):
        parts = [parts[2], _TURNED[parts[1]], parts[0]]
    if len(parts) == 3 and re.fullmatch(_VARIABLE, parts[0]) and parts[2]:
        is_below = parts[1] in "<≤"
        bracket = _SIDES[parts[1]][0]
        return parts[0], f"(-⟨oo⟩,{parts[2]}{bracket}" if is_below else f"{bracket}{parts[2]},⟨oo⟩)"
    if len(parts) == 5 and re.fullmatch(_VARIABLE, parts[2]) and parts[0] and parts[4]:
        if parts[1] in ">≥" and parts[3] in ">≥":
            parts = [parts[4], _TURNED[parts[3]], parts[2], _TURNED[parts[1]], parts[0]]
        if parts[1] in "<≤" and parts[3] in "<≤":
            return parts[2], f"{_SIDES[parts[1]][1]}{parts[0]},{parts[4]}{_SIDES[parts[3]][0]}"
    return None


def _equations(actual: str, expected: str) -> bool | None:
    """Compare what stands right of an equals sign, or two equations as such."""
    sides = [[side.strip() for side in re.split(r"(?<![<>!])=", text)] for text in (actual, expected)]
    if any(not side for parts in sides for side in parts) or max(map(len, sides)) == 1:
        return None
    values = [_value_of(parts) for parts in sides]
    if len(sides[0]) > 1 and len(sides[1]) > 1:
        if None not in values and _one_name(sides[0][0], sides[1][0]):
            return same(str(values[0]), str(values[1]))
        if len(sides[0]) == len(sides[1]) == 2:
            return _same_up_to_factor(*(f"({left})-({right})" for left, right in sides))
        return _joint(actual) == _joint(expected)
    return None not in values and same(str(values[0]), str(values[1]))


def _value_of(sides: Sequence[str]) -> str | None:
    """Return the last side of ``x = … = …``, if the first is a name or has the same value; of one side, this side."""
    if len(sides) == 1 or _NAME.fullmatch(sides[0]):
        return sides[-1]
    if len(sides) == 2 and re.fullmatch(_VARIABLE, sides[1]):
        return sides[0]
    return sides[-1] if all(_alike(sides[0], side) for side in sides[1:]) else None


def _one_name(*names: str) -> bool:
    """Return whether two names are the same, or are ``y`` and the value of a function."""
    one, other = sorted(("".join(name.split()) for name in names), key=len)
    return one == other or (one == "y" and re.fullmatch(r"[a-zA-Z]\([a-zA-Z]\)", other) is not None)


def _same_up_to_factor(one: str, other: str) -> bool:
    """Whether two expressions are multiples of each other: f(x) g(z) = f(z) g(x) for all x and z."""
    one, other = _named(one, other)
    letters = sorted(
        set(
            re.findall(
                rf"{algebra.NAME}|(?<![a-zA-Z])[a-df-hj-zA-Z](?![a-zA-Z])", re.sub(r"([a-zA-Z])", r"\1", one + other)
            )
        )
    )
    if not letters or len(letters) > 6:
        return False
    elsewhere = {letter: f"v{900 + i}_" for i, letter in enumerate(letters)}

    def moved(text: str) -> str:
        return re.sub(
            "|".join(rf"(?<![a-zA-Z]){letter}(?![a-zA-Z])" for letter in letters), lambda m: elsewhere[m[0]], text
        )

    if algebra.same_value(one, "0") or algebra.same_value(other, "0"):
        return False
    return algebra.same_value(f"({one})*({moved(other)})", f"({moved(one)})*({other})")


def _brackets(actual: str, expected: str) -> bool | None:
    parts = [_parts(text) for text in (actual, expected)]
    if not any(parts):
        return None
    if parts[0] is None or parts[1] is None:
        return False
    (left, inner, right), (left_, inner_, right_) = parts[0], parts[1]
    return (left, right, len(inner)) == (left_, right_, len(inner_)) and all(map(same, inner, inner_))


def _parts(text: str) -> tuple[str, list[str], str] | None:
    """Return brackets and parts of ``(1, 2)``, ``[0, 1)`` or a matrix; None for anything else."""
    text = text.strip()
    if text.startswith("⟬") and text.endswith("⟭") and text.count("⟬") == 1:
        rows = [row.split("¦") for row in text[1:-1].split("‖")]
        return f"⟬{len(rows)}", [cell.strip() for row in rows for cell in row], "⟭"
    if len(text) < 2 or text[0] not in "([" or text[-1] not in ")]":
        return None
    inner = _split(text[1:-1], ",")
    return (text[0], inner, text[-1]) if len(inner) > 1 and _is_balanced(text[1:-1]) else None


def _is_balanced(text: str) -> bool:
    depth = 0
    for char in text:
        depth += (char in _BRACKETS) - (char in _BRACKETS.values())
        if depth < 0:
            return False
    return depth == 0


def _split(text: str, separator: str) -> list[str]:
    """Split a text at a separator that stands in no brackets."""
    depth, parts = 0, [""]
    for char in text:
        depth += (char in _BRACKETS) - (char in _BRACKETS.values())
        if char == separator and depth <= 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


def _alike(actual: str, expected: str) -> bool:
    """Compare two texts that are no lists, equations or the like."""
    if re.search(r"[<>≤≥≠=\\^_|∪:]|^(?:[a-zA-Z] )+[a-zA-Z]$", expected) and _joint(actual) == _joint(expected):
        return True
    if _is_number(actual) and _is_number(expected):
        numbers = [answer_number(text) for text in (actual, expected)]
        return numbers[0] is not None and numbers[0] == numbers[1]
    if re.fullmatch(r"[a-zA-Z0-9 .,'!/:=-]*[a-zA-Z]{2}[a-zA-Z0-9 .,'!/:=-]*", actual) and _is_number(expected):
        if _says_only(actual):
            return answer_number(actual) == answer_number(expected)
        if not _is_formula(actual):
            return False
    if _is_number(actual) and re.search("[a-zA-Z]{2}", expected) and _says_only(expected):
        return answer_number(actual) == answer_number(expected)
    if all(_is_word(text) for text in (actual, expected)):
        return False
    mixed = (
        re.sub(r"(?<![0-9a-zA-Z.)*/] )(?<![0-9a-zA-Z.)*/])([0-9]+) ([0-9]+/[0-9]+)(?![0-9.])", r"(\1+\2)", text)
        for text in (actual, expected)
    )
    return algebra.same_value(*_named(*mixed))


def _is_word(text: str) -> bool:
    """Return whether a text is a word or a row of capitals, and no function of letters."""
    bare = re.sub(r"[()\s]", "", text)
    return (
        _WORD.fullmatch(bare) is not None
        and re.search(rf"(?:{'|'.join((*algebra.FUNCTIONS, *algebra.OF_TWO))})\(", text) is None
    )


def _is_formula(text: str) -> bool:
    return re.search(rf"(?:{'|'.join((*algebra.FUNCTIONS, *algebra.OF_TWO))})\(", text) is not None


def _named(one: str, other: str) -> tuple[str, str]:
    """Replace names and words of both texts by names that the algebra knows: the same for the same."""
    known: dict[str, str] = {}

    def replaced(match: re.Match[str]) -> str:
        if match[0] in algebra.FUNCTIONS or match[0] in algebra.OF_TWO:
            return match[0]
        return f" {known.setdefault(match[0], f'v{len(known)}_')} "

    pattern = re.compile(
        rf"⟨[^⟩]*⟩|(?<![a-zA-Z])(?!(?:{'|'.join(algebra.FUNCTIONS)}|pi)(?:[abnxyz]?(?![a-z])))[a-zA-Z]{{4,}}"
    )
    return pattern.sub(replaced, one), pattern.sub(replaced, other)


def _joint(text: str) -> str:
    """Remove spaces from a formula. Between digits, only the spaces that mark thousands are removed."""
    text = re.sub(r"(?<=[0-9])\s+(?=[0-9]{3}(?![0-9]))", "", text)
    return re.sub(r"(?<![0-9.])\s+|\s+(?![0-9.])", "", text)


def _says_only(text: str) -> bool:
    """Return whether a text has one number and its words only introduce it as the answer."""
    numbers = list(re.finditer(rf"(?<![a-zA-Z0-9.]){A_NUMBER}(?![0-9])", text))
    if len(numbers) != 1:
        return False
    before, after = text[: numbers[0].start()], text[numbers[0].end() :]
    if _PRODUCT.match(text, numbers[0].end()):
        return False
    introduces = set(re.split("[^a-z']+", before.casefold())) - {""} <= _ANSWERS
    return introduces and not NO_UNIT.search(after) and re.search("[0-9/^!]", after) is None


def _is_number(text: str) -> bool:
    return re.fullmatch(A_NUMBER, text) is not None
