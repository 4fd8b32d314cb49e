# ---
# title: Majorities and the Kemeny consensus
# kind: implement
# minutes: 25
# ---

# %% [statement]
# `rankings` is an integer tensor of shape `(N, K)`: each row is one person's order of the $K$ alternatives $0 \dots K-1$, best first. $N$ is odd, so no majority is tied.
#
# Write three functions:
#
# 1. `majority(rankings)`: a `(K, K)` bool tensor, entry `[a, b]` True if more than half of the people rank `a` above `b`; the diagonal is False.
# 2. `condorcet_winner(rankings)`: the alternative that a majority prefers to each other one, as an int, or `-1` if there is none.
# 3. `consensus(rankings)`: the order, a `(K,)` integer tensor, with the fewest disagreements. Count, over all people and all pairs of alternatives, how often a person's
#    order of the pair differs from the order of the pair in the consensus. Return the order with the smallest count. $K$ is at most 5, so you may try all orders. (In the tests only one order is best.)
#
# The third function gives the maximum-likelihood consensus of a Mallows model. It exists also if the majority is cyclic.

# %% [given]
import itertools

import torch


# %% [stub]
def majority(rankings):
    """(K, K) bool: do more than half of the people rank a above b?"""
    raise NotImplementedError


def condorcet_winner(rankings):
    """The alternative that a majority prefers to each other one, as an int; -1 if there is none."""
    raise NotImplementedError


def consensus(rankings):
    """(K,): the order with the fewest disagreements over all people and pairs, best first."""
    raise NotImplementedError


# %% [solution]
def majority(rankings):
    place = rankings.argsort(-1)
    above = place[:, :, None] < place[:, None, :]
    return 2 * above.sum(0) > len(rankings)


def condorcet_winner(rankings):
    wins = majority(rankings).sum(-1)
    best = int(wins.argmax())
    return best if int(wins[best]) == rankings.shape[1] - 1 else -1


def consensus(rankings):
    place = rankings.argsort(-1)
    against = (place[:, :, None] > place[:, None, :]).sum(0)  # how many put a below b

    def cost(order):
        return sum(int(against[a, b]) for a, b in itertools.combinations(order, 2))

    return torch.tensor(min(itertools.permutations(range(rankings.shape[1])), key=cost))


# %% [tests]
import itertools

import torch
from minirlhf_course.classroom.testing import expect, test


def tally(rows):
    """Return how many people rank a above b, by looking up each pair in each row."""
    above = [[0.0] * len(rows[0]) for _ in rows[0]]
    for row in rows:
        for a, b in itertools.combinations(row, 2):
            above[a][b] += 1
    return torch.tensor(above, dtype=torch.float64)


def costs(rows):
    """Return the disagreements of every order, smallest first."""
    above = tally(rows).tolist()
    return sorted(
        (sum(above[b][a] for a, b in itertools.combinations(order, 2)), order)
        for order in itertools.permutations(range(len(rows[0])))
    )


def copeland(rows):
    """Return the order by the number of majorities won; among equal numbers, the lower index first."""
    return (2 * tally(rows) > len(rows)).sum(-1).argsort(descending=True, stable=True)


def by_majorities(rows):
    """Return all orders that contradict the fewest majorities, whatever their size."""
    beats = (2 * tally(rows) > len(rows)).tolist()
    orders = list(itertools.permutations(range(len(rows[0]))))
    against = [sum(beats[b][a] for a, b in itertools.combinations(order, 2)) for order in orders]
    return [list(order) for order, count in zip(orders, against, strict=True) if count == min(against)]


def of_people(rows):
    """Return the order with the fewest disagreements among the orders of the people."""
    return next(list(order) for _, order in costs(rows) if list(order) in rows)


def misread(rankings):
    """Return the majorities if rows are read as positions."""
    return 2 * (rankings[:, :, None] < rankings[:, None, :]).sum(0) > len(rankings)


def problem(draw, circle, size=0):
    """Rankings with or without a Condorcet winner, and one best order that is none of the simple guesses; with a winner, none that somebody gave."""
    while True:
        size = size or (draw.integer(3, 4) if circle else 4)
        people = draw.integer(3, 4) * 2 + 1 if circle else 7
        first = draw.permutation(
            size
        )  # most people have one of its rotations if a majority of three alternatives is to be a circle
        turned = 3 if circle and size == 3 else 0
        voters = [
            first.roll(draw.integer(0, 2)) if draw.integer(0, 3) < turned else draw.permutation(size)
            for _ in range(people)
        ]
        rankings = torch.stack(voters)
        rows = rankings.tolist()
        above = tally(rows)
        beats = 2 * above > people
        winner = (beats.sum(-1) == size - 1).nonzero().flatten().tolist()
        if bool(winner) == circle or bool((misread(rankings) == beats).all()):
            continue
        ranked = costs(rows)
        (best, order), (second, _), *_ = ranked
        given = [cost for cost, one in ranked if list(one) in rows]
        if not circle and (given[0] == best or given[0] == given[1]):
            continue  # the best order is nobody's, and the nearest of somebody's is one
        borda = above.sum(-1).argsort(descending=True, stable=True).tolist()
        easy = copeland(rows).tolist() if circle else borda
        if circle and list(order) in (by_majorities(rows)[0], by_majorities(rows)[-1]):
            continue  # people must be counted, not majorities, of which several orders often have the same number
        if best < second and list(order) not in (easy, rows[0], rows[-1]):
            return rankings, winner[0] if winner else -1, torch.tensor(order), torch.tensor(borda)


