"""Losses on K completions of one prompt, from rankings or from rewards. A pair is the case K = 2.

``s = β log π/π_ref`` are the implicit rewards of the listed completions, and q = softmax(s). Two divergences to a
target distribution p over the list are used: the cross-entropy −Σ p log q (forward KL; InfoNCA, and DPO for K = 2) and
KL(q‖p) (reverse KL; EXO). All losses need a reference, return ``(B,)`` and are minimised. Rankings run from best to
worst; ``targets (B, K)`` are ≥ 0 and sum to 1 in each row, e.g. :func:`reward_targets`; gradients run through
``batch``, ``pair`` and ``rewards`` only.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import POSITIVE, number, require_finite, require_shapes, takes
from minirlhf.equations.preference_losses.records import ListLogps, Needs, PairLogps
from minirlhf.equations.reward_losses import plackett_luce_logp

_scaled = takes(beta=POSITIVE)


@Needs(ListLogps, loss=False)
@_scaled
@equation(
    "eq:pl-dpo-cancellation",
    source='Rafailov et al. (2023), "Direct preference optimization", appendix A.3.',
    gradient=("batch",),
)
def ranking_probability(batch: ListLogps, *, beta: float) -> Tensor:
    """Probability ``(B,)`` of a ranking under Plackett–Luce with implicit rewards: ``Π_k exp(s_k)/Σ_{j≥k} exp(s_j)``.

    For each rank, a softmax over the remaining completions selects the next one. The prompt's β log Z cancels in
    every factor. Over the K! orders of a list the probabilities sum to 1.
    """
    return plackett_luce_logp(beta * batch.logratios).exp()


@Needs(ListLogps)
@_scaled
@equation(
    "eq:pl-dpo",
    "eq:pl-dpo-pair",
    source='Rafailov et al. (2023), "Direct preference optimization", appendix A.3.',
    gradient=("batch",),
)
def plackett_luce_dpo(batch: ListLogps, *, beta: float) -> Tensor:
    """DPO on rankings: minus the Plackett–Luce log-likelihood of the implicit rewards. For K = 2 it is DPO."""
    return -plackett_luce_logp(beta * batch.logratios)


@Needs(ListLogps)
@_scaled
@equation(
    "eq:info-nca",
    source='Chen et al. (2024), "Noise contrastive alignment of language models with explicit rewards".',
    gradient=("batch",),
)
def info_nca(batch: ListLogps, targets: Tensor, *, beta: float) -> Tensor:
    """InfoNCA: cross-entropy from the targets to the softmax of the implicit rewards. Only their differences matter."""
    return -(_targets(batch, targets) * (beta * batch.logratios).log_softmax(-1)).sum(-1)


@Needs(ListLogps)
@_scaled
@equation(
    "eq:info-nce",
    source='van den Oord, Li and Vinyals (2018), "Representation learning with contrastive predictive coding", eq. 4.',
    gradient=("batch",),
)
def info_nce(batch: ListLogps, *, beta: float) -> Tensor:
    """InfoNCE: classify which completion is the positive one, at index 0, among K − 1 negatives, by implicit reward.

    The optimal scores are the log density ratio of positives to negatives, up to a constant per prompt. The loss is
    log K if all scores are equal.
    """
    return -(beta * batch.logratios).log_softmax(-1)[:, 0]


@Needs(ListLogps)
@_scaled
@equation(
    "eq:nca",
    source='Chen et al. (2024), "Noise contrastive alignment of language models with explicit rewards".',
    gradient=("batch",),
)
def nca(batch: ListLogps, targets: Tensor, *, beta: float) -> Tensor:
    """NCA: ``−Σ_i [p_i log σ(s_i) + log σ(−s_i)/K]``: each completion is classified against noise, so levels matter."""
    scores = beta * batch.logratios
    positive_terms = _targets(batch, targets) * logsigmoid(scores)
    return -(positive_terms + logsigmoid(-scores) / scores.shape[-1]).sum(-1)


@Needs(PairLogps)
@equation(
    "eq:nca-pair",
    source='Chen et al. (2024), "Noise contrastive alignment of language models with explicit rewards".',
    gradient=("pair",),
)
def nca_pair(pair: PairLogps, *, beta: float) -> Tensor:
    """NCA on a pair: the target is 1 for the chosen completion, and each completion has noise weight ½."""
    return nca(pair.ranked(), _certain(pair, 0.0), beta=beta)


@Needs(ListLogps)
@_scaled
@equation(
    "eq:exo",
    source='Ji et al. (2024), "Towards efficient exact optimization of language model alignment".',
    gradient=("batch",),
)
def exo(batch: ListLogps, targets: Tensor, *, beta: float) -> Tensor:
    """EXO: KL(q‖p) from the softmax of the implicit rewards to the targets, the direction of reinforcement learning.

    The targets must be > 0: with a zero the loss would be infinite.
    """
    targets = _targets(batch, targets)
    if not bool((targets > 0).all()):
        raise ArgumentError(
            f"targets of shape {tuple(targets.shape)} contain 0, where the reverse KL is infinite; expected > 0",
            argument="targets",
            problem="zero",
        )
    log_q = (beta * batch.logratios).log_softmax(-1)
    return (log_q.exp() * (log_q - targets.log())).sum(-1)


@Needs(PairLogps)
@takes(label_smoothing=number("(0, 0.5]"))
@equation(
    "eq:exo-pair",
    source='Ji et al. (2024), "Towards efficient exact optimization of language model alignment", EXO from '
    "preferences.",
    gradient=("pair",),
)
def exo_pair(pair: PairLogps, *, beta: float, label_smoothing: float) -> Tensor:
    """EXO on a pair: reverse KL to the target (1 − ε, ε). cDPO is the forward KL to the same target."""
    return exo(pair.ranked(), _certain(pair, label_smoothing), beta=beta)


@takes(rewards="B K", temperature=POSITIVE)
@equation(
    "eq:reward-targets",
    source='Chen et al. (2024), "Noise contrastive alignment of language models with explicit rewards".',
    gradient=("rewards",),
)
def reward_targets(rewards: Tensor, *, temperature: float) -> Tensor:
    """Target distributions ``softmax(r/temperature)`` over each list; a low temperature selects the best completion.

    The temperature is in units of reward. If the list holds all completions and the reference is uniform, the targets
    are the optimum of reinforcement learning with β = temperature.
    """
    return (rewards / temperature).softmax(-1)


def _certain(pair: PairLogps, label_smoothing: float) -> Tensor:
    """``(B, 2)``: the target 1 − ε for the chosen completion, ε for the rejected one."""
    epsilon = torch.full_like(pair.chosen, label_smoothing)
    return torch.stack([1 - epsilon, epsilon], -1)


def _targets(batch: ListLogps, targets: Tensor) -> Tensor:
    require_shapes(logps=(batch.logps, "B K"), targets=(targets, "B K"))
    require_finite(targets=targets)
    if bool((targets < 0).any()) or bool(((targets.sum(-1) - 1).abs() > 1e-2).any()):
        raise ArgumentError(
            f"targets of shape {tuple(targets.shape)} must be ≥ 0 and sum to 1 in every row",
            argument="targets",
            problem="distribution",
        )
    return targets.detach()
