"""Tools: functions that a model may call, an environment that owns some of them, and what comes back when it calls.

An environment is what TRL's trainers take as ``environment_factory``: a class whose ``reset`` begins an episode (a text that it returns is shown
to the model behind the user's message), whose public methods are the tools, with type hints and a docstring in Google's style, and whose
``get_reward``, where it has one, says what the episode was worth. A class written for one runs with the other, if the text
of its ``reset`` follows from the example (here a group shares its prompt, and there each row has a text of its own) and nothing of it is ``async``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Protocol

from transformers.utils import get_json_schema

from minirlhf.core.errors import ArgumentError
from minirlhf.data.calls import BadCall, Schema, ToolCall
from minirlhf.sandbox import programs

#: Characters of a tool's answer at most: what is longer is cut, and says so.
LONGEST = 2_000


class Environment(Protocol):
    """One episode of a world. ``get_reward() -> float``, what the episode has earned so far, is needed where no other grader is."""

    def reset(self, **example: Any) -> str | None:
        """Begin an episode from the fields of an example; what it returns is added to the last message of the user."""


@dataclass(frozen=True)
class ToolResult:
    """What comes back from a call.

    Attributes:
        id: of the call.
        name: of the tool.
        content: what it said; of a call that failed ``error: `` and why, in one line.
        failed: whether the tool raised, or the call could not be made.
    """

    id: str
    name: str
    content: str
    failed: bool

    def message(self) -> dict[str, str]:
        """As a message of a conversation."""
        return {"role": "tool", "name": self.name, "tool_call_id": self.id, "content": self.content}


class Toolbox:
    """Functions by name, with their schemas."""

    def __init__(self, functions: Sequence[Callable[..., Any]]) -> None:
        """``ValueError``: two functions of one name, one that is ``async``, or one without the type hints or the docstring of which its schema is made."""
        _at_once(functions)
        self._functions: dict[str, Callable[..., Any]] = {function.__name__: function for function in functions}
        if len(self._functions) != len(functions):
            raise ArgumentError(
                f"functions holds {len(functions)} tools of {len(self._functions)} names; expected one name each",
                argument="functions",
                value=len(self._functions),
                expected=len(functions),
                problem="duplicate",
            )
        try:
            self.schemas: list[Schema] = [get_json_schema(function) for function in functions]
        except Exception as problem:  # of several kinds, none of them public
            raise ArgumentError(
                f"functions: {' '.join(str(problem).split())}", argument="functions", problem="no schema"
            ) from problem

    @classmethod
    def of(cls, environment: Environment) -> Toolbox:
        """The tools of an environment: its public methods but ``reset`` and ``get_reward``."""
        names = [name for name, _ in inspect.getmembers(type(environment), inspect.isfunction)]
        _at_once([getattr(environment, name) for name in ("reset", "get_reward") if name in names])
        kept = [name for name in names if not name.startswith("_") and name not in ("reset", "get_reward")]
        return cls([getattr(environment, name) for name in kept])

    @classmethod
    def elsewhere(cls, schemas: Sequence[Schema], call: Callable[..., str]) -> Toolbox:
        """Tools that somebody else carries out: ``call(name, **arguments)``. ``ValueError``: two of one name."""
        box = cls(())
        box.schemas = list(schemas)
        box._functions = {name: partial(call, name) for name in (schema["function"]["name"] for schema in schemas)}
        if len(box._functions) != len(box.schemas):
            raise ArgumentError(
                f"schemas holds {len(box.schemas)} tools of {len(box._functions)} names; expected one name each",
                argument="schemas",
                value=len(box._functions),
                expected=len(box.schemas),
                problem="duplicate",
            )
        return box

    def answer(self, call: ToolCall | BadCall) -> ToolResult:
        """Make the call. An error of the tool is its answer: the model reads it, and training goes on."""
        if isinstance(call, BadCall):
            return ToolResult(call.id, call.name, _cut(f"error: {call.problem}"), True)
        try:
            content = str(self._functions[call.name](**call.arguments))
        except (Exception, SystemExit) as problem:
            return ToolResult(
                call.id, call.name, _cut(f"error: {' '.join(str(problem).split()) or type(problem).__name__}"), True
            )
        return ToolResult(call.id, call.name, _cut(content), False)


def _at_once(functions: Sequence[Callable[..., Any]]) -> None:
    for function in functions:
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise ArgumentError(
                f"{function.__name__} is async; expected functions that return their answer at once",
                argument=function.__name__,
                problem="async",
            )


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} … ({len(text) - LONGEST} characters left out)"


# -- three tools -------------------------------------------------------------------------------------------------------


def calculator(expression: str) -> str:
    """Compute with whole numbers and fractions.

    Args:
        expression: numbers with + - * / and round brackets, such as 12*34 or (1+2)/3. Blanks do not matter, even within a number.

    Returns:
        the value: a whole number, or a fraction such as 5/6.
    """
    return str(_Sum(expression).value())


def lookup(table: Mapping[str, str]) -> Callable[[str], str]:
    """A tool that knows this table."""

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
        program: the program; what its function solve() returns is the result.

    Returns:
        the result, as Python writes it.
    """
    return repr(programs.result(program, "solve"))


#: Digits of a number in a calculation at most, characters of an expression, and brackets in brackets: without limits a model could stop the machine.
DIGITS, CHARACTERS, DEEPEST = 30, 200, 20


class _Sum:
    """An arithmetic expression, read by descent: ``sum = product {(+|-) product}``, ``product = factor {(*|/) factor}``, ``factor = [-] (number | ( sum ))``.

    No part of it is ever given to Python's own reader. ``ValueError`` says what is wrong.
    """

    def __init__(self, text: str) -> None:
        self._text, self._at, self._open = "".join(text.split()), 0, 0
        if len(self._text) > CHARACTERS:
            raise ArgumentError(
                f"the expression has {len(self._text)} characters; expected at most {CHARACTERS}",
                value=len(self._text),
                expected=CHARACTERS,
                problem="too long",
            )

    def value(self) -> Fraction:
        """The whole expression's."""
        found = self._chain(self._product, "+-")
        if self._at < len(self._text):
            raise ArgumentError(
                f"{self._text[self._at]!r} is not understood after {self._text[: self._at]!r}",
                value=self._text[self._at],
                problem="not understood",
            )
        return found

    def _product(self) -> Fraction:
        return self._chain(self._factor, "*/")

    def _chain(self, part: Callable[[], Fraction], signs: str) -> Fraction:
        found = part()
        while (sign := self._text[self._at : self._at + 1]) and sign in signs:
            self._at += 1
            other = part()
            if sign == "/" and other == 0:
                raise ArgumentError("division by zero", problem="division by zero")
            found = {"+": found.__add__, "-": found.__sub__, "*": found.__mul__, "/": found.__truediv__}[sign](other)
        return found

    def _factor(self) -> Fraction:
        negative = False
        while self._text.startswith("-", self._at):
            self._at, negative = self._at + 1, not negative
        if self._text.startswith("(", self._at):
            self._at, self._open = self._at + 1, self._open + 1
            if self._open > DEEPEST:
                raise ArgumentError(
                    f"more than {DEEPEST} brackets stand in one another", expected=DEEPEST, problem="too deep"
                )
            found = self._chain(self._product, "+-")
            if not self._text.startswith(")", self._at):
                raise ArgumentError("a bracket is not closed", problem="not closed")
            self._at, self._open = self._at + 1, self._open - 1
        else:
            found = self._number()
        return -found if negative else found

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
