# ---
# title: More items, or more completions?
# kind: derive
# minutes: 20
# ---

# %% [statement]
# Two models answer $n$ items, $K$ times each, and no seeds are varied ($S = 1$, $\tau^2 = 0$): by the chapter's formula the measured difference has the variance $(\omega^2 + \sigma^2/K)/n$. There $\sigma^2$ is the variance of the
# difference of *two* completions, one of each model. The costs are therefore per pair: a new item costs $a$ (a person must write it), and each **pair** of completions, one of each model, costs $b$. So an item with its $K$ pairs costs $a + bK$,
# and the budget $B$ sets $n$: $n\,(a + bK) = B$. $n$ and $K$ are real numbers.
#
# 1. `replies(item, reply, cost_item, cost_reply)`: the $K$ with the smallest variance, for $\omega^2$ = `item`, $\sigma^2$ = `reply`, $a$ = `cost_item` and $b$ = `cost_reply`, all above 0. If the best $K$ is below 1, return 1: an item
#    needs a completion.
# 2. `variance(item, reply, cost_item, cost_reply, budget)`: the variance at that $K$.
# 3. `worth(item, reply, cost_item, cost_reply)`: the factor by which the budget must grow to reach the same variance with $K = 1$. (1 if $K = 1$ is best.)

# %% [given]
import math


# %% [stub]
def replies(item, reply, cost_item, cost_reply):
    """The best number of pairs of completions for each item, a real number of at least 1. cost_reply is the price of a pair."""
    raise NotImplementedError


def variance(item, reply, cost_item, cost_reply, budget):
    """The variance of the difference with that many pairs of completions."""
    raise NotImplementedError


def worth(item, reply, cost_item, cost_reply):
    """The budget with one pair of completions for each item over the budget with the best number, at equal variance."""
    raise NotImplementedError


# %% [solution]
def replies(item, reply, cost_item, cost_reply):
    return max(1.0, math.sqrt(reply * cost_item / (item * cost_reply)))


def variance(item, reply, cost_item, cost_reply, budget):
    k = replies(item, reply, cost_item, cost_reply)
    return (item + reply / k) * (cost_item + cost_reply * k) / budget


def worth(item, reply, cost_item, cost_reply):
    single = (item + reply) * (cost_item + cost_reply)
    return single / variance(item, reply, cost_item, cost_reply, 1.0)


# %% [tests]
from minirlhf_course.classroom.testing import expect, test


def prices(draw, many):
    """ω², σ², a, b; several completions are best, or one is."""
    item, reply = (round(float(draw.uniform(low=0.06, high=0.12)), 3), round(float(draw.uniform(low=0.1, high=0.4)), 3))
    cost = round(float(draw.uniform(low=4.0, high=20.0) if many else draw.uniform(low=0.01, high=0.02)), 4)
    return item, reply, cost, round(float(draw.uniform(low=0.3, high=0.7)), 2)


def at(k, item, reply, cost_item, cost_reply, budget=1.0):
    """The definition: what n items with k replies each have, where the budget says how many."""
    n = budget / (cost_item + cost_reply * k)
    return item / n + reply / (n * k)


def best(*numbers):
    """The lowest place of the definition at k of at least 1, by golden sections of log k."""
    low, high, ratio = 0.0, 10.0, (math.sqrt(5) - 1) / 2
    for _ in range(120):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, right) if at(math.exp(left), *numbers) < at(math.exp(right), *numbers) else (left, high)
    return math.exp((low + high) / 2) if low > 0 else 1.0


def shown(numbers):
    return dict(zip(("item", "reply", "cost_item", "cost_reply"), numbers, strict=True))


@test(
    points=2,
    against="a search among all K",
    hints=(
        "Insert n = B/(a + bK). The variance is a product of two sums: multiply it out.",
        "Only ω²bK + σ²a/K depends on K. Where is the derivative 0?",
    ),
)
def optimum(sub, draw):
    "`replies` minimises the variance, if more than one completion is best."
    item, reply, cost, cost_reply = prices(draw, many=True)
    for cost_item in (cost, 50 * cost):
        numbers = item, reply, cost_item, cost_reply
        right = best(*numbers)
        up = math.ceil(right)
        expect(
            sub.replies(*numbers),
            right,
            what="the number of completions",
            given=shown(numbers),
            tolerance=1e-5,
            mistakes={
                "the root is missing": reply * cost_item / (item * cost_reply),
                "the costs are exchanged": math.sqrt(reply * cost_reply / (item * cost_item)),
                "the variances are exchanged": math.sqrt(item * cost_item / (reply * cost_reply)),
                "the costs are missing": math.sqrt(reply / item),
                "that spends the same amount on completions as on items": cost_item / cost_reply,
                "b is used as the price of one completion; it is the price of a pair": right / math.sqrt(2),
                "K is rounded; it is a real number here": float(round(right)),
                **({"K is rounded up; it is a real number here": float(up)} if up != round(right) else {}),
                "1 is added; 1 is the smallest K, not an offset": 1 + right,
            },
        )


