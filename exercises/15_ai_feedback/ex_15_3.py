# ---
# title: From logits to soft labels
# kind: implement
# minutes: 25
# ---

# %% [statement]
# A judge has read $N$ pairs of completions, each with $K$ principles and in both presentation orders. `logits` `(N, K, 2, V)` are its logits of the next token: index 0 of the third axis with the completions as given, index 1 with the completions exchanged. `letters` are the ids of the tokens "(A)" and "(B)".
# Write three functions, each of which uses the one before.
#
# * `leans(logits, letters)`: `(N, K)`, the log-odds in nats with which the judge prefers the **first completion as given**, by each principle, from both orders and without any bias for a position or a letter.
# * `labels(logits, letters, votes, clamp)`: `(N,)`, the probability that the first completion is the better one. For each principle take the probability that follows from its log-odds, clamped between `clamp` and 1 − `clamp`. Average them with the weights `votes` `(K,)`, which need not sum to 1.
# * `agreed(logits, letters, votes)`: `(N,)` of booleans: does the pair pass the swap test? Take each order separately: the fraction of the votes whose principles have a **probability above one half** for the first completion as given. A pair passes if this fraction is above one half in both orders, or below in both orders.

# %% [given]
import torch


# %% [stub]
def leans(logits, letters):
    """logits: (N, K, 2, V). letters: two integers. Returns (N, K)."""
    raise NotImplementedError


def labels(logits, letters, votes, clamp):
    """votes: (K,). clamp: a number in [0, 0.5). Returns (N,)."""
    raise NotImplementedError


def agreed(logits, letters, votes):
    """Returns (N,) of booleans."""
    raise NotImplementedError


# %% [solution]
def leans(logits, letters):
    a, b = letters
    first = logits[..., a] - logits[..., b]  # (N, K, 2): towards whatever is shown first
    return (first[..., 0] - first[..., 1]) / 2


def labels(logits, letters, votes, clamp):
    each = torch.sigmoid(leans(logits, letters)).clamp(clamp, 1 - clamp)
    return each @ votes / votes.sum()


def agreed(logits, letters, votes):
    a, b = letters
    first = logits[..., a] - logits[..., b]
    given, exchanged = ((x > 0).to(votes.dtype) @ votes / votes.sum() for x in (first[..., 0], -first[..., 1]))
    return (given - 0.5) * (exchanged - 0.5) > 0


# %% [tests]
import math

import torch
from minirlhf_course.classroom.testing import expect, fail, test


def judge(draw, place=0.0):
    """Logits of a judge with known log-odds, a bias towards the first position, and other tokens that do not matter."""
    n, k, v = 4, draw.integer(2, 4), draw.integer(5, 8)
    letters = tuple(draw.permutation(v)[:2].tolist())
    truth = 2.0 * draw.normal(n, k)
    liking = place * draw.normal(n, k)
    logits = 3.0 * draw.normal(n, k, 2, v)
    noise = draw.normal(n, k, 2)
    for order, lean in enumerate((truth + liking, -truth + liking)):
        logits[:, :, order, letters[0]] = noise[:, :, order] + lean
        logits[:, :, order, letters[1]] = noise[:, :, order]
    return logits, letters, truth, liking


@test(
    points=2,
    hints=(
        'With the completions exchanged, which completion does "(A)" name?',
        "Take z_A − z_B of the first order minus z_A − z_B of the second, divided by two. Ignore other tokens.",
    ),
    against="the log-odds from which the logits were made",
)
def without_places(sub, draw):
    "`leans` returns the log-odds without the position bias."
    logits, letters, truth, liking = judge(draw, 1.5)
    whole = logits.softmax(-1)[..., letters[0]]
    p = torch.sigmoid(torch.stack([truth + liking, -(-truth + liking)]))
    expect(
        sub.leans(logits, letters), truth, what="`leans`", tolerance=1e-9,
        mistakes={
            "this is the position bias": liking, "one order alone keeps the position bias": truth + liking, "this is twice the log-odds": 2 * truth,
            "the letters are exchanged": -truth, "probabilities are averaged in place of log-odds": torch.logit(p.mean(0)),
            "other tokens enter the probability": torch.logit((whole[:, :, 0] + 1 - whole[:, :, 1]) / 2),
        },
    )  # fmt: skip


