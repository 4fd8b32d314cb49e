"""Losses without a reference model: half the forward passes, and nothing that holds the policy where it was.

All but the last take :class:`PairLogps`; all return ``(B,)`` and are minimised.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minirlhf.core.masking import masked_sum
from minirlhf.core.validate import require_finite_where, require_mask, require_positive, require_range, require_shapes
from minirlhf.equations.preference_losses.divergences import f_prime_alpha
from minirlhf.equations.preference_losses.records import Needs, PairLogps
from minirlhf.equations.reward_losses import bradley_terry_loss


@Needs(PairLogps, reference=False, lengths=True)
def simpo(pair: PairLogps, *, beta: float, gamma: float) -> Tensor:
    """SimPO ``−log σ(β·mean log π(y_w) − β·mean log π(y_l) − γ)``: the reward is the mean log-probability per token.

    Label: eq:simpo
    Source: Meng, Xia and Chen (2024), "SimPO: simple preference optimization with a reference-free reward", eq. 6.
    Args: pair with lengths; beta > 0; gamma ≥ 0, the target margin γ itself (not the ratio γ/β).
    Returns: ``(B,)``.
    Raises: ValueError for an argument out of range or missing lengths.
    """
    require_positive(beta=beta)
    require_range(0.0, float("inf"), gamma=gamma)
    mean = pair.per_token()
    return bradley_terry_loss(beta * mean.chosen, beta * mean.rejected, margin=torch.full_like(mean.chosen, gamma))


@Needs(PairLogps, reference=False, lengths=True)
def alpha_po(pair: PairLogps, *, beta: float, alpha: float, gamma: float = 0.0) -> Tensor:
    """AlphaPO: SimPO with the reward ``β (1 − p^(−α))/α``, p the geometric mean of the token probabilities.

    α > 0 bends the reward so that unlikely answers are pushed harder; 0 is SimPO. The bend is that of the α-divergence in
    f-DPO, applied to the probability instead of the ratio.

    Label: eq:alpha-po
    Source: Gupta et al. (2025), "AlphaPO: reward shape matters for LLM alignment".
    Args: pair with lengths; beta > 0; alpha, any finite number; gamma ≥ 0.
    Returns: ``(B,)``. Powers are capped at exp(80).
    Raises: ValueError for an argument out of range or missing lengths.
    """
    if alpha == 0.0:
        return simpo(pair, beta=beta, gamma=gamma)
    require_positive(beta=beta)
    require_range(0.0, float("inf"), gamma=gamma)
    mean = pair.per_token()
    chosen, rejected = (beta * f_prime_alpha(x, alpha=alpha) for x in (mean.chosen, mean.rejected))
    return bradley_terry_loss(chosen, rejected, margin=torch.full_like(chosen, gamma))


@Needs(PairLogps, reference=False, lengths=True)
def orpo(pair: PairLogps, *, beta: float) -> Tensor:
    """ORPO: the chosen answer's mean negative log-likelihood, minus ``β log σ`` of the log odds ratio.

    The odds are ``P/(1 − P)`` with P the geometric mean of the token probabilities.

    Label: eq:orpo
    Source: Hong, Lee and Thorne (2024), "ORPO: monolithic preference optimization without reference model", eqs. 6
        and 7 (their λ is β).
    Args: pair of log-probabilities ≤ 0 with lengths; beta > 0.
    Returns: ``(B,)``. P is kept one rounding step below 1, where the odds would be infinite.
    Raises: ValueError for beta ≤ 0, a log-probability above 0 or missing lengths.
    """
    require_positive(beta=beta)
    mean = pair.per_token()
    return -mean.chosen + beta * bradley_terry_loss(
        _log_odds(mean.chosen, "chosen"), _log_odds(mean.rejected, "rejected")
    )


@Needs(PairLogps, reference=False)
def cpo(pair: PairLogps, *, beta: float, nll_weight: float = 1.0) -> Tensor:
    """CPO: DPO with a uniform reference, ``−log σ(β log π(y_w) − β log π(y_l))``, plus the chosen answer's NLL.

    Label: eq:cpo
    Source: Xu et al. (2024), "Contrastive preference optimization: pushing the boundaries of LLM performance in machine
        translation", whose NLL is a sum over tokens.
    Args: pair; beta > 0; nll_weight ≥ 0.
    Returns: ``(B,)``.
    Raises: ValueError for an argument out of range.
    """
    require_positive(beta=beta)
    require_range(0.0, float("inf"), nll_weight=nll_weight)
    return bradley_terry_loss(beta * pair.chosen, beta * pair.rejected) - nll_weight * pair.chosen


@Needs(PairLogps, reference=False)
def slic(pair: PairLogps, *, delta: float, nll_weight: float) -> Tensor:
    """SLiC-HF: ``max(0, δ − log π(y_w) + log π(y_l))`` plus a weighted NLL of the chosen answer.

    Label: eq:slic
    Source: Zhao et al. (2023), "SLiC-HF: sequence likelihood calibration with human feedback", with the chosen answer
        as the regularisation target.
    Args: pair; delta > 0, nats; nll_weight ≥ 0.
    Returns: ``(B,)``.
    Raises: ValueError for an argument out of range.
    """
    require_positive(delta=delta)
    require_range(0.0, float("inf"), nll_weight=nll_weight)
    return torch.relu(delta - pair.chosen + pair.rejected) - nll_weight * pair.chosen


@Needs(PairLogps, reference=False)
def likelihood_contrast(pair: PairLogps, *, weight: float) -> Tensor:
    """The naive contrast ``−log π(y_w) + weight · log π(y_l)``: DPO's gradient without its weight. Unbounded below.

    Label: eq:likelihood-contrast
    Source: the "unlikelihood" baseline of Rafailov et al. (2023), "Direct preference optimization", section 6.
    Args: pair; weight ≥ 0.
    Returns: ``(B,)``.
    Raises: ValueError for a negative weight.
    """
    require_range(0.0, float("inf"), weight=weight)
    return -pair.chosen + weight * pair.rejected


def unlikelihood(logps: Tensor, mask: Tensor) -> Tensor:
    """Unlikelihood ``−Σ_t log(1 − p_t)`` of an unwanted answer: bounded below, unlike minus its negative log-likelihood.

    Label: eq:unlikelihood
    Source: Welleck et al. (2020), "Neural text generation with unlikelihood training".
    Args: logps ≤ 0, mask ``(B, T)``.
    Returns: ``(B,)``, sums over tokens; each ``p_t`` is kept one rounding step below 1.
    Raises: ValueError for other shapes, an empty row, a log-probability that is not finite or above 0.
    """
    require_mask(mask)
    require_shapes(mask=(mask, "B T"), logps=(logps, "B T"))
    require_finite_where(mask, logps=logps)
    inside = torch.where(mask.bool(), logps, -torch.ones_like(logps))
    return -masked_sum(_log1m_exp(inside, "logps"), mask, -1)


def _log_odds(logps: Tensor, name: str) -> Tensor:
    return logps - _log1m_exp(logps, name)


def _log1m_exp(logps: Tensor, name: str) -> Tensor:
    """log(1 − exp(x)) for x ≤ 0, accurate at both ends; x is kept below −eps, where the result is about −16 in float32."""
    if bool((logps > 0).any()):
        raise ValueError(f"{name} of shape {tuple(logps.shape)} holds log-probabilities above 0")
    x = logps.clamp(max=-torch.finfo(logps.dtype).eps)
    near = x > -math.log(2.0)
    # Each branch gets an input that is harmless to it: a where() alone would let NaN into the gradient.
    from_expm1 = torch.log(-torch.expm1(torch.where(near, x, -math.log(2.0))))
    from_log1p = torch.log1p(-torch.exp(torch.where(near, -math.log(2.0), x)))
    return torch.where(near, from_expm1, from_log1p)
