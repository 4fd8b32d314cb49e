# ---
# title: Bug hunt: a rating system with inflation
# kind: bughunt
# minutes: 25
# ---

# %% [statement]
# Elo only moves points from the loser to the winner, so the sum of all ratings never changes. A club's program has run for a year, and its curve of the mean rating looks like this:
#
# ```text
# games played      0    500   1000   1500   2000
# mean rating    1500   1526   1551   1575   1598
# ```
#
# The mean rating rises every month. The sum changes a little even after a game that is not a draw. Also, the player named second loses nothing in a draw with a weaker one, and the leads of the stronger players are about ten times too large for their win rates.
#
# **There are three bugs. Find and fix them.** `games` is a list of `(a, b, score)`: the indices of the two players and the score of `a`, which is 1 for a win, 0.5 for a draw and 0 for a loss. Games are
# processed one after the other. A lead of 400 points means odds of ten to one. After a game `a` gains `k` times (score − expected score), and `b` loses the same amount.

# %% [given]
import torch


# %% [stub]
def rate(games, players, k):
    """Ratings (players,), float64, after all games; each player starts at 1500. games: list of (a, b, score of a)."""
    ratings = torch.full((players,), 1500.0, dtype=torch.float64)
    for a, b, score in games:
        expected = 1 / (1 + 10 ** ((ratings[b] - ratings[a]) / 4000))
        ratings[a] += k * (score - expected)
        expected = 1 / (1 + 10 ** ((ratings[a] - ratings[b]) / 4000))
        ratings[b] += k * ((1 if score < 1 else 0) - expected)
    return ratings


# %% [solution]
def rate(games, players, k):
    ratings = torch.full((players,), 1500.0, dtype=torch.float64)
    for a, b, score in games:
        gain = k * (score - 1 / (1 + 10 ** ((ratings[b] - ratings[a]) / 400)))
        ratings[a] += gain
        ratings[b] -= gain
    return ratings


# %% [tests]
import math

import torch
from minirlhf_course.classroom.testing import expect, test


def by_hand(games, players, k, scale=400.0):
    """Compute the definition with Python numbers, both expectations from the ratings before the game."""
    ratings = [1500.0] * players
    for a, b, score in games:
        odds = math.exp((ratings[a] - ratings[b]) * math.log(10) / scale)
        expected = odds / (1 + odds)
        ratings[a], ratings[b] = ratings[a] + k * (score - expected), ratings[b] - k * (score - expected)
    return torch.tensor(ratings, dtype=torch.float64)


def one_after_the_other(games, players, k, scale=400.0):
    """Compute a common bug: the second player's expectation uses the first player's new rating."""
    ratings = [1500.0] * players
    for a, b, score in games:
        ratings[a] += k * (score - 1 / (1 + 10 ** ((ratings[b] - ratings[a]) / scale)))
        ratings[b] += k * (1 - score - 1 / (1 + 10 ** ((ratings[a] - ratings[b]) / scale)))
    return torch.tensor(ratings, dtype=torch.float64)


def at_the_start(games, players, k):
    """Compute with ratings that are updated only at the end."""
    ratings = torch.full((players,), 1500.0, dtype=torch.float64)
    for a, b, score in games:
        ratings[a] += k * (score - 0.5)
        ratings[b] -= k * (score - 0.5)
    return ratings


def only_the_second(games, players, k):
    """Compute with updates of the second player only."""
    ratings = [1500.0] * players
    for a, b, score in games:
        ratings[b] -= k * (score - 1 / (1 + 10 ** ((ratings[b] - ratings[a]) / 400)))
    return torch.tensor(ratings, dtype=torch.float64)


def nothing_for_the_second(games, players, k):
    """Compute with no score for the second player in a draw."""
    ratings = [1500.0] * players
    for a, b, score in games:
        expected = 1 / (1 + 10 ** ((ratings[b] - ratings[a]) / 400))
        ratings[a] += k * (score - expected)
        ratings[b] += k * (float(score == 0) - (1 - expected))
    return torch.tensor(ratings, dtype=torch.float64)


def season(draw, scores, players=4, count=40):
    """Return games of random pairs with these scores; lower indices are stronger."""
    games = []
    for _ in range(count):
        a = draw.integer(0, players - 1)
        b = (a + draw.integer(1, players - 1)) % players
        score = scores[draw.integer(0, len(scores) - 1)]
        games.append((a, b, score if score == 0.5 or a < b else 1.0 - score))
    return games


@test(
    points=2,
    hints=(
        "Print the sum of all ratings after each game. Which line changes it?",
        "Both expected scores must use the ratings *before* the game. One player gains what the other loses, so compute it once.",
    ),
)
def no_inflation(sub, draw):
    "Without draws, the mean rating stays at 1500, whatever the games."
    games, k = season(draw, (1.0, 1.0, 1.0, 0.0)), 20.0 + draw.integer(0, 12)
    ratings = sub.rate(games, 4, k)
    expect(
        ratings.mean() if isinstance(ratings, torch.Tensor) else ratings,
        1500.0,
        what="the mean rating",
        tolerance=1e-9,
        given={"games": games[:4], "k": k},
        mistakes={
            "the second player's expected score uses the first player's new rating": one_after_the_other(
                games, 4, k
            ).mean(),
            "only the second player's rating is updated": only_the_second(games, 4, k).mean(),
            "the second player's expected score uses the first player's new rating, and the scale is wrong as well": one_after_the_other(
                games, 4, k, 4000.0
            ).mean(),
        },
    )


