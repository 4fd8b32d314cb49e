"""User-defined rewards: ``rewards.py:kindness`` names a function ``(prompt, completion) -> number`` in a file."""

from __future__ import annotations

import importlib.util
import inspect
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from minirlhf.core.errors import UserError, unknown


def load_function(spec: str) -> Callable[[str, str], float]:
    """Return the function that ``FILE.py:NAME`` names. The file is executed.

    Raises:
        UserError: there is no such file, it fails, it has no such function, or the function does not take two
            arguments.
    """
    file, colon, name = spec.rpartition(":")
    path = Path(file)
    if not colon or path.suffix != ".py" or not name:
        raise UserError(f"{spec!r}: expected FILE.py:FUNCTION", argument="function", value=spec)
    if not path.is_file():
        raise UserError(f"{file}: no such file", argument="function", value=spec, problem="missing", file=file)
    module_name = f"minirlhf_user_{path.stem}"
    found = importlib.util.spec_from_file_location(module_name, path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[module_name] = module
    try:
        found.loader.exec_module(module)
    except Exception as problem:
        raise UserError(
            f"{file}: {type(problem).__name__}: {problem}",
            argument="function",
            problem=type(problem).__name__,
            file=file,
        ) from None
    functions = {key: value for key, value in vars(module).items() if inspect.isfunction(value)}
    if name not in functions:
        raise unknown(f"function in {file}", name, functions)
    try:
        inspect.signature(functions[name]).bind("a prompt", "a reply")
    except TypeError as problem:
        raise UserError(
            f"{spec}: {problem}; expected a function of a prompt and a completion",
            argument="function",
            value=spec,
            problem="signature",
        ) from None
    function: Callable[[str, str], float] = functions[name]
    return function


def grade(function: Callable[[str, str], float], name: str, prompt: str, reply: str) -> float:
    """Return the value of a user's function for one completion; errors call the function ``name``.

    Raises:
        UserError: the function raises, or does not return one finite number; the error quotes the completion.
    """
    where = f"{name} of the reply {reply[:60]!r}"
    try:
        value = function(prompt, reply)
    except Exception as problem:
        raise UserError(
            f"{where}: {type(problem).__name__}: {problem}", argument=name, value=reply, problem=type(problem).__name__
        ) from None
    try:
        number = math.nan if isinstance(value, str) else float(value)
    except (TypeError, ValueError, RuntimeError):
        number = math.nan
    if not math.isfinite(number):
        description = f"is {value!r}" if isinstance(value, float | str | None) else f"is of type {type(value).__name__}"
        raise UserError(
            f"{where} {description}; expected one finite number",
            argument=name,
            value=reply,
            expected="finite",
            problem=type(value).__name__,
        )
    return number


def require_preferences(values: Sequence[float], name: str) -> None:
    """Refuse values that are all equal.

    Raises:
        UserError: all values are equal; the error quotes the value.
    """
    if min(values) == max(values):
        raise UserError(
            f"the {name} gives {values[0]:g} to every completion; expected different values",
            argument=name,
            value=values[0],
            problem="all alike",
        )
