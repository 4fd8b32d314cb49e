"""What samples add to the exact results of chapter 06, ten seeds: ``python -m minirlhf_course.chapters.ch06_nature_of_preferences.study`` (about four minutes).

Ratings of a ring, ratings of the same games in other orders, ratings of a strength that moves, rankings that agree on a consensus,
groups that nobody has named. Writes ``study.json``.
"""

import itertools
import math

import torch

from minirlhf.equations.reward_losses import bradley_terry, elo_expected, elo_update, mallows_logp
from minirlhf.equations.social_choice import bradley_terry_fit
from minirlhf_course.chapters.ch06_nature_of_preferences.cycles import (
    elo_ratings,
    misfit,
    play,
    ring,
    win_matrix,
)
from minirlhf_course.chapters.ch06_nature_of_preferences.groups import find_groups, fit_smoothed, label
from minirlhf_course.evidence import Study

STEPS_OF_ELO = (2, 4, 8, 16, 32, 64)  # its k
CHI_SQUARED_95 = 3.841  # with one degree of freedom: three answers, all pairs
STRENGTHS = (0.0, 100.0, 200.0, 300.0)
TASTE = (0.6, 0.36, 0.12, -0.12, -0.36, -0.6)  # of one group; the other's is the reverse


def _spread(ratings: torch.Tensor) -> torch.Tensor:
    """``(...)``: the highest less the lowest."""
    return ratings.amax(-1) - ratings.amin(-1)


def rate_coins(generator: torch.Generator, runs: int, games: int) -> dict[str, float]:
    """Elo on games of three equal players: how far apart its noise alone puts the best and the worst."""
    even = torch.full((3, 3), 0.5, dtype=torch.float64)
    played = torch.stack([play(even, games, generator) for _ in range(runs)])
    return {f"coin_elo_{k}": float(_spread(elo_ratings(played, 3, k=k)[:, -1]).mean()) for k in (8, 32)}


def rate_a_ring(generator: torch.Generator, runs: int, games: int) -> dict[str, float]:
    """Elo and Bradley–Terry on games of three players who are equally good, each being stronger than the next."""
    played = torch.stack([play(ring(0.7), games, generator) for _ in range(runs)])
    numbers = {f"ring_elo_{k}": float(_spread(elo_ratings(played, 3, k=k)[:, -1]).mean()) for k in (8, 32)}
    fitted = bradley_terry_fit(torch.stack([win_matrix(g, 3) for g in played]), tolerance=1e-8)
    return numbers | {"ring_bradley_terry": float(_spread(fitted).mean() * 400 / math.log(10))}


def see_the_ring(generator: torch.Generator, runs: int) -> dict[str, float]:
    """How often the misfit of Bradley–Terry exceeds its 95 % point: on a ring, and where Bradley–Terry is true."""
    numbers, above = {}, torch.triu(torch.ones(3, 3, dtype=torch.bool), 1)
    truth = torch.tensor([0.5, 0.0, -0.5], dtype=torch.float64)
    fair = bradley_terry(*torch.broadcast_tensors(truth[:, None], truth[None, :]))
    for name, probs in (("ring", ring(0.6)), ("true", fair)):
        for pairs in (20, 100, 200):
            won = torch.rand(runs, pairs, 3, 3, generator=generator, dtype=torch.float64) < probs
            wins = (won.sum(1) * above).double()
            wins = wins + ((pairs - won.sum(1)) * above).mT
            numbers[f"seen_{name}_{pairs}"] = float((misfit(wins) > CHI_SQUARED_95).double().mean())
    return numbers


def shuffle_the_games(generator: torch.Generator, orders: int, games: int) -> dict[str, float]:
    """The same games of four players, rated in many orders."""
    strengths = torch.tensor(STRENGTHS, dtype=torch.float64)
    probs = elo_expected(*torch.broadcast_tensors(strengths[:, None], strengths[None, :]))
    played = play(probs, games, generator)
    shuffled = torch.stack([played[torch.randperm(games, generator=generator)] for _ in range(orders)])
    final = elo_ratings(shuffled, 4, k=32.0)[:, -1]
    wrong = (final.argsort(-1) != torch.arange(4)).any(-1)
    fitted = bradley_terry_fit(win_matrix(played, 4), tolerance=1e-8)
    return {
        "orders_sd": float((final - final.mean(-1, keepdim=True)).std(0).mean()),
        "orders_wrong": float(wrong.double().mean()),
        "orders_bradley_terry_wrong": float((fitted.argsort() != torch.arange(4)).any()),
    }


