# ---
# title: When does asking again help?
# kind: implement
# minutes: 25
# ---

# %% [statement]
# On a pair a judge prefers the better completion by $d > 0$ nats, and has a position bias of $b \ge 0$ nats towards the first position. Each verdict is sampled independently: shown first, the better completion gets the verdict with probability $\sigma(d + b)$, shown second with $\sigma(d - b)$. `difference` is a tensor `(N,)` of such $d$, `bias` is one number, and `draws` is at most 1,000.
# All functions return one value for each pair, `(N,)`.
#
# * `one_order(difference, bias, draws)`: how often the majority of `draws` verdicts (an odd number) names the better completion, all of them in **one** order, which is chosen once for each pair, by a fair coin.
# * `both_orders(difference, bias, draws)`: the same with `draws` verdicts in **each** of the two orders, so twice as many in total; a tie is decided by a fair coin.
# * `hurts(difference, bias)`: booleans. In the limit of many verdicts in one order, is the majority right less often than a single verdict? No pair has $d = b$.

# %% [given]
import math

import torch


# %% [stub]
def one_order(difference, bias, draws):
    """difference: (N,). bias: a number. draws: odd. Returns (N,)."""
    raise NotImplementedError


def both_orders(difference, bias, draws):
    """draws: in each order. Returns (N,)."""
    raise NotImplementedError


def hurts(difference, bias):
    """Returns (N,) of booleans."""
    raise NotImplementedError


# %% [solution]
def counts(p, draws):
    """(N, draws + 1): the probability that so many of the verdicts name the better completion."""
    k = torch.arange(draws + 1)
    ways = torch.tensor([math.comb(draws, i) for i in range(draws + 1)], dtype=p.dtype)
    return ways * p[:, None] ** k * (1 - p[:, None]) ** (draws - k)


