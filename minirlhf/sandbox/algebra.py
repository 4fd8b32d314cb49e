"""Compare two expressions with sympy in a sandbox, which limits the time and memory that a power tower can use."""

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
#: Functions of one argument, and of two.
FUNCTIONS = (
    *("sqrt", "sin", "cos", "tan", "sec", "csc", "cot", "asin", "acos", "atan", "asec", "acsc", "acot"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "exp", "log", "abs", "floor", "ceil", "factorial"),
)
OF_TWO = ("binomial", "root")
#: A name of more than one letter: ``v3_``.
NAME = "v[0-9]+_"
#: The tokens of an expression; sympy gets no other text, because its parser evaluates Python.
_TOKENS = re.compile(
    rf"(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+|\b(?:{'|'.join((*FUNCTIONS, *OF_TWO))}|pi|{NAME})\b|\b[a-zA-Z]\b|\*\*|[-+*/(), ])*"
)
LONGEST = 300
DIGITS = 200  # precision for expressions that are not rational
CERTAIN = 8  # bits of a difference, above which it is no rounding error
NEAR, FAR = 4, 20  # number of points for such expressions: of ordinary size, and far from 1
FARTHEST = 3000  # largest distance of a point from 1, in powers of ten
BITS = 126  # of the prime
LARGEST_POWER = 1 << 62


