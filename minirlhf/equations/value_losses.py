"""Losses of the critic, per token ``(B, T)``; aggregate them with weights as other losses. They are minimised.

Gradients run through ``values`` only. Entries outside the mask have no effect, and the loss is 0 there.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.validate import MASK, POSITIVE, sampled, takes

_PREDICTION = {"mask": MASK, "values": sampled(gradient=True), "returns": sampled(gradient=False)}


@takes(**_PREDICTION)
@equation(
    "eq:value-mse",
    source='Schulman et al. (2017), "Proximal Policy Optimization Algorithms", the term L^VF.',
    gradient=("values",),
)
def value_mse(values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
    """``½ (V_t − R_t)²``, minimised by V = the expected return."""
    return 0.5 * (values - returns).square()


@takes(**_PREDICTION, old_values=sampled(gradient=False), cliprange_value=POSITIVE)
@equation(
    "eq:value-clip",
    "eq:clipped-value-loss",
    source="the value loss of OpenAI's PPO implementation (baselines), kept by most RLHF code; not in the PPO paper.",
    gradient=("values",),
)
def value_clip(
    values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, *, cliprange_value: float = 0.2
) -> Tensor:
    """``½ max((V − R)², (clip(V, V_old ± c) − R)²)``: no gain from moving V further than c from ``old_values``.

    ``old_values`` are the predictions at the time of sampling. The loss takes the larger square, so a prediction that
    moved away from its target keeps its gradient.

    Args:
        cliprange_value: c > 0, in units of the return.
    """
    clipped = torch.maximum(torch.minimum(values, old_values + cliprange_value), old_values - cliprange_value)
    return 0.5 * torch.maximum((values - returns).square(), (clipped - returns).square())
