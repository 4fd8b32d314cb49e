# ---
# title: Paired, clustered comparison with missing grades
# kind: implement
# minutes: 20
# ---

# %% [statement]
# Two models have been graded on the same reading test. Its items come in clusters, several about one passage. Some grades are missing (NaN), because the grader failed.
#
# Write `compare(ours, theirs, passages)`, which returns two numbers: the difference of the mean grades, ours minus theirs, and its standard error.
#
# * An item counts only if *both* models have a grade for it.
# * The models answered the same items, so use the paired difference.
# * Items about one passage are not independent. The variance of the difference is $\frac1{n^2}\sum_c \big(\sum_{i\in c}(d_i - \bar d)\big)^2$, over the passages $c$, where $d_i$ is the
#   difference of item $i$ and $n$ is the number of items with both grades.
#
# `ours` and `theirs` are `(N,)` tensors of grades, `passages` is `(N,)`, the passages' names: whole numbers, in any order. They are only names: they may be negative, and as large as an `int64` can be.

# %% [given]
import torch


# %% [stub]
def compare(ours, theirs, passages):
    """ours, theirs: (N,), NaN where there is no grade. passages: (N,) integers. Returns (difference, standard error)."""
    raise NotImplementedError


# %% [solution]
def compare(ours, theirs, passages):
    both = ours.isfinite() & theirs.isfinite()
    d, place = (ours - theirs)[both], passages[both].unique(return_inverse=True)[1]
    off = d - d.mean()
    sums = torch.zeros(len(d), dtype=d.dtype).index_add(0, place, off)
    return d.mean(), sums.square().sum().sqrt() / len(d)


# %% [tests]
import itertools
import math
import statistics

import torch
from minirlhf_course.classroom.testing import expect, test, tidy


def reading_test(draw, gaps):
    """Grades of two models on a dozen items about four passages, in any order."""
    passages = torch.tensor([3, 3, 3, 8, 8, 8, 8, 20, 20, 41, 41, 41])[draw.permutation(12)]
    hard = torch.tensor([0.1, 0.5, 0.3, 0.6], dtype=torch.float64)[
        torch.tensor([[3, 8, 20, 41].index(p) for p in passages.tolist()])
    ]
    ours, theirs = (tidy(hard + draw.uniform(12, low=0.0, high=0.4), 2) for _ in range(2))
    for rewards, at in zip((ours, theirs), draw.permutation(12)[:2].tolist()) if gaps else ():
        rewards[at] = math.nan
    return ours, theirs, passages


def renamed(passages):
    """The same passages under other names; no two of the old ones get one name."""
    names = {3: -7, 8: 2**62 - 4, 20: 2**62 - 3, 41: 0}  # two are equal as float64, two end in the same digits
    return torch.tensor([names[p] for p in passages.tolist()])


def kept(ours, theirs, passages):
    rows = zip(ours.tolist(), theirs.tolist(), passages.tolist(), strict=True)
    return [(a, b, p) for a, b, p in rows if not (math.isnan(a) or math.isnan(b))]


def error(rows):
    """By the formula, passage by passage; rows of (difference, passage)."""
    mean = math.fsum(d for d, _ in rows) / len(rows)
    sums = [math.fsum(d - mean for d, q in rows if q == p) for p in {p for _, p in rows}]
    return math.sqrt(math.fsum(s * s for s in sums)) / len(rows)


