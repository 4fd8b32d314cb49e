"""Tools: functions that a model may call, an environment that has some of them, and the results of calls.

An environment is a class as TRL's trainers take it for ``environment_factory``. Its ``reset`` begins an episode; a text
that ``reset`` returns is appended to the user's message. Its public methods are the tools, with type hints and a
docstring in Google's style. Its ``get_reward``, if there is one, returns the reward of the episode. A class written for
one library runs with the other on two conditions: the text of its ``reset`` depends only on the example (here a group
shares its prompt, in TRL each row has a text of its own), and nothing in it is ``async``.
"""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Protocol

from transformers.utils import get_json_schema

from minirlhf.core.errors import ArgumentError
from minirlhf.data.calls import BadCall, Schema, ToolCall
from minirlhf.sandbox import programs

#: Maximum number of characters of a tool's result. A longer result is cut, and a note says so.
LONGEST = 2_000


class Environment(Protocol):
    """One episode of an environment. ``get_reward() -> float``, the reward so far, is needed without another grader."""

    def reset(self, **example: Any) -> str | None:
        """Begin an episode from the fields of an example. A returned text is added to the last user message."""


@dataclass(frozen=True)
class ToolResult:
    """The result of a call.

    Attributes:
        id: id of the call.
        name: name of the tool.
        content: the tool's result; after a failed call ``error: `` and the reason, in one line.
        failed: whether the tool raised an exception, or the call could not be made.
    """

    id: str
    name: str
    content: str
    failed: bool

    def message(self) -> dict[str, str]:
        """Return the result as a message of a conversation."""
        return {"role": "tool", "name": self.name, "tool_call_id": self.id, "content": self.content}


class Toolbox:
    """Functions by name, with their schemas."""

    def __init__(self, functions: Sequence[Callable[..., Any]]) -> None:
        """Build the schemas. ``ValueError``: a duplicate name, an ``async`` function, or no type hints or docstring."""
        _at_once(functions)
        self._functions: dict[str, Callable[..., Any]] = {function.__name__: function for function in functions}
        if len(self._functions) != len(functions):
            raise ArgumentError(
                f"functions holds {len(functions)} tools with {len(self._functions)} names; expected one name each",
                argument="functions",
                value=len(self._functions),
                expected=len(functions),
                problem="duplicate",
            )
        try:
            self.schemas: list[Schema] = [get_json_schema(function) for function in functions]
        except Exception as error:  # several exception types, none of them public
            raise ArgumentError(
                f"functions: {' '.join(str(error).split())}", argument="functions", problem="no schema"
            ) from error

    @classmethod
    def of(cls, environment: Environment) -> Toolbox:
        """Return the tools of an environment: its public methods except ``reset`` and ``get_reward``."""
        names = [name for name, _ in inspect.getmembers(type(environment), inspect.isfunction)]
        _at_once([getattr(environment, name) for name in ("reset", "get_reward") if name in names])
        tools = [name for name in names if not name.startswith("_") and name not in ("reset", "get_reward")]
        return cls([getattr(environment, name) for name in tools])

    @classmethod
    def elsewhere(cls, schemas: Sequence[Schema], call: Callable[..., str]) -> Toolbox:
        """Return tools that ``call(name, **arguments)`` runs elsewhere. ``ValueError``: two schemas have one name."""
        box = cls(())
        box.schemas = list(schemas)
        box._functions = {name: partial(call, name) for name in (schema["function"]["name"] for schema in schemas)}
        if len(box._functions) != len(box.schemas):
            raise ArgumentError(
                f"schemas holds {len(box.schemas)} tools with {len(box._functions)} names; expected one name each",
                argument="schemas",
                value=len(box._functions),
                expected=len(box.schemas),
                problem="duplicate",
            )
        return box

    def execute(self, call: ToolCall | BadCall) -> ToolResult:
        """Make the call. An error of the tool becomes its result: the model reads it, and training continues."""
        if isinstance(call, BadCall):
            return ToolResult(call.id, call.name, _cut(f"error: {call.problem}"), True)
        try:
            content = str(self._functions[call.name](**call.arguments))
        except (Exception, SystemExit) as error:
            return ToolResult(
                call.id, call.name, _cut(f"error: {' '.join(str(error).split()) or type(error).__name__}"), True
            )
        return ToolResult(call.id, call.name, _cut(content), False)


