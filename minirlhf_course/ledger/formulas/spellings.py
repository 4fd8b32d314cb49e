"""The notation that people write in derivations, in the signs that :mod:`.reader` knows.

Papers write one thing in several ways: ``\\pi_\\theta(y \\mid x)``, ``\\pi_{\\text{ref}}``, ``\\mathbb{E}_{x \\sim \\mathcal{D}, y
\\sim \\pi_\\theta(\\cdot|x)}``. There is one prompt here, so that what depends on ``x`` alone is a number, and ``x`` is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_X = "x"
_Y = r"(?:y'*(?![_^A-Za-z])|\\y[wl](?![A-Za-z]))"
_DATA = r"(?:\\mathcal\s*(?:\{\s*[DX]\s*\}|[DX])|\\rho|\\mu|[Dpd](?:_\{?0?\}?)?)"
_BAR = r"(?:\\[bB]igg?m?\s*)?(?:\\middle\s*)?(?:\\mid(?![A-Za-z])|\\vert(?![A-Za-z])|\\given(?![A-Za-z])|\|)"
_KL = r"(?:\\(?:text|textrm|mathrm|mathit|operatorname|rm)\s*)?(?:\{\s*)?KL(?:\s*\})?"
_ANY_POLICY = r"\\pi(?:ref(?![A-Za-z])|old(?![A-Za-z])|bon(?![A-Za-z])|\^\*)?"
_SPACE = r"(?:\s|\\[,;:! ])*"
_SCRIPTS = r"(?:\s*[_^]\s*(?:\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}|\\[A-Za-z]+\s*\{[^{}]*\}|\\[A-Za-z]+|\w))*"
_OBJECTIVE = rf"((?:\\mathcal\s*\{{?\s*[A-Z]\s*\}}?|\\ell|[A-Z]){_SCRIPTS})"
_LETTER = r"([ijkm])"
_OPEN = r"(?:\\left|\\[bB]igg?l?)?\s*"
_TOKEN_OF = (
    rf"\s*(?:{_OPEN})\(\s*[ya]_\{{?(?:i\s*,\s*)?t\}}?\s*{_BAR}\s*(?:x\s*,\s*)?[ys]_\{{?(?:i\s*,\s*)?<?\s*t\}}?\s*\)"
)

#: A regular expression, and what replaces it.
Spelling = tuple[str, str | Callable[[re.Match[str]], str]]

#: Applied in this order, before the policies are named.
_FONTS: list[Spelling] = [
    (r"\\(?:boldsymbol|mathbf|bm)\s*(?:\{([^{}]*)\}|(\\[A-Za-z]+|\w))", lambda m: m[1] or m[2]),
    (r"\\mathbb\s*\{?\s*E\s*\}?|\\mathrm\s*\{\s*E\s*\}|\\operatorname\s*\{\s*E\s*\}", r"\\E "),
    (r"\\mathcal\s*([A-Z])(?![A-Za-z])", r"\\mathcal{\1}"),
    (r"\\(g|l|n)eq(?![A-Za-z])", r"\\\1e "),
    (r"(?s)\\left\s*\\\{(.*?)\\right\s*\\\}", r"\\left(\1\\right)"),
    (r"\\(?:text|operatorname|mathop|mathit)\s*\{\s*clip\s*\}|\\clip(?![A-Za-z])", r"\\mathrm{clip}"),
]  # fmt: skip

#: The same afterwards; applied in this order.
_RULES: list[Spelling] = [
    (r"\\(?:begin|end)\s*\{(?:align|equation|split|gather|multline|array)\*?\}(?:\{[lcr]+\})?", " "),
    (r"\\(?:tag|label)\*?\s*\{[^{}]*\}|\\(?:nonumber|notag)(?![A-Za-z])", " "),
    (r"\\(?:triangleq|coloneqq|equiv|doteq)(?![A-Za-z])|:\s*=|\\stackrel\s*\{[^{}]*\}\s*\{?=\}?", " = "),
    (rf"(?:\\math(?:bb|rm|cal)\s*\{{?\s*D\s*\}}?|D)\s*_\s*(?:\{{\s*{_KL}\s*\}}|{_KL})", r"\\KL "),
    (r"\\(?:text|textrm|mathrm|mathit|operatorname)\*?\s*\{\s*KL\s*\}", r"\\KL "),
    (r"\|\||\\(?:Vert|parallel)(?![A-Za-z])|\\mathrel\{\\\|\}", r"\\| "),
    (rf"{_X}\s*\\sim\s*{_DATA}\s*,\s*", ""),
    (rf"\\E\s*_\s*\{{\s*{_X}\s*(?:\\sim\s*{_DATA}\s*)?\}}", " "),
    (rf"\(\s*({_Y}|\\cdot)\s*{_BAR}\s*{_X}\s*\)", r"(\1)"),
    (rf"\(\s*{_X}\s*,\s*({_Y}|\\cdot)\s*\)|\(\s*({_Y})\s*,\s*{_X}\s*\)", lambda m: f"({m[1] or m[2]})"),
    (rf"\(\s*{_X}\s*\)", " "),
    (r"\(\s*\\cdot\s*\)", " "),
    (rf"{_OBJECTIVE}\s*\(\s*\\(?:theta|phi|psi)\s*\)", r"\1 "),
    (rf"{_OBJECTIVE}\s*\(\s*\\pi(?:ref)?\s*(?:[;,]\s*\\piref\s*)?\)", r"\1 "),
    (r"(?<![A-Za-z\\])r\s*_\s*(?:\{\s*\\(?:phi|psi)\s*\}|\\(?:phi|psi)(?![A-Za-z]))", "r "),
    (r"([Pp]|\\pi(?:ref|old)?)\s*\(([^()|]*)\|([^()|]*)\)", r"\1(\2\\mid \3)"),
    (rf"\(\s*(\\?[A-Za-z]+)\s*{_BAR}\s*x\s*\)", r"(\1)"),
    (r"(\\mathcal\{L\}\s*_)\s*(?:\{\s*)?(?:\\(?:mathrm|text|textrm)\s*\{\s*)?([A-Za-z]{2,}|R)\s*\}*", r"\1\\text{\2} "),
    (rf"(\\sim\s*{_ANY_POLICY})\s*\(\s*y'*\s*\)", r"\1 "),
    (rf"({_ANY_POLICY})\s*\(\s*y'*\s*\)({_SPACE}\\\|)", r"\1 \2"),
    (rf"(\\\|{_SPACE}{_ANY_POLICY})\s*\(\s*y'*\s*\)", r"\1 "),
    # E under a policy of something that depends on y is the mean over y
    (rf"\\E\s*_\s*(?:\{{\s*({_ANY_POLICY})\s*\}}|({_ANY_POLICY}))(?=\s*(?:\\[A-Za-z]+)?\s*[\[(][^=]*?\(\s*(y'*)\s*\))",
     lambda m: rf"\E_{{{m[3]}\sim{m[1] or m[2]} }}"),
    (r"([yas]'*)\s*\\in\s*\\mathcal\s*\{?\s*[YAS]\s*\}?", r"\1 "),
]  # fmt: skip

#: Other names of what :mod:`.derivation_signs` knows: prompts and samples, pairs, groups, tokens and values. Applied in this order,
#: before :data:`_RULES`.
_NAMES: list[Spelling] = [
    (r"\\(?:mathrm|operatorname|text)\s*\{\s*(mean|std)\s*\}\s*(?:\\left)?\s*\(((?:[^()]|\([^()]*\))*)\)", lambda m: _statistic(m)),
    (r"\\(?:hat|tilde|widehat|widetilde)\s*\{?\s*(\\E|A)\s*\}?", r"\1 "),
    (r"\\(?:hat|widehat)\s*\{?\s*r\s*\}?\s*_\s*\{?\s*\\theta\s*\}?", r"\\hat r "),
    (r"\\(hat|tilde|bar)\s*\{\s*([A-Za-z])\s*\}", r"\\\1 \2"),
    (r"\\bar\s*R(?![A-Za-z])", r"\\bar r"),
    # a sum over the data: every pair by itself
    (r"\\frac\s*\{?1\}?\s*\{?[NMBn]\}?\s*\\sum_\{i=1\}\^\{?[NMBn]\}?(?=.*y_\{?[wl]\}?\^)", ""),
    (r"\b(x|y_\{?[wl+-]\}?)(?:\^\{\(i\)\}|_\{?i\}?(?=\s*[,)]))", r"\1"),
    (r"y\s*(?:_|\^)\s*(?:\{\s*)?(?:\\text\{)?(?:w(?:in)?|c(?:hosen)?|\+|1)(?![A-Za-z(])\s*\}*", r"\\yw "),
    (r"y\s*(?:_|\^)\s*(?:\{\s*)?(?:\\text\{)?(?:l(?:ose)?|\\ell|r(?:ejected)?|-|2)(?![A-Za-z(])\s*\}*", r"\\yl "),
    (rf"\\E\s*_\s*\{{[^{{}}=]*\\sim\s*{_DATA}\s*\}}", " "),
    (rf"[pP](?:_\\\w+)?\s*\(\s*({_Y})\s*\\succ\s*({_Y})\s*(?:{_BAR}\s*x\s*)?\)", r"p(\1\\succ \2)"),
    # a sample of a group, and its place in a ranking
    (rf"y\s*[_^]\s*\{{\s*(?:\\[a-z]+)?\s*\(\s*{_LETTER}\s*\)\s*\}}", r"y_\1"),
    (rf"(?<![A-Za-z\\])[rR](?:_\\(?:phi|psi|theta))?\s*\(\s*(?:x\s*,\s*)?y_\{{?{_LETTER}\}}?\s*(?:,\s*x\s*)?\)", r"r_\1 "),
    (rf"(?<![A-Za-z\\])R\s*_\s*\{{?{_LETTER}\}}?", r"r_\1 "),
    (rf"(?<![A-Za-z\\])A\s*(?:_\{{\s*{_LETTER}\s*,\s*t\s*\}}|\^\{{\s*\(\s*{_LETTER}\s*\)\s*\}})", lambda m: f"A_{m[1] or m[2]} "),
    (r"\\sigma(?:_\{?[rR]\}?)?(?=\s*(?:[+}=]|$))", r"\\sigma_r "),
    # a token, and the step of an episode
    (rf"({_ANY_POLICY}){_TOKEN_OF}", r"\1(a_t\\mid s_t)"),
    (r"(?<![A-Za-z\\])r_\{?t\}?\s*\(\s*\\theta\s*\)", r"\\rho_t "),
    (r"(?<![A-Za-z\\])A\s*_\s*\{?t\}?\s*\^\s*\{(?:[^{}]|\{[^{}]*\})*\}", "A_t "),
    (r"(?<![A-Za-z\\])([VQAd])\s*(?:\^\s*\{?\s*\\pi\s*\}?|_\s*\{?\s*\\(?:pi|phi|psi)\s*\}?)(?=\s*\()", r"\1"),
    (r"(?<![A-Za-z\\])([VQ])\s*\^\s*\{?\s*(?:\*|\\star|\\ast)\s*\}?", r"\1^*"),
    (rf"(?<![A-Za-z\\])R\s*\(\s*(?:x\s*,\s*)?({_Y})\s*(?:,\s*x\s*)?\)", r"r(\1)"),
]  # fmt: skip

_POLICY = re.compile(
    r"\\pi(?![A-Za-z])((?:\s*[_^]\s*(?:\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}|\\[A-Za-z]+\s*\{[^{}]*\}|\\[A-Za-z]+|\S))*)"
)
_ROLES = (
    ("bon", r"\pibon "),
    ("BoN", r"\pibon "),
    ("BON", r"\pibon "),
    ("ref", r"\piref "),
    ("SFT", r"\piref "),
    ("sft", r"\piref "),
    ("base", r"\piref "),
    ("old", r"\piold "),
)


def _statistic(match: re.Match[str]) -> str:
    """Mean or standard deviation of the rewards of a group; of anything else it stays as it is."""
    words = re.findall(r"\\?[A-Za-z]+", match[2])
    rewards = {"r", "R"} & set(words) and set(words) <= {
        *"rRqoxyijkGKN",
        r"\dots",
        r"\ldots",
        r"\cdots",
        r"\left",
        r"\right",
        r"\mid",
    }
    return (r"\bar r " if match[1] == "mean" else r"\sigma_r ") if rewards else match[0]


def spelled(latex: str) -> str:
    """Return a formula, or the key of a legend, in the signs of the reader."""
    for pattern, by in _FONTS:
        latex = re.sub(pattern, by, latex)
    latex = _POLICY.sub(_policy, latex)
    if re.search(rf"{_BAR}\s*q(?![A-Za-z])", latex) or re.search(
        r"\(\s*q\s*,\s*o", latex
    ):  # a question and its outputs
        latex = re.sub(r"(?<![A-Za-z\\])([qo])(?![A-Za-z])", lambda m: {"q": "x", "o": "y"}[m[1]], latex)
    if re.search(rf"y'*\s*{_BAR}\s*s(?![A-Za-z_])", latex):  # the prompt as the state of a bandit
        latex = re.sub(r"(?<![A-Za-z\\])s(?![A-Za-z_'])", "x", latex)
    for pattern, by in (*_NAMES, *_RULES):
        latex = re.sub(pattern, by, latex)
    return latex


def _policy(match: re.Match[str]) -> str:
    """``\\pi`` with its sub- and superscripts as one of the four policies; others stay as they are."""
    scripts = match[1]
    for word, name in _ROLES:
        if word in scripts:
            return name
    bare = re.sub(r"[\s{}]", "", scripts)
    if re.fullmatch(
        r"(?:_\\theta|_r|_\\beta)?\^(?:\*|\\star|\\ast)(?:_\\theta|_r|_\\beta)?|_(?:\*|\\star|\\ast|r)", bare
    ):
        return r"\pi^*"
    if bare in ("", r"_\theta"):
        return r"\pi "
    return r"\piref " if bare in ("_0", "_{0}") else match[0]
