"""What calls of a submission's functions change: arguments, results of earlier calls, and everybody's random numbers.

This needs no solution, so every call of a test, a training or a probe is watched, in the process in which it runs.
"""

from __future__ import annotations

import inspect
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor

from minirlhf.sandbox import wire

WATCHED = 50  # first calls of a function whose random numbers and results are watched: a training calls thousands


class SideEffects:
    """The first side effects of each function.

    Attributes:
        noted: function → "inputs", "random" or "again" (an earlier result has changed) → the facts: ``argument``,
            ``before`` and ``after``, or ``library``.
    """

    def __init__(self) -> None:
        self.noted: dict[str, dict[str, dict[str, Any]]] = {}
        self._num_calls: Counter[str] = Counter()
        self._last: dict[str, tuple[Any, Any]] = {}  # the last result, and a copy from then

    def watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``function`` with every call watched, under the name that the exercise asks for."""

        def call(*args: Any, **kwargs: Any) -> Any:
            arguments: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
            before, states = _snapshot(arguments), self._random_states(name)
            result = function(*args, **kwargs)
            for key, value in arguments.items():
                if not _is_unchanged(before[key], value):
                    facts = {"argument": _parameter(function, key), "before": before[key], "after": value}
                    self._note(name, "inputs", facts)
            for library, state in states.items():
                if GENERATORS[library].state() != state:
                    self._note(name, "random", {"library": library})
            kept, then = self._last.pop(name, (None, None))
            if not _is_unchanged(then, kept):
                self._note(name, "again", {"before": then, "after": kept})
            if self._num_calls[name] <= WATCHED:
                self._last[name] = result, _snapshot(result)
            return result

        return call

    def _random_states(self, name: str) -> dict[str, object]:
        """Return the generators' states before one of the first calls of a function, and of later calls nothing.

        Before the first call each is moved on by one number. Else a function that seeds would go unnoticed where the
        last answer of the same process has seeded alike.
        """
        self._num_calls[name] += 1
        if self._num_calls[name] == 1:
            for generator in GENERATORS.values():
                generator.draw()
        return {k: g.state() for k, g in GENERATORS.items()} if self._num_calls[name] <= WATCHED else {}

    def _note(self, name: str, kind: str, facts: dict[str, Any]) -> None:
        plain = {fact: _plain(value) for fact, value in facts.items()}
        self.noted.setdefault(name, {}).setdefault(kind, plain)


def _snapshot(value: Any, depth: int = 0) -> Any:
    """Return a copy; what is nested deeper than can be sent is not copied."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if depth > wire.MAX_DEPTH:
        return value
    if type(value) in (list, tuple):  # a result may be of a type that is built otherwise
        return type(value)(_snapshot(v, depth + 1) for v in value)
    return {k: _snapshot(v, depth + 1) for k, v in value.items()} if type(value) is dict else value


def _is_unchanged(before: Any, after: Any) -> bool:
    """Whether plain data is what it was; NaN equals NaN."""
    if before is after:
        return True
    if type(before) is not type(after):
        return False
    if isinstance(before, Tensor):
        if before.dtype != after.dtype or before.shape != after.shape:
            return False
        return torch.equal(before, after) or bool(((before == after) | ((before != before) & (after != after))).all())
    if isinstance(before, list | tuple):
        return len(before) == len(after) and all(map(_is_unchanged, before, after))
    if isinstance(before, dict):
        return before.keys() == after.keys() and all(_is_unchanged(v, after[k]) for k, v in before.items())
    return bool(before == after)


@dataclass(frozen=True)
class _Generator:
    """A global generator: how to draw a number from it, and how to read its state in a form that can be compared."""

    draw: Callable[[], object]
    state: Callable[[], object]


def _numpy_state() -> object:
    state: Any = numpy.random.get_state()
    return (state[1].tobytes(), *state[2:])


GENERATORS = {
    "torch": _Generator(lambda: torch.rand(()), lambda: torch.get_rng_state().numpy().tobytes()),
    "NumPy": _Generator(numpy.random.rand, _numpy_state),
    "Python": _Generator(random.random, random.getstate),
}


def _parameter(function: Callable[..., Any], key: int | str) -> str:
    """Return the name of an argument, as the function itself calls it."""
    try:
        return key if isinstance(key, str) else list(inspect.signature(function).parameters)[key]
    except (TypeError, ValueError, IndexError):
        return f"argument {key}"


def _plain(value: Any) -> Any:
    """Return ``value``, or the name of its type if it cannot be sent."""
    try:
        wire.encode(value)
    except wire.WireError:
        return f"a {type(value).__name__}"
    return value
