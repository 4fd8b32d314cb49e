"""Probes of a study: short runs on each of its code paths, for a few seconds, whose losses and gradients show how the
code behaves.

A probe begins with small or untrained models, so that it needs no checkpoint. It lists the settings of the long
stages as they are.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from minirlhf.recipes.spelling import NONE_VALUE, dotted, flatten

#: Tolerances for a change of machine. Measured with AVX2 instead of AVX-512 in PyTorch, MKL and oneDNN: of the 7,200
#: numbers of the 90 probes none moved by more than 1.6e-3 of itself or, near 0, 2e-5, and no sampled token changed
#: (with SSE alone some do, in seven probes). A wrong sign, a wrong mask or a missing step moves some by tens of
#: percent.
RELATIVE, ABSOLUTE = 3e-3, 2e-5

#: The separator between the name of a plan and a path in it, in the names of :func:`settings`; and the values that a
#: new setting may have without counting as a change: nothing, 0 or 1, also as truth values.
SETTING = ": "
NEUTRAL = (NONE_VALUE, 0, 1)

#: The name of any function of the study itself, whose own code is compared; and the modules that define one.
OWN = "the study's own"
OWN_MODULES = re.compile(r"__main__|study of .*")

Numbers = Mapping[str, float | str]


def trace(name: str, history: Any, *metrics: str) -> dict[str, float]:
    """Return metrics of every step of a short run, by default ``loss`` and ``grad_norm``.

    Two steps reveal the sign of a loss: the first gradient's norm does not depend on it, the second gradient does.
    """
    keys = metrics or ("loss", "grad_norm")
    return {f"{name}_{key}_{step}": value for key in keys for step, value in enumerate(history[key])}


def brief(plan: Any, steps: int = 2, **changes: Any) -> Any:
    """Shorten the training of a plan to ``steps``, with other ``changes`` to the plan itself or to its training."""
    outer = {key: value for key, value in changes.items() if key in {f.name for f in dataclasses.fields(plan)}}
    inner = {key: value for key, value in changes.items() if key not in outer}
    return dataclasses.replace(plan, training=dataclasses.replace(plan.training, max_steps=steps, **inner), **outer)


def settings(**plans: Any) -> dict[str, float | str]:
    """Return all settings of plans and recipes, each as ``name: path``: a short run cannot distinguish 400 steps from
    40.

    Settings are numbers, names of functions and parts, and their arguments that are not tensors, chosen or by default.
    The name of a recipe, and its origin, are no settings.
    """
    return {
        f"{name}{SETTING}{'.'.join(path)}": value
        for name, plan in plans.items()
        for path, value in flatten(plan, called=_called)
        if path or not dataclasses.is_dataclass(plan)
    }


def _called(thing: Any) -> str:
    """Return where a class or function is defined; :data:`OWN` if the study itself defines it."""
    return OWN if OWN_MODULES.fullmatch(str(thing.__module__)) else dotted(thing)


def moved(stored: Numbers, found: Numbers) -> dict[str, str]:
    """Return the numbers whose change a change of machine does not explain: name -> "name from → to".

    A new or missing setting is ignored if it is neutral: nothing, 0 or 1. The numbers of the runs show the effect of
    such a setting.
    """
    return {
        name: f"{name} {_text(stored.get(name))} → {_text(found.get(name))}"
        for name in dict.fromkeys([*stored, *found])
        if not (
            _is_same(stored[name], found[name], exact=SETTING in name)
            if name in stored and name in found
            else SETTING in name and stored.get(name, found.get(name)) in NEUTRAL
        )
    }


def _is_same(was: float | str, now: float | str, *, exact: bool) -> bool:
    """Return whether two numbers or names are the same up to a change of machine (with ``exact``: identical)."""
    if was == now or isinstance(was, str) or isinstance(now, str):
        return was == now
    if math.isnan(was) and math.isnan(now):
        return True
    return not exact and math.isclose(was, now, rel_tol=RELATIVE, abs_tol=ABSOLUTE)


def _text(value: float | str | None) -> str:
    return "nothing" if value is None else value if isinstance(value, str) else f"{value:.6g}"
