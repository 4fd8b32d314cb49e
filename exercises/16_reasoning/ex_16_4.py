# ---
# title: The optimal length at a price
# kind: numeric
# minutes: 15
# ---

# %% [statement]
# With $n$ steps of thought a model is right with probability $p(n)$; with very many steps accuracy falls again. `table(STUDENT)` gives the list of $p(0), p(1), \dots$ up to the largest possible number of steps, a small number of steps $m$ that one prompt requests, a large one $M$
# that another prompt requests, a limit $L$ and a price $\alpha$. The model may take any number of steps in the list, and training finds the global optimum, not only the best among neighbours.
#
# 1. `taken`: the number of steps that it takes if $m$ is requested and the reward is $c - \alpha\,|m - n|$, where $c$ is 1 for a right answer and 0 for a wrong one.
# 2. `dear`: the number for the same prompt if the price is $2\alpha$.
# 3. `long`: the number if $M$ is requested instead, at the price $\alpha$.
# 4. `kept`: the smallest price at which it takes exactly $m$ when $m$ is requested (if two numbers of steps have the same reward, it takes the requested one). Three decimals.
# 5. `within`: the number of steps if the reward is $c\cdot\mathrm{clip}\big(0.25\,(L - n) + 0.6,\,0,\,1\big)$.
# 6. `earned`: its mean reward with the reward of part 5. Three decimals.

# %% [given]
from minirlhf_course.ledger.registry import Draw


def table(student):
    """p of 0, 1, … steps, the few and the many that are asked for, the limit, and the price."""
    draw = Draw("16.4", student)
    m, slow, more, late = draw.integer(1, 3), draw.integer(2, 3), draw.integer(2, 3), draw.integer(1, 2)
    # how many steps, and the least and the most that each changes p by, in thousandths
    parts = ((m + 1, 4, 7), (2, 150, 160), (slow, 18, 34), (more, 105, 112), (1, 8, 20), (late, -25, -8), (3, -80, -62))
    p = [draw.integer(50, 75) / 1000]
    for count, low, high in parts:
        for _ in range(count):
            p.append(round(p[-1] + draw.integer(low, high) / 1000, 3))
    return p, m, len(p) - 1 - draw.integer(0, 1), m + slow + 5, draw.integer(42, 48) / 1000


# %% [stub]
print(table(STUDENT))

taken = None
dear = None
long = None
kept = None
within = None
earned = None

# %% [solution]
p, m, many, limit, price = table(STUDENT)
taken = max(range(len(p)), key=lambda n: p[n] - price * abs(m - n))
dear = max(range(len(p)), key=lambda n: p[n] - 2 * price * abs(m - n))
long = max(range(len(p)), key=lambda n: p[n] - price * abs(many - n))
kept = max((p[n] - p[m]) / abs(n - m) for n in range(len(p)) if n != m)
shaped = [x * min(1, max(0, 0.25 * (limit - n) + 0.6)) for n, x in enumerate(p)]
earned = max(shaped)
within = shaped.index(earned)

# %% [tests]
from minirlhf_course.classroom.testing import expect, test


def worth(p, asked, price):
    """Mean rewards of all numbers of steps at a price."""
    return [x - price * abs(asked - n) for n, x in enumerate(p)]


def best(values):
    return float(max(range(len(values)), key=lambda n: values[n]))


def factors(p, limit):
    """What each number of steps is multiplied by, before the clip."""
    return [0.25 * (limit - n) + 0.6 for n in range(len(p))]


def clipped(p, limit):
    return [x * (0.0 if f < 0 else 1.0 if f > 1 else f) for x, f in zip(p, factors(p, limit), strict=True)]


FORGOTTEN = "the price is missing (this number of steps has the highest accuracy, but steps cost something)"
NEIGHBOURS = (
    "only the neighbours of m are compared (they gain less than they cost, but a number further away gains more)"
)


