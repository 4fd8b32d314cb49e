"""Formulas as people write them, in LaTeX or in plain text, as one plain notation."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from fractions import Fraction

from minirlhf.feedback.graders.answers import ANOTHER

LONGEST = 300  # characters of an answer
TEXT = r"\\(?:text|mathrm|mbox|textbf|mathbf|textrm|textnormal)\{([^{}]*)\}"
#: Words after a number that change or negate it. Any other word after a space is read as a unit.
NO_UNIT = re.compile(
    rf"(?i)\b(?:{ANOTHER}|about|and|approximately|but|by|false|fewer|cos|exp|if|incorrect|is|isn|less|ln|log|more|never|nor|not|no|of [a-z]|only|or|pi|roughly|sin|sqrt|tan|than|times|to|was|wrong)\b"
)
#: Upright letters that are not a unit: 7\mathrm{e}, 7\text{k}, 7\% \text{ of } x; not 300\text{ K}, 300 \mathrm{K}.
_FACTOR = re.compile(r"(?<!\s)\\[a-z]+\{K\s*\}|\{\s*(?:[eijkMBxyz]|of)\s*\}")
#: After a sum of money, K means thousand, not kelvin.
_MONEY = re.compile(r"[$€£¥]\s*-?[0-9.,]+\s*$")


def _thousands(match: re.Match[str]) -> bool:
    return re.search(r"\{\s*K\b", match[0]) is not None and _MONEY.search(match.string, 0, match.start()) is not None


#: A unit: text after a value, with an exponent of its own, up to the end of the part.
_UNIT = (
    rf"(?<=[^\s(\[⦃,=±*/+-])(?<!\\cdot)(?<!\\times)\s*(?:{TEXT}\s*(?:\^\s*(?:\{{[^{{}}]*\}}|[0-9]))?\s*)+(?=$|[,.)\]⦄])"
)
#: Functions that are written without brackets around their argument.
_FUNCTIONS = (
    *("arcsin", "arccos", "arctan", "arccot", "arcsec", "arccsc", "asinh", "acosh", "atanh", "sinh", "cosh", "tanh"),
    *("asin", "acos", "atan", "acot", "asec", "acsc", "sin", "cos", "tan", "cot", "sec", "csc", "log", "exp"),
)
_INVERSE = {name: f"a{name}" for name in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh")}
_GREEK = (
    *(
        "alpha",
        "beta",
        "gamma",
        "delta",
        "epsilon",
        "zeta",
        "eta",
        "theta",
        "iota",
        "kappa",
        "lambda",
        "mu",
        "nu",
        "xi",
        "rho",
    ),
    *(
        "sigma",
        "tau",
        "upsilon",
        "phi",
        "chi",
        "psi",
        "omega",
        "Gamma",
        "Delta",
        "Theta",
        "Lambda",
        "Xi",
        "Pi",
        "Sigma",
    ),
    *("Upsilon", "Phi", "Psi", "Omega", "hbar", "ell"),
)
_SIGNS = str.maketrans(
    {
        "≤": r"\le ", "≥": r"\ge ", "⩽": r"\le ", "⩾": r"\ge ", "≠": r"\ne ", "∞": r"\infty ", "∪": r"\cup ", "∈": r"\in ", "∅": r"\emptyset ",
        "±": r"\pm ", "∛": r"\sqrt[3]", "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ", "≈": r"\approx ", "ℝ": r"\mathbb{R}",
        "∠": r"\angle ", "⋅": "*", "…": r"\ldots ", "ⁿ": "^{n}", "ϕ": r"\phi ", "ϵ": r"\epsilon ",
    }
)  # fmt: skip
_RAISED, _LOWERED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+"), str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_DOTS = r"(?:\.\.\.|\\(?:ldots|dots|cdots)(?![a-zA-Z]))"
#: The last step is a loop over what is nested; these come first, in this order.
_STEPS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"(?<=[0-9])_\{([0-9]+)\}", r"_\1"),
    (r"(?<![0-9])0\{,\}(?=[0-9])|(?<=[0-9])\{,\}(?=(?:[0-9]{1,2}|[0-9]{4,})(?![0-9]))", lambda m: m[0].replace("{,}", ".")),
    (r"(?<=[0-9])(?:\\[,!]|,\\!|\{,\}\\!)(?=[0-9]{3}(?![0-9]))|\{,\}", ""),
    (r"\{:\}", ":"),
    (r"(\\(?:sin|cos|tan|cot|sec|csc))\s*(\(?)\s*([0-9.]+)\s*(?:°|\^\s*\{?\s*\\circ\s*\}?)\s*(\)?)", r"\1\2(\3*\\pi/180)\4"),
    (r"(?:\\(?:text|mathrm)\{)?\ball (?:the )?real(?: number)?s?\b\s*\}?", r"\\mathbb{R}"),
    (r"\\(?:setminus|smallsetminus)(?![a-zA-Z])|\\backslash(?![a-zA-Z])", "∖"),
    (r"(?<!\\)\\[,;:! ]|~", " "),
    (r"\\(?:left|right|displaystyle|textstyle|limits|[bB]igg?[lrm]?|quad|qquad)(?![a-zA-Z])\.?", " "),
    (r"\\hspace\*?\{[^{}]*\}", " "),
    (r"\^\s*\{?\s*(?:\\(?:text|mathrm)\{\s*)?(?:st|nd|rd|th)\s*\}?(?:\s*\})?", ""),
    (
        _UNIT,
        lambda match: match[0] if NO_UNIT.search(match[0]) or _FACTOR.search(match[0]) or _thousands(match) else "",
    ),
    (TEXT, r" \1 "),
    (r"\\?[$€£¥]|\\?%|(?:°|\^\{?\s*\\circ\s*\}?)\s*(?:[CF](?![a-zA-Z]))?", " "),
    (r"([0-9]*)\.([0-9]*)\\(?:overline|bar|dot|overset\{\.\})\s*(?:\{([0-9]+)\}|([0-9]))(?![0-9]*\\dot)", lambda m: repeating(m[1], m[2], m[3] or m[4])),
    (r"([0-9]*)\.([0-9]*)\\dot\s*\{?([0-9])\}?([0-9]*)\\dot\s*\{?([0-9])\}?", lambda m: repeating(m[1], m[2], m[3] + m[4] + m[5])),
    (r"(?<![0-9.a-zA-Z])([0-9]+)\.([0-9]*)\(([0-9]+)\)(?![0-9])", lambda m: repeating(m[1], m[2], m[3])),
    (rf"(?<![0-9.])([0-9]+)\.([0-9]*?)(?:([0-9])\3\3+|([0-9]{{2}})\4\4+|([0-9]{{3,}}?)\5+)[0-9]*?{_DOTS}", lambda m: repeating(m[1], m[2], m[3] or m[4] or m[5])),
    (r"(?<![a-zA-Z0-9.])([0-9]+\.?[0-9]*|\.[0-9]+)[eE]([-+−]?[0-9]{1,3})(?![0-9a-zA-Z.])", lambda m: f"({m[1]}*10^{{{int(m[2].replace('−', '-'))}}})"),
    (r"(?<![\^0-9a-zA-Z.}])([0-9]+)\s*\\[dtc]?frac\s*(?:\{([0-9]+)\}\{([0-9]+)\}|([0-9])\s*([0-9]))(?![0-9])", r"(\1+\2\4/\3\5)"),  # 1½
    (r"\\(?:cdot|times|ast)(?![a-zA-Z])|·|×", "*"),
    (r"\\div(?![a-zA-Z])|÷", "/"),
    (r"\\pi(?![a-zA-Z])|π", " pi "),
    (r"\\log\s*_\s*(?:\{([^{}]*)\}|([0-9a-zA-Z]))", r" log⟦\1\2⟧ "),
    (r"\\lg(?![a-zA-Z])", " log⟦10⟧ "),
    (r"\\(?:ln|log)(?![a-zA-Z])|\bln\b", " log "),
    (rf"\\(sqrt|{'|'.join(_FUNCTIONS)})(?![a-zA-Z])", r" \1 "),
    (r"\\[dtcs]?frac(?![a-zA-Z])|\\nicefrac(?![a-zA-Z])", r"\\frac"),
    (r"−|–", "-"),
    (r"√", " sqrt "),
    (r"\\(?:var)?(epsilon|theta|phi|rho|sigma|kappa|pi)(?![a-zA-Z])", r"\\\1"),
    (rf"\\({'|'.join(_GREEK)})(?![a-zA-Z])", r"⟨\1⟩"),
    (r"\\infty(?![a-zA-Z])|(?<![a-zA-Z])(?:infinity|inf|oo)(?![a-zA-Z])", "⟨oo⟩"),
    (r"\\(?:emptyset|varnothing)(?![a-zA-Z])", "⦃⦄"),
    (r"\\mathbb\s*\{?R\}?|\\R(?![a-zA-Z])", "(-⟨oo⟩,⟨oo⟩)"),
    (r"\\(?:langle)(?![a-zA-Z])", "("), (r"\\(?:rangle)(?![a-zA-Z])", ")"),
    (r"\\[dt]?binom\s*([0-9a-zA-Z])\s*([0-9a-zA-Z])", r"\\binom{\1}{\2}"),
    (r"\{\s*([^{}]*?)\s*\\choose\s*([^{}]*?)\s*\}", r"\\binom{\1}{\2}"),
    (r"\{\s*([^{}]*?)\s*\\over\s*([^{}]*?)\s*\}", r"\\frac{\1}{\2}"),
    (r"(?:\{\})?[_^]\{?([0-9]+)\}?\s*C\s*_\s*\{?([0-9]+)\}?", r"\\binom{\1}{\2}"),
    (r"\\(?:le|leq|leqslant)(?![a-zA-Z])|<=", "≤"), (r"\\(?:ge|geq|geqslant)(?![a-zA-Z])|>=", "≥"),
    (r"\\lt(?![a-zA-Z])", "<"), (r"\\gt(?![a-zA-Z])", ">"), (r"\\(?:ne|neq)(?![a-zA-Z])", "≠"), (r"\\in(?![a-zA-Z])", "∈"),
    (r"\\cup(?![a-zA-Z])", "∪"), (r"\\pm(?![a-zA-Z])", "±"), (r"\\approx(?![a-zA-Z])", "≈"),
    (r"\\(?:angle|triangle)(?![a-zA-Z])", "∠"),
    (r"\\(?:lvert|rvert|vert|mid)(?![a-zA-Z])", "|"),
    (r"\\lfloor(?![a-zA-Z])", " floor("), (r"\\lceil(?![a-zA-Z])", " ceil("), (r"\\r(?:floor|ceil)(?![a-zA-Z])", ")"),
)  # fmt: skip
_NESTED: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"\\frac\s*(?:\{([^{}]*)\}|([0-9a-zA-Z]))\s*(?:\{([^{}]*)\}|([0-9a-zA-Z]))", lambda m: _fraction(m)),
    (r"\\[dt]?binom\s*\{([^{}]*)\}\s*\{([^{}]*)\}", r" binomial(\1,\2)"),
    (r"sqrt\s*\[([^][{}]*)\]\s*(?:\{([^{}]*)\}|([0-9a-zA-Z]))", r" root(\2\3,\1)"),
    (r"sqrt\s*\[([^][{}]*)\]\s*\(([^(){}]*)\)", r" root(\2,\1)"),
    (r"([a-zA-Z]|⟨[^⟩]*⟩)\s*_\s*(?:\{([^{}]*)\}|([0-9a-zA-Z]))", lambda m: f"⟨{m[1].strip('⟨⟩')}‗{''.join((m[2] or m[3] or '').split())}⟩"),
    (r"(?:\^|\*\*)\s*\{([^{}]*)\}", r"**(\1)"),
    (r"(sqrt)\s*\{([^{}]*)\}", r"\1(\2)"),
    (rf"\b({'|'.join(_FUNCTIONS)})\s*\{{([^{{}}]*)\}}", r"\1(\2)"),
    (r"(sqrt)\s+([0-9]+|[a-zA-Z]|⟨[^⟩]*⟩|pi)(?![a-zA-Z0-9(.])", r"\1(\2)"),
)  # fmt: skip

#: Braces that only group, when all commands with arguments are read.
_GROUP = re.compile(r"(?<!\\)(?<![a-zA-Z])\{([^{}⦃⦄]*)\}(?!$)|(?<=\S)(?<![a-zA-Z])\{([^{}⦃⦄]*)\}")


def plain(text: str) -> str:
    """Turn a LaTeX answer into plain text: ``\\frac{1}{2}`` into ``((1)/(2))``.

    A name of more than one letter (``\\alpha``, ``x_1``) stands between ``⟨`` and ``⟩``, infinity is ``⟨oo⟩``, and a matrix
    is ``⟬a¦b‖c¦d⟭``.
    """
    text = _one_alphabet(text).replace("\\{", "⦃").replace("\\}", "⦄").replace("\\lbrace", "⦃").replace("\\rbrace", "⦄")
    text = re.sub(
        r"\\begin\{(?:[pbB]?matrix|array)\}(?:\{[lcr|]*\})?(.*?)\\end\{(?:[pbB]?matrix|array)\}",
        _matrix,
        text,
        flags=re.DOTALL,
    )
    text = re.sub(r"\\left\s*[(\[]\s*(⟬[^⟭]*⟭)\s*\\right\s*[)\]]", r"\1", text)
    if "\\vec" in text:  # of vectors there are two products
        text = text.replace("\\times", "⨯")
    text = _without_fonts(text)
    for pattern, replacement in _STEPS:
        text = re.sub(pattern, replacement, text)
    text = _joined(text)
    for _ in range(LONGEST):
        changed = text
        for pattern, replacement in _NESTED:
            changed = re.sub(pattern, replacement, changed)
        if changed == text:
            changed = _GROUP.sub(_group, text)
        if changed == text:
            break
        text = changed
    text = _between_bars(text.replace("^", "**"))
    for _ in range(LONGEST):
        changed = re.sub(r"(?<![a-zA-Z0-9.])([0-9]+|[a-zA-Z]|\([^()]*\)|⟨[^⟩]*⟩)\s?!(?!=)", _factorial, text)
        if changed == text:
            break
        text = changed
    text = _with_arguments(" ".join(text.split()))
    text = re.sub(
        r"(?<![0-9.,] )(?<![0-9.,])[0-9]{1,3}(?: [0-9]{3})+(?![0-9.]| [0-9])", lambda m: m[0].replace(" ", ""), text
    )
    return re.sub(_DOTS, "…", text).replace("⦃", "{").replace("⦄", "}").removesuffix(".").strip()


def _one_alphabet(text: str) -> str:
    """Replace letters of mathematical fonts, raised and lowered digits, fractions and signs by their LaTeX or ASCII."""
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺]+", lambda m: f"^{{{m[0].translate(_RAISED)}}}", text)
    text = re.sub("[₀-₉]+", lambda m: f"_{{{m[0].translate(_LOWERED)}}}", text)
    return "".join(map(_one_letter, text.translate(_SIGNS)))


def _one_letter(char: str) -> str:
    if char.isascii():
        return char
    name = unicodedata.name(char, "")
    if name.startswith("VULGAR FRACTION") and "⁄" in (parts := unicodedata.normalize("NFKC", char)):
        return "\\frac{{{}}}{{{}}}".format(*parts.split("⁄"))
    if name.startswith(("MATHEMATICAL", "FULLWIDTH", "DOUBLE-STRUCK")):
        char = unicodedata.normalize("NFKC", char)
        name = unicodedata.name(char[0], "")
    kind, _, letter = name.partition(" LETTER ")
    if kind in ("GREEK SMALL", "GREEK CAPITAL") and char != "π":
        letter = "lambda" if letter == "LAMDA" else letter.lower()
        return f"\\{letter.capitalize() if 'CAPITAL' in kind else letter} "
    return char


def _without_fonts(text: str) -> str:
    """Remove the commands of bold, slanted and other letters, and fonts within fonts."""
    text = re.sub(r"\\operatorname\*?\s*\{\s*([a-zA-Z]+)\s*\}", r"\\\1 ", text)
    for _ in range(4):
        text = re.sub(
            r"\\(?:boldsymbol|bm|pmb|mathit|mathsf|mathtt|mathcal|textit|textsf|texttt|emph|underline|mathnormal)\s*\{([^{}]*)\}",
            r"\1",
            text,
        )
        text = re.sub(
            rf"(\\(?:text|mathrm|mbox|textbf|mathbf|textrm|textnormal))\{{([^{{}}]*){TEXT}([^{{}}]*)\}}",
            r"\1{\2\3\4}",
            text,
        )
        text = re.sub(r"\{\s*\\(?:bf|rm|it|sf|tt)\s+([^{}]*)\}", r"\1", text)
    text = re.sub(r"\\(?:text)?color\s*\{[a-zA-Z!0-9]*\}", "", text)
    return text


def _matrix(match: re.Match[str]) -> str:
    rows = [row for row in re.split(r"\\\\(?:\[[^]]*\])?", match[1]) if row.strip()]
    return f"⟬{'‖'.join('¦'.join(cell.strip() for cell in row.split('&')) for row in rows)}⟭"


def repeating(whole: str, fixed: str, period: str) -> str:
    """Return a repeating decimal as a fraction in brackets: 0.1(6) as ``(1/6)``."""
    if len(fixed + period) > 40:
        return "?"
    value = Fraction(
        int(whole + fixed + period or "0") - int(whole + fixed or "0"), 10 ** len(fixed) * (10 ** len(period) - 1)
    )
    return f"({value})"


def _group(match: re.Match[str]) -> str:
    inner = match[1] if match[1] is not None else match[2]
    return match[0] if "," in inner else f"({inner})"


def _factorial(match: re.Match[str]) -> str:
    return f" factorial({match[1].removeprefix('(').removesuffix(')') if match[1].startswith('(') else match[1]})"


def _between_bars(text: str) -> str:
    """Read ``|x|`` as ``abs(x)``, unless a bar stands in a set or alone."""
    if text.count("|") not in (2, 4, 6) or "⦃" in text:
        return text
    pieces = text.split("|")
    return "".join(piece + (("abs(", ")")[i % 2] if i < len(pieces) - 1 else "") for i, piece in enumerate(pieces))


def _with_arguments(text: str) -> str:
    """Put brackets around the arguments of functions: ``sin 2x + 1`` is ``sin(2x) + 1``, ``sin**2 x`` is ``(sin(x))**2``."""
    names = re.compile(
        rf"(?<![a-zA-Z])({'|'.join(_FUNCTIONS)})(⟦[^⟧]*⟧)?(?![a-zA-Z])\s*(?:\*\*\s*(\([^()]*\)|[0-9]+))?\s*"
    )
    matches = list(names.finditer(text))
    for match in reversed(matches):  # the innermost first
        end = _argument_end(text, match.end())
        if end is None:
            continue
        argument = text[match.end() : end].strip()
        name, base, power = match[1], match[2], match[3]
        if power is not None and power.strip("() ") == "-1":
            name, power = _INVERSE.get(name, name), None
        name = f"a{name.removeprefix('arc')}" if name.startswith("arc") else name
        applied = f"{name}({argument})"
        applied = f"({applied}/log({base[1:-1]}))" if base else applied
        text = f"{text[: match.start()]}{f'({applied})**{power}' if power else applied}{text[end:]}"
    return text


_ROOTS = r"sqrt|abs|root|binomial|factorial|floor|ceil"


def _argument_end(text: str, start: int) -> int | None:
    """Return where the argument of a function ends: after brackets, else before the next sign or function."""
    if text.startswith("(", start):
        return _closing(text, start)
    factor = re.compile(
        rf"\s*(?:[0-9.]+|⟨[^⟩]*⟩|pi(?![a-zA-Z])|(?:{_ROOTS})?(?=\()|(?!(?:{'|'.join(_FUNCTIONS)})(?![a-z]))[a-zA-Z](?![a-zA-Z]{{2}}))"
    )
    end = start
    while (match := factor.match(text, end)) and match.end() < len(text) + 1:
        position = match.end()
        if text.startswith("(", position):
            closing = _closing(text, position)
            if closing is None:
                break
            position = closing
        if position == end:
            break
        power = re.compile(r"\s*\*\*\s*(?:\([^()]*\)|[0-9]+|[a-zA-Z])").match(text, position)
        end = power.end() if power else position
    return end if end > start else None


def _closing(text: str, start: int) -> int | None:
    depth = 0
    for position in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return position + 1
    return None


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
