# ---
# title: Rankings in the Mallows model
# kind: derive
# minutes: 35
# ---

# %% [statement]
# In the Mallows model a ranking of $K$ items has probability $e^{-\theta d}/Z$, where $d$ counts its pairs that are ordered differently from the consensus $0, 1, \dots, K-1$ (0 is best), and
# $\theta \ge 0$.
#
# You can *build* such a ranking: start with item $K-1$ alone, then insert item $K-2$, then $K-3$, and so on, each time at some position of the current list. An item that is inserted with
# $j$ items before it adds $j$ to $d$, whatever happened before. So the positions are **independent of each other**.
#
# From this, derive two formulas and write them as functions:
#
# * `first_item(theta, size)`: the probability that item 0, the consensus' best, is in first, second, …, last position, a float64 tensor of shape `(size,)`;
# * `expected_distance(theta, size)`: the mean of $d$, one number.
#
# They should work for sizes of some hundreds, so no sum over rankings, and for $\theta$ up to 10, so no $e^{K\theta}$, which overflows. For the first two points the checker uses no formula: it lists all rankings. The last point is for $\theta = 0$ and for
# $\theta$ as small as $10^{-9}$, where all orders are equally probable, or nearly.

# %% [given]
import torch


# %% [stub]
def first_item(theta, size):
    """(size,): the probability of each position of item 0. theta: a float ≥ 0. size: an int ≥ 1."""
    raise NotImplementedError


def expected_distance(theta, size):
    """The mean number of pairs in the wrong order: one number."""
    raise NotImplementedError


# %% [solution]
def first_item(theta, size):
    return torch.softmax(-theta * torch.arange(size, dtype=torch.float64), -1)


def expected_distance(theta, size):
    return float(sum((first_item(theta, k) * torch.arange(k)).sum() for k in range(1, size + 1)))


# %% [tests]
import itertools
import math

import torch
from minirlhf_course.classroom.testing import expect, fail, test


def everything(theta, size):
    """Return all rankings, their probabilities and distances, by counting pairs."""
    rankings = list(itertools.permutations(range(size)))
    wrong = [sum(a > b for a, b in itertools.combinations(row, 2)) for row in rankings]
    weights = [math.exp(-theta * d) for d in wrong]
    return rankings, [w / sum(weights) for w in weights], wrong


def problem(draw):
    return round(float(draw.uniform(low=0.3, high=1.2)), 1), draw.integer(3, 5)


def place_of_best(theta, size):
    """Return the distribution of the position of item 0."""
    rankings, probs, _ = everything(theta, size)
    want = torch.zeros(size, dtype=torch.float64)
    for row, p in zip(rankings, probs, strict=True):
        want[row.index(0)] += p
    return want


@test(
    points=2,
    against="all rankings, one by one",
    hints=(
        "Item 0 is inserted last, into a list of K − 1. What does each of its K positions add to d?",
        "With j items before it, d grows by j, so the position has a probability proportional to e^(−θ j). Normalise over the K positions.",
    ),
)
def places(sub, draw):
    "`first_item` is the distribution of the position of the consensus' best item."
    some, size = problem(draw)
    j = torch.arange(size, dtype=torch.float64)
    for theta in (some, round(some + 1.2, 1)):  # little agreement, and much
        want = place_of_best(theta, size)
        got = sub.first_item(theta, size)
        if isinstance(got, torch.Tensor) and got.dtype == torch.float32:
            fail("the result of `first_item` is a float32 tensor; expected float64")
        expect(
            got,
            want,
            what="the distribution of the position of item 0",
            given={"theta": theta, "size": size},
            mistakes={
                "the list is in reverse: the last position comes first": want.flip(0),
                "the weights are not normalised": (-theta * j).exp(),
                "position j has the cost j² instead of j": torch.softmax(-theta * j**2, -1),
                "the list is treated as infinite: (1 − e^(−θ)) e^(−θ j)": -math.expm1(-theta) * (-theta * j).exp(),
                "all positions are equally probable": torch.full((size,), 1 / size, dtype=torch.float64),
                "item 0 is inserted into a list of K, which has K + 1 positions": place_of_best(theta, size + 1)[:-1],
            },
        )


@test(
    points=2,
    against="all rankings, one by one",
    hints=(
        "d is a sum of K independent numbers, one per inserted item. An item that is inserted into a list of k − 1 has k positions.",
        "The mean of d is the sum over k = 1 … K of the mean number of items before the k-th inserted item. You know its positions from `first_item` with size k.",
    ),
)
def distance(sub, draw):
    "`expected_distance` is the mean of d."
    theta, size = problem(draw)
    size = max(size, 4)  # of three items, two insertions halved are one
    _, probs, wrong = everything(theta, size)
    want = sum(p * d for p, d in zip(probs, wrong, strict=True))
    last = torch.softmax(-theta * torch.arange(size, dtype=torch.float64), -1)
    expect(
        sub.expected_distance(theta, size),
        want,
        what="the mean distance",
        given={"theta": theta, "size": size},
        mistakes={
            "only item 0 is counted": float((last * torch.arange(size)).sum()),
            "every item is counted like item 0": float(size * (last * torch.arange(size)).sum()),
            "K − 1 items are counted like item 0, and halved": float((last * torch.arange(size)).sum())
            * (size - 1)
            / 2,
            "half of the items are counted like item 0": float(size * (last * torch.arange(size)).sum()) / 2,
            "the last insertion, into a list of K − 1, is left out": want - float((last * torch.arange(size)).sum()),
            "every list is treated as infinite": (size - 1) / math.expm1(theta),
            "θ is not used": size * (size - 1) / 4,
        },
    )


