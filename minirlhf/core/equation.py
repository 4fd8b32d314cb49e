"""What the book and the ledger know of a function: its equations, its source, and the arguments with a gradient."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
FACTS = "__equation__"


@dataclass(frozen=True)
class Equation:
    """The facts that :func:`equation` attaches to a function or a class.

    Attributes:
        labels: the equations of the book that it implements.
        source: the paper, with the equation's number there.
        gradient: the arguments with a gradient; None: all.
        stop_gradient: whether the formula contains a stop-gradient, so that its gradient is not the derivative of its
            value.
        positional: whether the position of a token matters: a gap in the mask has a meaning.
    """

    labels: tuple[str, ...] = ()
    source: str = ""
    gradient: tuple[str, ...] | None = None
    stop_gradient: bool = False
    positional: bool = False

    @staticmethod
    def of(function: Any) -> Equation:
        """Return the facts of a function, also under ``functools.partial``; empty ones if it has none."""
        declared: Equation = getattr(getattr(function, "func", function), "__dict__", {}).get(FACTS, Equation())
        return declared


def equation(
    *labels: str,
    source: str = "",
    gradient: tuple[str, ...] | None = None,
    stop_gradient: bool = False,
    positional: bool = False,
) -> Callable[[F], F]:
    """Attach an :class:`Equation` to the decorated function; ``help`` shows it at the end of the docstring."""

    def declare(function: F) -> F:
        setattr(function, FACTS, Equation(labels, source, gradient, stop_gradient, positional))
        facts = {"Label": ", ".join(labels), "Source": source}
        if gradient is not None:
            facts["Gradient"] = f"through {' and '.join(gradient)} only" if gradient else "none"
        lines = [textwrap.fill(f"{k}: {v}", 110, subsequent_indent="    ") for k, v in facts.items() if v]
        function.__doc__ = "\n".join([inspect.cleandoc(function.__doc__ or ""), "", *lines])
        return function

    return declare
