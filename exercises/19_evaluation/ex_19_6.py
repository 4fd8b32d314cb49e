# ---
# title: Bug hunt: a bootstrap that treats completions as items
# kind: bughunt
# minutes: 25
# ---

# %% [statement]
# A bootstrap for benchmarks: resample the items, each with all of its completions, many times, and take the ends of the middle 95 % of the scores. `widths` prints the width of the interval for more and more completions of the same forty items.
# The curve is impossible. **The width falls by about the same factor with each doubling of the completions, without a limit**, as if forty items were enough for any precision. A model compared **with itself** has an interval with a width. With a single completion per item the
# interval is about 18 % **narrower than 2 · 1.96 standard errors**, printed in the first line.
#
# **There are three bugs, one in each function. Find and fix them.**
#
# * `resampled(grades, rounds, seed)`: for grades `(n, K)` the mean grades of `rounds` resampled tests. A resampled test has `n` items, sampled with replacement, each with all of its `K` grades.
# * `gap(ours, theirs, rounds, seed)`: the difference of two models' mean grades, ours minus theirs, in `rounds` resampled tests. Both models have the same resampled items.
# * `ends(values, level)`: the ends of the middle fraction `level` of the values; the same number is cut off on each side.

# %% [given]
import torch


def widths(n=40, seed=0):
    """Print the widths of the 95 % interval of a score, and of a model's difference from itself, by completions per item."""
    rng = torch.Generator().manual_seed(seed)
    ease = torch.rand(n, 1, generator=rng, dtype=torch.float64)
    grades = (torch.rand(n, 64, generator=rng, dtype=torch.float64) < ease).double()
    print(f"by the standard error, one completion: {3.92 * float(grades[:, 0].std()) / n**0.5:.3f}")
    for k in (1, 2, 4, 8, 16, 32, 64):
        low, high = ends(resampled(grades[:, :k], 1000, seed), 0.95)
        left, right = ends(gap(grades[:, :k], grades[:, :k], 1000, seed), 0.95)
        print(f"{k:2} completions: {float(high - low):.3f}   against itself: {float(right - left):.3f}")


# %% [stub]
def resampled(grades, rounds, seed):
    """grades: (n, K). Returns (rounds,) means."""
    rng = torch.Generator().manual_seed(seed)
    grades = grades.flatten()
    picks = torch.randint(len(grades), (rounds, len(grades)), generator=rng)
    return grades[picks].mean(-1)


def gap(ours, theirs, rounds, seed):
    """ours, theirs: (n, K). Returns (rounds,) differences."""
    return resampled(ours, rounds, seed) - resampled(theirs, rounds, seed + 1)


def ends(values, level):
    """values: (R,). Returns (low, high)."""
    return values.quantile(1 - level), values.quantile(level)


# %% [solution]
def resampled(grades, rounds, seed):
    rng = torch.Generator().manual_seed(seed)
    picks = torch.randint(len(grades), (rounds, len(grades)), generator=rng)
    return grades.mean(1)[picks].mean(-1)


def gap(ours, theirs, rounds, seed):
    return resampled(ours, rounds, seed) - resampled(theirs, rounds, seed)


def ends(values, level):
    return values.quantile((1 - level) / 2), values.quantile((1 + level) / 2)


# %% [tests]
import itertools
import statistics
from collections import Counter

import torch
from minirlhf_course.classroom.chance import expect_draws, expect_independent
from minirlhf_course.classroom.testing import expect, fail, test, tidy

ROUNDS = 3000


def table(draw):
    """Two grades of each of three items; no two resampled tests of other items have one mean."""
    return tidy(torch.tensor([[0.0], [1.0], [5.0]], dtype=torch.float64) + draw.uniform(3, 2, low=0.1, high=0.3), 3)


def law(values):
    """The mean of as many of these numbers, drawn with replacement, as there are: from every such draw."""
    many = Counter(round(sum(some) / len(some), 9) for some in itertools.product(values, repeat=len(values)))
    support = sorted(many)
    return support, torch.tensor([many[x] for x in support], dtype=torch.float64) / many.total()