@test(points=1, hints=("What if completions are expensive and items cheap?", "Never return less than 1."))
def at_least_one(sub, draw):
    "`replies` is 1 where items are cheap."
    numbers = prices(draw, many=False)
    item, reply, cost_item, cost_reply = numbers
    free = math.sqrt(reply * cost_item / (item * cost_reply))
    expect(
        sub.replies(*numbers),
        1.0,
        what="the number of completions",
        given=shown(numbers),
        mistakes={"K is below 1; an item needs a completion": free},
    )


@test(
    points=1,
    against="a search among all K",
    hints=("Which n does the budget allow at that K?", "n = B/(a + bK), and the variance is (ω² + σ²/K)/n."),
)
def lowest(sub, draw):
    "`variance` is the variance at the best K."
    for many in (True, False):
        numbers, budget = prices(draw, many), 100.0 + draw.integer(1, 400)
        item, reply, cost_item, cost_reply = numbers
        k = best(*numbers)
        n = budget / (cost_item + cost_reply * k)
        root = math.sqrt(item * cost_item) + math.sqrt(reply * cost_reply)
        expect(
            sub.variance(*numbers, budget),
            at(k, *numbers, budget),
            what="the variance",
            given=shown(numbers) | {"budget": budget},
            tolerance=1e-7,  # the variances are small
            mistakes={
                "K is below 1; if one completion is best, the formula of the best K does not hold": root**2 / budget,
                "n is rounded down; it is a real number here": (item + reply / k)
                / (budget // (cost_item + cost_reply * k)),
                "the items cost nothing": (item + reply / k) * cost_reply * k / budget,
                "the completions cost nothing": (item + reply / k) * cost_item / budget,
                "b is used as the price of one completion; it is the price of a pair": (item + reply / k)
                * (cost_item + 2 * cost_reply * k)
                / budget,
                "the variance between items is divided by K as well; completions do not reduce it": (item + reply)
                / (n * k),
                "it is not divided by the number of items": item + reply / k,
            },
        )


@test(
    points=1,
    against="a search among all K",
    hints=(
        "The variance falls as 1/B. What follows for two plans with the same variance?",
        "The ratio of the two variances at equal budgets.",
    ),
)
def ratio(sub, draw):
    "`worth` is the factor of the budget with single completions."
    for many in (True, False):
        numbers = prices(draw, many)
        item, reply, cost_item, cost_reply = numbers
        k = best(*numbers)
        right = at(1.0, *numbers) / at(k, *numbers)
        free = (math.sqrt(item * cost_item) + math.sqrt(reply * cost_reply)) ** 2
        expect(
            sub.worth(*numbers),
            right,
            what="the factor",
            given=shown(numbers),
            tolerance=1e-5,
            mistakes={
                "it is upside down": 1 / right,
                "a root is taken, as of a standard error": math.sqrt(right),
                "that is the saved fraction": 1 - 1 / right,
                "K is below 1; one completion is best here": at(1.0, *numbers) / free,
                "the two plans have the same number of items; they should have equal budgets": (item + reply)
                / (item + reply / k),
                "that is the ratio of the costs per item; the variances differ too": (cost_item + cost_reply * k)
                / (cost_item + cost_reply),
            },
        )


# %% [probes]
# no gradient: numbers are asked for
# no values: two of the numbers can be varied until the other rule holds, which at_least_one asks


# %% [mutant] the root is missing
# caught by: optimum
# says: the root is missing
def replies(item, reply, cost_item, cost_reply):
    return max(1.0, reply * cost_item / (item * cost_reply))


# %% [mutant] costs exchanged
# caught by: optimum
def replies(item, reply, cost_item, cost_reply):
    return max(1.0, math.sqrt(reply * cost_reply / (item * cost_item)))


# %% [mutant] less than one completion
# caught by: at_least_one
# says: an item needs a completion
def replies(item, reply, cost_item, cost_reply):
    return math.sqrt(reply * cost_item / (item * cost_reply))


# %% [mutant] items cost nothing
# caught by: lowest
# says: the items cost nothing
def variance(item, reply, cost_item, cost_reply, budget):
    k = replies(item, reply, cost_item, cost_reply)
    return (item + reply / k) * cost_reply * k / budget


# %% [mutant] upside down
# caught by: ratio
# says: upside down
def worth(item, reply, cost_item, cost_reply):
    single = (item + reply) * (cost_item + cost_reply)
    return variance(item, reply, cost_item, cost_reply, 1.0) / single


# %% [partial] 3: the number of completions
def variance(item, reply, cost_item, cost_reply, budget):
    raise NotImplementedError


def worth(item, reply, cost_item, cost_reply):
    raise NotImplementedError