@test(
    points=2,
    hints=(
        "Let a player who is 400 points ahead win. How many points do they gain with k = 32? It should be 32/11.",
        "Look at the number that the difference of ratings is divided by.",
    ),
)
def scale(sub, draw):
    "A lead of 400 points is odds of ten to one."
    games, k = season(draw, (1.0, 1.0, 0.0)), 24.0 + draw.integer(0, 8)
    expect(
        sub.rate(games, 4, k),
        by_hand(games, 4, k),
        what="the list of ratings after wins and losses",
        given={"games": games[:4], "k": k},
        mistakes={
            "400 points are treated as odds of the tenth root of ten to one": by_hand(games, 4, k, 4000.0),
            "400 points are treated as odds of e to one": by_hand(games, 4, k, 400.0 * math.log(10)),
            "the second player's expected score uses the first player's new rating": one_after_the_other(games, 4, k),
            "the second player's expected score uses the first player's new rating, and the mean is corrected at the end": (
                one_after_the_other(games, 4, k) - one_after_the_other(games, 4, k).mean() + 1500
            ),
            "all expected scores use the initial ratings": at_the_start(games, 4, k),
            "this uses the expected score of the other player": by_hand(games, 4, k, -400.0),
            "each player gains or loses half of the points": by_hand(games, 4, k / 2),
        },
    )


@test(
    points=2,
    hints=(
        "Let two equal players draw. How many points should each gain?",
        "The score of b is 1 − score of a, for draws as well.",
    ),
)
def draws(sub, draw):
    "A draw is half a point for each."
    games, k = [*season(draw, (1.0, 0.5, 0.5, 0.0)), (0, 1, 0.5)], 24.0 + draw.integer(0, 8)
    as_losses = [(a, b, 0.0 if score == 0.5 else score) for a, b, score in games]
    as_wins = [(a, b, 1.0 if score == 0.5 else score) for a, b, score in games]
    expect(
        sub.rate(games, 4, k),
        by_hand(games, 4, k),
        what="the list of ratings after games with draws",
        given={"games": games[:4], "k": k},
        mistakes={
            "a draw counts as a win of the first player": by_hand(as_wins, 4, k),
            "a draw counts as a loss of the first player": by_hand(as_losses, 4, k),
            "a draw changes no rating": by_hand([game for game in games if game[2] != 0.5], 4, k),
            "the second player gets no score for a draw": nothing_for_the_second(games, 4, k),
        },
    )


# %% [shared]
# 1500.0: the statement says where ratings begin


# %% [probes]
# no gradient: a table of ratings is asked for


# %% [mutant] still one after the other
# caught by: no_inflation
# says: new rating
def rate(games, players, k):
    ratings = torch.full((players,), 1500.0, dtype=torch.float64)
    for a, b, score in games:
        ratings[a] += k * (score - 1 / (1 + 10 ** ((ratings[b] - ratings[a]) / 400)))
        ratings[b] += k * (1 - score - 1 / (1 + 10 ** ((ratings[a] - ratings[b]) / 400)))
    return ratings


# %% [mutant] the wrong scale is left
# caught by: scale
# says: tenth
def rate(games, players, k):
    ratings = torch.full((players,), 1500.0, dtype=torch.float64)
    for a, b, score in games:
        gain = k * (score - 1 / (1 + 10 ** ((ratings[b] - ratings[a]) / 4000)))
        ratings[a] += gain
        ratings[b] -= gain
    return ratings


# %% [mutant] a scale in nats
# caught by: scale
# says: odds of e
def rate(games, players, k):
    ratings = torch.full((players,), 1500.0, dtype=torch.float64)
    for a, b, score in games:
        gain = k * (score - torch.sigmoid((ratings[a] - ratings[b]) / 400))
        ratings[a] += gain
        ratings[b] -= gain
    return ratings


# %% [mutant] draws are wins
# caught by: draws
# says: counts as a win
def rate(games, players, k):
    ratings = torch.full((players,), 1500.0, dtype=torch.float64)
    for a, b, score in games:
        gain = k * (float(score > 0) - 1 / (1 + 10 ** ((ratings[b] - ratings[a]) / 400)))
        ratings[a] += gain
        ratings[b] -= gain
    return ratings


# %% [partial] 4: inflation and scale are mended, draws are not
def rate(games, players, k):
    ratings = torch.full((players,), 1500.0, dtype=torch.float64)
    for a, b, score in games:
        expected = 1 / (1 + 10 ** ((ratings[b] - ratings[a]) / 400))
        ratings[a] += k * (score - expected)
        ratings[b] += k * ((1 if score < 1 else 0) - (1 - expected))
    return ratings


# %% [partial] 2: only the inflation is mended
def rate(games, players, k):
    ratings = torch.full((players,), 1500.0, dtype=torch.float64)
    for a, b, score in games:
        expected = 1 / (1 + 10 ** ((ratings[b] - ratings[a]) / 4000))
        ratings[a] += k * (score - expected)
        ratings[b] += k * ((1 if score < 1 else 0) - (1 - expected))
    return ratings