def apart(ours, theirs):
    """The same of a difference, if each model has items of its own."""
    (a, p), (b, q) = law(ours), law(theirs)
    chance = Counter()
    for (x, u), (y, v) in itertools.product(zip(a, p.tolist(), strict=True), zip(b, q.tolist(), strict=True)):
        chance[round(x - y, 9)] += u * v
    support = sorted(chance)
    return support, torch.tensor([chance[x] for x in support], dtype=torch.float64)


def places(got, support):
    """Where in the support each value lies; None if one lies nowhere."""
    distance = (got.double()[:, None] - torch.tensor(support, dtype=torch.float64)).abs()
    return distance.argmin(-1) if float(distance.amin(-1).max()) < 1e-7 else None


def means(got, what, rounds=ROUNDS):
    if not isinstance(got, torch.Tensor) or got.shape != (rounds,):
        fail(f"the result of `{what}` is not a tensor (rounds,)")
    if not bool(got.isfinite().all()):
        fail(f"the result of `{what}` is not finite everywhere")
    return got


def one_for_all(grades):
    """Every choice of one number of each item, such as its first grade or its largest, that could stand for the item."""
    return itertools.product(*(sorted(set(row)) for row in grades.tolist()))


def drawn_again(grades):
    """The means if each drawn item's replies are drawn again from its own."""
    of_item = {sum(some) / len(row) for row in grades.tolist() for some in itertools.product(row, repeat=len(row))}
    return sorted({sum(some) / len(grades) for some in itertools.product(of_item, repeat=len(grades))})


def mixed_up(got, grades):
    """What may have been done where a mean is none of three items."""
    if any(places(got, law(list(some))[0]) is not None for some in one_for_all(grades)):
        return "; one grade is used for the item, not all of its grades"
    flat = grades.flatten().tolist()
    if places(got, sorted({sum(x) / 3 for x in itertools.product(flat, repeat=3)})) is not None:
        return "; it is made of single grades, as if each completion were an item"
    if places(got, drawn_again(grades)) is not None:
        return "; the completions within an item are resampled too"
    return (
        "; it is made of single grades, as if each completion were an item"
        if places(got, law(flat)[0]) is not None
        else ""
    )


def expect_rounds(at, chances, what, mistakes=None):
    """Draws of the right distribution, and each round's its own."""
    expect_draws(at, chances, ROUNDS, f"{what}, sorted", mistakes=mistakes)
    agree, half = float(chances.square().sum()), ROUNDS // 2
    for one, other, which in ((at[:half], at[half:], "half a run later"), (at[0::2], at[1::2], "next to each other")):
        expect_independent(one, other, agree, f"{what}: rounds {which} are sampled together, not independently")


def expect_other_seeds(drawn, what, seed):
    """Seeds near and far, and such as agree in their last digits or bits."""
    first = means(drawn(seed), what)
    for step in (1, 2, 1000, 1024):
        if bool((means(drawn(seed + step), what) == first).all()):
            fail(f"`{what}` gives the same with two seeds that are {step} apart")


@test(
    points=2,
    hints=(
        "How many different means can a resampled test of three items have? And how many do you get?",
        "Items are the sample. Sample n item indices, not n·K grades, and take all K grades of each item.",
    ),
)
def over_items(sub, draw):
    "`resampled` samples items with all of their completions."
    grades, seed = table(draw), draw.integer(0, 2**20)
    got = means(sub.resampled(grades, ROUNDS, seed), "resampled")
    support, chances = law(grades.mean(1).tolist())
    at = places(got, support)
    if at is None:
        fail(
            "a resampled test of `resampled` has a mean that no three items have" + mixed_up(got, grades),
            grades=grades,
            means=got[:4],
        )
    kept = sum(grades.mean(1).tolist()) / 3
    never_twice = torch.tensor([float(abs(x - kept) < 1e-6) for x in support], dtype=torch.float64)
    lone = torch.tensor(
        [sum(abs(x - y) < 1e-6 for y in grades.mean(1).tolist()) / 3 for x in support], dtype=torch.float64
    )
    expect_rounds(
        at,
        chances,
        "the means of `resampled`",
        mistakes={
            "items are sampled without replacement": never_twice,
            "a resampled test has a single item": lone,
        },
    )
    if not bool((means(sub.resampled(grades, ROUNDS, seed), "resampled") == got).all()):
        fail("the same seed gives other resampled tests; use a generator seeded with `seed`")
    means(sub.aside.resampled(grades, 7, seed), "resampled", 7)
    last = torch.tensor([[0.0], [0.0], [0.0], [1.0], [1.0]], dtype=torch.float64)
    got = means(sub.aside.resampled(last, 500, seed), "resampled", 500)
    if places(got, law(last[:, 0].tolist())[0]) is None or not 0.2 < float(got.mean()) < 0.6:
        fail("of five items not all are sampled, or not five of them", grades=last, means=got[:4])
    expect_other_seeds(lambda other: sub.resampled(grades, ROUNDS, other), "resampled", seed)


