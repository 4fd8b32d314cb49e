"""Losses on single completions with binary feedback.

KTO and BCO compare a completion's implicit reward with a reference level. This level is a statistic of the *whole*
batch: compute it once, before micro-batching, and pass it in.

All need a reference. The losses return ``(B,)`` and are minimised; gradients run through ``batch`` and ``pair`` only.
The levels are scalars, and no gradient flows through them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import POSITIVE, UNIT, shape, takes
from minirlhf.equations.preference_losses.records import Needs, PairLogps, UnpairedLogps


@takes(logps="M", ref_logps="M")
@equation(
    "eq:kto-reference-point",
    source='Ethayarajh et al. (2024), "KTO: model alignment as prospect theoretic optimization", section 4.',
    gradient=(),
)
def kto_reference_point(logps: Tensor, ref_logps: Tensor) -> Tensor:
    """KTO's ``z₀ = max(0, mean log π/π_ref)``, an estimate of KL(π‖π_ref) in nats, from mismatched completions.

    Mismatched: each completion is paired with another example's prompt.
    """
    if len(logps) == 0:
        raise ArgumentError(
            "logps has shape (0,); expected at least one mismatched completion",
            argument="logps",
            value=(0,),
            problem="empty",
        )
    return (logps - ref_logps).mean().clamp(min=0).detach()


@Needs(UnpairedLogps)
@takes(reference_point=shape(""), beta=POSITIVE, desirable_weight=POSITIVE, undesirable_weight=POSITIVE)
@equation(
    "eq:kto",
    source='Ethayarajh et al. (2024), "KTO: model alignment as prospect theoretic optimization", eq. 8.',
    gradient=("batch",),
)
def kto(
    batch: UnpairedLogps,
    reference_point: Tensor,
    *,
    beta: float,
    desirable_weight: float = 1.0,
    undesirable_weight: float = 1.0,
) -> Tensor:
    """KTO: ``λ_D (1 − σ(β(log-ratio − z₀)))`` if desirable, ``λ_U (1 − σ(β(z₀ − log-ratio)))`` if not.

    The value function is from prospect theory: concave in gains and convex in losses, both relative to z₀, a scalar
    from :func:`kto_reference_point`. It saturates on both sides, so an example with a very wrong implicit reward gets
    almost no gradient.
    """
    excess = beta * (batch.logratios - reference_point.detach())
    desirable_loss = desirable_weight * torch.sigmoid(-excess)
    undesirable_loss = undesirable_weight * torch.sigmoid(excess)
    return torch.where(batch.desirable, desirable_loss, undesirable_loss)


@Needs(UnpairedLogps, loss=False)
@takes(beta=POSITIVE, previous=shape(""), decay=UNIT)
@equation(
    "eq:bco-delta",
    source='Jung et al. (2024), "Binary classifier optimization for large language model alignment".',
    gradient=(),
)
def bco_delta(batch: UnpairedLogps, *, beta: float, previous: Tensor | None = None, decay: float = 0.9) -> Tensor:
    """BCO's shift δ: moving average of the midpoint between the two classes' mean implicit rewards.

    The classes are the desirable and the undesirable completions. Pass the whole batch. If one of the two classes is
    absent, the mean of the other one is used. The previous δ, a scalar, has weight ``decay``.
    """
    rewards = (beta * batch.logratios).detach()
    classes = [rewards[mask] for mask in (batch.desirable, ~batch.desirable)]
    current = torch.stack([members.mean() for members in classes if len(members)]).mean()
    return current if previous is None else decay * previous.detach() + (1 - decay) * current


@Needs(UnpairedLogps)
@takes(delta=shape(""), beta=POSITIVE)
@equation(
    "eq:bco",
    source='Jung et al. (2024), "Binary classifier optimization for large language model alignment" (without the '
    "density-ratio weights for bad answers from another distribution).",
    gradient=("batch",),
)
def bco(batch: UnpairedLogps, delta: Tensor, *, beta: float) -> Tensor:
    """BCO: a binary classifier of desirable completions, whose logit is the implicit reward minus δ, a scalar.

    See :func:`bco_delta`.
    """
    logits = beta * batch.logratios - delta.detach()
    return -logsigmoid(torch.where(batch.desirable, logits, -logits))


@Needs(PairLogps)
@equation(
    "eq:bco-bound",
    source='Jung et al. (2024), "Binary classifier optimization for large language model alignment", the bound.',
    gradient=("pair",),
)
def bco_pair(pair: PairLogps, *, beta: float) -> Tensor:
    """BCO on a pair without the shift, ``−log σ(r_w) − log σ(−r_l)``: an upper bound on DPO that fixes both signs."""
    return bco(pair.unpaired(), torch.zeros(()), beta=beta).view(2, -1).sum(0)
