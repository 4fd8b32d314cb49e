# ---
# title: Reading a swap test
# kind: numeric
# minutes: 5
# ---

# %% [statement]
# A judge compared pairs of completions, each pair in both presentation orders, and annotators know which completion of each pair is better. `counts(STUDENT)` gives four numbers of pairs: both orders named the better completion (`right`), both named the worse
# one (`wrong`), the first position won twice (`first`), the second position won twice (`second`). Answer to three digits after the decimal point.
#
# 1. `single`: the fraction of all verdicts (two for each pair) that name the better completion.
# 2. `passing`: the fraction of pairs that pass the swap test.
# 3. `trusted`: the fraction of the passing pairs on which the judge is right.
# 4. `place`: the fraction of all verdicts that name the completion shown first.

# %% [given]
from minirlhf_course.ledger.registry import Draw


def counts(student):
    """Numbers of pairs by the verdicts of the two orders: right, wrong, first, second."""
    draw = Draw("15.1", student)
    return {
        "right": 80 + draw.integer(0, 30),
        "wrong": 20 + draw.integer(0, 15),
        "first": 60 + draw.integer(0, 25),
        "second": 5 + draw.integer(0, 9),
    }


# %% [stub]
print(counts(STUDENT))

single = None
passing = None
trusted = None
place = None

# %% [solution]
n = counts(STUDENT)
pairs = sum(n.values())
single = (2 * n["right"] + n["first"] + n["second"]) / (2 * pairs)
passing = (n["right"] + n["wrong"]) / pairs
trusted = n["right"] / (n["right"] + n["wrong"])
place = (n["right"] + n["wrong"] + 2 * n["first"]) / (2 * pairs)

# %% [tests]
from minirlhf_course.classroom.testing import expect, test


def verdicts(student):
    """Two verdicts for each pair: (names the better completion, names the first position), with the better completion shown first and then second."""
    told = {
        "right": [(True, True), (True, False)],
        "wrong": [(False, False), (False, True)],
        "first": [(True, True), (False, True)],
        "second": [(False, False), (True, False)],
    }
    return [told[kind] for kind, count in counts(student).items() for _ in range(count)]


def share(values):
    values = list(values)
    return sum(values) / len(values)


@test(
    points=1,
    rounds=1,
    hints=(
        "Where the first position wins twice, how many of the two verdicts name the better completion?",
        "One of two, and the same where the second position wins twice.",
    ),
)
def one_order(sub, draw):
    "`single` is the accuracy of a single verdict."
    n = counts(sub.student)
    total = sum(n.values())
    expect(
        sub.number("single"), share(better for pair in verdicts(sub.student) for better, _ in pair), what="`single`", tolerance=6e-4, reveal=False,
        mistakes={
            "pairs on which the orders disagree also contain right verdicts": n["right"] / total,
            "where one position wins twice, only half of the verdicts name the better completion": (n["right"] + n["first"]) / total if n["first"] != n["second"] else -1.0,
            "this leaves out the pairs on which the orders disagree": n["right"] / (n["right"] + n["wrong"]),
        },
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=("A pair passes if both orders name the same completion.", "This may be the worse completion, both times."),
)
def swap(sub, draw):
    "`passing` is the fraction of pairs that pass."
    n = counts(sub.student)
    pairs = verdicts(sub.student)
    expect(
        sub.number("passing"), share(a[0] == b[0] for a, b in pairs), what="`passing`", tolerance=6e-4, reveal=False,
        mistakes={
            "a pair also passes where both orders name the worse completion": n["right"] / len(pairs),
            "where one position wins twice, the two verdicts name different completions": (n["first"] + n["second"]) / len(pairs),
        },
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=("Of which pairs is it a fraction?", "It is the number right, divided by right and wrong together."),
)
def trust(sub, draw):
    "`trusted` is the accuracy on the pairs that pass."
    n = counts(sub.student)
    passing = [a[0] for a, b in verdicts(sub.student) if a[0] == b[0]]
    expect(
        sub.number("trusted"), share(passing), what="`trusted`", tolerance=6e-4, reveal=False,
        mistakes={"this is a fraction of all pairs": n["right"] / sum(n.values())},
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=(
        "Where both orders name the same completion, how often does the first position win?",
        "Once in two verdicts. Where the first position wins twice, it wins both.",
    ),
)
def first_place(sub, draw):
    "`place` is the fraction of verdicts for the first position."
    n = counts(sub.student)
    expect(
        sub.number("place"), share(first for pair in verdicts(sub.student) for _, first in pair), what="`place`", tolerance=6e-4, reveal=False,
        mistakes={
            "where both orders agree, one of the two verdicts is for the first position": n["first"] / sum(n.values()),
            "this is a fraction of the pairs that fail": n["first"] / (n["first"] + n["second"]),
        },
    )  # fmt: skip


# %% [mutant] only pairs that pass are right
# caught by: one_order
# says: also contain right verdicts
n = counts(STUDENT)
single = n["right"] / sum(n.values())


# %% [mutant] passing means right
# caught by: swap
# says: name the worse completion
n = counts(STUDENT)
passing = n["right"] / sum(n.values())


# %% [mutant] of all pairs
# caught by: trust
# says: of all pairs
n = counts(STUDENT)
trusted = n["right"] / sum(n.values())


# %% [mutant] first twice
# caught by: first_place
# says: one of the two verdicts
n = counts(STUDENT)
place = n["first"] / sum(n.values())


# %% [partial] 2: the two in the middle
single, place = 0.0, 0.0