def follow_a_drift(generator: torch.Generator, games: int) -> dict[str, float]:
    """Elo with each k against a strength that swings by 200 points once in 2,000 games: root mean squared error of the rating."""
    time = torch.arange(games, dtype=torch.float64)
    strength = 200 * (2 * math.pi * time / 2000).sin()
    won = torch.rand(games, generator=generator, dtype=torch.float64) < elo_expected(strength, 0 * strength)
    numbers = {}
    for k in STEPS_OF_ELO:
        rating, squares = torch.zeros((), dtype=torch.float64), []
        anchor = torch.zeros((), dtype=torch.float64)  # the opponent, whose rating is known
        for now, score in zip(strength, won.double(), strict=True):
            squares.append(float((rating - now) ** 2))
            rating, _ = elo_update(rating, anchor, score, k=k)
        numbers[f"drift_{k}"] = math.sqrt(sum(squares[games // 10 :]) / len(squares[games // 10 :]))
    return numbers


def find_a_consensus(generator: torch.Generator, runs: int) -> dict[str, float]:
    """How often the order nearest to n rankings of five answers is the consensus that they were drawn around (Mallows, θ = 0.7)."""
    orders = torch.tensor(list(itertools.permutations(range(5))))  # (120, 5)
    above = torch.triu(orders.argsort(-1)[:, :, None] < orders.argsort(-1)[:, None, :], 1).flatten(1)  # by pairs
    distance = (above[:, None] != above[None, :]).sum(-1)  # (120, 120)
    chances = mallows_logp(orders, dispersion=0.7).exp()
    numbers = {}
    for rankings in (5, 20, 80):
        drawn = torch.multinomial(chances.expand(runs, -1), rankings, replacement=True, generator=generator)
        total = distance[:, drawn].sum(-1).T  # (runs, 120)
        alone = (total == total.amin(-1, keepdim=True)).sum(-1) == 1
        numbers[f"consensus_{rankings}"] = float(((total.argmin(-1) == 0) & alone).double().mean())
    return numbers


def name_the_groups(generator: torch.Generator, people: int, labels: tuple[int, ...]) -> dict[str, float]:
    """Two groups of opposite tastes, found by expectation–maximisation from a few labels of each person."""
    rewards = torch.tensor([TASTE, [-r for r in TASTE]], dtype=torch.float64)
    numbers = {}
    for each in labels:
        made = label(rewards, people, each, generator)
        belongs, fitted = find_groups(made.wins, generator)
        right = float(((belongs > 0.5) == (made.group == 0)).double().mean())
        fitted = fitted if right >= 0.5 else fitted.flip(0)
        pooled = fit_smoothed(made.wins.sum(0)).expand(2, -1)

        def agreement(model: torch.Tensor) -> float:
            ahead = (model[:, :, None] > model[:, None, :]) == (rewards[:, :, None] > rewards[:, None, :])
            return float(ahead[:, torch.triu(torch.ones(6, 6, dtype=torch.bool), 1)].double().mean())

        numbers[f"groups_{each}_found"] = max(right, 1 - right)
        numbers[f"groups_{each}_model"], numbers[f"groups_{each}_pooled"] = agreement(fitted), agreement(pooled)
    return numbers


def one_seed(
    seed: int, runs: int = 200, games: int = 1000, people: int = 100, labels: tuple[int, ...] = (5, 20, 80)
) -> dict[str, float]:
    """All of it with one seed."""
    generator = torch.Generator().manual_seed(seed)
    return {
        **rate_a_ring(generator, runs // 4, games),
        **see_the_ring(generator, runs),
        **shuffle_the_games(generator, runs, games),
        **follow_a_drift(generator, 3 * games),
        **find_a_consensus(generator, runs),
        **name_the_groups(generator, people, labels),
        **rate_coins(generator, runs // 4, games),
    }


def probe() -> dict[str, float | str]:
    """Every part of the study, small."""
    return dict(one_seed(0, runs=12, games=60, people=20, labels=(20,)))


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
