"""Preferences that go in a circle: the money pump, and what ratings make of them."""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.equations.reward_losses import bradley_terry, elo_update
from minirlhf.equations.social_choice import bradley_terry_fit


def money_pump(prefers: Tensor, *, fee: float, offers: int, start: int = 0) -> tuple[list[int], list[float]]:
    """What somebody holds and has paid after each offer, who pays a fee for whatever they prefer to what they hold.

    Args:
        prefers: ``(K, K)`` bool, ``prefers[a, b]``: is a preferred to b?
        fee: what a trade costs.
        offers: how many offers are made; each is the first thing that is preferred to the one held, if there is one.
        start: what is held at first.

    Returns:
        Holdings and money paid, each with ``offers + 1`` entries.
    """
    held, paid = [start], [0.0]
    for _ in range(offers):
        better = prefers[:, held[-1]].nonzero().flatten().tolist()
        held.append(better[0] if better else held[-1])
        paid.append(paid[-1] + fee * bool(better))
    return held, paid


def ring(win: float, size: int = 3) -> Tensor:
    """``(K, K)``: each answer beats the next one, and the last the first, with probability ``win``; other pairs are even."""
    probs = torch.full((size, size), 0.5, dtype=torch.float64)
    here = torch.arange(size)
    probs[here, here.roll(-1)], probs[here.roll(-1), here] = win, 1 - win
    return probs


def play(probs: Tensor, games: int, generator: torch.Generator) -> Tensor:
    """``(games, 2)``: winner and loser of games between two different answers, drawn by lot."""
    size = len(probs)
    first = torch.randint(size, (games,), generator=generator)
    second = (first + torch.randint(1, size, (games,), generator=generator)) % size
    won = torch.rand(games, generator=generator, dtype=torch.float64) < probs[first, second]
    return torch.where(won[:, None], torch.stack([first, second], -1), torch.stack([second, first], -1))


def win_matrix(games: Tensor, size: int) -> Tensor:
    """``(K, K)``: how often each beat each other one in the games ``(n, 2)``."""
    wins = torch.zeros(size, size, dtype=torch.float64)
    return wins.index_put((games[:, 0], games[:, 1]), torch.ones(len(games), dtype=torch.float64), accumulate=True)


def elo_ratings(games: Tensor, size: int, *, k: float) -> Tensor:
    """Elo ratings ``(B, n + 1, K)`` before the first and after each of n games ``(B, n, 2)``, winner first; all start at 0."""
    ratings = torch.zeros(games.shape[0], size, dtype=torch.float64)
    path, row, one = [ratings], torch.arange(len(games)), torch.ones(len(games), dtype=torch.float64)
    for game in games.unbind(1):
        winner, loser = game.unbind(-1)
        up, down = elo_update(ratings[row, winner], ratings[row, loser], one, k=k)
        ratings = ratings.index_put((row, winner), up).index_put((row, loser), down)
        path.append(ratings)
    return torch.stack(path, 1)


def misfit(wins: Tensor) -> Tensor:
    """Deviance ``(...)`` of Bradley–Terry on win counts ``(..., K, K)``: twice what the best free probabilities gain in log-likelihood.

    If Bradley–Terry holds it is about chi-squared, with (K−1)(K−2)/2 degrees of freedom when all pairs were compared.
    """
    fitted = bradley_terry_fit(wins, tolerance=1e-9)
    expected = bradley_terry(*torch.broadcast_tensors(fitted[..., :, None], fitted[..., None, :]))
    observed = wins / (wins + wins.mT).clamp(min=1)
    gained = torch.special.xlogy(wins, observed) - torch.special.xlogy(wins, expected)
    return 2 * gained.sum((-2, -1))
