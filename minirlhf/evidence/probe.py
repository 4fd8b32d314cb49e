"""A few seconds of a study as numbers: short runs on every path that it takes, whose losses and gradients say how the code behaves.

A probe begins with small or untrained models, so that it needs no checkpoint, and states the settings of the long stages as they are.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

from minirlhf.recipes.binding import Bindable

#: How far a change of machine may move a number of a probe. Measured with SSE instead of the default in PyTorch, MKL and oneDNN: of 932
#: numbers of the eleven probes none moved by more than 9e-4 of itself or, near 0, 5e-6, and no sampled token was another. A sign, a mask or
#: a step less moves some by tens of percents.
RELATIVE, ABSOLUTE = 3e-3, 2e-5

Numbers = Mapping[str, float | str]


def trace(name: str, history: Any, *metrics: str) -> dict[str, float]:
    """Metrics of every step of a short run, ``loss`` and ``grad_norm`` unless others are named.

    Two steps see the sign of a loss: the first gradient's length does not depend on it, the second gradient does.
    """
    wanted = metrics or ("loss", "grad_norm")
    return {f"{name}_{key}_{step}": value for key in wanted for step, value in enumerate(history[key])}


def brief(plan: Any, steps: int = 2, **changes: Any) -> Any:
    """A plan whose training takes only so many ``steps``, with other ``changes`` to the plan itself or to its training."""
    own = {key: value for key, value in changes.items() if key in {f.name for f in dataclasses.fields(plan)}}
    rest = {key: value for key, value in changes.items() if key not in own}
    return dataclasses.replace(plan, training=dataclasses.replace(plan.training, max_steps=steps, **rest), **own)


def settings(**plans: Any) -> dict[str, float | str]:
    """What plans say, flat: no short run can tell 400 steps from 40.

    Of the settings of a trainer (a dataclass that holds no other) only those that are not its defaults: a new option changes nothing.
    """
    return {f"{name}{key}": value for name, plan in plans.items() for key, value in _leaves(plan)}


def _leaves(value: Any) -> Iterator[tuple[str, float | str]]:
    if isinstance(value, Bindable):  # a recipe is its row and what was changed of it
        yield "", (value.row or value).name
        inner = list(value.changes.items())
    elif dataclasses.is_dataclass(value):
        parts = {f.name: (getattr(value, f.name), f.default) for f in dataclasses.fields(value)}
        holds = any(dataclasses.is_dataclass(part) for part, _ in parts.values())
        inner = [(name, part) for name, (part, default) in parts.items() if holds or part != default]
    elif isinstance(value, int | float | str):
        yield "", value
        return
    elif value is None:
        return
    else:
        raise TypeError(f"{value!r} of type {type(value).__name__} is no setting")
    for name, part in inner:
        yield from ((f".{name}{key}", leaf) for key, leaf in _leaves(part))


def moved(stored: Numbers, found: Numbers) -> list[str]:
    """The numbers that a change of machine does not explain, "name from → to" each."""
    return [
        f"{name} {_text(stored.get(name))} → {_text(found.get(name))}"
        for name in dict.fromkeys([*stored, *found])
        if name not in stored or name not in found or not _alike(stored[name], found[name])
    ]


def _alike(a: float | str, b: float | str) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return a == b
    return math.isclose(a, b, rel_tol=RELATIVE, abs_tol=ABSOLUTE) or (math.isnan(a) and math.isnan(b))


def _text(value: float | str | None) -> str:
    return "nothing" if value is None else value if isinstance(value, str) else f"{value:.6g}"
