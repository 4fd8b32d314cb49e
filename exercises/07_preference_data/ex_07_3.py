# ---
# title: Weighted kappa
# kind: implement
# minutes: 25
# ---

# %% [statement]
# Two annotators grade completions from 0 to $C-1$. For Cohen's κ, the grades 4 and 3 disagree as much as 4 and 0. The *weighted* κ distinguishes them: a pair of grades $(i, j)$ has the cost $(i-j)^2$, and
#
# $$\kappa_w = 1 - \frac{\text{cost within an item}}{\text{cost between items}} .$$
#
# The numerator is the mean cost of the two grades of one item. The denominator is the mean cost of a grade of the first annotator and a grade of the second, over any two items.
# "Any two items" means all pairs of items, an item with itself included. Write `weighted_kappa(a, b)`: two tensors of integers, shape `(N,)`. A grade of −1 means "not graded": leave
# such an item out completely. If κ is undefined (no item with both grades, or no difference between any two of them), return NaN.

# %% [given]
import torch


# %% [stub]
def weighted_kappa(a, b):
    """Weighted agreement of two annotators. a, b: (N,) integers, −1 where not graded. Returns one number."""
    raise NotImplementedError


# %% [solution]
def weighted_kappa(a, b):
    both = (a >= 0) & (b >= 0)
    a, b = a[both].double(), b[both].double()
    if len(a) == 0:
        return torch.tensor(float("nan"))
    expected = ((a[:, None] - b[None, :]) ** 2).mean()
    if float(expected) == 0:
        return torch.tensor(float("nan"))
    return 1 - ((a - b) ** 2).mean() / expected


# %% [tests]
import math

import torch
from minirlhf_course.classroom.testing import expect, fail, test


def slowly(a, b):
    """Compute the definition in plain loops, over the items with both grades."""
    pairs = [(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True) if x >= 0 and y >= 0]
    one = sum((x - y) ** 2 for x, y in pairs) / len(pairs)
    any_two = sum((x - y) ** 2 for x, _ in pairs for _, y in pairs) / len(pairs) ** 2
    return 1 - one / any_two


def unweighted(a, b):
    """Return Cohen's κ of the same grades."""
    pairs = [(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True) if x >= 0 and y >= 0]
    one = sum(x != y for x, y in pairs) / len(pairs)
    return 1 - one / (sum(x != y for x, _ in pairs for _, y in pairs) / len(pairs) ** 2)


def of_one(a, b):
    """Return κ if only the gaps of a are left out, and a gap of b is read as −1."""
    x, y = a[a >= 0].double(), b[a >= 0].double()
    return float(1 - ((x - y) ** 2).mean() / ((x[:, None] - y) ** 2).mean())


def grades(draw, n):
    """Return grades of two annotators that agree partly."""
    a = torch.tensor([0, 4, 1, *(draw.integer(0, 4) for _ in range(n - 3))])
    b = torch.tensor([0, 3, 1, *(min(4, int(x) + draw.integer(0, 2)) for x in a[3:])])
    return a, b


@test(
    points=2,
    hints=(
        "The cost is a squared difference. What is its mean over the items, and its mean over all pairs of items?",
        "In the denominator each grade of the first is paired with each grade of the second: N² pairs.",
    ),
)
def costs(sub, draw):
    "Grades without gaps."
    a, b = grades(draw, 7)
    want = slowly(a, b)
    pool = torch.cat([a, b]).double()
    absolute = (a - b).abs().double().mean() / (a[:, None] - b[None]).abs().double().mean()
    expect(
        sub.weighted_kappa(a, b),
        want,
        what="the weighted κ",
        given={"a": a, "b": b},
        mistakes={
            "all differences have the same cost: this is Cohen's κ": unweighted(a, b),
            "the difference is not squared": 1 - absolute,
            "the denominator pools the grades of both annotators": 1
            - ((a - b) ** 2).double().mean() / ((pool[:, None] - pool) ** 2).mean(),
            "this is the ratio of the costs, not 1 minus it": 1 - want,
            "the denominator ignores the difference of the two means": 1
            - ((a - b) ** 2).double().mean() / (a.double().var(unbiased=False) + b.double().var(unbiased=False)),
            "the denominator leaves out pairs of an item with itself": 1
            - (1 - want) * (len(a) - 1) / (len(a) - (1 - want)),
            "this is a correlation, which ignores that one annotator grades higher": float(
                torch.corrcoef(torch.stack([a, b]).double())[0, 1]
            ),
        },
    )
    place, size = draw.integer(0, 9), 500
    rare, rarer = (torch.where(torch.arange(size) < place + k, 1, 0) for k in (1, 2))  # nearly all grades are 0
    for x, y, of_what in ((7 * a, 7 * b, "of grades up to 28"), (rare, rarer, "of grades that seldom differ")):
        within, between = ((x - y) ** 2).double().mean(), ((x[:, None] - y) ** 2).double().mean()
        given = {"a": x, "b": y}
        expect(sub.aside.weighted_kappa(x, y), 1 - within / between, what=f"the weighted κ {of_what}", given=given)