@test(
    points=2,
    hints=(
        "First compute the probability for each principle, then clamp it, then take the mean.",
        "Take σ(log-odds), clamped to [c, 1 − c], times the votes, divided by the sum of the votes.",
    ),
    against="the definition, in plain loops",
)
def soft(sub, draw):
    "`labels` is the weighted mean of clamped probabilities."
    logits, letters, truth, _ = judge(draw, 1.0)
    votes = 1.0 + torch.arange(truth.shape[1], dtype=torch.float64)[draw.permutation(truth.shape[1])]
    clamp = [0.1, 0.25, 0.4][draw.integer(0, 2)]

    def by_loops(clamp, size=1.0):
        rows = []
        for row in truth.tolist():
            each = [min(max(1 / (1 + math.exp(-size * x)), clamp), 1 - clamp) for x in row]
            rows.append(sum(p * v for p, v in zip(each, votes.tolist(), strict=True)) / float(votes.sum()))
        return torch.tensor(rows, dtype=torch.float64)

    p = torch.sigmoid(truth)
    share = votes / votes.sum()
    expect(
        sub.labels(logits, letters, votes, clamp), by_loops(clamp), what="`labels`", given={"votes": votes, "clamp": clamp}, tolerance=1e-9,
        mistakes={
            "the mean is clamped, not the probability of each principle": (p @ share).clamp(clamp, 1 - clamp), "the votes are not used": p.clamp(clamp, 1 - clamp).mean(-1),
            "the votes need not sum to 1": p.clamp(clamp, 1 - clamp) @ votes, "log-odds are averaged, not probabilities": torch.sigmoid(truth @ share).clamp(clamp, 1 - clamp),
            "nothing is clamped": p @ share,
        },
    )  # fmt: skip
    expect(
        sub.labels(10 * logits, letters, votes, 0.0), by_loops(0.0, 10.0), what="`labels` with a clamp of 0", given={"votes": votes}, tolerance=1e-9,
    )  # fmt: skip


@test(
    points=1,
    hints=(
        'In the second order "(A)" is a vote for the second completion. Flip it before you count votes.',
        "Count the votes of the principles with z_A − z_B > 0 in the first order, and < 0 in the second. Both fractions must be above ½, or both below.",
    ),
    against="the definition, in plain loops",
)
def swapped(sub, draw):
    "`agreed` is the swap test of the votes."
    logits, letters, truth, liking = judge(draw, 2.0)
    plain = torch.zeros(1, 2, 2, 8, dtype=torch.float64)
    plain[..., letters[0]] = torch.tensor([1.0, -1.0], dtype=torch.float64)
    if not bool(sub.agreed(plain, letters, torch.ones(2, dtype=torch.float64))[0]):
        fail(
            "all principles prefer the first completion in both orders, but `agreed` returns False: "
            "in the second order (A) is a vote for the other completion"
        )
    turned = torch.zeros(
        1, 3, 2, 8, dtype=torch.float64
    )  # for the first reply: principles 1 and 2 as given, 2 and 3 exchanged; only 2 agrees with itself
    turned[0, :, :, letters[0]] = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]], dtype=torch.float64)
    if not bool(sub.agreed(turned, letters, torch.ones(3, dtype=torch.float64))[0]):
        fail(
            "two of three principles prefer the first completion in each order, though not the same two, but `agreed` returns False: "
            "compare the votes of the two orders, not each principle with itself"
        )
    loud = torch.zeros(1, 3, 2, 8, dtype=torch.float64)  # as given, one principle is sure and two are not
    loud[0, :, :, letters[0]] = torch.tensor([[5.0, 1.0], [-0.1, 1.0], [-0.1, 1.0]], dtype=torch.float64)
    if not bool(sub.agreed(loud, letters, torch.ones(3, dtype=torch.float64))[0]):
        fail(
            "two of three principles prefer the second completion in the first order, all three in the second, but `agreed` returns False, "
            "because the third has larger log-odds than the two: a vote does not depend on their size. Count votes, not probabilities or log-odds"
        )
    heavy = torch.zeros(1, 3, 2, 8, dtype=torch.float64)
    heavy[0, :, :, letters[0]] = torch.tensor([[1.0, 1.0], [1.0, 1.0], [-1.0, 1.0]], dtype=torch.float64)
    if not bool(sub.agreed(heavy, letters, torch.tensor([1.0, 1.0, 3.0], dtype=torch.float64))[0]):
        fail(
            "three of five votes are for the second completion in the first order, all in the second, but `agreed` returns False, because two of the three "
            "principles prefer the first: principles have different numbers of votes"
        )
    votes = torch.tensor([1.0, 2.2, 3.1, 4.0], dtype=torch.float64)[
        draw.permutation(truth.shape[1])
    ]  # no two camps are equal
    half, want, first = float(votes.sum()) / 2, [], []
    for lean, like in zip(truth.tolist(), liking.tolist(), strict=True):
        given = sum(v for x, b, v in zip(lean, like, votes.tolist(), strict=True) if x + b > 0)
        exchanged = sum(v for x, b, v in zip(lean, like, votes.tolist(), strict=True) if x - b > 0)
        want.append((given > half) == (exchanged > half))
        first.append((given > half) != (exchanged > half))
    whole = torch.tensor(want)
    got = sub.agreed(logits, letters, votes)
    expect(
        got.double(), whole.double(), what="`agreed`", given={"votes": votes},
        mistakes={"in the second order (A) is a vote for the other completion": torch.tensor(first).double()},
    )  # fmt: skip


