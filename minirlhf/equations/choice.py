"""How one decider chooses: utilities of chances, prospect theory, and a machine that may ask before it acts.

A lottery is a distribution ``(..., N)`` over N outcomes. Utilities have no unit and no zero of their own: ``a·u + b`` with a > 0
ranks all lotteries as ``u`` does.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.validate import NOT_NEGATIVE, POSITIVE, distribution, finite, takes


@takes(probs=distribution("... N"), utilities="... N")
def expected_utility(probs: Tensor, utilities: Tensor) -> Tensor:
    """Expected utility ``(...)`` of a lottery, Σ_i p_i u_i.

    Whoever's preferences among lotteries are complete, transitive, continuous and independent of what two lotteries have
    in common ranks them by this sum, for some utilities u.

    Label: eq:expected-utility
    Source: von Neumann and Morgenstern (1944), "Theory of games and economic behavior".
    """
    return (probs * utilities).sum(-1)


# -- prospect theory ---------------------------------------------------------------------------------------------


@takes(gains="...", alpha=POSITIVE, loss_aversion=POSITIVE)
def prospect_value(gains: Tensor, *, alpha: float = 0.88, loss_aversion: float = 2.25) -> Tensor:
    """Value of a gain z ≥ 0 over the reference point, z^α, or of a loss, −λ (−z)^α.

    With α < 1 people grow insensitive to more of the same in both directions; with λ > 1 a loss weighs more than an equal
    gain. The defaults are the medians of Tversky and Kahneman's subjects. The slope at 0 is infinite if α < 1.

    Label: eq:prospect-value
    Source: Tversky and Kahneman (1992), "Advances in prospect theory: cumulative representation of uncertainty".
    """
    size = gains.abs() ** alpha
    return torch.where(gains >= 0, size, -loss_aversion * size)


@takes(probs=finite("...", "[0, 1]"), gamma=POSITIVE)
def probability_weight(probs: Tensor, *, gamma: float = 0.61) -> Tensor:
    """Weight that a probability has in a choice, p^γ / (p^γ + (1−p)^γ)^{1/γ}.

    With γ < 1 small chances count for more than they are and large ones for less. The default is for gains; for losses
    the same paper has .69.

    Label: eq:probability-weighting
    Source: Tversky and Kahneman (1992), "Advances in prospect theory: cumulative representation of uncertainty".
    """
    happens, fails = probs**gamma, (1 - probs) ** gamma
    return happens / (happens + fails) ** (1 / gamma)


# -- corrigibility -----------------------------------------------------------------------------------------------


@takes(probs=distribution("... N"), utilities="... N", noise=NOT_NEGATIVE)
def deference_gain(probs: Tensor, utilities: Tensor, *, noise: float = 0.0) -> Tensor:
    """What a machine gains ``(...)`` by leaving the off-switch to a person, E[u σ(u/τ)] − max(E[u], 0).

    The machine believes that its plan is worth u to the person, with these probabilities; being switched off is worth 0. The
    person knows u and lets the plan pass with probability σ(u/τ), τ being the noise; at τ = 0 exactly when u > 0. The
    alternative is to decide alone: to act, or to switch itself off.

    Label: eq:off-switch, eq:off-switch-doubt, eq:noisy-overseer
    Source: Hadfield-Menell et al. (2017), "The off-switch game".
    """
    alone = (probs * utilities).sum(-1).clamp(min=0)
    passes = (utilities > 0).to(utilities) if noise == 0 else torch.sigmoid(utilities / noise)
    return (probs * utilities * passes).sum(-1) - alone
