# ---
# title: What a step is worth
# kind: numeric
# minutes: 15
# ---

# %% [statement]
# With $n$ steps of thought a model is right with probability $p(n)$. `table(STUDENT)` gives $p(0), p(1), \dots, p(10)$, the number of steps $m$ that the prompt asks for, and a price $\alpha$. The model may take any number of steps from 0 to 10, and training
# finds the best number there is, not only the best among its neighbours.
#
# 1. `taken`: how many steps it takes if the reward is $c - \alpha\,|m - n|$, where $c$ is 1 for a right answer and 0 for a wrong one.
# 2. `dear`: how many it takes if the price is $2\alpha$.
# 3. `kept`: the smallest price at which it takes exactly $m$ (where two numbers of steps earn the same, it does as it was asked). Three digits behind the point.
# 4. `within`: how many steps it takes if the reward is $c\cdot\mathrm{clip}\big(0.25\,(m + 4 - n) + 0.6,\,0,\,1\big)$: the limit is $m + 4$ then.
# 5. `earned`: its mean reward then. Three digits.

# %% [given]
import math

from minirlhf.ledger.registry import Draw


def table(student):
    """p of 0 to 10 steps, the number that is asked for, and the price."""
    for attempt in range(2000):
        draw = Draw("16.4", student, attempt)
        top, middle, steep = (
            0.9 + 0.01 * draw.integer(0, 8),
            3.6 + 0.2 * draw.integer(0, 9),
            0.9 + 0.1 * draw.integer(0, 6),
        )
        p = [round(0.25 + (top - 0.25) / (1 + math.exp(-steep * (n - middle))), 3) for n in range(11)]
        m, price = draw.integer(1, 2), 0.06 + 0.01 * draw.integer(0, 3)
        worth = sorted((x - price * abs(m - n) for n, x in enumerate(p)), reverse=True)
        factors = [0.25 * (m + 4 - n) + 0.6 for n in range(11)]
        shaped = sorted((x * min(1, max(0, f)) for x, f in zip(p, factors, strict=True)), reverse=True)
        loose = sorted((x * f for x, f in zip(p, factors, strict=True)), reverse=True)
        slopes = sorted(((p[n] - p[m]) / (n - m) for n in range(m + 1, 11)), reverse=True)
        longest = max(range(11), key=lambda n: p[n] - price * abs(m - n))
        gains = [p[n + 1] - p[n] for n in range(10)]
        if (
            min(worth[0] - worth[1], shaped[0] - shaped[1], loose[0] - shaped[0]) > 0.01
            and shaped[0] not in p
            and slopes[0] - slopes[1] > 0.003
            and longest > m + 1
            and m + 4 not in (longest, max(range(11), key=lambda n: p[n] * min(1, max(0, factors[n]))))
            and slopes[0] > (p[longest] - p[m]) / (longest - m)
            and price - gains[m] > 0.005
            and slopes[0] + 0.005 < 2 * price < max(gains) - 0.005
        ):
            break  # the best numbers stand out, the clip matters, no neighbour of m is worth its price; at twice the price m is the best, though some step gains more
    return p, m, price


# %% [stub]
print(table(STUDENT))

taken = None
dear = None
kept = None
within = None
earned = None

# %% [solution]
p, m, price = table(STUDENT)
taken = max(range(11), key=lambda n: p[n] - price * abs(m - n))
dear = max(range(11), key=lambda n: p[n] - 2 * price * abs(m - n))
kept = max((p[n] - p[m]) / abs(n - m) for n in range(11) if n != m)
shaped = [x * min(1, max(0, 0.25 * (m + 4 - n) + 0.6)) for n, x in enumerate(p)]
earned = max(shaped)
within = shaped.index(earned)

# %% [tests]
from minirlhf.classroom.testing import expect, test


def worth(student, price):
    """Mean rewards of 0 to 10 steps at a price."""
    p, m, _ = table(student)
    return [x - price * abs(m - n) for n, x in enumerate(p)]


def best(values):
    return float(max(range(len(values)), key=lambda n: values[n]))


def clipped(student):
    p, m, _ = table(student)
    factors = [0.25 * (m + 4 - n) + 0.6 for n in range(11)]
    return [x * (0.0 if f < 0 else 1.0 if f > 1 else f) for x, f in zip(p, factors, strict=True)]


@test(
    points=1,
    rounds=1,
    hints=(
        "Write down the mean reward of every number of steps.",
        "p(n) − α|m − n|; the mean of c is p(n). Take the largest of the eleven.",
    ),
)
def overspends(sub, draw):
    "`taken` is the best number of steps."
    p, m, price = table(sub.student)
    want = best(worth(sub.student, price))
    expect(
        sub.number("taken"), want, what="`taken`", reveal=False,
        mistakes={
            "only the neighbours of m are looked at (they are not worth their price, but a number further away is)": float(m),
            "the price is forgotten (with so many steps it is most often right, but steps cost something)": best(p),
        },
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=(
        "The eleven mean rewards again, with 2α for α.",
        "A step that gains more than its price can come too late: those before it have to be paid as well.",
    ),
)
def at_twice_the_price(sub, draw):
    "`dear` is the best number at twice the price."
    p, _, price = table(sub.student)
    want = best(worth(sub.student, 2 * price))
    others = {
        "every step is charged, those up to m as well": best([x - 2 * price * n for n, x in enumerate(p)]),
        "the last step that gains more than its price is taken (those before it cost more than they gain)": float(
            max(n for n in range(1, 11) if p[n] - p[n - 1] > 2 * price)
        ),
        "the price of the first part is used": best(worth(sub.student, price)),
        "the price is forgotten (with so many steps it is most often right, but steps cost something)": best(p),
    }
    expect(
        sub.number("dear"), want, what="`dear`", reveal=False,
        mistakes={say: x for say, x in others.items() if x != want},
    )  # fmt: skip