@test(
    points=1,
    rounds=1,
    hints=(
        "Write down the mean reward of every number of steps.",
        "p(n) − α|m − n|; the mean of c is p(n). Take the largest of them all.",
    ),
)
def overspends(sub, draw):
    "`taken` is the best number of steps."
    p, m, many, _, price = table(sub.student)
    expect(
        sub.number("taken"), best(worth(p, m, price)), what="`taken`", reveal=False,
        mistakes={
            NEIGHBOURS: float(m),
            FORGOTTEN: best(p),
            "M is used as the requested number; here m is requested": best(worth(p, many, price)),
            "the price of the second part is used": best(worth(p, m, 2 * price)),
        },
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=(
        "The same mean rewards again, with 2α for α.",
        "A step that gains more than its price can come too late: the steps before it cost their price as well.",
    ),
)
def at_twice_the_price(sub, draw):
    "`dear` is the best number at twice the price."
    p, m, _, _, price = table(sub.student)
    last = max(n for n in range(1, len(p)) if p[n] - p[n - 1] > 2 * price)
    expect(
        sub.number("dear"), best(worth(p, m, 2 * price)), what="`dear`", reveal=False,
        mistakes={
            NEIGHBOURS: float(m),
            "the price of the first part is used": best(worth(p, m, price)),
            "the last step that gains more than its price is taken (the steps before it cost more than they gain)": float(last),
            "every step costs the price here; only the distance from m should": best([x - 2 * price * n for n, x in enumerate(p)]),
            FORGOTTEN: best(p),
        },
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=(
        "The reward is the one of part 1, with M for m: too few steps cost as much as too many.",
        "The optimum lies between the number with the highest accuracy and M: each step below M costs the price.",
    ),
)
def asked_for_many(sub, draw):
    "`long` is the best number if many steps are requested."
    p, m, many, _, price = table(sub.student)
    want = best(worth(p, many, price))
    others = {
        "steps below M cost nothing here; they should cost the price": best(p),
        "it takes the requested number (so many steps lower the accuracy by more than leaving some out costs)": float(
            many
        ),
        "m is used as the requested number; here M is requested": best(worth(p, m, price)),
        "the price of the second part is used": best(worth(p, many, 2 * price)),
        "every step costs the price here; only the distance from M should": best(
            [x - price * n for n, x in enumerate(p)]
        ),
    }
    expect(
        sub.number("long"), want, what="`long`", reveal=False,
        mistakes={say: x for say, x in others.items() if x != want},
    )  # fmt: skip


@test(
    points=2,
    rounds=1,
    hints=(
        "For each other number of steps: at which price does it have the same reward as m?",
        "At (p(n) − p(m))/|n − m|. The price has to be as large as the largest of these.",
    ),
)
def obeys(sub, draw):
    "`kept` is the smallest price at which it takes the requested number."
    p, m, _, _, at = table(sub.student)
    taken = int(best(worth(p, m, at)))
    low, high = 0.0, 1.0
    for _ in range(60):  # the asked number is best at every price above
        price = (low + high) / 2
        found = worth(p, m, price)
        low, high = (low, price) if max(found) <= found[m] + 1e-12 else (price, high)
    expect(
        sub.number("kept"), high, what="`kept`", tolerance=6e-4, reveal=False,
        mistakes={
            "only the number of the first part alone is compared with m (just above that price another one has a higher reward)": (p[taken] - p[m]) / (taken - m),
            "only the next step alone is compared with m (a number further away has a higher reward)": p[m + 1] - p[m],
            "that is the gain of all steps together, not per step": max(p) - p[m],
            "the largest gain of a single step is taken, which does not begin at m": max(b - a for a, b in zip(p, p[1:], strict=False)),
        },
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=(
        "The clip multiplies, and is below 1 before the limit is reached.",
        "Products: p(n) times clip(0.25(L − n) + 0.6, 0, 1).",
    ),
)
def within_limit(sub, draw):
    "`within` is the best number with a limit."
    p, m, many, limit, price = table(sub.student)
    want = best(clipped(p, limit))
    others = {
        "the limit in the factor is m; the limit is L": best(clipped(p, m)),
        "the limit in the factor is M; the limit is L": best(clipped(p, many)),
        "the clip is missing, so the factor grows above 1": best(
            [x * f for x, f in zip(p, factors(p, limit), strict=True)]
        ),
        "that is the number requested in the first parts (here the limit is L)": float(m),
        "that is the limit itself; near the limit the factor is below 1": float(limit),
        "the reward of the first part is used": best(worth(p, m, price)),
        "the factor is taken as 1 for all numbers up to the limit": best(p[: limit + 1]),
    }
    expect(
        sub.number("within"), want, what="`within`", reveal=False,
        mistakes={say: x for say, x in others.items() if x != want},
    )  # fmt: skip