@test(
    points=2,
    hints=(
        "Compare a model with itself by hand. What must every difference be?",
        "Both models have the *same* resampled items: use the same indices for both.",
    ),
)
def same_test(sub, draw):
    "`gap` uses the same resampled items for both models."
    ours, theirs, seed = table(draw), table(draw)[draw.permutation(3)], draw.integer(0, 2**20)
    alone = means(sub.gap(ours, ours, ROUNDS, seed), "gap")
    means(sub.aside.gap(ours, theirs, 7, seed), "gap", 7)
    if bool((alone.abs() > 1e-9).any()):
        fail(
            "a model differs from itself: the two do not have the same resampled items",
            ours=ours,
            differences=alone[:4],
        )
    got = means(sub.gap(ours, theirs, ROUNDS, seed), "gap")
    support, chances = law((ours - theirs).mean(1).tolist())
    at = places(got, support)
    if at is None:
        named = ""
        if places(-got, support) is not None:
            named = "; it is theirs minus ours"
        elif places(got, apart(ours.mean(1).tolist(), theirs.mean(1).tolist())[0]) is not None:
            named = "; each model has its own resampled items"
        elif places(got, sorted({abs(x) for x in support})) is not None:
            named = "; its sign is lost"
        elif any(places(got, law((ours - theirs)[:, k].tolist())[0]) is not None for k in range(2)):
            named = "; not all grades of an item are used"
        fail(
            "no three items have this difference of `gap`" + named,
            ours=ours,
            theirs=theirs,
            differences=got[:4],
        )
    expect_rounds(at, chances, "the differences of `gap`")
    last, none = torch.tensor([[[0.0]] * 3 + [[1.0]] * 2, [[0.0]] * 5], dtype=torch.float64)
    if places(means(sub.aside.gap(last, none, 500, seed), "gap", 500), law(last[:, 0].tolist())[0]) is None:
        fail("the differences of five items are none that five items have", ours=last, theirs=none)
    expect_other_seeds(lambda other: sub.gap(ours, theirs, ROUNDS, other), "gap", seed)


@test(
    points=1,
    hints=(
        "With 401 values and a level of .95, how many are below the lower end, and how many above the upper end?",
        "Half of 1 − level is cut off on each side.",
    ),
)
def middle(sub, draw):
    "`ends` are the ends of the middle fraction."
    _middle(sub, draw, 200, (0.8, 0.9, 0.95))
    _middle(
        sub.aside, draw, 60, (0.8, 0.9)
    )  # fewer values lie so far apart that it matters how a quantile is interpolated


def _middle(sub, draw, half, levels):
    values = (draw.uniform(2 * half + 1, low=0.001, high=0.02)).cumsum(0)
    mean, deviation = float(values.mean()), float(values.std())
    for level in levels:
        cut = round(half * (1 - level))
        got = sub.ends(values[draw.permutation(len(values))], level)
        if not isinstance(got, tuple | list) or len(got) != 2:
            fail("`ends` returns two numbers, (low, high)")
        reach = statistics.NormalDist().inv_cdf((1 + level) / 2) * deviation
        for end, sign, what in ((got[0], -1, "the lower end"), (got[1], 1, "the upper end")):
            expect(
                end,
                values[half + sign * (half - cut)],
                what=what,
                given={"level": level},
                tolerance=1e-6,
                mistakes={
                    "1 − level is cut off on each side, altogether twice as much as should be": values[
                        half + sign * (half - 2 * cut)
                    ],
                    "low and high are exchanged": values[half - sign * (half - cut)],
                    "a normal distribution is assumed": mean + sign * reach,
                    "that is the middle 95 % for every `level`": values[half + sign * round(0.95 * half)],
                    "one value too few is cut off": values[half + sign * (half + 1 - cut)],
                },
            )


