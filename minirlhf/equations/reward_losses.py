"""Models of preference and the losses that fit a reward model to it.

Rewards are in nats: a difference of 1 between two answers means odds of e to 1. Every loss is per example ``(B,)`` (per
token for the outcome model) and is minimised; reducing over the batch is the caller's.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import logsigmoid

from minirlhf.core.validate import require_finite, require_shapes


def bradley_terry_loss(chosen: Tensor, rejected: Tensor, *, margin: Tensor | None = None) -> Tensor:
    """Bradley–Terry loss −log σ(chosen − rejected − margin) = log(1 + exp(rejected − chosen + margin)).

    Only the difference counts: a shift of both rewards, e.g. a constant per prompt, changes nothing. The margin asks
    for a larger difference where the annotators were more certain.

    Label: eq:bradley-terry-loss, eq:margin-loss, eq:reward-shift
    Source: Bradley and Terry (1952), "Rank analysis of incomplete block designs"; as the loss of a reward model
        Christiano et al. (2017) and Stiennon et al. (2020); the margin from Touvron et al. (2023), "Llama 2".
    Args: chosen, rejected, margin ``(B,)``; margin is ≥ 0 by custom.
    Returns: ``(B,)``, nats.
    Raises: ValueError if shapes differ or a value is not finite.
    """
    require_shapes(chosen=(chosen, "B"), rejected=(rejected, "B"))
    require_finite(chosen=chosen, rejected=rejected)
    if margin is None:
        return -logsigmoid(chosen - rejected)
    require_shapes(chosen=(chosen, "B"), margin=(margin, "B"))
    require_finite(margin=margin)
    return -logsigmoid(chosen - rejected - margin)
