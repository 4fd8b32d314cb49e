# ---
# title: Plan a test from a pilot
# kind: implement
# minutes: 25
# ---

# %% [statement]
# Before a large test you run a pilot. Two models have answered the same `n` items, `K` times each; `ours` and `theirs` `(n, K)` are the grades of independent completions. Which part of the variance comes from items, and which from completions?
#
# 1. `parts(ours, theirs)` returns two numbers, $(\hat\omega^2, \hat\sigma^2)$, the variances of the chapter's two sources without seeds:
#    * $\hat\sigma^2$: within an item, the sample variance of a model's grades (divisor $K-1$) estimates the variance of one completion. Add the variances of the two models, and take the mean over items.
#    * $\hat\omega^2$: the sample variance (divisor $n-1$) of the items' mean differences is *too large*: each item's mean of $K$ completions has a variance of its own. Subtract the part that comes from the completions, so that the estimate is unbiased;
#      if the result is negative, return 0.
# 2. `replies_or_items(ours, theirs)`: the next test can have either $2n$ items with $K$ completions, or $n$ items with $2K$. Return the ratio of the two variances of the difference, the second divided by the first, by the two estimates of `parts`. If *both* estimates are 0, nothing varies: return 1.
#
# $n$ and $K$ are at least 2.

# %% [given]
import torch


# %% [stub]
def parts(ours, theirs):
    """ours, theirs: (n, K) grades. Returns (item variance, completion variance), two numbers."""
    raise NotImplementedError


def replies_or_items(ours, theirs):
    """ours, theirs: (n, K) grades. Returns the variance with 2K completions divided by the variance with 2n items, one number."""
    raise NotImplementedError


# %% [solution]
def parts(ours, theirs):
    replies = ours.shape[1]
    reply = (ours.var(1) + theirs.var(1)).mean()
    item = (ours.mean(1) - theirs.mean(1)).var() - reply / replies
    return item.clamp(min=0), reply


def replies_or_items(ours, theirs):
    item, reply = parts(ours, theirs)
    k = ours.shape[1]
    if not item + reply > 0:
        return 1.0
    return (item + reply / (2 * k)) / ((item + reply / k) / 2)


# %% [tests]
import itertools

import torch
from minirlhf_course.classroom.testing import expect, fail, test, tidy


def pilot(draw, n=5, k=3):
    """Grades with much variance between items, and some between replies."""
    ease = tidy(draw.uniform(n, 1, low=-1, high=1))
    ours = tidy(2 + 2 * ease + draw.uniform(n, k, low=-0.4, high=0.4))
    theirs = tidy(2 - ease + draw.uniform(n, k, low=-0.4, high=0.4))
    return ours, theirs


def variance(numbers):
    """Half the mean squared distance of two different ones."""
    pairs = [(a - b) ** 2 / 2 for a, b in itertools.combinations(numbers, 2)]
    return sum(pairs) / len(pairs)


def noise(ours, theirs):
    """Of one reply of each model."""
    rows = zip(ours.tolist(), theirs.tolist(), strict=True)
    return sum(variance(a) + variance(b) for a, b in rows) / len(ours)


def between(ours, theirs):
    """The variance of the items' mean differences, as it is measured."""
    return variance((ours.mean(1) - theirs.mean(1)).tolist())


def alike(draw):
    """Two replies to each of four items, far apart; the items' means differ by less than the replies can explain."""
    means = torch.tensor([[0.45, 0.55, 0.45, 0.55], [0.5] * 4], dtype=torch.float64)
    off = tidy(draw.uniform(2, 4, low=0.5, high=0.9))
    ours, theirs = torch.stack([means - off, means + off], dim=-1)
    return ours, theirs


def two(answer):
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        fail("`parts` returns two numbers, (item variance, completion variance)")
    return answer


@test(
    points=1,
    hints=(
        "How large is the variance of the K grades of one item?",
        "`ours.var(1)` is the sample variance in each row. A difference of two independent completions has the sum of their variances.",
    ),
)
def of_replies(sub, draw):
    "The second of `parts` is the variance of the difference of two completions."
    ours, theirs = pilot(draw)
    right = noise(ours, theirs)
    rows = zip(ours.tolist(), theirs.tolist(), strict=True)
    by_item = sorted(variance(a) + variance(b) for a, b in rows)
    expect(
        two(sub.parts(ours, theirs))[1],
        right,
        what="the completion variance",
        given={"ours": ours, "theirs": theirs},
        mistakes={
            "the divisor is K and not K − 1": right * 2 / 3,
            "the two models are averaged, not added": right / 2,
            "that is the variance of a mean of K completions": right / 3,
            "that is the variance of one model": sum(variance(a) for a in ours.tolist()) / 5,
            "standard deviations are summed, not variances": sum(
                variance(a) ** 0.5 for a in [*ours.tolist(), *theirs.tolist()]
            )
            / 5,
            "the median is taken over items, not the mean": by_item[2],
            "the squares of all items are divided by nK − 1; each item loses one degree of freedom": right * 10 / 14,
            "all items are pooled; take the variance within each item": variance(ours.flatten().tolist())
            + variance(theirs.flatten().tolist()),
            "completions of an item are paired; they are independent": sum(
                variance((a - b).tolist()) for a, b in zip(ours, theirs, strict=True)
            )
            / len(ours),
        },
    )