def _at_once(functions: Sequence[Callable[..., Any]]) -> None:
    for function in functions:
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise ArgumentError(
                f"{function.__name__} is async; expected a synchronous function",
                argument=function.__name__,
                problem="async",
            )


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} … ({len(text) - LONGEST} characters left out)"


# -- three tools -------------------------------------------------------------------------------------------------------


def calculator(expression: str) -> str:
    """Compute with whole numbers and fractions.

    Args:
        expression: numbers with + - * / ** and round brackets, such as 12*34, (1+2)/3 or 2**10. Blanks do not matter, even within a number.

    Returns:
        the value: a whole number, or a fraction such as 5/6.
    """
    return str(_Sum(expression).value())


def lookup(table: Mapping[str, str]) -> Callable[[str], str]:
    """Return a tool that looks words up in this table."""

    def lookup(key: str) -> str:
        """Look a word up.

        Args:
            key: the word.

        Returns:
            what is known of it.
        """
        if key.strip() not in table:
            raise LookupError(f"nothing is known of {key.strip()[:40]!r}")
        return table[key.strip()]

    return lookup


def run_python(program: str) -> str:
    """Run a Python program in a box without files and network, for at most five seconds.

    Args:
        program: the program. It prints its result, ends with an expression, or has a function solve() that returns it.

    Returns:
        what the program printed, the value of the last expression and the result of solve() as Python writes them.
    """
    printed, result = programs.output(_displayed(program), "solve")
    texts = [printed.rstrip("\n"), *(repr(value) for value in result)]
    return "\n".join(text for text in texts if text)


def _displayed(program: str) -> str:
    """Return a program that prints the value of the expression in its last line, as a notebook does."""
    try:
        last = ast.parse(program).body[-1]
    except (SyntaxError, ValueError, IndexError, RecursionError, MemoryError):
        return program
    if not isinstance(last, ast.Expr) or last.end_lineno is None or last.end_col_offset is None:
        return program
    lines = program.encode().split(b"\n")
    starts = [0, *itertools.accumulate(len(line) + 1 for line in lines)]
    start, end = starts[last.lineno - 1] + last.col_offset, starts[last.end_lineno - 1] + last.end_col_offset
    text = program.encode()
    displayed = (text[:start] + b"__import__('sys').displayhook(" + text[start:end] + b")" + text[end:]).decode()
    try:
        ast.parse(displayed)
    except SyntaxError:  # other line breaks than \n
        return program
    return displayed


#: Maximum number of digits of a number, of characters of an expression, of nested brackets, and of bits of a power.
#: Without them a model could block the machine.
DIGITS, CHARACTERS, DEEPEST, BITS = 30, 200, 20, 4_096