@test(
    points=2,
    rounds=1,
    hints=(
        "For each other number of steps: at which price does it earn as much as m?",
        "At (p(n) − p(m))/|n − m|. The price has to be as large as the largest of these.",
    ),
)
def obeys(sub, draw):
    "`kept` is the smallest price at which it obeys."
    p, m, at = table(sub.student)
    taken = int(best(worth(sub.student, at)))
    low, high = 0.0, 1.0
    for _ in range(60):  # the asked number is best at every price above
        price = (low + high) / 2
        found = worth(sub.student, price)
        low, high = (low, price) if max(found) <= found[m] + 1e-12 else (price, high)
    expect(
        sub.number("kept"), high, what="`kept`", tolerance=6e-4, reveal=False,
        mistakes={
            "it is kept from the number of the first part alone (just above that price another one earns more)": (p[taken] - p[m]) / (taken - m),
            "it is kept from the next step alone (a number further away earns more)": p[m + 1] - p[m],
            "all the steps together are priced, not each": max(p) - p[m],
            "the largest gain of a single step is taken, which does not begin at m": max(b - a for a, b in zip(p, p[1:], strict=False)),
        },
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=(
        "The clip multiplies, and is below 1 before the limit is reached.",
        "Eleven products: p(n) times clip(0.25(m + 4 − n) + 0.6, 0, 1).",
    ),
)
def within_limit(sub, draw):
    "`within` is the best number at most."
    p, m, price = table(sub.student)
    want = best(clipped(sub.student))
    loose = [x * (0.25 * (m + 4 - n) + 0.6) for n, x in enumerate(p)]
    short = [x * min(1.0, max(0.0, 0.25 * (m - n) + 0.6)) for n, x in enumerate(p)]
    others = {
        "the limit in the factor is m, where the limit is m + 4": best(short),
        "the clip is forgotten, so that the factor grows above 1": best(loose),
        "the number that the first parts ask for is given (here the limit is m + 4)": float(m),
        "the limit itself is given, as if near the limit the factor were not below 1": float(m + 4),
        "the reward of the first part is used": best(worth(sub.student, price)),
    }
    expect(
        sub.number("within"), want, what="`within`", reveal=False,
        mistakes={say: x for say, x in others.items() if x != want},
    )  # fmt: skip


@test(points=1, rounds=1, hints=("The mean of c at that number of steps, times …", "p(n) times the clipped factor."))
def mean_reward(sub, draw):
    "`earned` is the mean reward."
    p, m, _ = table(sub.student)
    values = clipped(sub.student)
    loose = [x * (0.25 * (m + 4 - n) + 0.6) for n, x in enumerate(p)]
    expect(
        sub.number("earned"), max(values), what="`earned`", tolerance=6e-4, reveal=False,
        mistakes={"the factor is left out": p[int(best(values))], "the clip is forgotten, so that the factor grows above 1": max(loose)},
    )  # fmt: skip


# %% [mutant] one step at a time
# caught by: overspends
# says: further away
p, m, price = table(STUDENT)
taken = m


# %% [mutant] as right as it can be
# caught by: overspends
# says: steps cost something
p, m, price = table(STUDENT)
taken = p.index(max(p))


# %% [mutant] the last step that gains more than its price
# caught by: at_twice_the_price
# says: those before it
p, m, price = table(STUDENT)
taken, dear = (max(n for n in range(1, 11) if p[n] - p[n - 1] > price * k) for k in (1, 2))


# %% [mutant] the same at twice the price
# caught by: at_twice_the_price
# says: the price of the first part
p, m, price = table(STUDENT)
dear = taken


# %% [mutant] the next step
# caught by: obeys
# says: next step alone
p, m, price = table(STUDENT)
kept = p[m + 1] - p[m]


# %% [mutant] the number of the first part
# caught by: obeys
# says: first part alone
p, m, price = table(STUDENT)
kept = (p[taken] - p[m]) / (taken - m)


# %% [mutant] the largest single gain
# caught by: obeys
# says: does not begin at m
p, m, price = table(STUDENT)
kept = max(b - a for a, b in zip(p, p[1:], strict=False))


# %% [mutant] the limit of the first parts
# caught by: within_limit
# says: limit is m + 4
p, m, price = table(STUDENT)
within = m


# %% [mutant] the limit of the first parts, in the formula
# caught by: within_limit
# says: limit is m + 4
p, m, price = table(STUDENT)
shaped = [x * min(1, max(0, 0.25 * (m - n) + 0.6)) for n, x in enumerate(p)]
within = shaped.index(max(shaped))


# %% [mutant] up to the limit
# caught by: within_limit
# says: near the limit
p, m, price = table(STUDENT)
within = m + 4


# %% [mutant] every step costs
# caught by: at_twice_the_price
# says: every step is charged
p, m, price = table(STUDENT)
dear = max(range(11), key=lambda n: p[n] - 2 * price * n)


# %% [mutant] no clip
# caught by: mean_reward
# says: clip is forgotten
p, m, price = table(STUDENT)
earned = max(x * (0.25 * (m + 4 - n) + 0.6) for n, x in enumerate(p))


# %% [mutant] the factor forgotten
# caught by: mean_reward
# says: factor is left out
p, m, price = table(STUDENT)
earned = p[within]


# %% [partial] 1: the first only
p, m, price = table(STUDENT)
dear, kept, within, earned = 10, 0.0, 10, 0.0
