"""What is tried out on a model when it is first seen, and then relied on."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable

import torch
from torch import Tensor, nn

from minirlhf.core.calling import evaluating

log = logging.getLogger(__name__)

#: Largest difference between two ways to the same numbers, by the width of the weights: of numbers above 1, a share of the largest.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 5e-3}


class Proof:
    """Whether a faster way gives a model's own numbers. Each model is asked once; a failure is said once in the log: as a
    warning if it is a model of ``transformers``, of which the faster way could be expected.

    Args:
        compare: the numbers of the faster way and of the model itself, on a small example; called without gradient and without
            dropout. What the faster way raises, because the model is another than it thinks, counts as a no.
        otherwise: what happens instead, for the log.
    """

    def __init__(self, compare: Callable[[nn.Module], tuple[Tensor, Tensor]], otherwise: str) -> None:
        self._compare, self._otherwise = compare, otherwise
        self._found: weakref.WeakKeyDictionary[nn.Module, bool] = weakref.WeakKeyDictionary()

    def holds(self, model: nn.Module, possible: bool = True) -> bool:
        """Do both ways agree? Not if something that a short example would not show makes it im``possible``."""
        if model not in self._found:
            self._found[model] = False
            try:
                with torch.no_grad(), evaluating(model):
                    self._found[model] = possible and outputs_match(model, *self._compare(model))
            except (AttributeError, TypeError, ValueError, RuntimeError, IndexError, KeyError, NotImplementedError):
                log.debug("%s: the faster way failed", type(model).__name__, exc_info=True)
            if not self._found[model]:
                level = logging.WARNING if hasattr(model, "config") else logging.INFO
                log.log(level, "%s: %s", type(model).__name__, self._otherwise)
        return self._found[model]


def outputs_match(model: nn.Module, found: Tensor, own: Tensor) -> bool:
    """Are numbers that came another way the model's own, but for rounding?"""
    allowed = TOLERANCE.get(next(model.parameters()).dtype, 0.0) * max(1.0, float(own.abs().max()))
    return float((found - own).abs().max()) <= allowed
