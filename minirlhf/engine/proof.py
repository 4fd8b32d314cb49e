"""Test a fast path once on each model, at its first use, and remember the result."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable

import torch
from torch import Tensor, nn

from minirlhf.core.calling import evaluating

log = logging.getLogger(__name__)

#: Largest accepted difference between the two results, by dtype of the weights; relative to the largest result above 1.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 5e-3}


class Proof:
    """Test whether a fast path reproduces a model's own outputs.

    Each model is tested once. A failure is logged once, as a warning for models of ``transformers``, for which the fast
    path is expected to work.

    Args:
        compare: returns the outputs of the fast path and of the model itself on a small example; called without
            gradient and without dropout. An exception of the fast path, because the model has another structure, counts
            as a failure.
        otherwise: the fallback, for the log.
    """

    def __init__(self, compare: Callable[[nn.Module], tuple[Tensor, Tensor]], otherwise: str) -> None:
        self._compare, self._otherwise = compare, otherwise
        self._found: weakref.WeakKeyDictionary[nn.Module, bool] = weakref.WeakKeyDictionary()

    def holds(self, model: nn.Module, possible: bool = True) -> bool:
        """Return whether both paths agree.

        ``possible`` is false if a property that a short example cannot reveal rules out the fast path.
        """
        if model not in self._found:
            self._found[model] = False
            device = next((weight.device.type for weight in model.parameters()), "cpu")
            try:  # autocast would round both outputs far more than the tolerance for these weights allows
                with torch.no_grad(), evaluating(model), torch.autocast(device, enabled=False):
                    self._found[model] = possible and outputs_match(model, *self._compare(model))
            except (AttributeError, TypeError, ValueError, RuntimeError, IndexError, KeyError, NotImplementedError):
                log.debug("%s: the fast path failed", type(model).__name__, exc_info=True)
            if not self._found[model]:
                level = logging.WARNING if hasattr(model, "config") else logging.INFO
                log.log(level, "%s: %s", type(model).__name__, self._otherwise)
        return self._found[model]


def outputs_match(model: nn.Module, found: Tensor, own: Tensor) -> bool:
    """Return whether the outputs ``found`` of a fast path equal the model's ``own`` up to rounding."""
    allowed = TOLERANCE.get(next(model.parameters()).dtype, 0.0) * max(1.0, float(own.abs().max()))
    return float((found - own).abs().max()) <= allowed
