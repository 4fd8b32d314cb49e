"""Losses on K answers to one prompt: rankings, rewards, noise. A pair is the case K = 2.

With ``s = β log π/π_ref`` of the listed answers and q = softmax(s) there are two distances to a target distribution p
over the list: the cross-entropy −Σ p log q (forward KL; InfoNCA, and DPO for K = 2) and KL(q‖p) (reverse KL; EXO).
All losses return ``(B,)`` and are minimised.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from minirlhf.core.validate import require_finite, require_positive, require_shapes
from minirlhf.equations.preference_losses.records import ListLogps, Needs, PairLogps
from minirlhf.equations.reward_losses import plackett_luce_logp


@Needs(ListLogps, loss=False)
def ranking_probability(batch: ListLogps, *, beta: float) -> Tensor:
    """Probability of a ranking under Plackett–Luce with implicit rewards: ``Π_k exp(s_k)/Σ_{j≥k} exp(s_j)``.

    Rank by rank, the best of those that remain is drawn by a softmax. The prompt's β log Z cancels from every factor.

    Label: eq:pl-dpo-cancellation
    Source: Rafailov et al. (2023), "Direct preference optimization", appendix A.3.
    Args: batch with a reference, answers from best to worst; beta > 0.
    Returns: ``(B,)``, probabilities; over the K! orders of a list they sum to 1.
    Raises: ValueError for beta ≤ 0 or a missing reference.
    """
    return plackett_luce_logp(_scores(batch, beta)).exp()


@Needs(ListLogps)
def plackett_luce_dpo(batch: ListLogps, *, beta: float) -> Tensor:
    """DPO on rankings: minus the Plackett–Luce log-likelihood of the implicit rewards. With two answers it is DPO.

    Label: eq:pl-dpo, eq:pl-dpo-pair
    Source: Rafailov et al. (2023), "Direct preference optimization", appendix A.3.
    Args: batch with a reference, answers from best to worst; beta > 0.
    Returns: ``(B,)``.
    Raises: ValueError for beta ≤ 0 or a missing reference.
    """
    return -plackett_luce_logp(_scores(batch, beta))


@Needs(ListLogps)
def info_nca(batch: ListLogps, targets: Tensor, *, beta: float) -> Tensor:
    """InfoNCA: cross-entropy from the targets to the softmax of the implicit rewards. Only differences count.

    Label: eq:info-nca
    Source: Chen et al. (2024), "Noise contrastive alignment of language models with explicit rewards".
    Args: batch with a reference; targets ``(B, K)``, rows sum to 1, e.g. :func:`reward_targets`; beta > 0.
    Returns: ``(B,)``.
    Raises: ValueError for beta ≤ 0, targets that are no distributions, or a missing reference.
    """
    return -(_targets(batch, targets) * _scores(batch, beta).log_softmax(-1)).sum(-1)


@Needs(ListLogps)
def info_nce(batch: ListLogps, *, beta: float) -> Tensor:
    """InfoNCE: name the one positive answer, which stands first, among K − 1 negatives, by implicit reward.

    Its best scores are the log density ratio of positives to negatives, up to a constant per prompt.

    Label: eq:info-nce
    Source: van den Oord, Li and Vinyals (2018), "Representation learning with contrastive predictive coding", eq. 4.
    Args: batch with a reference, the positive answer in column 0; beta > 0.
    Returns: ``(B,)``; log K where all scores are equal.
    Raises: ValueError for beta ≤ 0 or a missing reference.
    """
    return -_scores(batch, beta).log_softmax(-1)[:, 0]


@Needs(ListLogps)
def nca(batch: ListLogps, targets: Tensor, *, beta: float) -> Tensor:
    """NCA: ``−Σ_i [p_i log σ(s_i) + log σ(−s_i)/K]``: each answer against noise, so the likelihood's level counts too.

    Label: eq:nca
    Source: Chen et al. (2024), "Noise contrastive alignment of language models with explicit rewards".
    Args: batch with a reference; targets ``(B, K)``, rows sum to 1; beta > 0.
    Returns: ``(B,)``.
    Raises: ValueError for beta ≤ 0, targets that are no distributions, or a missing reference.
    """
    scores = _scores(batch, beta)
    pulled = _targets(batch, targets) * logsigmoid(scores)
    return -(pulled + logsigmoid(-scores) / scores.shape[-1]).sum(-1)


@Needs(PairLogps)
def nca_pair(pair: PairLogps, *, beta: float) -> Tensor:
    """NCA on a pair: all of the target on the chosen answer, half a unit of noise on each.

    Label: eq:nca-pair
    Source: Chen et al. (2024), "Noise contrastive alignment of language models with explicit rewards".
    Args: pair with a reference; beta > 0.
    Returns: ``(B,)``.
    Raises: ValueError for beta ≤ 0 or a missing reference.
    """
    return nca(pair.ranked(), _certain(pair, 0.0), beta=beta)


@Needs(ListLogps)
def exo(batch: ListLogps, targets: Tensor, *, beta: float) -> Tensor:
    """EXO: KL(q‖p) from the softmax of the implicit rewards to the targets, the direction of reinforcement learning.

    Label: eq:exo
    Source: Ji et al. (2024), "Towards efficient exact optimization of language model alignment".
    Args: batch with a reference; targets ``(B, K)``, rows sum to 1, no zeros; beta > 0.
    Returns: ``(B,)``, ≥ 0.
    Raises: ValueError for beta ≤ 0, targets that are no distributions or hold a zero, or a missing reference.
    """
    targets = _targets(batch, targets)
    if not bool((targets > 0).all()):
        raise ValueError(f"targets of shape {tuple(targets.shape)} hold a zero; the reverse KL to them is infinite")
    log_q = _scores(batch, beta).log_softmax(-1)
    return (log_q.exp() * (log_q - targets.log())).sum(-1)


@Needs(PairLogps)
def exo_pair(pair: PairLogps, *, beta: float, label_smoothing: float) -> Tensor:
    """EXO on a pair: reverse KL to the target (1 − ε, ε). cDPO is the forward KL to the same target.

    Label: eq:exo-pair
    Source: Ji et al. (2024), "Towards efficient exact optimization of language model alignment", EXO from preferences.
    Args: pair with a reference; beta > 0; label_smoothing ε in (0, 0.5].
    Returns: ``(B,)``, ≥ 0.
    Raises: ValueError for an argument out of range or a missing reference.
    """
    if not 0.0 < label_smoothing <= 0.5:
        raise ValueError(f"label_smoothing = {label_smoothing!r}; expected a number in (0, 0.5]")
    return exo(pair.ranked(), _certain(pair, label_smoothing), beta=beta)


def reward_targets(rewards: Tensor, *, temperature: float) -> Tensor:
    """Target distributions ``softmax(r/temperature)`` over each list; a low temperature names the best answer.

    Over all answers, drawn from a uniform reference, they are the optimum of reinforcement learning with β = temperature.

    Label: eq:reward-targets
    Source: Chen et al. (2024), "Noise contrastive alignment of language models with explicit rewards".
    Args: rewards ``(B, K)``; temperature > 0, in units of reward.
    Returns: ``(B, K)``, rows sum to 1.
    Raises: ValueError for another shape, a reward that is not finite, or temperature ≤ 0.
    """
    require_positive(temperature=temperature)
    require_shapes(rewards=(rewards, "B K"))
    require_finite(rewards=rewards)
    return (rewards / temperature).softmax(-1)


def _scores(batch: ListLogps, beta: float) -> Tensor:
    require_positive(beta=beta)
    return beta * batch.logratios


def _certain(pair: PairLogps, label_smoothing: float) -> Tensor:
    """``(B, 2)``: 1 − ε on the chosen answer, ε on the rejected one."""
    rejected = torch.full_like(pair.chosen, label_smoothing)
    return torch.stack([1 - rejected, rejected], -1)


def _targets(batch: ListLogps, targets: Tensor) -> Tensor:
    require_shapes(logps=(batch.logps, "B K"), targets=(targets, "B K"))
    require_finite(targets=targets)
    if bool((targets < 0).any()) or bool(((targets.sum(-1) - 1).abs() > 1e-2).any()):
        raise ValueError(f"targets of shape {tuple(targets.shape)} must be ≥ 0 and sum to 1 in every row")
    return targets.detach()