def one_order(difference, bias, draws):
    most = slice(draws // 2 + 1, None)
    each = [counts(torch.sigmoid(difference + side), draws)[:, most].sum(-1) for side in (bias, -bias)]
    return (each[0] + each[1]) / 2


def both_orders(difference, bias, draws):
    first, second = (counts(torch.sigmoid(difference + side), draws) for side in (bias, -bias))
    k = torch.arange(draws + 1)
    total = k[:, None] + k
    worth = (total > draws).to(difference.dtype) + 0.5 * (total == draws).to(difference.dtype)
    return torch.einsum("ni,nj,ij->n", first, second, worth)


def hurts(difference, bias):
    return (
        difference < bias
    )  # then the worse reply wins for certain where it is shown first: half, and one draw does better


# %% [tests]
import itertools
import math

import torch
from minirlhf_course.classroom.testing import expect, test


def sigma(x):
    return 1 / (1 + math.exp(-x))


def by_listing(chances):
    """The majority of independent verdicts, by enumerating all sequences; a tie counts one half."""
    total = 0.0
    for said in itertools.product((0, 1), repeat=len(chances)):
        chance = math.prod(p if s else 1 - p for p, s in zip(chances, said, strict=True))
        more = 2 * sum(said) - len(said)
        total += chance * (1.0 if more > 0 else 0.5 if more == 0 else 0.0)
    return total


def by_adding(*orders):
    """The same for many verdicts, one after the other; each order is a probability and a number of verdicts."""
    law, none = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    for p, number in orders:
        for _ in range(number):
            law = torch.cat([(1 - p) * law, none]) + torch.cat([none, p * law])
    twice = 2 * torch.arange(len(law))
    return float(law[twice > len(law) - 1].sum() + law[twice == len(law) - 1].sum() / 2)


def inputs(draw):
    return 0.3 + 1.4 * draw.uniform(4), [0.6, 1.1, 2.3][draw.integer(0, 2)]


def column(values):
    return torch.tensor(list(values), dtype=torch.float64)


@test(
    points=2,
    hints=(
        "The order is chosen once for the pair, and all verdicts are in it. How often is the majority right in each of the two orders?",
        "Sum the binomial probabilities of more than half, with p = σ(d + b) and with p = σ(d − b), and take the mean of the two sums.",
    ),
    against="all sequences of verdicts",
)
def in_one_order(sub, draw):
    "`one_order` is the majority in one order."
    (d, b), n = inputs(draw), [3, 5][draw.integer(0, 1)]
    mean = lambda x: (sigma(x + b) + sigma(x - b)) / 2
    expect(
        sub.one_order(d, b, n), column((by_listing([sigma(x + b)] * n) + by_listing([sigma(x - b)] * n)) / 2 for x in d.tolist()),
        what="`one_order`", given={"difference": d, "bias": b, "draws": n}, tolerance=1e-9,
        mistakes={
            "the order is chosen once for a pair, not for each verdict": column(by_listing([mean(x)] * n) for x in d.tolist()),
            "the better completion is shown first only half of the time": column(by_listing([sigma(x + b)] * n) for x in d.tolist()),
            "this is a single verdict": column(mean(x) for x in d.tolist()),
            "the position bias is left out, and it does not cancel in one order": column(by_listing([sigma(x)] * n) for x in d.tolist()),
        },
    )  # fmt: skip
    d, b = 0.05 * (draw.uniform(2) + 0.2), 0.03
    want = column((by_adding((sigma(x + b), 999)) + by_adding((sigma(x - b), 999))) / 2 for x in d.tolist())
    expect(sub.aside.one_order(d, b, 999), want, what="`one_order` of 999 verdicts", given={"difference": d, "bias": b}, tolerance=1e-8)  # fmt: skip


@test(
    points=3,
    hints=(
        "The verdicts of the two orders have different probabilities; let i and j of them name the better completion.",
        "Sum over i and j the product of the two binomial probabilities; i + j above `draws` is a win, and equal to `draws` half a win.",
    ),
    against="all sequences of verdicts",
)
def in_both_orders(sub, draw):
    "`both_orders` is the majority over both orders."
    (d, b), n = inputs(draw), draw.integer(2, 3)  # with one draw in each order a mean of two majorities is the same
    mean = lambda x: (sigma(x + b) + sigma(x - b)) / 2
    listed = lambda x, tie=0.5: by_listing([sigma(x + b)] * n + [sigma(x - b)] * n)
    ties = column(
        sum(
            math.comb(n, i) ** 2
            * (sigma(x + b) * (1 - sigma(x - b))) ** i
            * ((1 - sigma(x + b)) * sigma(x - b)) ** (n - i)
            for i in range(n + 1)
        )
        for x in d.tolist()
    )
    want = column(listed(x) for x in d.tolist())
    expect(
        sub.both_orders(d, b, n), want, what="`both_orders`", given={"difference": d, "bias": b, "draws in each order": n}, tolerance=1e-9,
        mistakes={
            "the two orders have different probabilities; their mean gives another distribution": column(by_listing([mean(x)] * (2 * n)) for x in d.tolist()),
            "the position bias is left out, and it does not cancel in votes": column(by_listing([sigma(x)] * (2 * n)) for x in d.tolist()),
            "all verdicts are counted together, not first each order separately": column(
                (by_listing([sigma(x + b)] * n) + by_listing([sigma(x - b)] * n)) / 2 for x in d.tolist()
            ),
            "a tie counts as no win; it is half a win": want - ties / 2, "a tie counts as a whole win; it is half a win": want + ties / 2,
        },
    )  # fmt: skip
    d, b = 0.1 * (draw.uniform(1) + 0.2), 0.3
    want = column(by_adding((sigma(x + b), 120), (sigma(x - b), 120)) for x in d.tolist())
    expect(sub.aside.both_orders(d, b, 120), want, what="`both_orders` of 120 verdicts each", given={"difference": d, "bias": b}, tolerance=1e-8)  # fmt: skip


@test(
    points=1,
    hints=(
        "In the limit the more probable verdict of each order wins with certainty. How often is it right where b exceeds d?",
        "One half: right where the better completion is first, wrong where it is second. A single verdict is right with ½(σ(d+b) + σ(d−b)), which is more than ½ for every d > 0.",
    ),
    against="the more probable verdict of each order, which has the majority in the limit",
)
def worse_by_asking(sub, draw):
    "`hurts` is True where the limit of many verdicts is worse than one verdict."
    b = [0.6, 0.8, 1.0][draw.integer(0, 2)]
    near = torch.tensor([b - 0.02, b + 0.02], dtype=torch.float64)  # some hundred draws do not tell these two apart
    d = torch.cat([near, b - 0.2 - 0.3 * draw.uniform(1), b + 0.5 + draw.uniform(1)])[draw.permutation(4)]

    def worse(x, draws=None):
        def most(p):
            if draws is None:  # in the limit the likelier verdict has the majority
                return float(p > 0.5)
            return math.fsum(
                math.comb(draws, k) * p**k * (1 - p) ** (draws - k) for k in range(draws // 2 + 1, draws + 1)
            )

        chances = sigma(x + b), sigma(x - b)
        return sum(map(most, chances)) < sum(chances)

    want, some = ([worse(x, draws) for x in d.tolist()] for draws in (None, 201))
    got = torch.as_tensor(sub.hurts(d, b))
    expect(
        got.double(), torch.tensor(want).double(), what="`hurts`", given={"difference": d, "bias": b},
        mistakes={"this is the majority of some verdicts, not the limit of many": torch.tensor(some).double(), "these are the pairs on which it helps": 1 - torch.tensor(want).double(), "the result depends on the pair": torch.ones(4, dtype=torch.float64)},
    )  # fmt: skip


# %% [edges]
# in_one_order: `draws` is at most 1,000


# %% [probes]
# no gradient, values, size, keywords, integers, nan: chances are asked for, and counts of draws are whole
# no float32: sums of many small chances


# %% [mutant] the order is drawn anew for every verdict
# caught by: in_one_order
# says: chosen once for a pair
def one_order(difference, bias, draws):
    p = (torch.sigmoid(difference + bias) + torch.sigmoid(difference - bias)) / 2
    return counts(p, draws)[:, draws // 2 + 1 :].sum(-1)


# %% [mutant] the better reply is always first
# caught by: in_one_order
# says: half of the time
def one_order(difference, bias, draws):
    return counts(torch.sigmoid(difference + bias), draws)[:, draws // 2 + 1 :].sum(-1)


# %% [mutant] a mean chance
# caught by: in_both_orders
# says: their mean gives
def both_orders(difference, bias, draws):
    p = (torch.sigmoid(difference + bias) + torch.sigmoid(difference - bias)) / 2
    each = counts(p, 2 * draws)
    return each[:, draws + 1 :].sum(-1) + each[:, draws] / 2


# %% [mutant] a majority in each order
# caught by: in_both_orders
# says: counted together
def both_orders(difference, bias, draws):
    k = torch.arange(draws + 1)
    worth = (2 * k > draws).to(difference.dtype) + 0.5 * (2 * k == draws).to(difference.dtype)
    first, second = (counts(torch.sigmoid(difference + side), draws) @ worth for side in (bias, -bias))
    return (first + second) / 2


# %% [mutant] ties are lost
# caught by: in_both_orders
# says: half a win
def both_orders(difference, bias, draws):
    first, second = (counts(torch.sigmoid(difference + side), draws) for side in (bias, -bias))
    k = torch.arange(draws + 1)
    return torch.einsum("ni,nj,ij->n", first, second, (k[:, None] + k > draws).to(difference.dtype))


# %% [mutant] some draws
# caught by: worse_by_asking
# says: not the limit of many
def hurts(difference, bias):
    p = (torch.sigmoid(difference + bias) + torch.sigmoid(difference - bias)) / 2
    return one_order(difference, bias, 201) < p


# %% [mutant] asking again always helps
# caught by: worse_by_asking
def hurts(difference, bias):
    return torch.zeros_like(difference, dtype=torch.bool)


# %% [partial] 2: one order only
def both_orders(difference, bias, draws):
    return one_order(difference, bias, 2 * draws + 1)


def hurts(difference, bias):
    return difference > bias