@test(
    points=1,
    hints=(
        "What is the result if the votes of one order are equal?",
        "A fraction of one half is neither above nor below. Subtract ½ from both fractions and multiply: the pair passes if the product is positive.",
    ),
    against="the definition",
)
def tied(sub, draw):
    "`agreed` lets no pair pass whose votes are equal in one order."
    _, letters, _, _ = judge(draw)
    pairs = torch.zeros(4, 2, 2, 8, dtype=torch.float64)
    pairs[..., letters[0]] = torch.tensor(
        [[[1, 1], [-1, 1]], [[1, -1], [1, 1]], [[1, -1], [1, -1]], [[-1, 1], [-1, 1]]], dtype=torch.float64
    )  # a tie as given; a tie exchanged; both orders for the first reply; both for the second
    one, other, *clear = sub.agreed(pairs, letters, torch.ones(2, dtype=torch.float64)).tolist()
    if one or other:
        fail("in one order the votes are equal, and one half is neither above nor below, but `agreed` returns True")
    if not all(clear):
        fail("all votes of both orders are for one completion, but `agreed` returns False")
    even = torch.zeros(2, 3, 2, 8, dtype=torch.float64)
    even[..., letters[0]] = torch.tensor(
        [[[1, -1], [1, 0], [0, 0]], [[1, 1], [0, 1], [0, 1]]], dtype=torch.float64
    )  # two of three and one of three for the first completion; one of three and none
    if sub.agreed(even, letters, torch.ones(3, dtype=torch.float64)).tolist() != [False, True]:
        fail(
            "a principle with a probability of exactly one half votes for no completion: only probabilities above it count"
        )


# %% [probes]
# no gradient, size, keywords, nan: a label is data; whoever learns from it holds it fixed
# no values of labels.votes, agreed: votes are counts
# no float32, integers of agreed: where votes are tied a last digit decides
# no integers of leans, labels: logits are no whole numbers


# %% [mutant] one order
# caught by: without_places
# says: one order alone
def leans(logits, letters):
    a, b = letters
    return logits[:, :, 0, a] - logits[:, :, 0, b]


# %% [mutant] the mean of probabilities
# caught by: without_places
# says: in place of log-odds
def leans(logits, letters):
    a, b = letters
    p = torch.sigmoid(logits[..., a] - logits[..., b])
    return torch.logit((p[..., 0] + 1 - p[..., 1]) / 2)


# %% [mutant] the whole vocabulary
# caught by: without_places
# says: other tokens
def leans(logits, letters):
    p = logits.softmax(-1)[..., letters[0]]
    return torch.logit((p[..., 0] + 1 - p[..., 1]) / 2)


# %% [mutant] the mean is bounded
# caught by: soft
# says: the mean is clamped
def labels(logits, letters, votes, clamp):
    return (torch.sigmoid(leans(logits, letters)) @ votes / votes.sum()).clamp(clamp, 1 - clamp)


# %% [mutant] not above is below
# caught by: tied
# says: neither above nor below
def agreed(logits, letters, votes):
    a, b = letters
    first = logits[..., a] - logits[..., b]
    given, exchanged = ((x > 0).to(votes.dtype) @ votes / votes.sum() for x in (first[..., 0], -first[..., 1]))
    return (given > 0.5) == (exchanged > 0.5)


# %% [mutant] the mean probability
# caught by: swapped
# says: not probabilities or log-odds
def agreed(logits, letters, votes):
    a, b = letters
    p = torch.sigmoid(logits[..., a] - logits[..., b])
    given, exchanged = (x @ votes / votes.sum() for x in (p[..., 0], 1 - p[..., 1]))
    return (given - 0.5) * (exchanged - 0.5) > 0


# %% [mutant] no votes
# caught by: swapped
# says: different numbers of votes
def agreed(logits, letters, votes):
    a, b = letters
    first = logits[..., a] - logits[..., b]
    given, exchanged = ((x > 0).to(votes.dtype).mean(1) for x in (first[..., 0], -first[..., 1]))
    return (given - 0.5) * (exchanged - 0.5) > 0


# %% [mutant] the second order as it is
# caught by: swapped
# says: is a vote for the other
def agreed(logits, letters, votes):
    a, b = letters
    first = logits[..., a] - logits[..., b]
    given, exchanged = ((x > 0).to(votes.dtype) @ votes / votes.sum() for x in (first[..., 0], first[..., 1]))
    return (given - 0.5) * (exchanged - 0.5) > 0


# %% [partial] 4: no swap test
def agreed(logits, letters, votes):
    return torch.ones(len(logits), dtype=torch.bool)
