"""Errors that carry their facts: the sentence is for people, the attributes are for programs and tests.

Bad input from outside is a :class:`UserError`, which the command line prints as one line. Wrong arguments of a function are an
:class:`ArgumentError`, a ``ValueError``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, Self


class Facts(Exception):
    """What an error says, as data; a fact that the error does not state is None.

    Attributes:
        argument: what is wrong, by name: an argument, a flag, a setting, a column, a role.
        value: what was found there.
        expected: what would be right: a value, a type's name, an interval such as ``"[0, 1]"``, a shape such as ``"(B, T)"``,
            or the list of what is known.
        problem: the kind of error in one or two words, where the other facts do not tell it: ``"missing"``, ``"duplicate"``.
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
        """An error with another sentence that keeps the facts of its cause, but for those that are given."""
        return cls(message, **(getattr(cause, "facts", {}) | facts))


class ArgumentError(Facts, ValueError):
    """A wrong argument of a function; the message names the argument, what it was, and what was expected."""


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
    """A :class:`UserError` for a name that does not exist, with the nearest one that does; a short list of names is given whole.

    Its facts: ``kind`` is the argument, ``name`` the value, and expected is the nearest name, or the list where none is near;
    ``file`` and ``line`` say where it stands, ``place`` is said in their stead.
    """
    options = sorted(known)
    close = difflib.get_close_matches(name, options, n=1, cutoff=0.4)
    hint = f"did you mean {close[0]!r}?" if close else ""
    listed = f"known: {', '.join(options)}" if len(options) <= 20 or not hint else ""
    said = name if len(name) <= 80 else f"{name[:80]}…"
    places = (("in", place),) if place else (("in", file), ("line", line))
    where = "".join(f" {word} {at}" for word, at in places if at is not None)
    message = f"unknown {kind}{where} {said!r}: {' '.join(filter(None, (hint, listed)))}"
    nearest = close[0] if close else options
    return UserError(message, argument=kind, value=name, expected=nearest, problem="unknown", file=file, line=line)


class Idle(str):
    """A sentence about options that have no effect, and why.

    Attributes:
        options: of which it speaks.
    """

    options: tuple[str, ...]

    def __new__(cls, sentence: str, *options: str) -> Self:
        """The sentence with the names of its options."""
        idle = super().__new__(cls, sentence)
        idle.options = options
        return idle


def shown(value: Any) -> str:
    """A value for a message, cut to a line."""
    try:
        text = repr(value)
    except ValueError:  # Python does not write out whole numbers of thousands of digits
        return "a huge number"
    return text if len(text) <= 80 else f"{text[:79]}…"
