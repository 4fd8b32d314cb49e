"""Losses for thumbs up and down: single answers, no pairs. Both compare an answer's implicit reward with a level that
is a statistic of the *whole* batch: compute it once, before micro-batching, and pass it in.

All losses return ``(B,)`` and are minimised.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from minirlhf.core.validate import require_finite, require_positive, require_range, require_shapes
from minirlhf.equations.preference_losses.records import Needs, PairLogps, UnpairedLogps


def kto_reference_point(logps: Tensor, ref_logps: Tensor) -> Tensor:
    """KTO's ``z₀ = max(0, mean log π/π_ref)``, an estimate of KL(π‖π_ref) from answers that do not belong to their prompts.

    Label: eq:kto-reference-point
    Source: Ethayarajh et al. (2024), "KTO: model alignment as prospect theoretic optimization", section 4.
    Args: logps, ref_logps ``(M,)``: sums over answers that are each paired with another example's prompt.
    Returns: a scalar without gradient, nats.
    Raises: ValueError for other shapes, an empty batch, or values that are not finite.
    """
    sizes = require_shapes(logps=(logps, "M"), ref_logps=(ref_logps, "M"))
    if sizes["M"] == 0:
        raise ValueError("logps has shape (0,); expected at least one mismatched answer")
    require_finite(logps=logps, ref_logps=ref_logps)
    return (logps - ref_logps).mean().clamp(min=0).detach()


@Needs(UnpairedLogps)
def kto(
    batch: UnpairedLogps,
    reference_point: Tensor,
    *,
    beta: float,
    desirable_weight: float = 1.0,
    undesirable_weight: float = 1.0,
) -> Tensor:
    """KTO: ``λ_D (1 − σ(β(log-ratio − z₀)))`` for a good answer, ``λ_U (1 − σ(β(z₀ − log-ratio)))`` for a bad one.

    A prospect-theoretic value: concave in gains, convex in losses, both measured from z₀. It saturates on both sides, so
    an example that the policy has far on the wrong side is given up.

    Label: eq:kto
    Source: Ethayarajh et al. (2024), "KTO: model alignment as prospect theoretic optimization", eq. 8.
    Args: batch with a reference; reference_point z₀, a scalar from :func:`kto_reference_point`; beta and weights > 0.
    Returns: ``(B,)``.
    Raises: ValueError for an argument out of range, a reference point that is no scalar, or a missing reference.
    """
    require_positive(beta=beta, desirable_weight=desirable_weight, undesirable_weight=undesirable_weight)
    require_shapes(reference_point=(reference_point, ""))
    excess = beta * (batch.logratios - reference_point.detach())
    good = desirable_weight * torch.sigmoid(-excess)
    bad = undesirable_weight * torch.sigmoid(excess)
    return torch.where(batch.desirable, good, bad)


@Needs(UnpairedLogps, loss=False)
def bco_delta(batch: UnpairedLogps, *, beta: float, previous: Tensor | None = None, decay: float = 0.9) -> Tensor:
    """BCO's reward shift δ: halfway between the mean implicit reward of the good and of the bad answers, as a moving mean.

    Label: eq:bco-delta
    Source: Jung et al. (2024), "Binary classifier optimization for large language model alignment".
    Args: batch with a reference, the whole one; beta > 0; previous δ, a scalar, kept with weight decay in [0, 1).
    Returns: a scalar without gradient. A batch without one of the two kinds uses the mean of the other.
    Raises: ValueError for an argument out of range or a missing reference.
    """
    require_positive(beta=beta)
    require_range(0.0, 1.0, decay=decay)
    rewards = (beta * batch.logratios).detach()
    kinds = [rewards[kind] for kind in (batch.desirable, ~batch.desirable)]
    current = torch.stack([kind.mean() for kind in kinds if len(kind)]).mean()
    if previous is None:
        return current
    require_shapes(previous=(previous, ""))
    return decay * previous.detach() + (1 - decay) * current


@Needs(UnpairedLogps)
def bco(batch: UnpairedLogps, delta: Tensor, *, beta: float) -> Tensor:
    """BCO: a binary classifier of good against bad, whose logit is the implicit reward minus δ.

    Label: eq:bco
    Source: Jung et al. (2024), "Binary classifier optimization for large language model alignment" (without the
        density-ratio weights for bad answers from another distribution).
    Args: batch with a reference; delta, a scalar, see :func:`bco_delta`; beta > 0.
    Returns: ``(B,)``.
    Raises: ValueError for beta ≤ 0, a delta that is no scalar, or a missing reference.
    """
    require_positive(beta=beta)
    require_shapes(delta=(delta, ""))
    logits = beta * batch.logratios - delta.detach()
    return -logsigmoid(torch.where(batch.desirable, logits, -logits))


@Needs(PairLogps)
def bco_pair(pair: PairLogps, *, beta: float) -> Tensor:
    """BCO on a pair without shift, ``−log σ(r_w) − log σ(−r_l)``: an upper bound of DPO that fixes both signs.

    Label: eq:bco-bound
    Source: Jung et al. (2024), "Binary classifier optimization for large language model alignment", the bound.
    Args: pair with a reference; beta > 0.
    Returns: ``(B,)``.
    Raises: ValueError for beta ≤ 0 or a missing reference.
    """
    return bco(pair.unpaired(), torch.zeros(()), beta=beta).view(2, -1).sum(0)
