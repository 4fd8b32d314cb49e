"""From many comparisons to one ranking: aggregation of the comparisons of many annotators, or of one annotator.

``probs[..., a, b]`` is the probability that a is preferred to b in one comparison, ``wins[..., a, b]`` the number of
times that it was preferred. Diagonals are ignored. Rewards are in nats (:mod:`minirlhf.equations.reward_losses`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import POSITIVE, distribution, finite, takes
from minirlhf.equations.reward_losses import bradley_terry


def _off_diagonal(square: Tensor) -> Tensor:
    """``(..., K, K)`` with the diagonal replaced by zeros."""
    diagonal = torch.eye(square.shape[-1], dtype=torch.bool, device=square.device)
    return torch.where(diagonal, torch.zeros((), dtype=square.dtype, device=square.device), square)


def _table(rewards: Tensor) -> Tensor:
    """``(..., K, K)``: Bradley–Terry's probability that a is preferred to b."""
    return bradley_terry(*torch.broadcast_tensors(rewards[..., :, None], rewards[..., None, :]))


# -- one scale for all comparisons -------------------------------------------------------------------------------


@takes(wins="... K K", rewards="... K")
@equation(
    "eq:bradley-terry-balance",
    source='Zermelo (1929); Ford (1957), "Solution of a ranking problem from binary comparisons".',
)
def bradley_terry_balance(wins: Tensor, rewards: Tensor) -> Tensor:
    """Wins of each completion ``(..., K)`` minus Bradley–Terry's expectation, Σ_b W_ab − (W_ab + W_ba) σ(r_a − r_b).

    It is the gradient of the log-likelihood of all comparisons, and 0 at the maximum.
    """
    expected = (wins + wins.mT) * _table(rewards)
    return _off_diagonal(wins - expected).sum(-1)


@takes(wins=finite("... K K", "[0, inf]"), rewards="... K")
@equation(
    "eq:zermelo",
    source='Zermelo (1929), "Die Berechnung der Turnier-Ergebnisse als ein Maximumproblem der '
    'Wahrscheinlichkeitsrechnung"; as an algorithm that climbs a bound, Hunter (2004).',
)
def zermelo_step(wins: Tensor, rewards: Tensor) -> Tensor:
    """One step of Zermelo's iteration ``(..., K)``: r_a ← log Σ_b W_ab − log Σ_b (W_ab + W_ba) / (e^{r_a} + e^{r_b}).

    A step never lowers the likelihood. The fixed point has balance 0. Shifting all rewards shifts the result.
    """
    wins = _off_diagonal(wins)
    log_sums = torch.logaddexp(rewards[..., :, None], rewards[..., None, :])  # (..., K, K): log(e^{r_a} + e^{r_b})
    return wins.sum(-1).log() - ((wins + wins.mT) * (-log_sums).exp()).sum(-1).log()


@takes(wins=finite("... K K", "[0, inf]"), tolerance=POSITIVE)
@equation(
    "eq:bradley-terry-fit",
    source='Zermelo (1929); Hunter (2004), "MM algorithms for generalized Bradley-Terry models".',
    gradient=(),
)
def bradley_terry_fit(wins: Tensor, *, tolerance: float = 1e-10, max_steps: int = 20_000) -> Tensor:
    """Maximum-likelihood rewards ``(..., K)`` with mean 0, by :func:`zermelo_step`: Σ_b W_ab = Σ_b n_ab σ(r̂_a − r̂_b).

    They exist and are unique if, for every split of the completions into two groups, each group has won at least once
    against the other.

    Raises:
        ValueError: no maximum exists; or the balance, as a fraction of all comparisons, is not within ``tolerance`` of
            0 after ``max_steps``.
    """
    wins = wins.detach()
    size = wins.shape[-1]
    reachable = (_off_diagonal(wins) > 0).to(wins) + torch.eye(size).to(wins)
    for _ in range(size.bit_length()):  # transitive closure of "has won against"
        reachable = (reachable @ reachable > 0).to(wins)
    if not bool(reachable.all()):
        raise ArgumentError(
            f"wins of shape {tuple(wins.shape)}: the likelihood has no maximum, since a group of completions never won "
            "against the others, or was never compared with them",
            argument="wins",
            problem="no maximum",
        )
    rewards, total = torch.zeros_like(wins[..., 0]), _off_diagonal(wins).sum()
    for _ in range(max_steps):
        if bool((bradley_terry_balance(wins, rewards).abs() <= tolerance * total).all()):
            return rewards
        rewards = zermelo_step(wins, rewards)
        rewards = rewards - rewards.mean(-1, keepdim=True)
    raise ArgumentError(
        f"wins of shape {tuple(wins.shape)}: the iteration did not converge in {max_steps} steps; "
        "raise max_steps or tolerance",
        argument="wins",
        value=max_steps,
        problem="not converged",
    )


@takes(probs=finite("... K K", "[0, 1]"))
@equation(
    "eq:cycle-log-odds",
    source="Kolmogorov's criterion for reversible chains, on odds; see Jiang et al. (2011), \"Statistical ranking "
    'and combinatorial Hodge theory".',
)
def cycle_log_odds(probs: Tensor) -> Tensor:
    """Sum ``(...)`` of the log-odds around the cycle 0, 1, …, K−1, 0: Σ_a log P(a ≻ a+1) / P(a+1 ≻ a).

    It is 0 if the log-odds are differences of rewards, as under Bradley–Terry, Plackett–Luce and Elo, which cannot
    represent cycles.
    """
    if probs.shape[-1] < 3:
        raise ArgumentError(
            f"probs has shape {tuple(probs.shape)}; expected (..., K, K) with K ≥ 3",
            argument="probs",
            value=tuple(probs.shape),
            expected=3,
            problem="too few",
        )
    index = torch.arange(probs.shape[-1], device=probs.device)
    successor = index.roll(-1)
    return (probs[..., index, successor].log() - probs[..., successor, index].log()).sum(-1)


# -- many annotators ---------------------------------------------------------------------------------------------


@takes(rewards="G K", weights=distribution("G"))
@equation(
    "eq:mixture-preference",
    source='Siththaranjan, Laidlaw and Hadfield-Menell (2024), "Distributional preference learning", hidden context.',
)
def mixture_preference(rewards: Tensor, weights: Tensor) -> Tensor:
    """Probability ``(K, K)`` that a random annotator from G groups prefers a to b, Σ_g w_g σ(r_ga − r_gb).

    Each group follows Bradley–Terry with its own rewards. The mixture in general does not.
    """
    return torch.einsum("g,gab->ab", weights, _table(rewards))


@takes(probs=finite("... K K", "[0, 1]"))
@equation("eq:borda", source="Borda (1784); for reward models Siththaranjan, Laidlaw and Hadfield-Menell (2024).")
def borda_scores(probs: Tensor) -> Tensor:
    """Borda score ``(..., K)``: the mean probability of being preferred, over the other completions.

    If all pairs are compared equally often, the Bradley–Terry rewards fitted to all comparisons have the same order as
    these scores.
    """
    if probs.shape[-1] < 2:
        raise ArgumentError(
            f"probs has shape {tuple(probs.shape)}; expected (..., K, K) with K ≥ 2",
            argument="probs",
            value=tuple(probs.shape),
            expected=2,
            problem="too few",
        )
    return _off_diagonal(probs).sum(-1) / (probs.shape[-1] - 1)
