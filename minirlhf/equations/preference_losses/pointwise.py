"""Losses with a separate target for each completion of a pair, which fixes the sign of the chosen completion's change
(for :func:`apo_down` only in the limit).

``r = β log π/π_ref`` is a completion's implicit reward. All losses take :class:`PairLogps` with a reference, return
``(B,)`` and are minimised.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.validate import POSITIVE, takes
from minirlhf.equations.preference_losses.pairs import dpo
from minirlhf.equations.preference_losses.records import Needs, PairLogps

_scaled = takes(beta=POSITIVE)


@Needs(PairLogps)
@_scaled
@equation(
    "eq:apo-zero",
    source='D\'Oosterlinck et al. (2024), "Anchored preference optimization and contrastive revisions", eq. 7, '
    "plus 1, so that it is never negative.",
)
def apo_zero(pair: PairLogps, *, beta: float) -> Tensor:
    """APO-zero ``1 − σ(r_w) + σ(r_l)``: raises chosen, lowers rejected completions. For data better than the model."""
    return torch.sigmoid(-beta * pair.chosen_logratios) + torch.sigmoid(beta * pair.rejected_logratios)


@Needs(PairLogps)
@_scaled
@equation(
    "eq:apo-down",
    source='D\'Oosterlinck et al. (2024), "Anchored preference optimization and contrastive revisions", eq. 8, plus 1.',
)
def apo_down(pair: PairLogps, *, beta: float) -> Tensor:
    """APO-down ``σ(r_w) + 1 − σ(r_w − r_l)``: least as both go down, the rejected one more. For data worse than the model."""
    return torch.sigmoid(beta * pair.chosen_logratios) + torch.sigmoid(-beta * pair.margins)


@Needs(PairLogps)
@_scaled
@equation(
    "eq:sppo",
    source='Wu et al. (2024), "Self-play preference optimization for language model alignment", eq. 4.7 (their η '
    "is 1/β); win rates 1 and 0 are its hard form.",
)
def sppo(
    pair: PairLogps, *, beta: float, chosen_win_rate: Tensor | float = 1.0, rejected_win_rate: Tensor | float = 0.0
) -> Tensor:
    """SPPO: squared error of each log-ratio to ``(P − ½)/β``, P the completion's win rate against the reference policy.

    The reference is the policy of the last iteration. Win rates are ``(B,)`` or numbers.
    """
    chosen_error = pair.chosen_logratios - (chosen_win_rate - 0.5) / beta
    rejected_error = pair.rejected_logratios - (rejected_win_rate - 0.5) / beta
    return chosen_error**2 + rejected_error**2


@Needs(PairLogps)
@equation(
    "eq:cal-dpo",
    source='Xiao et al. (2024), "Cal-DPO: calibrated direct preference optimization for language model alignment".',
)
def cal_dpo(pair: PairLogps, *, beta: float) -> Tensor:
    """Cal-DPO: ``−log σ(h)`` plus squared errors that calibrate the log-ratios to ``+1/(2β)`` and ``−1/(2β)``.

    The contrastive term has no β, as in the paper.
    """
    return dpo(pair, beta=1.0) + sppo(pair, beta=beta)
