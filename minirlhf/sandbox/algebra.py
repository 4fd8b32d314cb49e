"""Whether two expressions have the same value, by sympy in a box: a power tower takes all time and memory there is, there."""

from __future__ import annotations

import atexit
import functools
import math
import os
import random
import re
import secrets
import string
from collections.abc import Iterator
from typing import Any

from minirlhf.sandbox.inside import SandboxWorker
from minirlhf.sandbox.server import BoxEnded, Limits, Sandbox, SandboxPool

LIMITS = Limits(cpu=2, wall=30.0, memory=512 << 20, file=0)
FUNCTIONS = ("sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "exp", "log", "abs")
#: What an expression is made of; nothing else is ever given to sympy, whose reader evaluates Python.
_TOKENS = re.compile(rf"(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+|\b(?:{'|'.join(FUNCTIONS)}|pi)\b|\b[a-zA-Z]\b|\*\*|[-+*/() ])*")
LONGEST = 300
DIGITS = 50  # of a value that is no rational one
NEAR, FAR = 4, 20  # points at which such values are compared: of ordinary size, and far out
FARTHEST = 3000  # powers of ten
BITS = 126  # of the prime
LARGEST_POWER = 1 << 62


def same_value(one: str, other: str) -> bool:
    """Whether both are expressions, and have the same value wherever their letters are replaced by positive numbers.

    The numbers are drawn anew in every call, from the system's randomness: no formula can be made to agree at the right places.
    ``(x+1)**2`` is ``x**2+2*x+1``, and ``1.4142`` is not ``sqrt(2)``. ``e`` is Euler's number. False for what is no expression, and
    where the answer takes too long.

    * Of sums, products, quotients and whole powers the value is computed without rounding, modulo a random prime of 127 bits (``pi`` and
      ``e`` are two more letters there, since no such formula makes a number of one). Two that differ agree with a probability of at most
      their degree in 2¹²⁶ (Schwartz 1980, "Fast Probabilistic Algorithms for Verification of Polynomial Identities"; Zippel 1979).
    * Of the others with :data:`DIGITS` digits, at points of ordinary size and at points as far out as the numbers in the two texts reach:
      ``x + abs(x-1000) + x-1000`` is ``x`` up to a thousand. What differs farther out only, or by less than these digits, passes.

    So an answer is the same in each run, though its points are not, but for one in very many of those built to be undecided.
    """
    if not all(is_expression(text) for text in (one, other)):
        return False
    question = {"op": "same", "texts": [one, other], "key": secrets.randbits(128)}
    try:
        with Sandbox(_boxes_of(os.getpid()), LIMITS) as box:
            return box.ask(question).get("ok") is True
    except BoxEnded:
        return False


def is_expression(text: str) -> bool:
    """Whether a text is made of numbers, letters, known functions and signs of arithmetic; two numbers side by side are no product."""
    known = 0 < len(text) <= LONGEST and _TOKENS.fullmatch(_spaced(text)) is not None
    return known and not re.search(r"[0-9.]\s+[0-9.]", text)


def _spaced(text: str) -> str:
    """With every word between spaces: ``2xsin(x)`` as ``2 x sin (x)``."""
    words = re.compile("|".join((*sorted(FUNCTIONS, key=len, reverse=True), "pi", "[a-zA-Z]")))
    return re.sub(r"[a-zA-Z]+", lambda found: f" {' '.join(words.findall(found[0]))} ", text)


@functools.cache
def _boxes_of(process: int) -> SandboxPool:
    boxes = SandboxPool("minirlhf.sandbox.algebra")
    atexit.register(boxes.close)
    return boxes


class Algebra(SandboxWorker):
    """What serves in the box."""

    @staticmethod
    def prepare() -> None:
        """Import sympy, which takes a second, and compare some expressions, which imports the rest."""
        _same("(x + 1)**2/2", "sqrt(2) + abs(sin(x))", 0)
        _same("x/2", "x*1/2", 0)

    def _on_same(self, question: dict[str, Any]) -> bool:
        one, other = question["texts"]
        return _same(one, other, question["key"])


def _same(one: str, other: str, key: int) -> bool:
    read = [_read(text) for text in (one, other)]
    draws = random.Random(key)
    try:
        return _same_modulo(read, draws)
    except _NotRational:
        return _same_to_digits(read, draws)
    except ZeroDivisionError:
        return False


def _read(text: str) -> Any:
    import sympy
    from sympy.parsing import sympy_parser as reader

    named = {name: getattr(sympy, name.capitalize() if name == "abs" else name) for name in (*FUNCTIONS, "pi")}
    changes = (*reader.standard_transformations, reader.implicit_multiplication, reader.rationalize)
    letters: dict[str, Any] = {c: sympy.Symbol(c, positive=True) for c in string.ascii_letters}
    letters["e"] = sympy.E
    return reader.parse_expr(_spaced(text), local_dict={**letters, **named}, transformations=changes, evaluate=False)


# -- without rounding -----------------------------------------------------------------------------------------------------


class _NotRational(Exception):
    """An expression that is no sum, product, quotient or whole power."""


def _same_modulo(read: list[Any], draws: random.Random) -> bool:
    import sympy

    prime = int(sympy.nextprime(1 << BITS | draws.getrandbits(BITS)))
    letters = sorted(read[0].atoms(sympy.Symbol) | read[1].atoms(sympy.Symbol), key=str)
    values = {letter: draws.randrange(1, prime) for letter in (*letters, sympy.pi, sympy.E)}
    left, right = (_modulo(expression, values, prime) for expression in read)
    return left == right


def _modulo(expression: Any, values: dict[Any, int], prime: int) -> int:
    """The value of an expression modulo a prime.

    Raises:
        ZeroDivisionError: it divides by what is zero there.
    """
    if expression in values:
        return values[expression]
    if expression.is_Rational:
        return _quotient(int(expression.p), int(expression.q), prime)
    if expression.is_Add:
        return sum(_modulo(part, values, prime) for part in expression.args) % prime
    if expression.is_Mul:
        return math.prod(_modulo(part, values, prime) for part in expression.args) % prime
    if expression.is_Pow:
        base, power = expression.args
        whole = _whole(power)
        value = _modulo(base, values, prime)
        return _quotient(1, pow(value, -whole, prime), prime) if whole < 0 else pow(value, whole, prime)
    raise _NotRational


def _quotient(above: int, below: int, prime: int) -> int:
    if below % prime == 0:
        raise ZeroDivisionError
    return above * pow(below, -1, prime) % prime


def _whole(power: Any) -> int:
    """A power as a whole number; those of a sum or a product of numbers, ``-1`` and ``2*3``, too."""
    if power.is_Integer and abs(int(power)) <= LARGEST_POWER:
        return int(power)
    if power.is_Add or power.is_Mul:
        parts = [_whole(part) for part in power.args]
        found = sum(parts) if power.is_Add else math.prod(parts)
        if abs(found) <= LARGEST_POWER:
            return found
    raise _NotRational


# -- to many digits -------------------------------------------------------------------------------------------------------


def _same_to_digits(read: list[Any], draws: random.Random) -> bool:
    import sympy

    letters = sorted(read[0].free_symbols | read[1].free_symbols, key=str)
    sizes = [size for expression in read for size in _sizes(expression)]
    far = _reach(read, sizes)
    deep = max(map(_towers, read)) > 1  # far out exp(exp(x)) takes all time there is
    for point in range((NEAR if deep else NEAR + FAR) if letters else 1):
        ends = {NEAR: 1.0, NEAR + 1: -1.0}.get(point)
        at = {letter: _near(draws) if point < NEAR else _far_out(draws, sizes, far, ends) for letter in letters}
        try:
            rough = sympy.log(abs(sympy.N(read[0], 15, subs=at)) + 1, 10)
            digits = DIGITS + int(min(rough, FARTHEST)) if rough.is_finite else DIGITS
            left, right = (sympy.N(expression, digits, subs=at) for expression in read)
        except (OverflowError, MemoryError, ValueError):
            return False
        if not all(value.is_number and value.is_finite for value in (left, right)):
            return False
        if abs(left - right) > sympy.Float(10) ** (5 - digits) * (1 + abs(left)):
            return False
    return True


def _near(draws: random.Random) -> Any:
    """A random number between 0 and 4, with forty digits."""
    import sympy

    return sympy.Rational(draws.randrange(1, 4 * 10**40), 10**40)


def _far_out(draws: random.Random, sizes: list[Any], far: float, end: float | None) -> Any:
    """A random positive number of the size of one of the numbers that are there, or up to ``far`` powers of ten away from 1; for an ``end`` of
    1 or −1 all of them, up or down."""
    import sympy

    if end is not None:
        return _near(draws) * sympy.Integer(10) ** round(far * end)
    if draws.random() < 0.5:
        return _near(draws) * draws.choice([sympy.Integer(1), *sizes])
    return _near(draws) * sympy.Integer(10) ** round(far * draws.choice((-1.0, 1.0, draws.uniform(-1, 1))))


def _sizes(expression: Any) -> Iterator[Any]:
    """The sizes of the largest parts of an expression in which no letter stands, as positive numbers."""
    import sympy

    if expression.free_symbols:
        for part in expression.args:
            yield from _sizes(part)
    else:
        size = abs(sympy.N(expression, 15))
        if size.is_finite and size > 0:
            yield sympy.Rational(str(size))


def _reach(read: list[Any], sizes: list[Any]) -> float:
    """How many powers of ten away from 1 numbers of these sizes may put a kink, roughly; at most :data:`FARTHEST`."""
    import sympy

    far = 3 + sum(abs(float(sympy.log(size, 10))) for size in sizes)
    if any(expression.has(sympy.log) for expression in read):  # log(x) is 1000 far out
        far += float(min(max(sizes, default=0), FARTHEST))
    for root in {power.exp for expression in read for power in expression.atoms(sympy.Pow)}:
        if not root.free_symbols and 0 < abs(sympy.N(root)) < 1:  # and so is x**(1/1000)
            far = min(far / abs(float(root)), FARTHEST)
    return min(far, FARTHEST)


def _towers(expression: Any) -> int:
    """How many exponents with letters stand upon each other."""
    import sympy

    below = max(map(_towers, expression.args), default=0)
    power = expression.args[-1] if isinstance(expression, sympy.exp | sympy.Pow) else sympy.Integer(0)
    return below + bool(power.free_symbols)


GUEST = Algebra
