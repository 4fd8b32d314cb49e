"""ΨPO: one objective over preference probabilities that has DPO and IPO as special cases; and its game, in which the
opponent learns too.

Here everything is a sum over the N possible answers to one prompt: ``preferences[i, j] = p(y_i ≻ y_j)``, and the opponent
is drawn from a distribution μ.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from minirlhf.core.validate import require_positive, require_range, require_shapes
from minirlhf.equations import kl


def psi_reward(preferences: Tensor, opponent: Tensor, *, psi: Callable[[Tensor], Tensor]) -> Tensor:
    """What ΨPO maximises instead of a reward: ``E_{y'~μ}[Ψ(p(y ≻ y'))]`` of each answer.

    Ψ = logit gives the Bradley–Terry reward up to a constant, so that certain preferences are infinite rewards; with
    Ψ = identity it is the win rate, which is bounded.

    Label: eq:psi-reward, eq:psi-logit
    Source: Azar et al. (2023), "A general theoretical paradigm to understand learning from human preferences".
    Args: preferences ``(N, N)``, with ½ on the diagonal; opponent μ ``(N,)``; psi, elementwise and non-decreasing.
    Returns: ``(N,)``.
    Raises: ValueError for other shapes, or preferences where p(y ≻ y') + p(y' ≻ y) is not 1.
    """
    require_shapes(preferences=(preferences, "N N"), opponent=(opponent, "N"))
    if not torch.allclose(preferences + preferences.mT, torch.ones_like(preferences), atol=1e-6):
        raise ValueError(f"preferences of shape {tuple(preferences.shape)}: p(y ≻ y') + p(y' ≻ y) must be 1")
    return (psi(preferences) * opponent).sum(-1)


def psi_po_objective(
    logps: Tensor,
    ref_logps: Tensor,
    preferences: Tensor,
    opponent: Tensor,
    *,
    beta: float,
    psi: Callable[[Tensor], Tensor],
) -> Tensor:
    """The ΨPO objective ``E_{y~π, y'~μ}[Ψ(p(y ≻ y'))] − β KL(π‖π_ref)``, to be maximised.

    Label: eq:psi-po
    Source: Azar et al. (2023), "A general theoretical paradigm to understand learning from human preferences", eq. 6
        (their τ is β).
    Args: logps, ref_logps, opponent ``(N,)``; preferences ``(N, N)``; beta > 0; psi, elementwise.
    Returns: a scalar.
    Raises: ValueError for other shapes, inconsistent preferences or beta ≤ 0.
    """
    require_positive(beta=beta)
    gain = psi_reward(preferences, opponent, psi=psi)
    require_shapes(gain=(gain, "N"), logps=(logps, "N"), ref_logps=(ref_logps, "N"))
    return (logps.exp() * gain).sum() - beta * kl.reverse_kl(logps, ref_logps)


def psi_po_optimum(
    ref_logps: Tensor, preferences: Tensor, opponent: Tensor, *, beta: float, psi: Callable[[Tensor], Tensor]
) -> Tensor:
    """The optimum ``π ∝ π_ref exp(E_{y'~μ}[Ψ(p(y ≻ y'))]/β)`` as log-probabilities: the RLHF optimum of that reward.

    With Ψ = identity it is the best response to μ in the regularised game of preferences; the policy that is the best
    response to itself is the game's Nash equilibrium.

    Label: eq:psi-po-optimum, eq:preference-nash
    Source: Azar et al. (2023), "A general theoretical paradigm to understand learning from human preferences"; the game
        in Munos et al. (2023), "Nash learning from human feedback".
    Args: ref_logps, opponent ``(N,)``; preferences ``(N, N)``; beta > 0; psi, elementwise.
    Returns: ``(N,)``.
    Raises: ValueError for other shapes, inconsistent preferences or beta ≤ 0.
    """
    require_positive(beta=beta)
    gain = psi_reward(preferences, opponent, psi=psi)
    require_shapes(gain=(gain, "N"), ref_logps=(ref_logps, "N"))
    return torch.log_softmax(ref_logps + gain / beta, -1)


def ipo_target(preferences: Tensor, opponent: Tensor, *, beta: float) -> Tensor:
    """The margin of every pair at ΨPO's optimum for Ψ = identity: ``h(y, y') = (p(y ≻ μ) − p(y' ≻ μ))/β``.

    Label: eq:ipo-target
    Source: Azar et al. (2023), "A general theoretical paradigm to understand learning from human preferences".
    Args: preferences ``(N, N)``; opponent μ ``(N,)``; beta > 0.
    Returns: ``(N, N)``, antisymmetric.
    Raises: ValueError for other shapes, inconsistent preferences or beta ≤ 0.
    """
    require_positive(beta=beta)
    win_rate = psi_reward(preferences, opponent, psi=lambda p: p)
    return (win_rate[:, None] - win_rate[None, :]) / beta


def nash_md(logps: Tensor, ref_logps: Tensor, preferences: Tensor, *, beta: float, step: float) -> Tensor:
    """One step of Nash-MD: mix towards the reference, then tilt by the win rate against the mixture.

    The mixture is geometric, ``m ∝ π^(1 − ηβ) π_ref^(ηβ)``, and the next policy ``∝ m exp(η p(y ≻ m))``, the maximiser of
    ``η p(π ≻ m) − KL(π‖m)``. Small steps lead to the game's equilibrium, up to an error of the order of the step.

    Label: eq:nash-md
    Source: Munos et al. (2023), "Nash learning from human feedback" (their τ is β, their μ the reference).
    Args: logps, ref_logps ``(N,)``; preferences ``(N, N)``; beta > 0; step η in (0, 1/β].
    Returns: ``(N,)``, log-probabilities.
    Raises: ValueError for other shapes, inconsistent preferences, beta ≤ 0 or a step out of range.
    """
    require_positive(beta=beta, step=step)
    require_range(0.0, 1.0, step_times_beta=step * beta)
    require_shapes(logps=(logps, "N"), ref_logps=(ref_logps, "N"))
    mixture = torch.log_softmax((1 - step * beta) * logps + step * beta * ref_logps, -1)
    return psi_po_optimum(mixture, preferences, mixture.exp(), beta=1 / step, psi=lambda p: p)
