"""Handles: functions of the grader that a submission may call. It sees their answers, never their data.

An argument of a call may hold functions. They stay in the grader's process; the submission receives stand-ins that ask
them and return copies of their answers. So a world can be asked and cannot be read, and every question can be counted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from minirlhf.sandbox import wire

KEY = "\0handle"  # a dictionary with this key alone stands for the handle of this number

Handle = Callable[..., Any]


def packed(value: Any, handles: list[Handle]) -> Any:
    """Return ``value`` with every function replaced by its number in ``handles``, to which it is added."""
    if callable(value):
        handles.append(value)
        return {KEY: len(handles) - 1}
    if isinstance(value, list | tuple):
        return type(value)(packed(v, handles) for v in value)
    if isinstance(value, dict):
        return {k: packed(v, handles) for k, v in value.items()}
    return value


def unpacked(value: Any, stand_in: Callable[[int], Handle]) -> Any:
    """Return ``value`` with every number of a handle replaced by ``stand_in(number)``."""
    if isinstance(value, list | tuple):
        return type(value)(unpacked(v, stand_in) for v in value)
    if isinstance(value, dict):
        if value.keys() == {KEY}:
            return stand_in(value[KEY])
        return {k: unpacked(v, stand_in) for k, v in value.items()}
    return value


def copying(handle: Handle) -> Handle:
    """Return a stand-in in the same process: it copies what goes in and what comes out, as between two processes."""

    def ask(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = wire.decode(wire.encode((args, kwargs)))
        return wire.decode(wire.encode(handle(*args, **kwargs)))

    return ask


@contextlib.contextmanager
def replaced(function: Any, world: Mapping[str, Any]) -> Iterator[None]:
    """Let ``function`` find these values under the global names of its module while the context lasts."""
    names: dict[str, Any] = getattr(function, "__globals__", {})
    before = {name: names[name] for name in world if name in names}
    names.update(world)
    try:
        yield
    finally:
        for name in world:
            names.pop(name, None)
        names.update(before)
