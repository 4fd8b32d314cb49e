"""Cyclic preferences: the money pump, and the ratings that are fitted to a cycle."""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.equations.reward_losses import bradley_terry, elo_update
from minirlhf.equations.social_choice import bradley_terry_fit


def money_pump(prefers: Tensor, *, fee: float, offers: int, start: int = 0) -> tuple[list[int], list[float]]:
    """Simulate an agent who pays a fee to swap what they hold for anything that they prefer to it.

    Args:
        prefers: ``(K, K)`` bool, ``prefers[a, b]``: is a preferred to b?
        fee: what a trade costs.
        offers: number of offers; each offer is the first item that is preferred to the item held, if there is one.
        start: the item held at first.

    Returns:
        The item held and the total paid before the first and after each offer, ``offers + 1`` entries each.
    """
    holdings, total_paid = [start], [0.0]
    for _ in range(offers):
        better = prefers[:, holdings[-1]].nonzero().flatten().tolist()
        holdings.append(better[0] if better else holdings[-1])
        total_paid.append(total_paid[-1] + fee * bool(better))
    return holdings, total_paid


def ring(win: float, size: int = 3) -> Tensor:
    """Win probabilities ``(K, K)`` of a cycle: each item beats the next (the last the first) with ``win``; else ½."""
    probs = torch.full((size, size), 0.5, dtype=torch.float64)
    index = torch.arange(size)
    probs[index, index.roll(-1)], probs[index.roll(-1), index] = win, 1 - win
    return probs


def play(probs: Tensor, games: int, generator: torch.Generator) -> Tensor:
    """``(games, 2)``: winner and loser of games between two different items, drawn uniformly."""
    size = len(probs)
    first = torch.randint(size, (games,), generator=generator)
    second = (first + torch.randint(1, size, (games,), generator=generator)) % size
    first_wins = torch.rand(games, generator=generator, dtype=torch.float64) < probs[first, second]
    return torch.where(first_wins[:, None], torch.stack([first, second], -1), torch.stack([second, first], -1))


def win_matrix(games: Tensor, size: int) -> Tensor:
    """Count wins ``(K, K)`` of each item (row) against each other item (column) in the games ``(n, 2)``."""
    wins = torch.zeros(size, size, dtype=torch.float64)
    return wins.index_put((games[:, 0], games[:, 1]), torch.ones(len(games), dtype=torch.float64), accumulate=True)


def elo_ratings(games: Tensor, size: int, *, k: float) -> Tensor:
    """Elo ratings ``(B, n + 1, K)`` before the first (all 0) and after each of n games ``(B, n, 2)``, winner first."""
    ratings = torch.zeros(games.shape[0], size, dtype=torch.float64)
    history, rows, outcome = [ratings], torch.arange(len(games)), torch.ones(len(games), dtype=torch.float64)
    for game in games.unbind(1):
        winner, loser = game.unbind(-1)
        winner_rating, loser_rating = elo_update(ratings[rows, winner], ratings[rows, loser], outcome, k=k)
        ratings = ratings.index_put((rows, winner), winner_rating).index_put((rows, loser), loser_rating)
        history.append(ratings)
    return torch.stack(history, 1)


def misfit(wins: Tensor) -> Tensor:
    """Return the deviance ``(...)`` of Bradley–Terry on win counts ``(..., K, K)``.

    It is twice the log-likelihood of the observed win rates minus twice that of the fit. If Bradley–Terry holds, it is
    about chi-squared, with (K−1)(K−2)/2 degrees of freedom when all pairs were compared.
    """
    fitted = bradley_terry_fit(wins, tolerance=1e-9)
    expected = bradley_terry(*torch.broadcast_tensors(fitted[..., :, None], fitted[..., None, :]))
    observed = wins / (wins + wins.mT).clamp(min=1)
    log_likelihood_gain = torch.special.xlogy(wins, observed) - torch.special.xlogy(wins, expected)
    return 2 * log_likelihood_gain.sum((-2, -1))
