"""Losses of the critic, per token ``(B, T)``; aggregate them with weights like any other. They are minimised."""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.masking import zero_where_masked
from minirlhf.core.validate import require_finite_where, require_mask, require_positive, require_shapes


def value_mse(values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
    """``½ (V_t − R_t)²``; smallest where V is the expected return.

    Label: eq:value-mse
    Source: Schulman et al. (2017), "Proximal Policy Optimization Algorithms", the term L^VF.
    Args:
        values: ``(B, T)``, predictions with gradient.
        returns: ``(B, T)``, targets; no gradient flows into them.
        mask: ``(B, T)``.
    Returns:
        ``(B, T)``, 0 outside the mask.
    Raises:
        ValueError: other shapes, an empty row, values that are not finite under the mask.
    """
    values, returns, _ = _inputs(values, returns, returns, mask)
    return 0.5 * (values - returns).square()


def value_clip(
    values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, *, cliprange_value: float = 0.2
) -> Tensor:
    """``½ max((V − R)², (clip(V, V_old ± c) − R)²)``: no gain from moving V further than c from where the batch found it.

    The larger of the two counts, so a prediction that moved away from its target keeps its gradient.

    Label: eq:value-clip
    Source: the value loss of OpenAI's PPO implementation (baselines), kept by most RLHF code; not in the PPO paper.
    Args:
        values: ``(B, T)``, predictions with gradient.
        old_values: ``(B, T)``, predictions when the batch was sampled.
        returns: ``(B, T)``, targets.
        mask: ``(B, T)``.
        cliprange_value: c > 0, in units of the return.
    Returns:
        ``(B, T)``, 0 outside the mask.
    Raises:
        ValueError: as :func:`value_mse`; ``cliprange_value`` not positive.
    """
    require_positive(cliprange_value=cliprange_value)
    values, old_values, returns = _inputs(values, old_values, returns, mask)
    near = torch.maximum(torch.minimum(values, old_values + cliprange_value), old_values - cliprange_value)
    return 0.5 * torch.maximum((values - returns).square(), (near - returns).square())


def _inputs(values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The three tensors, checked, with zeros outside the mask; only ``values`` keeps its gradient."""
    require_mask(mask)
    require_shapes(mask=(mask, "B T"), values=(values, "B T"), old_values=(old_values, "B T"), returns=(returns, "B T"))
    require_finite_where(mask, values=values, old_values=old_values, returns=returns)
    return (
        zero_where_masked(values, mask),
        zero_where_masked(old_values.detach(), mask),
        zero_where_masked(returns.detach(), mask),
    )