@test(
    points=2,
    hints=(
        "Which items have a grade from both? All other items belong in neither mean.",
        "Select the items where both grades are at least 0, and compute both means from these alone.",
    ),
)
def gaps(sub, draw):
    "Items that one annotator did not grade are left out."
    a, b = grades(draw, 8)
    a[3], b[5] = -1, -1
    given = {"a": a, "b": b}
    zeros = slowly(a.clamp(min=0), b.clamp(min=0))
    both = (a >= 0) & (b >= 0)
    of_all = ((a[a >= 0][:, None] - b[b >= 0]) ** 2).double().mean()
    loose = 1 - ((a - b)[both] ** 2).double().mean() / of_all
    raw = 1 - ((a - b) ** 2).double().mean() / ((a[:, None] - b[None]) ** 2).double().mean()
    expect(
        sub.weighted_kappa(a, b),
        slowly(a, b),
        what="the weighted κ with gaps",
        given=given,
        mistakes={
            "a missing grade is read as 0": zeros,
            "a missing grade is read as −1": raw,
            "only the gaps of the first annotator are left out": of_one(a, b),
            "only the gaps of the second annotator are left out": of_one(b, a),
            "the denominator contains grades of items that the other annotator did not grade": loose,
        },
    )


@test(
    points=1,
    hints=(
        "When is the denominator zero or empty?",
        "Return NaN if no item has both grades, and if every grade of the first equals every grade of the second.",
    ),
)
def nothing_to_say(sub, draw):
    "NaN where κ is undefined."
    same = draw.integer(1, 4)
    cases = {
        "no item has both grades": ([1, -1, 2], [-1, 3, -1]),
        "all grades are the same": ([same] * 3, [same] * 3),
    }
    for why, (a, b) in cases.items():
        found = sub.weighted_kappa(torch.tensor(a), torch.tensor(b))
        if not math.isnan(float(found)):
            fail(f"{why}: expected NaN", a=a, b=b, yours=float(found))
    # where one annotator gives the same grade to all, both costs are equal
    for a, b in (([same], [same - 1]), ([same] * 3, [0, same, 4]), ([4, same, 0], [same] * 3)):
        found = sub.aside.weighted_kappa(torch.tensor(a), torch.tensor(b))
        expect(found, 0.0, what="the weighted κ", given={"a": a, "b": b})


# %% [edges]
# nothing_to_say: an item with itself included
# nothing_to_say: no difference between any two of them
# nothing_to_say: no item with both grades


# %% [probes]
# no values: grades are whole numbers
# no gradient: grades have none


# %% [mutant] Cohen's own
# caught by: costs
# says: Cohen's κ
def weighted_kappa(a, b):
    both = (a >= 0) & (b >= 0)
    a, b = a[both], b[both]
    if len(a) == 0 or bool((a[:, None] == b).all()):
        return torch.tensor(float("nan"))
    return 1 - (a != b).double().mean() / (a[:, None] != b).double().mean()


# %% [mutant] absolute differences
# caught by: costs
# says: not squared
def weighted_kappa(a, b):
    both = (a >= 0) & (b >= 0)
    a, b = a[both].double(), b[both].double()
    expected = (a[:, None] - b).abs().mean()
    return 1 - (a - b).abs().mean() / expected if len(a) and float(expected) else torch.tensor(float("nan"))


# %% [mutant] a gap is a zero
# caught by: gaps
# says: read as 0
def weighted_kappa(a, b):
    a, b = a.clamp(min=0).double(), b.clamp(min=0).double()
    return 1 - ((a - b) ** 2).mean() / ((a[:, None] - b) ** 2).mean()


# %% [mutant] nothing to divide by
# caught by: nothing_to_say
# says: expected NaN
def weighted_kappa(a, b):
    both = (a >= 0) & (b >= 0)
    a, b = a[both].double(), b[both].double()
    if len(a) == 0:
        return torch.tensor(float("nan"))
    expected = ((a[:, None] - b) ** 2).mean()
    return 1 - ((a - b) ** 2).mean() / expected if float(expected) else torch.tensor(1.0)


# %% [mutant] NaN where one of them always gives the same grade
# caught by: nothing_to_say
def weighted_kappa(a, b):
    both = (a >= 0) & (b >= 0)
    a, b = a[both].double(), b[both].double()
    if len(a) == 0 or len(a.unique()) == 1 or len(b.unique()) == 1:
        return torch.tensor(float("nan"))
    return 1 - ((a - b) ** 2).mean() / ((a[:, None] - b[None, :]) ** 2).mean()


# %% [partial] 4: NaN is forgotten
def weighted_kappa(a, b):
    both = (a >= 0) & (b >= 0)
    a, b = a[both].double(), b[both].double()
    if len(a) == 0:
        return torch.tensor(0.0)
    expected = ((a[:, None] - b) ** 2).mean()
    return 1 - ((a - b) ** 2).mean() / expected.clamp(min=1e-9)
