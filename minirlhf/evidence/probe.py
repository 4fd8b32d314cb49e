"""A few seconds of a study as numbers: short runs on every path that it takes, whose losses and gradients say how the code behaves.

A probe begins with small or untrained models, so that it needs no checkpoint, and states the settings of the long stages as they are.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from minirlhf.evidence import code
from minirlhf.recipes.binding import Bindable

#: How far a change of machine may move a number of a probe. Measured with SSE instead of the default in PyTorch, MKL and oneDNN: of 932
#: numbers of the eleven probes none moved by more than 9e-4 of itself or, near 0, 5e-6, and no sampled token was another. A sign, a mask or
#: a step less moves some by tens of percents.
RELATIVE, ABSOLUTE = 3e-3, 2e-5

#: Between the name of a plan and a path in it, in what :func:`settings` calls a setting; the value of what is not there; and what a new
#: setting may be without a change: nothing, 0 or 1, also as truth values.
SETTING, NOTHING = ": ", "none"
NEUTRAL = (NOTHING, 0, 1)

#: Fields of a recipe that are words about it.
WORDS = {f.name for f in dataclasses.fields(Bindable)} | {"source"}

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
    """All that plans and recipes say, as ``name: path`` each: no short run can tell 400 steps from 40.

    Numbers, names of functions and parts, and what these take beside tensors, chosen or by default. What a recipe is called, and
    by whom, is no setting.
    """
    return {
        f"{name}{SETTING}{'.'.join(path)}": value
        for name, plan in plans.items()
        for path, value in _leaves(plan)
        if path or not dataclasses.is_dataclass(plan)
    }


def _leaves(value: Any) -> Iterator[tuple[tuple[str, ...], float | str]]:
    """What is said below, each with its path."""
    inner: Iterable[tuple[str, Any]] = ()
    if value is None or value == ():
        yield (), NOTHING
    elif isinstance(value, int | float | str):
        yield (), value
    elif isinstance(value, tuple):
        inner = ((str(place), item) for place, item in enumerate(value))
    elif dataclasses.is_dataclass(value):
        yield (), _called(type(value))
        words = WORDS if isinstance(value, Bindable) else ()
        inner = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value) if f.name not in words)
    elif callable(value):
        yield (), _called(inspect.unwrap(getattr(value, "func", value)))
        given = {p.name: p.default for p in inspect.signature(value).parameters.values() if p.default is not p.empty}
        needed = [p.name for p in inspect.signature(value).parameters.values() if p.kind is p.KEYWORD_ONLY]
        inner = (dict.fromkeys(needed) | given).items()  # what it needs and was not given, the run decides
    else:
        raise TypeError(f"{value!r} of type {type(value).__name__} is no setting")
    for name, part in inner:
        yield from (((name, *path), leaf) for path, leaf in _leaves(part))


def _called(thing: Any) -> str:
    """Where a class or function is defined; of one that the study itself defines, its shape tells."""
    name = f"{thing.__module__}.{thing.__qualname__}"
    return name if code.is_ours(name) and "<" not in name else "the study's own"


def moved(stored: Numbers, found: Numbers) -> list[str]:
    """The numbers that a change of machine does not explain, "name from → to" each.

    A setting that is new, or is gone, is forgiven where it is neutral: nothing, 0 or 1. What it then does, the numbers of the runs tell.
    """
    return [
        f"{name} {_text(stored.get(name))} → {_text(found.get(name))}"
        for name in dict.fromkeys([*stored, *found])
        if not (
            _alike(stored[name], found[name], exact=SETTING in name)
            if name in stored and name in found
            else SETTING in name and stored.get(name, found.get(name)) in NEUTRAL
        )
    ]


def _alike(was: float | str, now: float | str, *, exact: bool) -> bool:
    """Are two numbers, or two names, the same up to a change of machine (or exactly, as a setting is)?"""
    if isinstance(was, str) or isinstance(now, str):
        return was == now or (isinstance(was, str) and isinstance(now, str) and code.renamed(was, now))
    if exact:
        return was == now or (math.isnan(was) and math.isnan(now))
    return math.isclose(was, now, rel_tol=RELATIVE, abs_tol=ABSOLUTE) or (math.isnan(was) and math.isnan(now))


def _text(value: float | str | None) -> str:
    return "nothing" if value is None else value if isinstance(value, str) else f"{value:.6g}"
