"""Losses for thumbs up and down: single answers, no pairs. Both compare an answer's implicit reward with a level that
is a statistic of the *whole* batch: compute it once, before micro-batching, and pass it in.

All need a reference. The losses return ``(B,)`` and are minimised; gradients run through ``batch`` and ``pair`` only. The levels
are scalars, and no gradient flows through them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import POSITIVE, UNIT, shape, takes
from minirlhf.equations.preference_losses.records import Needs, PairLogps, UnpairedLogps


@takes(logps="M", ref_logps="M")
def kto_reference_point(logps: Tensor, ref_logps: Tensor) -> Tensor:
    """KTO's ``z₀ = max(0, mean log π/π_ref)``, an estimate of KL(π‖π_ref) in nats, from answers of other prompts.

    The sums are over answers that are each paired with another example's prompt. No gradient flows.

    Label: eq:kto-reference-point
    Source: Ethayarajh et al. (2024), "KTO: model alignment as prospect theoretic optimization", section 4.
    """
    if len(logps) == 0:
        raise ArgumentError(
            "logps has shape (0,); expected at least one mismatched answer",
            argument="logps",
            value=(0,),
            problem="empty",
        )
    return (logps - ref_logps).mean().clamp(min=0).detach()


@Needs(UnpairedLogps)
@takes(reference_point=shape(""), beta=POSITIVE, desirable_weight=POSITIVE, undesirable_weight=POSITIVE)
def kto(
    batch: UnpairedLogps,
    reference_point: Tensor,
    *,
    beta: float,
    desirable_weight: float = 1.0,
    undesirable_weight: float = 1.0,
) -> Tensor:
    """KTO: ``λ_D (1 − σ(β(log-ratio − z₀)))`` for a good answer, ``λ_U (1 − σ(β(z₀ − log-ratio)))`` for a bad one.

    A prospect-theoretic value: concave in gains, convex in losses, both measured from z₀, a scalar from
    :func:`kto_reference_point`. It saturates on both sides, so an example that the policy has far on the wrong
    side is given up.

    Label: eq:kto
    Source: Ethayarajh et al. (2024), "KTO: model alignment as prospect theoretic optimization", eq. 8.
    """
    excess = beta * (batch.logratios - reference_point.detach())
    good = desirable_weight * torch.sigmoid(-excess)
    bad = undesirable_weight * torch.sigmoid(excess)
    return torch.where(batch.desirable, good, bad)


@Needs(UnpairedLogps, loss=False)
@takes(beta=POSITIVE, previous=shape(""), decay=UNIT)
def bco_delta(batch: UnpairedLogps, *, beta: float, previous: Tensor | None = None, decay: float = 0.9) -> Tensor:
    """BCO's shift δ: halfway between the mean implicit reward of good and of bad answers, as a moving mean.

    The batch is the whole one; without one of the two kinds it uses the mean of the other. The previous δ, a
    scalar, is kept with weight ``decay``. No gradient flows.

    Label: eq:bco-delta
    Source: Jung et al. (2024), "Binary classifier optimization for large language model alignment".
    """
    rewards = (beta * batch.logratios).detach()
    kinds = [rewards[kind] for kind in (batch.desirable, ~batch.desirable)]
    current = torch.stack([kind.mean() for kind in kinds if len(kind)]).mean()
    return current if previous is None else decay * previous.detach() + (1 - decay) * current


@Needs(UnpairedLogps)
@takes(delta=shape(""), beta=POSITIVE)
def bco(batch: UnpairedLogps, delta: Tensor, *, beta: float) -> Tensor:
    """BCO: a binary classifier of good against bad, whose logit is the implicit reward minus δ, a scalar.

    See :func:`bco_delta`.

    Label: eq:bco
    Source: Jung et al. (2024), "Binary classifier optimization for large language model alignment" (without
        the density-ratio weights for bad answers from another distribution).
    """
    logits = beta * batch.logratios - delta.detach()
    return -logsigmoid(torch.where(batch.desirable, logits, -logits))


@Needs(PairLogps)
def bco_pair(pair: PairLogps, *, beta: float) -> Tensor:
    """BCO on a pair without shift, ``−log σ(r_w) − log σ(−r_l)``: an upper bound of DPO that fixes both signs.

    Label: eq:bco-bound
    Source: Jung et al. (2024), "Binary classifier optimization for large language model alignment", the bound.
    """
    return bco(pair.unpaired(), torch.zeros(()), beta=beta).view(2, -1).sum(0)
