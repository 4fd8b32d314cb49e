"""A few seconds of a study as numbers: short runs on every path that it takes, whose losses and gradients say how the code behaves.

A probe begins with small or untrained models, so that it needs no checkpoint, and states the settings of the long stages as they are.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from minirlhf.evidence import code
from minirlhf.recipes.spelling import NONE_VALUE, dotted, flatten

#: How far a change of machine may move a number of a probe. Measured with AVX2 instead of AVX-512 in PyTorch, MKL and oneDNN: of the 7,200
#: numbers of the 90 probes none moved by more than 1.6e-3 of itself or, near 0, 2e-5, and no sampled token was another (with SSE alone
#: some are, in seven probes). A sign, a mask or a step less moves some by tens of percents.
RELATIVE, ABSOLUTE = 3e-3, 2e-5

#: Between the name of a plan and a path in it, in what :func:`settings` calls a setting; and what a new setting may be without a change:
#: nothing, 0 or 1, also as truth values.
SETTING = ": "
NEUTRAL = (NONE_VALUE, 0, 1)

#: What a function of the study itself is called, and where one is defined: the script's own shape tells which it is.
OWN = "the study's own"
OWN_MODULES = re.compile(r"__main__|study of .*")

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
        for path, value in flatten(plan, called=_called)
        if path or not dataclasses.is_dataclass(plan)
    }


def _called(thing: Any) -> str:
    """Where a class or function is defined; of one that the study itself defines, its shape tells."""
    return OWN if OWN_MODULES.fullmatch(str(thing.__module__)) else dotted(thing)


def moved(stored: Numbers, found: Numbers, defined: Mapping[str, str | None]) -> list[str]:
    """The numbers that a change of machine does not explain, "name from → to" each.

    Functions that are settings may be renamed: ``defined`` holds what :func:`~minirlhf.evidence.code.definition` said of the stored ones.

    A setting that is new, or is gone, is forgiven where it is neutral: nothing, 0 or 1. What it then does, the numbers of the runs tell.
    """
    return [
        f"{name} {_text(stored.get(name))} → {_text(found.get(name))}"
        for name in dict.fromkeys([*stored, *found])
        if not (
            _alike(stored[name], found[name], defined, exact=SETTING in name)
            if name in stored and name in found
            else SETTING in name and stored.get(name, found.get(name)) in NEUTRAL
        )
    ]


def _alike(was: float | str, now: float | str, defined: Mapping[str, str | None], *, exact: bool) -> bool:
    """Are two numbers, or two names, the same up to a change of machine (or exactly, as a setting is)?"""
    if isinstance(was, str) or isinstance(now, str):
        return was == now or (
            isinstance(was, str) and isinstance(now, str) and code.renamed(was, now, defined.get(was))
        )
    if exact:
        return was == now or (math.isnan(was) and math.isnan(now))
    return math.isclose(was, now, rel_tol=RELATIVE, abs_tol=ABSOLUTE) or (math.isnan(was) and math.isnan(now))


def _text(value: float | str | None) -> str:
    return "nothing" if value is None else value if isinstance(value, str) else f"{value:.6g}"