def plurality(rankings):
    return torch.bincount(rankings[:, 0], minlength=rankings.shape[1]).argmax()


@test(
    points=1,
    hints=(
        "A row lists alternatives, not positions. First find, for every person, the position of each alternative.",
        "`rankings.argsort(-1)` gives the positions. Compare them for every pair, sum over people, and test for more than half.",
    ),
)
def pairs(sub, draw):
    "`majority` is the preference of more than half of the people, for every pair."
    rankings, *_ = problem(draw, circle=bool(draw.integer(0, 1)))
    above, people = tally(rankings.tolist()), len(rankings)
    expect(
        sub.majority(rankings),
        2 * above > people,
        what="the majority of each pair",
        given={"rankings": rankings},
        mistakes={
            "a row is read as positions instead of alternatives": misread(rankings),
            "losses are counted as wins": people < 2 * above.T,
            "the diagonal is True, but it must be False": (2 * above > people) | torch.eye(len(above)).bool(),
        },
    )
    crowd = torch.stack([draw.permutation(3) for _ in range(2 * draw.integer(100, 150) + 1)])
    got, people = sub.aside.majority(crowd), len(crowd)
    expect(got, 2 * tally(crowd.tolist()) > people, what=f"the majority among {people} people")


@test(
    points=1,
    hints=(
        "How many others must a Condorcet winner beat? It may differ from the most frequent first choice.",
        "Sum each row of the majority matrix. A winner has K − 1 wins; if no row has them, return -1.",
    ),
)
def winner(sub, draw):
    "`condorcet_winner` is the alternative that beats all others, and -1 if there is none."
    for circle in (False, True):
        while True:
            rankings, right, *_ = problem(draw, circle)
            most = (2 * tally(rankings.tolist()) > len(rankings)).sum(-1).argmax()
            slips = {
                "this is the most frequent first choice": float(plurality(rankings)),
                "this is the one with most wins, whether or not it beats all": float(most),
            }
            if right == 0 or 0.0 not in slips.values():
                break  # else a mistake gives 0, as many others do
        expect(
            sub.condorcet_winner(rankings),
            float(right),
            what="the Condorcet winner",
            given={"rankings": rankings},
            mistakes={
                "the result is -1, but there is a winner": -1.0,
                **slips,
            },
        )
    names = draw.permutation(5)  # one alternative beats three of the four others, and none beats all
    rankings = names[torch.tensor([[1, 2, 0, 4, 3], [4, 2, 3, 1, 0], [0, 3, 1, 4, 2]])]
    expect(
        sub.aside.condorcet_winner(rankings),
        -1.0,
        what="the Condorcet winner of five alternatives",
        given={"rankings": rankings},
    )


@test(
    points=2,
    hints=(
        "Write down the cost of one order: for each of its pairs, the number of people with the reverse order.",
        "Count once how many people rank a below b. Then try all `itertools.permutations` and keep the order with the lowest cost.",
    ),
)
def fewest_disagreements(sub, draw):
    "`consensus` is the order with the fewest disagreements, also if the majority is cyclic."
    for circle, size in ((False, 4), (True, 3), (True, 4)):
        rankings, _, order, borda = problem(draw, circle, size)
        expect(
            sub.consensus(rankings),
            order,
            what="the consensus",
            given={"rankings": rankings},
            mistakes={}
            if size == 3  # of six orders one is soon hit by chance
            else {
                "this is the Borda order": borda,
                "this is the order by the number of majorities won": copeland(rankings.tolist()),
                "majorities are counted instead of people: a small majority has the same weight as a large one": torch.tensor(
                    by_majorities(rankings.tolist())[0]
                ),
                "only the orders of the people are tried": torch.tensor(of_people(rankings.tolist())),
                "disagreements are maximised": torch.tensor(costs(rankings.tolist())[-1][1]),
                "positions are returned instead of alternatives": order.argsort(),
            },
        )


# %% [edges]
# winner: or `-1` if there is none


# %% [probes]
# no gradient: orders are asked for
# no size: rows hold the answers 0 … K−1; the tests take several sizes


# %% [mutant] rows read as places
# caught by: pairs
# says: read as positions
def majority(rankings):
    return 2 * (rankings[:, :, None] < rankings[:, None, :]).sum(0) > len(rankings)


# %% [mutant] plurality
# caught by: winner
# says: most frequent first choice
def condorcet_winner(rankings):
    return int(torch.bincount(rankings[:, 0], minlength=rankings.shape[1]).argmax())


# %% [mutant] most wins will do
# caught by: winner
# says: whether or not it beats all
def condorcet_winner(rankings):
    return int(majority(rankings).sum(-1).argmax())


# %% [mutant] Borda for the consensus
# caught by: fewest_disagreements
# says: the Borda order
def consensus(rankings):
    place = rankings.argsort(-1)
    return place.sum(0).argsort(stable=True)


# %% [mutant] the worst order
# caught by: fewest_disagreements
# says: maximised
def consensus(rankings):
    place = rankings.argsort(-1)
    above = (place[:, :, None] < place[:, None, :]).sum(0)
    orders = itertools.permutations(range(rankings.shape[1]))
    return torch.tensor(min(orders, key=lambda o: sum(int(above[a, b]) for a, b in itertools.combinations(o, 2))))


# %% [partial] 2: majority and winner, no consensus yet
def consensus(rankings):
    raise NotImplementedError
