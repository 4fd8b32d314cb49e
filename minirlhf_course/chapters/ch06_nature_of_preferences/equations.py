"""The equations that only chapter 6 needs: choices of one agent, and how far annotators and a majority agree.

A lottery is a distribution ``(..., N)`` over N outcomes. The unit and the zero of utilities are arbitrary: ``a·u + b``
with a > 0 ranks all lotteries as ``u`` does. Rewards are in nats.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import NOT_NEGATIVE, POSITIVE, at_least, distribution, finite, takes


@takes(probs=distribution("... N"), utilities="... N")
@equation("eq:expected-utility", source='von Neumann and Morgenstern (1944), "Theory of games and economic behavior".')
def expected_utility(probs: Tensor, utilities: Tensor) -> Tensor:
    """Expected utility ``(...)`` of a lottery, Σ_i p_i u_i.

    If an agent's preferences among lotteries are complete, transitive, continuous and independent of what two lotteries
    have in common, the agent ranks lotteries by this sum, for some utilities u.
    """
    return (probs * utilities).sum(-1)


# -- prospect theory ---------------------------------------------------------------------------------------------


@takes(gains="...", alpha=POSITIVE, loss_aversion=POSITIVE)
@equation(
    "eq:prospect-value",
    source='Tversky and Kahneman (1992), "Advances in prospect theory: cumulative representation of uncertainty".',
)
def prospect_value(gains: Tensor, *, alpha: float = 0.88, loss_aversion: float = 2.25) -> Tensor:
    """Value of a gain z ≥ 0 over the reference point, z^α, or of a loss, −λ (−z)^α.

    With α < 1 the sensitivity decreases for larger gains and losses; with λ > 1 a loss weighs more than an equal gain.
    The defaults are the medians of Tversky and Kahneman's subjects. The slope at 0 is infinite if α < 1.
    """
    magnitude = gains.abs() ** alpha
    return torch.where(gains >= 0, magnitude, -loss_aversion * magnitude)


@takes(probs=finite("...", "[0, 1]"), gamma=POSITIVE)
@equation(
    "eq:probability-weighting",
    source='Tversky and Kahneman (1992), "Advances in prospect theory: cumulative representation of uncertainty".',
)
def probability_weight(probs: Tensor, *, gamma: float = 0.61) -> Tensor:
    """Weight that a probability has in a choice, p^γ / (p^γ + (1−p)^γ)^{1/γ}.

    With γ < 1 people overweight small probabilities and underweight large ones. The default is for gains; for losses
    the same paper has .69.
    """
    weight, complement_weight = probs**gamma, (1 - probs) ** gamma
    return weight / (weight + complement_weight) ** (1 / gamma)


# -- corrigibility -----------------------------------------------------------------------------------------------


@takes(probs=distribution("... N"), utilities="... N", noise=NOT_NEGATIVE)
@equation(
    "eq:off-switch",
    "eq:off-switch-doubt",
    "eq:noisy-overseer",
    source='Hadfield-Menell et al. (2017), "The off-switch game".',
)
def deference_gain(probs: Tensor, utilities: Tensor, *, noise: float = 0.0) -> Tensor:
    """Utility gain ``(...)`` of a machine that leaves the off-switch to a person, E[u σ(u/τ)] − max(E[u], 0).

    The machine believes, with these probabilities, that its plan has utility u for the person; being switched off has
    utility 0. The person knows u and allows the plan with probability σ(u/τ), where τ is the noise; at τ = 0 the person
    allows it exactly if u > 0. The alternative is that the machine decides alone: it acts or switches itself off.
    """
    utility_alone = (probs * utilities).sum(-1).clamp(min=0)
    prob_allowed = (utilities > 0).to(utilities) if noise == 0 else torch.sigmoid(utilities / noise)
    return (probs * utilities * prob_allowed).sum(-1) - utility_alone


# -- many annotators ---------------------------------------------------------------------------------------------


@takes(rewards="G K", weights=distribution("G"))
@equation(
    "eq:reward-spread",
    source='Siththaranjan, Laidlaw and Hadfield-Menell (2024), "Distributional preference learning".',
)
def reward_spread(rewards: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Mean m_a and standard deviation s_a ``(K,)``, over annotators, of the reward of each completion.

    A distributional reward model represents both; a scalar reward represents the mean only. The rewards of different
    annotators must have a common scale, which comparisons alone do not determine.
    """
    mean = weights @ rewards
    return mean, (weights @ (rewards - mean) ** 2).sqrt()


@takes(accuracy=finite("...", "[0, 1]"), voters=at_least(1))
@equation(
    "eq:jury",
    source="Condorcet (1785), \"Essai sur l'application de l'analyse à la probabilité des décisions rendues à la "
    'pluralité des voix".',
)
def majority_accuracy(accuracy: Tensor, *, voters: int) -> Tensor:
    """Probability ``(...)`` that the majority of an odd number of voters is right, Σ_{k>n/2} C(n,k) p^k (1−p)^{n−k}.

    Each voter is right with probability p, independently of the others.
    """
    if voters % 2 == 0 or voters > 1001:
        raise ArgumentError(
            f"voters = {voters}; expected an odd number of at most 1001, which excludes ties",
            argument="voters",
            value=voters,
        )
    majorities = range(voters // 2 + 1, voters + 1)
    terms = [float(math.comb(voters, k)) * accuracy**k * (1 - accuracy) ** (voters - k) for k in majorities]
    return torch.stack(terms).sum(0)