def mistaken(found):
    """The standard errors of those who err."""
    d = [(a - b, p) for a, b, p in found]
    mean, n = math.fsum(x for x, _ in d) / len(d), len(d)
    alone = math.sqrt(math.fsum((x - mean) ** 2 for x, _ in d)) / n
    apart = math.hypot(error([(a, p) for a, _, p in found]), error([(b, p) for _, b, p in found]))
    groups = [[x for x, q in d if q == p] for p in {p for _, p in d}]
    own = [math.fsum(some) / len(some) for some in groups]
    spread = [
        statistics.variance(side) for side in (*zip(*((a, b) for a, b, _ in found), strict=True), [x for x, _ in d])
    ]
    stretches = [[x for x, _ in some] for _, some in itertools.groupby(d, key=lambda item: item[1])]
    runs = math.sqrt(math.fsum(math.fsum(x - mean for x in some) ** 2 for some in stretches)) / n
    within = math.fsum((x - m) ** 2 for some, m in zip(groups, own, strict=True) for x in some)
    return {
        "the divisor is n (n − 1); the formula has n²": error(d) * math.sqrt(n / (n - 1)),
        "there is a correction for few passages, G/(G − 1), which the formula does not have": error(d)
        * math.sqrt(len(groups) / (len(groups) - 1)),
        "the sums are made absolute instead of squared": math.fsum(
            abs(len(g) * (m - mean)) for g, m in zip(groups, own, strict=True)
        )
        / n,
        "each passage counts once: its mean deviation is squared, not its sum": math.sqrt(
            math.fsum((m - mean) ** 2 for m in own)
        )
        / len(groups),
        "the deviations are taken from the passage's own mean": math.sqrt(within) / n,
        "items about one passage are treated as independent": alone,
        "items are treated as independent, with divisor n − 1": math.sqrt(spread[2] / n),
        "items are treated as independent, and the two models as if they had answered other items": math.sqrt(
            (spread[0] + spread[1]) / n
        ),
        "the two models are treated as if they had answered other, independent items, with divisor n in the variances": math.sqrt(
            (spread[0] + spread[1]) * (n - 1)
        )
        / n,
        "the differences are not centred before they are summed": math.sqrt(
            math.fsum(math.fsum(some) ** 2 for some in groups)
        )
        / n,
        "means of the passages are squared, and not sums": math.sqrt(math.fsum((m - mean) ** 2 for m in own)) / n,
        "only neighbouring items are put into one cluster; a passage may occur in several places": runs,
        "the two models are treated as if they had answered other items": apart,
        "that is the variance": error(d) ** 2,
        "that is the error of the sum": error(d) * n,
    }


@test(points=1, hints=("Which number do you get from each item?", "Take the difference item by item, then its mean."))
def means(sub, draw):
    "`compare` gives the difference of the means."
    ours, theirs, passages = reading_test(draw, gaps=False)
    right = float((ours - theirs).mean())
    by_name = [(ours - theirs)[passages == p].mean() for p in passages.unique()]
    given = {"ours": ours, "theirs": theirs, "passages": passages}
    expect(
        sub.compare(ours, theirs, passages)[0],
        right,
        what="the difference",
        given=given,
        mistakes={
            "that is theirs minus ours": -right,
            "the mean is taken over passages, not over items": float(sum(by_name) / len(by_name)),
        },
    )


@test(
    points=1,
    against="the formula, passage by passage",
    hints=(
        "Which deviations are correlated? Sum these before you square.",
        "d_i is the item's difference. Sum d_i − d̄ within each passage, square, add, divide by n², take the root.",
    ),
)
def errors(sub, draw):
    "The standard error is for a difference in pairs, with passages as clusters."
    ours, theirs, passages = reading_test(draw, gaps=False)
    found = kept(ours, theirs, passages)
    expect(
        sub.compare(ours, theirs, passages)[1],
        error([(a - b, p) for a, b, p in found]),
        what="the standard error",
        given={"ours": ours, "theirs": theirs, "passages": passages},
        mistakes=mistaken(found),
    )


@test(
    points=1,
    against="the formula, passage by passage",
    hints=(
        "The grades are as before; only the passages have other names. Does your code use a name for more than a test of equality?",
        "A name is not an index: it may be negative or huge. `passages.unique(return_inverse=True)` numbers the passages from 0.",
    ),
)
def names(sub, draw):
    "The standard error does not depend on the names of the passages."
    ours, theirs, old = reading_test(draw, gaps=False)
    passages = renamed(old)
    d = (ours - theirs).tolist()
    as_fractions = error(list(zip(d, map(float, passages.tolist()), strict=True)))
    last_digit = error(list(zip(d, (p % 10 for p in passages.tolist()), strict=True)))
    expect(
        sub.compare(ours, theirs, passages)[1],
        error(list(zip(d, old.tolist(), strict=True))),
        what="the standard error",
        given={"ours": ours, "theirs": theirs, "passages": passages},
        mistakes={
            "two passages with different names are treated as one: as float64 their names near 2^62 are equal": as_fractions,
            "two passages with different names are treated as one: their names have the same remainder": last_digit,
        },
    )