class _Sum:
    """An arithmetic expression, parsed by recursive descent.

    ``sum = product {(+|-) product}``, ``product = factor {(*|/) factor}``, ``factor = {-} base [** factor]``, ``base =
    number | ( sum ) | pow( sum , sum )``; ``^`` is read as ``**``. No part of it is given to Python's own parser. ``ValueError`` says what
    is wrong.
    """

    def __init__(self, text: str) -> None:
        self._text, self._at, self._open = "".join(text.split()).replace("^", "**"), 0, 0
        if len(self._text) > CHARACTERS:
            raise ArgumentError(
                f"the expression has {len(self._text)} characters; expected at most {CHARACTERS}",
                value=len(self._text),
                expected=CHARACTERS,
                problem="too long",
            )

    def value(self) -> Fraction:
        """Return the value of the expression."""
        total = self._chain(self._product, "+-")
        if self._at < len(self._text):
            raise ArgumentError(
                f"{self._text[self._at]!r} is not understood after {self._text[: self._at]!r}",
                value=self._text[self._at],
                problem="not understood",
            )
        return total

    def _product(self) -> Fraction:
        return self._chain(self._factor, "*/")

    def _chain(self, operand: Callable[[], Fraction], ops: str) -> Fraction:
        total = operand()
        while (op := self._text[self._at : self._at + 1]) and op in ops and not self._text.startswith("**", self._at):
            self._at += 1
            other = operand()
            if op == "/" and other == 0:
                raise ArgumentError("division by zero", problem="division by zero")
            total = {"+": total.__add__, "-": total.__sub__, "*": total.__mul__, "/": total.__truediv__}[op](other)
        return total

    def _factor(self) -> Fraction:
        negative = False
        while self._text.startswith("-", self._at):
            self._at, negative = self._at + 1, not negative
        is_pow = self._text.startswith("pow(", self._at)
        if is_pow or self._text.startswith("(", self._at):
            self._at, self._open = self._at + (4 if is_pow else 1), self._open + 1
            if self._open > DEEPEST:
                raise ArgumentError(
                    f"more than {DEEPEST} brackets stand in one another", expected=DEEPEST, problem="too deep"
                )
            value = self._chain(self._product, "+-")
            if is_pow:
                if not self._text.startswith(",", self._at):
                    raise ArgumentError("pow has no exponent; expected pow(base, exponent)", problem="no number")
                self._at += 1
                value = self._raised(value, self._chain(self._product, "+-"))
            if not self._text.startswith(")", self._at):
                raise ArgumentError("a bracket is not closed", problem="not closed")
            self._at, self._open = self._at + 1, self._open - 1
        else:
            value = self._number()
        if self._text.startswith("**", self._at):
            self._at += 2
            value = self._power(value)
        return -value if negative else value

    def _power(self, base: Fraction) -> Fraction:
        """Return the base to the power that stands next: a whole number, which is a power itself in ``2**3**2``."""
        self._open += 1  # a tower of powers is as deep as nested brackets
        if self._open > DEEPEST:
            raise ArgumentError(
                f"more than {DEEPEST} powers stand in one another", expected=DEEPEST, problem="too deep"
            )
        exponent = self._factor()
        self._open -= 1
        return self._raised(base, exponent)

    @staticmethod
    def _raised(base: Fraction, exponent: Fraction) -> Fraction:
        if exponent.denominator != 1:
            message = f"the exponent {exponent} is not a whole number"
            raise ArgumentError(message, value=exponent, problem="no whole exponent")
        if base == 0 and exponent < 0:
            raise ArgumentError("division by zero", problem="division by zero")
        bits = max(abs(base.numerator), base.denominator).bit_length() * abs(exponent.numerator)
        if base not in (0, 1, -1) and bits > BITS:
            raise ArgumentError(f"a power of more than {BITS} bits", value=bits, expected=BITS, problem="too long")
        small = {0: Fraction(exponent == 0), 1: Fraction(1), -1: Fraction(-1 if exponent.numerator % 2 else 1)}
        return small[int(base)] if base in small else base**exponent.numerator

    def _number(self) -> Fraction:
        end = self._at
        while end < len(self._text) and self._text[end] in "0123456789.":
            end += 1
        digits, self._at = self._text[self._at : end], end
        if not digits.strip(".") or digits.count(".") > 1:
            raise ArgumentError(f"a number is missing after {self._text[: self._at]!r}", problem="no number")
        if len(digits) > DIGITS:
            raise ArgumentError(
                f"a number of {len(digits)} digits; expected at most {DIGITS}",
                value=len(digits),
                expected=DIGITS,
                problem="too long",
            )
        return Fraction(f"0{digits}0" if "." in digits else digits)