@test(
    points=1,
    hints=(
        "At θ = 0 some closed forms are 0/0, and near 0 they lose all digits. What is the mean of d if all orders are equally probable?",
        "A softmax of −θ j does not have this problem; or expand for small θ. At θ = 0 half of all pairs are in the wrong order.",
    ),
)
def no_agreement(sub, draw):
    "Both formulas hold at θ = 0 and very near it, and for a hundred items."
    size = draw.integer(4, 7)
    for theta in (0.0, 1e-9):
        given = {"theta": theta, "size": size}
        expect(sub.first_item(theta, size), torch.full((size,), 1 / size).double(), what="the positions", given=given)
        got, want = sub.expected_distance(theta, size), size * (size - 1) / 4
        if theta and isinstance(got, float) and abs(got - want) > 1e-4:  # at θ = 0 it was right
            fail(
                "the mean distance is right at θ = 0 but not at θ = 1e-9: does the code subtract large numbers?",
                **given,
            )
        expect(got, want, what="the mean distance", given=given)
    few, more = (
        sum(sub.seconds(f, (0.5, n), (0.7, n), (0.9, n)) for f in ("first_item", "expected_distance")) for n in (6, 8)
    )
    if more > 10 * few + 0.1:  # eight items have 56 times as many rankings as six; those of some hundreds never end
        fail(
            "eight items take much longer than six, but it should work for some hundreds: is there a sum over rankings?"
        )
    # For strong agreement and many items each item has about 1/(e^θ − 1) items before it that should come after.
    far = sub.expected_distance(6.0, 100)
    exact = sum(1 / math.expm1(6.0) - k / math.expm1(6.0 * k) for k in range(1, 101))
    expect(
        far,
        exact,
        what="the mean distance of 100 items at θ = 6",
        given={"theta": 6.0, "size": 100},
        mistakes={"the result is 0 for a long list": 0.0},
    )
    many = draw.integer(250, 400)
    for theta in (0.0, 5e-5, 0.01, 10.0):
        weights = [math.exp(-theta * j) for j in range(many)]
        want = torch.tensor(weights, dtype=torch.float64) / math.fsum(weights)
        given = {"theta": theta, "size": many}
        got = sub.aside.first_item(theta, many)
        expect(
            got * many if isinstance(got, torch.Tensor) else got,
            want * many,
            what="`size` times the positions",
            given=given,
        )
        partial = [(w, j * w) for j, w in enumerate(weights)]
        total, mass, moment = 0.0, 0.0, 0.0
        for w, jw in partial:
            mass, moment = mass + w, moment + jw
            total += moment / mass
        expect(sub.aside.expected_distance(theta, many), total, what="the mean distance", given=given)


# %% [edges]
# no_agreement: They should work for sizes of some hundreds
# no_agreement: for $\theta$ up to 10
# places: a float64 tensor of shape `(size,)`


# %% [probes]
# no gradient: a formula is asked for, in whatever library
# no size: the tests ask for several sizes


# %% [mutant] reversed places
# caught by: places
# says: in reverse
def first_item(theta, size):
    return torch.softmax(theta * torch.arange(size, dtype=torch.float64), -1)


# %% [mutant] weights without a sum
# caught by: places
# says: not normalised
def first_item(theta, size):
    return torch.exp(-theta * torch.arange(size, dtype=torch.float64))


# %% [mutant] only the last insertion
# caught by: distance
# says: only item 0
def expected_distance(theta, size):
    return float((first_item(theta, size) * torch.arange(size)).sum())


# %% [mutant] all items like the last
# caught by: distance
# says: like item 0
def expected_distance(theta, size):
    return float(size * (first_item(theta, size) * torch.arange(size)).sum())


# %% [mutant] no agreement at all
# caught by: distance
# says: θ is not used
def expected_distance(theta, size):
    return size * (size - 1) / 4


# %% [mutant] all rankings, one by one
# caught by: no_agreement
# says: sum over rankings
def first_item(theta, size):
    import itertools

    found = torch.zeros(size, dtype=torch.float64)
    for row in itertools.permutations(range(size)):
        wrong = sum(a > b for a, b in itertools.combinations(row, 2))
        found[row.index(0)] += float(torch.exp(torch.tensor(-theta * wrong)))
    return found / found.sum()


# %% [mutant] no more than fifty places
# caught by: no_agreement
def first_item(theta, size):
    places = torch.softmax(-theta * torch.arange(min(size, 50), dtype=torch.float64), -1)
    return torch.cat([places, torch.zeros(size - len(places), dtype=torch.float64)])


# %% [partial] 4: closed forms, which are 0/0 at θ = 0
import math


def first_item(theta, size):
    j = torch.arange(size, dtype=torch.float64)
    return torch.exp(-theta * j) * (1 - math.exp(-theta)) / (1 - math.exp(-theta * size))


def expected_distance(theta, size):
    return sum(1 / (math.exp(theta) - 1) - k / (math.exp(theta * k) - 1) for k in range(1, size + 1))


# %% [partial] 2: the places only
def expected_distance(theta, size):
    raise NotImplementedError