@test(
    points=2,
    against="the formula, passage by passage",
    hints=(
        "Each of two items lacks one of its grades. Can it contribute to the difference?",
        "Drop an item if one of its two grades is NaN, and count the remaining items.",
    ),
)
def gaps(sub, draw):
    "Items without both grades are dropped everywhere."
    ours, theirs, passages = reading_test(draw, gaps=True)
    found = kept(ours, theirs, passages)
    given = {"ours": ours, "theirs": theirs, "passages": passages}
    mean = math.fsum(a - b for a, b, _ in found) / len(found)
    own = float(ours.nanmean() - theirs.nanmean())
    touched = passages[(ours - theirs).isnan()].tolist()
    whole = [a - b for a, b, p in found if p not in touched]
    filled = (ours - theirs.nan_to_num(float(theirs.nanmean()))).nanmean()
    off = math.sqrt(
        math.fsum(math.fsum(a - b - own for a, b, q in found if q == p) ** 2 for p in {p for _, _, p in found})
    )
    difference, stderr = sub.compare(ours, theirs, passages)
    expect(
        difference,
        mean,
        what="the difference",
        given=given,
        mistakes={
            "each model is averaged over its own graded items": own,
            "a whole passage is dropped if one of its grades is missing": sum(whole) / len(whole),
            "a missing grade of theirs is replaced by their mean": float(filled),
            "a missing grade is counted as 0": float(ours.nan_to_num().mean() - theirs.nan_to_num().mean()),
            "the sum is divided by all items": mean * len(found) / len(ours),
        },
    )
    right = error([(a - b, p) for a, b, p in found])
    expect(
        stderr,
        right,
        what="the standard error",
        given=given,
        mistakes={
            "it is divided by the number of all items": right * len(found) / len(ours),
            "the deviations are not taken from the mean of the remaining items": off / len(found),
        },
    )


# %% [edges]
# names: they may be negative, and as large as an `int64` can be
# gaps: An item counts only if *both* models have a grade for it


# %% [probes]
# no gradient: a measurement is asked for
# no integers: passages are names
# no float32: sums of deviations that cancel


# %% [mutant] items are independent
# caught by: errors
# says: independent
def compare(ours, theirs, passages):
    both = ours.isfinite() & theirs.isfinite()
    d = (ours - theirs)[both]
    return d.mean(), (d - d.mean()).square().sum().sqrt() / len(d)


# %% [mutant] not in pairs
# caught by: errors
# says: other items
def compare(ours, theirs, passages):
    both = ours.isfinite() & theirs.isfinite()
    place = passages[both].unique(return_inverse=True)[1]
    total = 0.0
    for x in (ours[both], theirs[both]):
        total = total + torch.zeros(len(x), dtype=x.dtype).index_add(0, place, x - x.mean()).square().sum()
    return (ours - theirs)[both].mean(), total.sqrt() / int(both.sum())


# %% [mutant] names as indices
# caught by: names
def compare(ours, theirs, passages):
    both = ours.isfinite() & theirs.isfinite()
    d, place = (ours - theirs)[both], passages[both]
    sums = torch.zeros(int(place.max()) + 1, dtype=d.dtype).index_add(0, place, d - d.mean())
    return d.mean(), sums.square().sum().sqrt() / len(d)


# %% [mutant] names as float64
# caught by: names
# says: treated as one
def compare(ours, theirs, passages):
    both = ours.isfinite() & theirs.isfinite()
    d, place = (ours - theirs)[both], passages[both].double().unique(return_inverse=True)[1]
    sums = torch.zeros(len(d), dtype=d.dtype).index_add(0, place, d - d.mean())
    return d.mean(), sums.square().sum().sqrt() / len(d)


# %% [mutant] each over its own items
# caught by: gaps
# says: its own graded items
def compare(ours, theirs, passages):
    both = ours.isfinite() & theirs.isfinite()
    d, place = (ours - theirs)[both], passages[both].unique(return_inverse=True)[1]
    sums = torch.zeros(len(d), dtype=d.dtype).index_add(0, place, d - d.mean())
    return ours.nanmean() - theirs.nanmean(), sums.square().sum().sqrt() / len(d)


# %% [mutant] divided by all
# caught by: gaps
# says: number of all items
def compare(ours, theirs, passages):
    both = ours.isfinite() & theirs.isfinite()
    d, place = (ours - theirs)[both], passages[both].unique(return_inverse=True)[1]
    sums = torch.zeros(len(d), dtype=d.dtype).index_add(0, place, d - d.mean())
    return d.mean(), sums.square().sum().sqrt() / len(ours)


# %% [partial] 1: the difference alone
def compare(ours, theirs, passages):
    return (ours - theirs).mean(), torch.zeros(())
