"""Losses without a reference model: half the forward passes, but no regularisation towards an initial model.

All except the last take :class:`PairLogps`; all return ``(B,)`` and are minimised.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.masking import masked_sum
from minirlhf.core.validate import MASK, NOT_NEGATIVE, POSITIVE, takes, under_mask
from minirlhf.equations.preference_losses.divergences import f_prime_alpha
from minirlhf.equations.preference_losses.records import Needs, PairLogps
from minirlhf.equations.reward_losses import bradley_terry_loss


@Needs(PairLogps, reference=False, lengths=True, per_token=True)
@takes(beta=POSITIVE, gamma=NOT_NEGATIVE)
@equation(
    "eq:simpo",
    source='Meng, Xia and Chen (2024), "SimPO: simple preference optimization with a reference-free reward", eq. 6.',
)
def simpo(pair: PairLogps, *, beta: float, gamma: float) -> Tensor:
    """SimPO ``−log σ(β·mean log π(y_w) − β·mean log π(y_l) − γ)``: the reward is the mean log-probability per token.

    gamma is the target margin γ itself (not the ratio γ/β).
    """
    mean = pair.per_token()
    return bradley_terry_loss(beta * mean.chosen, beta * mean.rejected, margin=torch.full_like(mean.chosen, gamma))


@Needs(PairLogps, reference=False, lengths=True, per_token=True)
@takes(beta=POSITIVE, gamma=NOT_NEGATIVE)
@equation("eq:alpha-po", source='Gupta et al. (2025), "AlphaPO: reward shape matters for LLM alignment".')
def alpha_po(pair: PairLogps, *, beta: float, alpha: float, gamma: float = 0.0) -> Tensor:
    """AlphaPO: SimPO with the reward ``β (1 − p^(−α))/α``, p the geometric mean of the token probabilities.

    α > 0 makes the reward steeper for improbable completions; α = 0 is SimPO. The function is the one of the
    α-divergence in f-DPO, applied to the probability instead of the ratio. Powers are capped at exp(80).
    """
    if alpha == 0.0:
        return simpo(pair, beta=beta, gamma=gamma)
    mean = pair.per_token()
    chosen, rejected = (beta * f_prime_alpha(x, alpha=alpha) for x in (mean.chosen, mean.rejected))
    return bradley_terry_loss(chosen, rejected, margin=torch.full_like(chosen, gamma))


@Needs(PairLogps, reference=False, lengths=True, per_token=True)
@takes(beta=POSITIVE)
@equation(
    "eq:orpo",
    source='Hong, Lee and Thorne (2024), "ORPO: monolithic preference optimization without reference model", eqs. '
    "6 and 7 (their λ is β).",
)
def orpo(pair: PairLogps, *, beta: float) -> Tensor:
    """ORPO: the chosen completion's mean negative log-likelihood, minus ``β log σ`` of the log odds ratio.

    The odds are ``P/(1 − P)`` with P the geometric mean of the token probabilities. P is clamped one rounding step
    below 1, where the odds would be infinite. A log-probability above 0 is an error.
    """
    mean = pair.per_token()
    return -mean.chosen + beta * bradley_terry_loss(
        _log_odds(mean.chosen, "chosen"), _log_odds(mean.rejected, "rejected")
    )


@Needs(PairLogps, reference=False)
@takes(beta=POSITIVE, nll_weight=NOT_NEGATIVE)
@equation(
    "eq:cpo",
    source='Xu et al. (2024), "Contrastive preference optimization: pushing the boundaries of LLM performance in '
    'machine translation", whose NLL is a sum over tokens.',
)
def cpo(pair: PairLogps, *, beta: float, nll_weight: float = 1.0) -> Tensor:
    """CPO: DPO with a uniform reference, ``−log σ(β log π(y_w) − β log π(y_l))``, plus the chosen completion's NLL."""
    return bradley_terry_loss(beta * pair.chosen, beta * pair.rejected) - nll_weight * pair.chosen


@Needs(PairLogps, reference=False)
@takes(delta=POSITIVE, nll_weight=NOT_NEGATIVE)
@equation(
    "eq:slic",
    source='Zhao et al. (2023), "SLiC-HF: sequence likelihood calibration with human feedback", with the chosen '
    "answer as the regularisation target.",
)
def slic(pair: PairLogps, *, delta: float, nll_weight: float) -> Tensor:
    """SLiC-HF: ``max(0, δ − log π(y_w) + log π(y_l))``, δ in nats, plus a weighted NLL of the chosen completion."""
    return torch.relu(delta - pair.chosen + pair.rejected) - nll_weight * pair.chosen


@Needs(PairLogps, reference=False)
@takes(weight=NOT_NEGATIVE)
@equation(
    "eq:likelihood-contrast",
    source='the "unlikelihood" baseline of Rafailov et al. (2023), "Direct preference optimization", section 6.',
)
def likelihood_contrast(pair: PairLogps, *, weight: float) -> Tensor:
    """The contrast ``−log π(y_w) + weight · log π(y_l)``: DPO's gradient without its weight. Unbounded below."""
    return -pair.chosen + weight * pair.rejected


@takes(mask=MASK, logps=under_mask())
@equation("eq:unlikelihood", source='Welleck et al. (2020), "Neural text generation with unlikelihood training".')
def unlikelihood(logps: Tensor, mask: Tensor) -> Tensor:
    """Unlikelihood ``−Σ_t log(1 − p_t)`` of an undesirable completion: bounded below, unlike minus its NLL.

    Each ``p_t`` is clamped one rounding step below 1. A log-probability above 0 is an error.
    """
    filled = torch.where(mask.bool(), logps, -torch.ones_like(logps))
    return -masked_sum(_log1m_exp(filled, "logps"), mask, -1)


def _log_odds(logps: Tensor, name: str) -> Tensor:
    return logps - _log1m_exp(logps, name)


def _log1m_exp(logps: Tensor, name: str) -> Tensor:
    """log(1 − exp(x)) for x ≤ 0, accurate at both ends. x is clamped to ≤ −eps, where the result is about −16."""
    if bool((logps > 0).any()):
        raise ArgumentError(
            f"{name} of shape {tuple(logps.shape)} holds log-probabilities above 0", argument=name, expected=0
        )
    x = logps.clamp(max=-torch.finfo(logps.dtype).eps)
    near = x > -math.log(2.0)
    # Each branch gets a safe input, because where() alone would pass NaN on to the gradient.
    from_expm1 = torch.log(-torch.expm1(torch.where(near, x, -math.log(2.0))))
    from_log1p = torch.log1p(-torch.exp(torch.where(near, -math.log(2.0), x)))
    return torch.where(near, from_expm1, from_log1p)