@test(
    points=2,
    against="differences of pairs",
    hints=(
        "Suppose all items have the same difficulty. What would the variance of their mean differences be?",
        "The mean of K completions has 1/K of the variance of one. Subtract it.",
    ),
)
def of_items(sub, draw):
    "The first of `parts` is the variance between items, without the part of the completions."
    ours, theirs = pilot(draw)
    measured, reply = between(ours, theirs), noise(ours, theirs)
    expect(
        two(sub.parts(ours, theirs))[0],
        measured - reply / 3,
        what="the item variance",
        given={"ours": ours, "theirs": theirs},
        mistakes={
            "the variance of the completions is still in it": measured,
            "the variance of one completion is subtracted; K were averaged": max(measured - reply, 0.0),
            "the models are treated as if they had answered other items": variance(ours.mean(1).tolist())
            + variance(theirs.mean(1).tolist())
            - reply / 3,
            "the divisor is n and not n − 1": measured * 4 / 5 - reply / 3,
            "it is divided by the number of items": (measured - reply / 3) / 5,
            "only the first completions are compared": max(variance((ours - theirs)[:, 0].tolist()) - reply, 0.0),
        },
    )


@test(
    points=1,
    hints=("Can a variance be negative?", "An estimate by subtraction can. Return 0 there."),
)
def not_below_zero(sub, draw):
    "If the completions explain more than all of it, the item variance is 0."
    ours, theirs = tidy(draw.uniform(4, 2, low=0, high=1)), tidy(draw.uniform(4, 2, low=0, high=1))
    ours[:, 1], theirs[:, 1] = 1 - ours[:, 0], 1 - theirs[:, 0]  # every item has the mean 1/2
    ours[:, 0] += 2
    expect(
        two(sub.parts(ours, theirs))[0],
        0.0,
        what="the item variance of items that are alike",
        given={"ours": ours, "theirs": theirs},
        mistakes={
            "it is below 0": -noise(ours, theirs) / 2,
            "its sign is dropped; a negative estimate is 0": noise(ours, theirs) / 2,
        },
    )


@test(
    points=1,
    hints=(
        "Write the chapter's variance for 2n and K, and for n and 2K.",
        "(ω² + σ²/2K)/n over (ω² + σ²/K)/2n. It is 1 if items do not differ, and 2 if completions do not.",
    ),
)
def choice(sub, draw):
    "`replies_or_items` compares the two ways to double a test."
    ours, theirs = pilot(draw)
    item, reply = between(ours, theirs) - noise(ours, theirs) / 3, noise(ours, theirs)
    right = 2 * (item + reply / 6) / (item + reply / 3)
    expect(
        sub.replies_or_items(ours, theirs),
        right,
        what="the factor",
        given={"ours": ours, "theirs": theirs},
        mistakes={
            "the ratio is upside down": 1 / right,
            "the number of items is missing": right / 2,
            "K is missing": 2 * (item + reply / 2) / (item + reply),
            "that is a ratio of standard errors": right**0.5,
        },
    )
    ours, theirs = alike(draw)
    measured, reply = between(ours, theirs), noise(ours, theirs)
    expect(
        sub.replies_or_items(ours, theirs),
        1.0,
        what="the factor where the completions explain all of the variance",
        given={"ours": ours, "theirs": theirs},
        mistakes={
            "the item variance is negative; the one of `parts` is 0": 2 * (measured - reply / 4) / measured,
        },
    )
    steady = tidy(draw.uniform(4, 1, low=-1, high=1) + torch.tensor([[-3.0], [-1.0], [1.0], [3.0]])).repeat(1, 2)
    expect(
        sub.replies_or_items(steady, torch.zeros_like(steady)),
        2.0,
        what="the factor where only items vary",
        given={"ours": steady, "theirs": torch.zeros_like(steady)},
        mistakes={"it is 1 as soon as one of the two is 0; it should be 1 only if both are": 1.0},
    )
    same = torch.full((3, 2), 0.5, dtype=torch.float64)
    expect(
        sub.replies_or_items(same, same),
        1.0,
        what="the factor where nothing varies",
        given={"ours": same, "theirs": same},
    )


# %% [probes]
# no gradient: measurements


# %% [mutant] the noise is left in
# caught by: of_items
# says: still in it
def parts(ours, theirs):
    reply = (ours.var(1) + theirs.var(1)).mean()
    return (ours.mean(1) - theirs.mean(1)).var(), reply


# %% [mutant] too much is taken off
# caught by: of_items
# says: K were averaged
def parts(ours, theirs):
    reply = (ours.var(1) + theirs.var(1)).mean()
    return ((ours.mean(1) - theirs.mean(1)).var() - reply).clamp(min=0), reply


# %% [mutant] completions in pairs
# caught by: of_replies
# says: are paired
def parts(ours, theirs):
    reply = (ours - theirs).var(1).mean()
    return ((ours - theirs).mean(1).var() - reply / ours.shape[1]).clamp(min=0), reply


# %% [mutant] a negative variance
# caught by: not_below_zero
# says: below 0
def parts(ours, theirs):
    reply = (ours.var(1) + theirs.var(1)).mean()
    return (ours.mean(1) - theirs.mean(1)).var() - reply / ours.shape[1], reply


# %% [mutant] one source is enough for 1
# caught by: choice
# says: one of the two is 0
def replies_or_items(ours, theirs):
    item, reply = parts(ours, theirs)
    k = ours.shape[1]
    if not item * reply > 0:
        return 1.0
    return (item + reply / (2 * k)) / ((item + reply / k) / 2)


# %% [mutant] upside down
# caught by: choice
# says: upside down
def replies_or_items(ours, theirs):
    item, reply = parts(ours, theirs)
    k = ours.shape[1]
    return (item + reply / k) / (2 * item + reply / k)


# %% [partial] 4: the two variances
def replies_or_items(ours, theirs):
    raise NotImplementedError
