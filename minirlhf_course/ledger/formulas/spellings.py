"""The notation that people write in derivations, in the signs that :mod:`.reader` knows.

Papers write one thing in several ways: ``\\pi_\\theta(y \\mid x)``, ``\\pi_{\\text{ref}}``, ``\\mathbb{E}_{x \\sim \\mathcal{D}, y
\\sim \\pi_\\theta(\\cdot|x)}``. There is one prompt here, so that what depends on ``x`` alone is a number, and ``x`` is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_X = r"[xs]"
_DATA = r"(?:\\mathcal\s*\{?\s*[DX]\s*\}?|\\rho|\\mu|[Dpd](?:_\{?0?\}?)?)"
_BAR = r"(?:\\[bB]igg?m?\s*)?(?:\\middle\s*)?(?:\\mid(?![A-Za-z])|\\vert(?![A-Za-z])|\\given(?![A-Za-z])|\|)"
_KL = r"(?:\\(?:text|textrm|mathrm|mathit|operatorname|rm)\s*)?(?:\{\s*)?KL(?:\s*\})?"
_ANY_POLICY = r"\\pi(?:ref(?![A-Za-z])|old(?![A-Za-z])|\^\*)?"
_SPACE = r"(?:\s|\\[,;:! ])*"
_OBJECTIVE = r"(\\mathcal\s*\{?\s*[A-Z]\s*\}?|\\ell|[A-Z])"

#: Patterns, and what replaces each, before the policies are named.
_FONTS: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    (re.compile(r"\\(?:boldsymbol|mathbf|bm)\s*(?:\{([^{}]*)\}|(\\[A-Za-z]+|\w))"), lambda m: m[1] or m[2]),
    (re.compile(r"\\mathbb\s*\{?\s*E\s*\}?|\\mathrm\s*\{\s*E\s*\}|\\operatorname\s*\{\s*E\s*\}"), r"\\E "),
    (re.compile(r"\\mathcal\s*([A-Z])(?![A-Za-z])"), r"\\mathcal{\1}"),
    (re.compile(r"\\(g|l|n)eq(?![A-Za-z])"), r"\\\1e "),
]  # fmt: skip

#: The same afterwards; applied in this order.
_RULES: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    (re.compile(r"\\(?:begin|end)\s*\{(?:align|equation|split|gather|multline|array)\*?\}(?:\{[lcr]+\})?"), " "),
    (re.compile(r"\\(?:tag|label)\*?\s*\{[^{}]*\}|\\(?:nonumber|notag)(?![A-Za-z])"), " "),
    (re.compile(r"\\(?:triangleq|coloneqq|equiv|doteq)(?![A-Za-z])|:\s*=|\\stackrel\s*\{[^{}]*\}\s*\{?=\}?"), " = "),
    (re.compile(rf"(?:\\math(?:bb|rm|cal)\s*\{{?\s*D\s*\}}?|D)\s*_\s*(?:\{{\s*{_KL}\s*\}}|{_KL})"), r"\\KL "),
    (re.compile(r"\\(?:text|textrm|mathrm|mathit|operatorname)\*?\s*\{\s*KL\s*\}"), r"\\KL "),
    (re.compile(r"\|\||\\(?:Vert|parallel)(?![A-Za-z])|\\mathrel\{\\\|\}"), r"\\| "),
    (re.compile(rf"{_X}\s*\\sim\s*{_DATA}\s*,\s*"), ""),
    (re.compile(rf"\\E\s*_\s*\{{\s*{_X}\s*(?:\\sim\s*{_DATA}\s*)?\}}"), " "),
    (re.compile(rf"\(\s*(y'*|\\cdot)\s*{_BAR}\s*{_X}\s*\)"), r"(\1)"),
    (re.compile(rf"\(\s*{_X}\s*,\s*(y'*|\\cdot)\s*\)"), r"(\1)"),
    (re.compile(rf"\(\s*{_X}\s*\)"), " "),
    (re.compile(r"\(\s*\\cdot\s*\)"), " "),
    (re.compile(rf"{_OBJECTIVE}\s*\(\s*\\theta\s*\)"), r"\1 "),
    (re.compile(rf"{_OBJECTIVE}\s*\(\s*\\pi(?:ref)?\s*(?:[;,]\s*\\piref\s*)?\)"), r"\1 "),
    (re.compile(r"(?<![A-Za-z\\])r\s*_\s*(?:\{\s*\\(?:phi|psi)\s*\}|\\(?:phi|psi)(?![A-Za-z]))"), "r "),
    (re.compile(rf"(\\sim\s*{_ANY_POLICY})\s*\(\s*y'*\s*\)"), r"\1 "),
    (re.compile(rf"({_ANY_POLICY})\s*\(\s*y'*\s*\)({_SPACE}\\\|)"), r"\1 \2"),
    (re.compile(rf"(\\\|{_SPACE}{_ANY_POLICY})\s*\(\s*y'*\s*\)"), r"\1 "),
    # E under a policy of something that depends on y is the mean over y
    (re.compile(rf"\\E\s*_\s*(?:\{{\s*({_ANY_POLICY})\s*\}}|({_ANY_POLICY}))(?=\s*(?:\\[A-Za-z]+)?\s*[\[(][^=]*?\(\s*(y'*)\s*\))"),
     lambda m: rf"\E_{{{m[3]}\sim{m[1] or m[2]} }}"),
    (re.compile(r"(y'*)\s*\\in\s*\\mathcal\s*\{?\s*[YA]\s*\}?"), r"\1 "),
]  # fmt: skip

_POLICY = re.compile(
    r"\\pi(?![A-Za-z])((?:\s*[_^]\s*(?:\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}|\\[A-Za-z]+\s*\{[^{}]*\}|\\[A-Za-z]+|\S))*)"
)
_ROLES = (("ref", r"\piref "), ("SFT", r"\piref "), ("sft", r"\piref "), ("base", r"\piref "), ("old", r"\piold "))


def spelled(latex: str) -> str:
    """Return a formula, or the key of a legend, in the signs of the reader."""
    for pattern, by in _FONTS:
        latex = pattern.sub(by, latex)
    latex = _POLICY.sub(_policy, latex)
    for pattern, by in _RULES:
        latex = pattern.sub(by, latex)
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
