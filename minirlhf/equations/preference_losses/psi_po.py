"""ΨPO: one objective over preference probabilities that has DPO and IPO as special cases; and its game, in which the
opponent learns too.

All expectations are sums over the N possible completions of one prompt: ``preferences[i, j] = p(y_i ≻ y_j)``, with
p(y ≻ y') + p(y' ≻ y) = 1. The opponent samples from a distribution μ. ``psi`` is elementwise and non-decreasing.
Azar et al. (2023) is "A general theoretical paradigm to understand learning from human preferences"; their τ is β.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import POSITIVE, Arguments, Rule, require_range, shape, takes
from minirlhf.equations import kl


def _preferences(name: str, preferences: Tensor, arguments: Arguments) -> Tensor:
    shape("N N").apply(name, preferences, arguments)
    if not torch.allclose(preferences + preferences.mT, torch.ones_like(preferences), atol=1e-6):
        raise ArgumentError(
            f"{name} of shape {tuple(preferences.shape)}: p(y ≻ y') + p(y' ≻ y) must be 1",
            argument=name,
            problem="not symmetric",
        )
    return preferences


PREFERENCES = Rule("(N, N) with p(y ≻ y') + p(y' ≻ y) = 1", _preferences)


@takes(preferences=PREFERENCES, opponent=shape("N"))
@equation("eq:psi-reward", "eq:psi-logit", source="Azar et al. (2023).")
def psi_reward(preferences: Tensor, opponent: Tensor, *, psi: Callable[[Tensor], Tensor]) -> Tensor:
    """The reward that ΨPO maximises, ``E_{y'~μ}[Ψ(p(y ≻ y'))]``, of each completion: ``(N,)``.

    Ψ = logit gives the Bradley–Terry reward up to a constant, so that a preference with probability 1 gives an infinite
    reward. Ψ = identity gives the win rate, which is bounded.
    """
    return (psi(preferences) * opponent).sum(-1)


@takes(preferences=PREFERENCES, opponent=shape("N"), logps=shape("N"), ref_logps=shape("N"), beta=POSITIVE)
@equation("eq:psi-po", source="Azar et al. (2023), eq. 6.")
def psi_po_objective(
    logps: Tensor,
    ref_logps: Tensor,
    preferences: Tensor,
    opponent: Tensor,
    *,
    beta: float,
    psi: Callable[[Tensor], Tensor],
) -> Tensor:
    """The ΨPO objective ``E_{y~π, y'~μ}[Ψ(p(y ≻ y'))] − β KL(π‖π_ref)``, a scalar to be maximised."""
    reward = psi_reward(preferences, opponent, psi=psi)
    return (logps.exp() * reward).sum() - beta * kl.reverse_kl(logps, ref_logps)


@takes(preferences=PREFERENCES, opponent=shape("N"), ref_logps=shape("N"), beta=POSITIVE)
@equation(
    "eq:psi-po-optimum",
    "eq:preference-nash",
    source='Azar et al. (2023); the game in Munos et al. (2023), "Nash learning from human feedback".',
)
def psi_po_optimum(
    ref_logps: Tensor, preferences: Tensor, opponent: Tensor, *, beta: float, psi: Callable[[Tensor], Tensor]
) -> Tensor:
    """The optimum ``π ∝ π_ref exp(E_{y'~μ}[Ψ(p(y ≻ y'))]/β)``, ``(N,)`` log-probabilities: RLHF's for this reward.

    With Ψ = identity it is the best response to μ in the regularised preference game. The policy that is the best
    response to itself is the game's Nash equilibrium.
    """
    return torch.log_softmax(ref_logps + psi_reward(preferences, opponent, psi=psi) / beta, -1)


@takes(beta=POSITIVE)
@equation("eq:ipo-target", source="Azar et al. (2023).")
def ipo_target(preferences: Tensor, opponent: Tensor, *, beta: float) -> Tensor:
    """The margin ``(N, N)`` of every pair at ΨPO's optimum for Ψ = identity: ``h(y, y') = (p(y ≻ μ) − p(y' ≻ μ))/β``."""
    win_rate = psi_reward(preferences, opponent, psi=lambda p: p)
    return (win_rate[:, None] - win_rate[None, :]) / beta


@takes(logps=shape("N"), ref_logps=shape("N"), beta=POSITIVE, step=POSITIVE)
@equation(
    "eq:nash-md",
    source='Munos et al. (2023), "Nash learning from human feedback" (their τ is β, their μ the reference).',
)
def nash_md(logps: Tensor, ref_logps: Tensor, preferences: Tensor, *, beta: float, step: float) -> Tensor:
    """One step of Nash-MD: mix the policy with the reference, then tilt the mixture by the win rate against it.

    The mixture is geometric, ``m ∝ π^(1 − ηβ) π_ref^(ηβ)``. The next policy ``∝ m exp(η p(y ≻ m))`` maximises
    ``η p(π ≻ m) − KL(π‖m)``; the result is ``(N,)`` log-probabilities. The step η is at most 1/β. Small steps converge
    to the game's equilibrium, up to an error of the order of the step.
    """
    require_range(0.0, 1.0, step_times_beta=step * beta)
    mixture = torch.log_softmax((1 - step * beta) * logps + step * beta * ref_logps, -1)
    return psi_po_optimum(mixture, preferences, mixture.exp(), beta=1 / step, psi=lambda p: p)
