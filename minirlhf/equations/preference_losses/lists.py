"""Losses on K answers to one prompt: rankings, rewards, noise. A pair is the case K = 2.

With ``s = β log π/π_ref`` of the listed answers and q = softmax(s) there are two distances to a target distribution p
over the list: the cross-entropy −Σ p log q (forward KL; InfoNCA, and DPO for K = 2) and KL(q‖p) (reverse KL; EXO).
All losses need a reference, return ``(B,)`` and are minimised. Rankings list their answers from best to worst;
``targets (B, K)`` are ≥ 0 and sum to 1 in each row, e.g. :func:`reward_targets`; gradients run through ``batch``, ``pair`` and
``rewards`` only.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import POSITIVE, number, require_finite, require_shapes, takes
from minirlhf.equations.preference_losses.records import ListLogps, Needs, PairLogps
from minirlhf.equations.reward_losses import plackett_luce_logp

_scaled = takes(beta=POSITIVE)


@Needs(ListLogps, loss=False)
@_scaled
def ranking_probability(batch: ListLogps, *, beta: float) -> Tensor:
    """Probability ``(B,)`` of a ranking under Plackett–Luce with implicit rewards: ``Π_k exp(s_k)/Σ_{j≥k} exp(s_j)``.

    Rank by rank, the best of those that remain is drawn by a softmax. The prompt's β log Z cancels from every
    factor. Over the K! orders of a list the probabilities sum to 1.

    Label: eq:pl-dpo-cancellation
    Source: Rafailov et al. (2023), "Direct preference optimization", appendix A.3.
    """
    return plackett_luce_logp(beta * batch.logratios).exp()


@Needs(ListLogps)
@_scaled
def plackett_luce_dpo(batch: ListLogps, *, beta: float) -> Tensor:
    """DPO on rankings: minus the Plackett–Luce log-likelihood of the implicit rewards. With two answers it is DPO.

    Label: eq:pl-dpo, eq:pl-dpo-pair
    Source: Rafailov et al. (2023), "Direct preference optimization", appendix A.3.
    """
    return -plackett_luce_logp(beta * batch.logratios)


@Needs(ListLogps)
@_scaled
def info_nca(batch: ListLogps, targets: Tensor, *, beta: float) -> Tensor:
    """InfoNCA: cross-entropy from the targets to the softmax of the implicit rewards. Only differences count.

    Label: eq:info-nca
    Source: Chen et al. (2024), "Noise contrastive alignment of language models with explicit rewards".
    """
    return -(_targets(batch, targets) * (beta * batch.logratios).log_softmax(-1)).sum(-1)


@Needs(ListLogps)
@_scaled
def info_nce(batch: ListLogps, *, beta: float) -> Tensor:
    """InfoNCE: name the one positive answer, which stands first, among K − 1 negatives, by implicit reward.

    Its best scores are the log density ratio of positives to negatives, up to a constant per prompt. log K where
    all scores are equal.

    Label: eq:info-nce
    Source: van den Oord, Li and Vinyals (2018), "Representation learning with contrastive predictive
        coding", eq. 4.
    """
    return -(beta * batch.logratios).log_softmax(-1)[:, 0]


@Needs(ListLogps)
@_scaled
def nca(batch: ListLogps, targets: Tensor, *, beta: float) -> Tensor:
    """NCA: ``−Σ_i [p_i log σ(s_i) + log σ(−s_i)/K]``: each answer against noise, so the level counts too.

    Label: eq:nca
    Source: Chen et al. (2024), "Noise contrastive alignment of language models with explicit rewards".
    """
    scores = beta * batch.logratios
    pulled = _targets(batch, targets) * logsigmoid(scores)
    return -(pulled + logsigmoid(-scores) / scores.shape[-1]).sum(-1)


@Needs(PairLogps)
def nca_pair(pair: PairLogps, *, beta: float) -> Tensor:
    """NCA on a pair: all of the target on the chosen answer, half a unit of noise on each.

    Label: eq:nca-pair
    Source: Chen et al. (2024), "Noise contrastive alignment of language models with explicit rewards".
    """
    return nca(pair.ranked(), _certain(pair, 0.0), beta=beta)


@Needs(ListLogps)
@_scaled
def exo(batch: ListLogps, targets: Tensor, *, beta: float) -> Tensor:
    """EXO: KL(q‖p) from the softmax of the implicit rewards to the targets, the direction of reinforcement learning.

    The targets hold no zeros, to which it would be infinite.

    Label: eq:exo
    Source: Ji et al. (2024), "Towards efficient exact optimization of language model alignment".
    """
    targets = _targets(batch, targets)
    if not bool((targets > 0).all()):
        raise ArgumentError(
            f"targets of shape {tuple(targets.shape)} hold a zero; the reverse KL to them is infinite",
            argument="targets",
            problem="zero",
        )
    log_q = (beta * batch.logratios).log_softmax(-1)
    return (log_q.exp() * (log_q - targets.log())).sum(-1)


@Needs(PairLogps)
@takes(label_smoothing=number("(0, 0.5]"))
def exo_pair(pair: PairLogps, *, beta: float, label_smoothing: float) -> Tensor:
    """EXO on a pair: reverse KL to the target (1 − ε, ε). cDPO is the forward KL to the same target.

    Label: eq:exo-pair
    Source: Ji et al. (2024), "Towards efficient exact optimization of language model alignment", EXO from
        preferences.
    """
    return exo(pair.ranked(), _certain(pair, label_smoothing), beta=beta)


@takes(rewards="B K", temperature=POSITIVE)
def reward_targets(rewards: Tensor, *, temperature: float) -> Tensor:
    """Target distributions ``softmax(r/temperature)`` over each list; a low temperature names the best answer.

    The temperature is in units of reward. Over all answers, drawn from a uniform reference, the targets are the
    optimum of reinforcement learning with β = temperature.

    Label: eq:reward-targets
    Source: Chen et al. (2024), "Noise contrastive alignment of language models with explicit rewards".
    """
    return (rewards / temperature).softmax(-1)


def _certain(pair: PairLogps, label_smoothing: float) -> Tensor:
    """``(B, 2)``: 1 − ε on the chosen answer, ε on the rejected one."""
    rejected = torch.full_like(pair.chosen, label_smoothing)
    return torch.stack([1 - rejected, rejected], -1)


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
