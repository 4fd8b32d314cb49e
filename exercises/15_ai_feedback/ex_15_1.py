# ---
# title: Reading a swap test
# kind: numeric
# minutes: 5
# ---

# %% [statement]
# A judge was asked about pairs of replies, each pair in both orders, and people know which reply of each pair is better. `counts(STUDENT)` gives four numbers of pairs: those where both orders named the better reply (`right`), where both named the worse
# one (`wrong`), where the first place won twice (`first`), and where the second place won twice (`second`). Answer to three digits behind the point.
#
# 1. `single`: the share of all verdicts (two for each pair) that name the better reply.
# 2. `passing`: the share of pairs that pass the swap test.
# 3. `trusted`: the share of the passing pairs on which the judge is right.
# 4. `place`: the share of all verdicts that name the reply shown first.

# %% [given]
from minirlhf_course.ledger.registry import Draw


def counts(student):
    """Pairs by what the two orders said: right, wrong, first, second."""
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
    """Two verdicts for each pair: (names the better reply, names the first place), the better reply shown first and then second."""
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
        "Where the first place wins twice, how many of the two verdicts name the better reply?",
        "One of two, and the same where the second place wins twice.",
    ),
)
def one_order(sub, draw):
    "`single` is the accuracy of a single verdict."
    n = counts(sub.student)
    total = sum(n.values())
    expect(
        sub.number("single"), share(better for pair in verdicts(sub.student) for better, _ in pair), what="`single`", tolerance=6e-4, reveal=False,
        mistakes={
            "it is forgotten that pairs on which the orders disagree hold right verdicts, too": n["right"] / total,
            "it is forgotten that only half of the verdicts for a place name the better reply": (n["right"] + n["first"]) / total if n["first"] != n["second"] else -1.0,
            "that leaves out the pairs on which the orders disagree": n["right"] / (n["right"] + n["wrong"]),
        },
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=("A pair passes where both orders name the same reply.", "It may be the worse reply, both times."),
)
def swap(sub, draw):
    "`passing` is the share of pairs that pass."
    n = counts(sub.student)
    pairs = verdicts(sub.student)
    expect(
        sub.number("passing"), share(a[0] == b[0] for a, b in pairs), what="`passing`", tolerance=6e-4, reveal=False,
        mistakes={
            "it is forgotten that a pair also passes where both orders name the worse reply": n["right"] / len(pairs),
            "it is forgotten that where a place wins twice the replies named are not the same": (n["first"] + n["second"]) / len(pairs),
        },
    )  # fmt: skip


@test(points=1, rounds=1, hints=("Of which pairs is it a share?", "Right divided by right and wrong together."))
def trust(sub, draw):
    "`trusted` is the accuracy on the pairs that pass."
    n = counts(sub.student)
    passing = [a[0] for a, b in verdicts(sub.student) if a[0] == b[0]]
    expect(
        sub.number("trusted"), share(passing), what="`trusted`", tolerance=6e-4, reveal=False,
        mistakes={"that is a share of all pairs": n["right"] / sum(n.values())},
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=(
        "Where both orders name the same reply, how often does the first place win?",
        "Once in two verdicts. Where the first place wins twice, twice.",
    ),
)
def first_place(sub, draw):
    "`place` is the share of verdicts for the first place."
    n = counts(sub.student)
    expect(
        sub.number("place"), share(first for pair in verdicts(sub.student) for _, first in pair), what="`place`", tolerance=6e-4, reveal=False,
        mistakes={
            "it is forgotten that where both orders agree, one of the two verdicts is for the first place": n["first"] / sum(n.values()),
            "that is a share of the pairs that fail": n["first"] / (n["first"] + n["second"]),
        },
    )  # fmt: skip


# %% [mutant] only pairs that pass are right
# caught by: one_order
# says: hold right verdicts
n = counts(STUDENT)
single = n["right"] / sum(n.values())


# %% [mutant] passing means right
# caught by: swap
# says: name the worse reply
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
