"""Errors that carry their facts: the message is for people, the attributes are for programs and tests.

Bad input from outside is a :class:`UserError`, which the command line prints as one line. Wrong arguments of a function
are an :class:`ArgumentError`, a ``ValueError``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, Self


class Facts(Exception):
    """An error that also carries its facts as data; a fact that the error does not state is None.

    Attributes:
        argument: name of what is wrong: an argument, a flag, a setting, a column, a role.
        value: the wrong value.
        expected: the right value, a type's name, an interval such as ``"[0, 1]"``, a shape such as ``"(B, T)"``,
            or the list of known names.
        problem: the kind of error in one or two words, if the other facts do not show it, such as ``"missing"``.
        file: the file or source of the input.
        line: the line or row of ``file``, counted from 1.
    """

    def __init__(
        self,
        message: str = "",
        *,
        argument: str | None = None,
        value: Any = None,
        expected: Any = None,
        problem: str | None = None,
        file: object = None,
        line: int | None = None,
    ) -> None:
        super().__init__(message)
        self.argument, self.value, self.expected, self.problem = argument, value, expected, problem
        self.file, self.line = None if file is None else str(file), line

    @property
    def facts(self) -> dict[str, Any]:
        """All facts by name."""
        names = ("argument", "value", "expected", "problem", "file", "line")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def about(cls, message: str, cause: BaseException, **facts: Any) -> Self:
        """Return an error with a new message and the facts of its cause; ``facts`` replace those of the same name."""
        return cls(message, **(getattr(cause, "facts", {}) | facts))


class ArgumentError(Facts, ValueError):
    """A wrong argument of a function; the message names the argument, its value, and the expected value."""


class UserError(Facts):
    """Bad input from outside: a file, a flag, a name. The command line prints it as one line and exits with 2.

    The message names what is wrong and what would be right. Programming errors are ``ValueError`` or ``TypeError``.
    """


def unknown(
    kind: str,
    name: str,
    known: Iterable[str],
    *,
    file: object = None,
    line: int | None = None,
    place: str | None = None,
) -> UserError:
    """Return a :class:`UserError` for an unknown name; it suggests the nearest known name.

    The message also lists the known names if there are at most 20, or if none of them is near; of more
    than 100 it lists the first 20.

    Its facts: ``kind`` is the argument, ``name`` the value, and expected is the nearest name, or the list of known
    names if none is near. ``file`` and ``line`` locate the name; if ``place`` is given, the message states it instead.
    """
    options = sorted(known)
    close = difflib.get_close_matches(name, options, n=1, cutoff=0.4)
    hint = f"did you mean {close[0]!r}?" if close else ""
    known_names = f"known: {', '.join(options)}" if len(options) <= 20 or not hint else ""
    if len(options) > 100 and known_names:
        known_names = f"known: {', '.join(options[:20])} … ({len(options)} in all)"
    short_name = name if len(name) <= 80 else f"{name[:80]}…"
    locations = (("in", place),) if place else (("in", file), ("line", line))
    where = "".join(f" {preposition} {location}" for preposition, location in locations if location is not None)
    message = f"unknown {kind}{where} {short_name!r}: {' '.join(filter(None, (hint, known_names)))}"
    nearest = close[0] if close else options
    return UserError(message, argument=kind, value=name, expected=nearest, problem="unknown", file=file, line=line)


class UnusedOptionNotice(str):
    """A sentence about options that have no effect, and why.

    Attributes:
        options: names of these options.
    """

    options: tuple[str, ...]

    def __new__(cls, sentence: str, *options: str) -> Self:
        """The sentence with the names of its options."""
        instance = super().__new__(cls, sentence)
        instance.options = options
        return instance


def format_value(value: Any) -> str:
    """Return the ``repr`` of a value for a message, truncated to 80 characters."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to convert integers of thousands of digits to text
        return "a huge number"
    return text if len(text) <= 80 else f"{text[:79]}…"