# %% [picture]
import torch
from minirlhf_course.classroom.testing import Panel, Picture


def picture(sub):
    """Width of the interval of a score by the number of completions of the same forty items."""
    rng = torch.Generator().manual_seed(0)
    ease = torch.rand(40, 1, generator=rng, dtype=torch.float64)
    grades = (torch.rand(40, 64, generator=rng, dtype=torch.float64) < ease).double()
    replies, yours, right = [1, 2, 4, 8, 16, 32, 64], [], []
    for k in replies:
        low, high = sub.ends(sub.resampled(grades[:, :k], 2000, 0), 0.95)
        yours.append(float(high - low))
        right.append(2 * 1.96 * float(grades[:, :k].mean(1).std(correction=0)) / 40**0.5)
    along = torch.tensor(replies, dtype=torch.float64).log2()
    return Picture(
        "The width of the 95 % interval against the completions of each of forty items. Right: it falls, and levels off at the variance of the items.",
        (
            Panel(
                "forty items",
                along,
                torch.tensor(yours),
                torch.tensor(right),
                "log₂ of the completions per item",
                "width",
            ),
        ),
    )


# %% [shared]
# 0.95: the usual level, which a test asks for beside others


# %% [probes]
# no random of resampled, gap: they draw by their seed, from whichever generator
# no values, keywords, size, float32, integers, gradient, nan of resampled, gap: any draws of the right distribution are right
# no gradient, values, float32, size, scale of ends: quantiles are interpolated in more than one way


# %% [mutant] single completions
# caught by: over_items
# says: as if each completion were an item
def resampled(grades, rounds, seed):
    rng = torch.Generator().manual_seed(seed)
    grades = grades.flatten()
    picks = torch.randint(len(grades), (rounds, len(grades)), generator=rng)
    return grades[picks].mean(-1)


# %% [mutant] n single completions
# caught by: over_items
def resampled(grades, rounds, seed):
    rng = torch.Generator().manual_seed(seed)
    picks = torch.randint(grades.numel(), (rounds, len(grades)), generator=rng)
    return grades.flatten()[picks].mean(-1)


# %% [mutant] half of the rounds are copies
# caught by: over_items
# says: not independently
def resampled(grades, rounds, seed):
    rng = torch.Generator().manual_seed(seed)
    picks = torch.randint(len(grades), (rounds // 2, len(grades)), generator=rng)
    return grades.mean(1)[torch.cat([picks, picks, picks[: rounds % 2]])].mean(-1)


# %% [mutant] without replacement
# caught by: over_items
# says: without replacement
def resampled(grades, rounds, seed):
    rng = torch.Generator().manual_seed(seed)
    picks = torch.stack([torch.randperm(len(grades), generator=rng) for _ in range(rounds)])
    return grades.mean(1)[picks].mean(-1)


# %% [mutant] other items for the other model
# caught by: same_test
# says: differs from itself
def gap(ours, theirs, rounds, seed):
    return resampled(ours, rounds, seed) - resampled(theirs, rounds, seed + 1)


# %% [mutant] always the same tests
# caught by: same_test
# says: two seeds that are 1 apart
def gap(ours, theirs, rounds, seed):
    return resampled(ours, rounds, 0) - resampled(theirs, rounds, 0)


# %% [mutant] theirs minus ours
# caught by: same_test
# says: theirs minus ours
def gap(ours, theirs, rounds, seed):
    return resampled(theirs, rounds, seed) - resampled(ours, rounds, seed)


# %% [mutant] too much cut off
# caught by: middle
# says: twice as much
def ends(values, level):
    return values.quantile(1 - level), values.quantile(level)


# %% [mutant] the wrong way round
# caught by: middle
# says: exchanged
def ends(values, level):
    return values.quantile((1 + level) / 2), values.quantile((1 - level) / 2)


# %% [partial] 3: the models still answer other tests
def gap(ours, theirs, rounds, seed):
    return resampled(ours, rounds, seed) - resampled(theirs, rounds, seed + 1)
