"""Whether two expressions have the same value, by sympy in a box: a power tower takes all time and memory there is, there."""

from __future__ import annotations

import atexit
import functools
import os
import re
import string
from typing import Any

from minirlhf.sandbox.inside import Guest
from minirlhf.sandbox.server import Box, BoxEnded, Boxes, Limits

LIMITS = Limits(cpu=2, wall=30.0, memory=512 << 20, file=0)
FUNCTIONS = ("sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "exp", "log", "abs")
#: What an expression is made of; nothing else is ever given to sympy, whose reader evaluates Python.
_TOKENS = re.compile(rf"(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+|\b(?:{'|'.join(FUNCTIONS)}|pi)\b|\b[a-zA-Z]\b|\*\*|[-+*/() ])*")
LONGEST = 300
POINTS = 5
DIGITS = 30


def same_value(one: str, other: str) -> bool:
    """Whether both are expressions, and have the same value wherever their letters are replaced by numbers.

    Tried at :data:`POINTS` fixed points with :data:`DIGITS` digits, so that ``(x+1)**2`` is ``x**2+2*x+1``, and ``1.4142`` is not
    ``sqrt(2)``. Letters stand for positive numbers, ``e`` for Euler's. False for what is no expression, and where the answer takes too long.
    """
    if not all(is_expression(text) for text in (one, other)):
        return False
    try:
        with Box(_boxes_of(os.getpid()), LIMITS) as box:
            return box.ask({"op": "same", "texts": [one, other]}).get("ok") is True
    except BoxEnded:
        return False


def is_expression(text: str) -> bool:
    """Whether a text is made of numbers, letters, known functions and signs of arithmetic."""
    return 0 < len(text) <= LONGEST and _TOKENS.fullmatch(_spaced(text)) is not None


def _spaced(text: str) -> str:
    """With every word between spaces: ``2xsin(x)`` as ``2 x sin (x)``."""
    words = re.compile("|".join((*sorted(FUNCTIONS, key=len, reverse=True), "pi", "[a-zA-Z]")))
    return re.sub(r"[a-zA-Z]+", lambda found: f" {' '.join(words.findall(found[0]))} ", text)


@functools.cache
def _boxes_of(process: int) -> Boxes:
    boxes = Boxes("minirlhf.sandbox.algebra")
    atexit.register(boxes.close)
    return boxes


class Algebra(Guest):
    """What serves in the box."""

    @staticmethod
    def prepare() -> None:
        """Import sympy, which takes a second, and read one expression, which imports the rest."""
        _same("(x + 1)**2/2", "sqrt(2) + abs(sin(x))")

    def _on_same(self, question: dict[str, Any]) -> bool:
        return _same(*question["texts"])


def _same(one: str, other: str) -> bool:
    import sympy
    from sympy.parsing import sympy_parser as reader

    named = {name: getattr(sympy, name.capitalize() if name == "abs" else name) for name in (*FUNCTIONS, "pi")}
    changes = (*reader.standard_transformations, reader.implicit_multiplication, reader.rationalize)
    letters: dict[str, Any] = {c: sympy.Symbol(c, positive=True) for c in string.ascii_letters}
    letters["e"] = sympy.E
    read = [
        reader.parse_expr(_spaced(text), local_dict={**letters, **named}, transformations=changes, evaluate=False)
        for text in (one, other)
    ]
    free = sorted(read[0].free_symbols | read[1].free_symbols, key=str)
    for point in range(POINTS):
        values = {letter: sympy.Rational(7 + 5 * point + 3 * i, 4 + 2 * i + point) for i, letter in enumerate(free)}
        left, right = (sympy.N(expression, DIGITS, subs=values) for expression in read)
        if not (left.is_number and right.is_number and left.is_finite and right.is_finite):
            return False
        if abs(left - right) > sympy.Float(10) ** (5 - DIGITS) * (1 + abs(left)):
            return False
    return True


GUEST = Algebra