def same_value(one: str, other: str) -> bool:
    """Return whether both texts are expressions with the same value for all values of their letters.

    Every call samples new values from the system's randomness, so no formula can be built to agree only at the tested
    points. ``(x+1)**2`` equals ``x**2+2*x+1``, and ``1.4142`` does not equal ``sqrt(2)``. ``e`` is Euler's number, and
    ``i`` the imaginary unit. The result is False if a text is not an expression or if the comparison takes too long.

    * Sums, products, quotients and integer powers are computed without rounding, modulo a random prime of 127 bits.
      ``pi`` and ``e`` are two more letters there, since no such formula turns them into a rational number. Two
      different expressions agree with a probability of at most their degree divided by 2¹²⁶ (Schwartz 1980, "Fast
      Probabilistic Algorithms for Verification of Polynomial Identities"; Zippel 1979).
    * Of other expressions the difference is computed: they are equal if not one of its digits is certain when it is
      computed with :data:`DIGITS` digits. So ``exp(-200)`` does not equal 0. The points are of ordinary size, also
      negative where both expressions are real, and as far from 1 as the numbers in the two texts suggest: ``x +
      abs(x-1000) + x-1000`` is ``x`` up to 1000. Expressions that differ only farther out, or in a digit behind these,
      are accepted.

    So the result is the same in each run, although the points differ, except with tiny probability for expressions that
    were built to be undecided.
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
    """Return whether a text has only numbers, letters, known functions and operators, and no two adjacent numbers."""
    known = 0 < len(text) <= LONGEST and _TOKENS.fullmatch(_spaced(text)) is not None
    return known and not re.search(r"[0-9.]\s+[0-9.]", text) and ("," not in text or any(f in text for f in OF_TWO))


def _spaced(text: str) -> str:
    """Put spaces around every letter and function name: ``2xsin(x)`` becomes ``2 x sin (x)``."""
    words = re.compile("|".join((*sorted((*FUNCTIONS, *OF_TWO), key=len, reverse=True), "pi", "[a-zA-Z]")))
    return re.sub(rf"({NAME})|[a-zA-Z]+", lambda match: f" {match[1] or ' '.join(words.findall(match[0]))} ", text)


@functools.cache
def _boxes_of(process: int) -> SandboxPool:
    boxes = SandboxPool("minirlhf.sandbox.algebra")
    atexit.register(boxes.close)
    return boxes


class Algebra(SandboxWorker):
    """The worker in the box."""

    @staticmethod
    def prepare() -> None:
        """Import sympy, which takes a second, and compare some expressions, which imports its other modules."""
        _same("(x + 1)**2/2", "sqrt(2) + abs(sin(x))", 0)
        _same("x/2", "x*1/2", 0)

    def _on_same(self, question: dict[str, Any]) -> bool:
        one, other = question["texts"]
        return _same(one, other, question["key"])


def _same(one: str, other: str, key: int) -> bool:
    expressions = [_read(text) for text in (one, other)]
    rng = random.Random(key)
    try:
        return _same_modulo(expressions, rng)
    except _NotRational:
        return _same_to_digits(expressions, rng)
    except ZeroDivisionError:
        return False


def _read(text: str) -> Any:
    import sympy
    from sympy.parsing import sympy_parser as reader

    def root(value: Any, degree: Any) -> Any:
        if degree.is_Integer and degree % 2:  # the real root
            return sympy.sign(value) * sympy.Abs(value) ** (1 / degree)
        return value ** (1 / degree)

    names = {"abs": "Abs", "ceil": "ceiling"}
    functions = {name: getattr(sympy, names.get(name, name)) for name in (*FUNCTIONS, "binomial", "pi")}
    functions["root"] = root
    functions |= {name: sympy.Symbol(name, real=True) for name in re.findall(NAME, text)}
    steps = (*reader.standard_transformations, reader.implicit_multiplication, reader.rationalize)
    letters: dict[str, Any] = {c: sympy.Symbol(c, real=True) for c in string.ascii_letters}
    letters |= {"e": sympy.E, "i": sympy.I}
    return reader.parse_expr(_spaced(text), local_dict={**letters, **functions}, transformations=steps, evaluate=False)


# -- without rounding --------------------------------------------------------------------------------------------------


class _NotRational(Exception):
    """An expression with something other than sums, products, quotients and integer powers."""


def _same_modulo(expressions: list[Any], rng: random.Random) -> bool:
    import sympy

    prime = 3
    while prime % 4 == 3:  # such that −1 has a root
        prime = int(sympy.nextprime(1 << BITS | rng.getrandbits(BITS)))
    letters = sorted(expressions[0].atoms(sympy.Symbol) | expressions[1].atoms(sympy.Symbol), key=str)
    values = {letter: rng.randrange(1, prime) for letter in (*letters, sympy.pi, sympy.E)}
    values[sympy.I] = next(
        root for n in range(2, 1000) if pow(root := pow(n, prime // 4, prime), 2, prime) == prime - 1
    )
    left, right = (_modulo(expression, values, prime) for expression in expressions)
    return left == right


def _modulo(expression: Any, values: dict[Any, int], prime: int) -> int:
    """The value of an expression modulo a prime.

    Raises:
        ZeroDivisionError: a divisor is zero modulo the prime.
    """
    if expression in values:
        return values[expression]
    if expression.func.__name__ in ("factorial", "binomial"):
        expression = _counted(expression)
    if expression.is_Rational:
        return _quotient(int(expression.p), int(expression.q), prime)
    if expression.is_Add:
        return sum(_modulo(part, values, prime) for part in expression.args) % prime
    if expression.is_Mul:
        return math.prod(_modulo(part, values, prime) for part in expression.args) % prime
    if expression.is_Pow:
        base, power = expression.args
        exponent = _whole(power)
        value = _modulo(base, values, prime)
        return _quotient(1, pow(value, -exponent, prime), prime) if exponent < 0 else pow(value, exponent, prime)
    raise _NotRational


def _counted(expression: Any) -> Any:
    """The value of a factorial or a binomial coefficient of small integers."""
    arguments = [_whole(argument) for argument in expression.args]
    if all(0 <= argument <= 1000 for argument in arguments):
        return expression.func(*arguments)
    raise _NotRational


def _quotient(numerator: int, denominator: int, prime: int) -> int:
    if denominator % prime == 0:
        raise ZeroDivisionError
    return numerator * pow(denominator, -1, prime) % prime


def _whole(power: Any) -> int:
    """An exponent as an integer, also if it is a sum or a product of integers, such as ``-1`` or ``2*3``."""
    if power.is_Integer and abs(int(power)) <= LARGEST_POWER:
        return int(power)
    if power.is_Add or power.is_Mul:
        parts = [_whole(part) for part in power.args]
        value = sum(parts) if power.is_Add else math.prod(parts)
        if abs(value) <= LARGEST_POWER:
            return value
    raise _NotRational


# -- to many digits ----------------------------------------------------------------------------------------------------


def _same_to_digits(expressions: list[Any], rng: random.Random) -> bool:
    import sympy

    letters = sorted(expressions[0].free_symbols | expressions[1].free_symbols, key=str)
    sizes = [size for expression in expressions for size in _sizes(expression)]
    reach = _reach(expressions, sizes)
    counts = (sympy.factorial, sympy.binomial)
    is_nested = max(map(_towers, expressions)) > 1 or any(e.has(*counts) for e in expressions)  # far from 1 too slow
    is_real = not any(expression.has(sympy.I) for expression in expressions)
    difference = expressions[0] - expressions[1]
    for point in range((NEAR if is_nested else NEAR + FAR) if letters else 1):
        extreme = {NEAR: 1.0, NEAR + 1: -1.0}.get(point)
        values = {letter: _near(rng) if point < NEAR else _far_out(rng, sizes, reach, extreme) for letter in letters}
        try:
            if not _same_at(expressions, difference, values):
                return False
            if point < NEAR and is_real:
                signs = [(-1, -1), (-1, 1), (1, -1)][point] if point < 3 else rng.choices((-1, 1), k=2)
                values = {letter: values[letter] * signs[i % 2] for i, letter in enumerate(letters)}
                if all(_stays_real(e, values) for e in expressions) and not _same_at(expressions, difference, values):
                    return False
        except (OverflowError, MemoryError, ValueError, NotImplementedError):
            return False
    return True


def _same_at(expressions: list[Any], difference: Any, values: dict[Any, Any]) -> bool:
    """Whether both expressions have a finite value at a point, and not one digit of their difference is certain."""
    import sympy
    from sympy.core.evalf import evalf

    magnitude = sympy.Integer(0)
    for expression in expressions:
        value = sympy.N(expression, 15, subs=values)
        if not (value.is_number and value.is_finite):
            return False
        magnitude = max(magnitude, sympy.log(abs(value) + 1, 10).evalf(5))
    bits = round((DIGITS + min(float(magnitude), FARTHEST)) / math.log10(2))
    real, imaginary, real_bits, imaginary_bits = evalf(difference, 53, {"maxprec": bits, "subs": values})
    if difference.has(sympy.I):  # sin(pi) within exp(i*pi) is no certain digit, although it is taken for one
        least = sympy.Float(10) ** -DIGITS * max(
            abs(sympy.N(expression, 15, subs=values)) for expression in expressions
        )
        return bool(abs(sympy.N(difference, 15, subs=values, maxn=round(bits * math.log10(2)))) <= least)
    return not (real is not None and (real_bits or 0) > CERTAIN) and not (
        imaginary is not None and (imaginary_bits or 0) > CERTAIN
    )


def _stays_real(expression: Any, values: dict[Any, Any]) -> bool:
    """Whether every root, power and logarithm in an expression has a real value at a point."""
    import sympy

    kinds = (sympy.Pow, sympy.log, sympy.asin, sympy.acos)
    parts = [part for part in sympy.preorder_traversal(expression) if isinstance(part, kinds)]
    return all(sympy.N(part, 15, subs=values).is_real for part in parts)


def _near(rng: random.Random) -> Any:
    """A random number between 0 and 4, with 40 decimal places."""
    import sympy

    return sympy.Rational(rng.randrange(1, 4 * 10**40), 10**40)


def _far_out(rng: random.Random, sizes: list[Any], reach: float, extreme: float | None) -> Any:
    """A random positive number of the magnitude of one of ``sizes``, or up to ``reach`` powers of ten away from 1.

    For an ``extreme`` of 1 or −1 it is ``reach`` powers of ten away, upward or downward.
    """
    import sympy

    if extreme is not None:
        return _near(rng) * sympy.Integer(10) ** round(reach * extreme)
    if rng.random() < 0.5:
        return _near(rng) * rng.choice([sympy.Integer(1), *sizes])
    return _near(rng) * sympy.Integer(10) ** round(reach * rng.choice((-1.0, 1.0, rng.uniform(-1, 1))))


def _sizes(expression: Any) -> Iterator[Any]:
    """The absolute values of the largest subexpressions without letters."""
    import sympy

    if expression.free_symbols:
        for part in expression.args:
            yield from _sizes(part)
    else:
        size = abs(sympy.N(expression, 15))
        if size.is_finite and size > 0:
            yield sympy.Rational(str(size))


def _reach(expressions: list[Any], sizes: list[Any]) -> float:
    """Roughly how many powers of ten away from 1 numbers of these sizes can put a kink; at most :data:`FARTHEST`."""
    import sympy

    reach = 3 + sum(abs(float(sympy.log(size, 10))) for size in sizes)
    if any(expression.has(sympy.log) for expression in expressions):  # log(x) reaches 1000 only far from 1
        reach += float(min(max(sizes, default=0), FARTHEST))
    for exponent in {power.exp for expression in expressions for power in expression.atoms(sympy.Pow)}:
        if (
            not exponent.free_symbols and exponent.is_real and 0 < abs(sympy.N(exponent)) < 1
        ):  # and x**(1/1000) grows only far from 1
            reach = min(reach / abs(float(exponent)), FARTHEST)
    return min(reach, FARTHEST)


def _towers(expression: Any) -> int:
    """The depth of nested exponents with letters."""
    import sympy

    depth = max(map(_towers, expression.args), default=0)
    exponent = expression.args[-1] if isinstance(expression, sympy.exp | sympy.Pow) else sympy.Integer(0)
    return depth + bool(exponent.free_symbols)


GUEST = Algebra