@test(points=1, rounds=1, hints=("The mean of c at that number of steps, times …", "p(n) times the clipped factor."))
def mean_reward(sub, draw):
    "`earned` is the mean reward."
    p, m, _, limit, _ = table(sub.student)
    values = clipped(p, limit)
    expect(
        sub.number("earned"), max(values), what="`earned`", tolerance=6e-4, reveal=False,
        mistakes={
            "the factor is missing": p[int(best(values))],
            "the clip is missing, so the factor grows above 1": max(x * f for x, f in zip(p, factors(p, limit), strict=True)),
            "that is the reward at the limit": 0.6 * p[limit],
            "that is the accuracy at the number requested in the first parts": p[m],
        },
    )  # fmt: skip


# %% [mutant] one step at a time
# caught by: overspends
# says: further away
p, m, many, limit, price = table(STUDENT)
taken = m


# %% [mutant] as right as it can be
# caught by: overspends
# says: steps cost something
p, m, many, limit, price = table(STUDENT)
taken = p.index(max(p))


# %% [mutant] the last step that gains more than its price
# caught by: at_twice_the_price
# says: the steps before it
p, m, many, limit, price = table(STUDENT)
dear = max(n for n in range(1, len(p)) if p[n] - p[n - 1] > 2 * price)


# %% [mutant] the same at twice the price
# caught by: at_twice_the_price
# says: the price of the first part
p, m, many, limit, price = table(STUDENT)
dear = taken


# %% [mutant] it obeys at twice the price
# caught by: at_twice_the_price
# says: only the neighbours
p, m, many, limit, price = table(STUDENT)
dear = m


# %% [mutant] only too many steps cost
# caught by: asked_for_many
# says: cost nothing
p, m, many, limit, price = table(STUDENT)
taken, dear, long = (
    max(range(len(p)), key=lambda n: p[n] - a * max(0, n - asked))
    for asked, a in ((m, price), (m, 2 * price), (many, price))
)


# %% [mutant] it obeys where many are asked for
# caught by: asked_for_many
# says: takes the requested number
p, m, many, limit, price = table(STUDENT)
long = many


# %% [mutant] the next step
# caught by: obeys
# says: next step alone
p, m, many, limit, price = table(STUDENT)
kept = p[m + 1] - p[m]


# %% [mutant] the number of the first part
# caught by: obeys
# says: first part alone
p, m, many, limit, price = table(STUDENT)
kept = (p[taken] - p[m]) / (taken - m)


# %% [mutant] the largest single gain
# caught by: obeys
# says: does not begin at m
p, m, many, limit, price = table(STUDENT)
kept = max(b - a for a, b in zip(p, p[1:], strict=False))


# %% [mutant] the limit of the first parts
# caught by: within_limit
# says: limit is L
p, m, many, limit, price = table(STUDENT)
within = m


# %% [mutant] the limit of the first parts, in the formula
# caught by: within_limit
# says: limit is L
p, m, many, limit, price = table(STUDENT)
shaped = [x * min(1, max(0, 0.25 * (m - n) + 0.6)) for n, x in enumerate(p)]
within = shaped.index(max(shaped))


# %% [mutant] up to the limit
# caught by: within_limit
# says: near the limit
p, m, many, limit, price = table(STUDENT)
within = limit


# %% [mutant] every step costs
# caught by: at_twice_the_price
# says: every step costs the price
p, m, many, limit, price = table(STUDENT)
dear = max(range(len(p)), key=lambda n: p[n] - 2 * price * n)


# %% [mutant] no clip
# caught by: mean_reward
# says: clip is missing
p, m, many, limit, price = table(STUDENT)
earned = max(x * (0.25 * (limit - n) + 0.6) for n, x in enumerate(p))


# %% [mutant] the factor forgotten
# caught by: mean_reward
# says: factor is missing
p, m, many, limit, price = table(STUDENT)
earned = p[within]


# %% [partial] 1: the first only
p, m, many, limit, price = table(STUDENT)
dear, long, kept, within, earned = 0, 0, 0.0, 0, 0.0
