# ---
# title: Two models, one test
# kind: numeric
# minutes: 5
# ---

# %% [statement]
# Two models have answered the same items. `table(STUDENT)` gives your numbers: the items that both solved, only A, only B, and neither.
#
# 1. `score`: A's score, with four decimals.
# 2. `difference`: A's score minus B's, likewise.
# 3. `tosses`: the number of items that the sign test uses.
# 4. `smallest`: a third model has solved *all* items of another test. What is the smallest number of items for which the lower end of Wilson's 95 % interval is at
#    least `wanted(STUDENT)`? A whole number; $z = 1.96$.

# %% [given]
from minirlhf_course.ledger.registry import Draw


def table(student):
    """(both, only A, only B, neither)"""
    draw = Draw("19.1", student)
    only_b = 10 + draw.integer(0, 5)
    return 100 + draw.integer(1, 30), only_b + 7 + draw.integer(0, 5), only_b, 41 + draw.integer(0, 20)


def wanted(student):
    """The lower end that is asked for."""
    return [0.85, 0.88, 0.9, 0.95, 0.97][Draw("19.1 wanted", student).integer(0, 4)]


# %% [stub]
print(table(STUDENT), wanted(STUDENT))

score = None
difference = None
tosses = None
smallest = None

# %% [solution]
import math

_both, _a, _b, _neither = table(STUDENT)
_n = _both + _a + _b + _neither
score = (_both + _a) / _n
difference = (_a - _b) / _n
tosses = _a + _b
smallest = math.ceil(1.96**2 * wanted(STUDENT) / (1 - wanted(STUDENT)))

# %% [tests]
import math

from minirlhf_course.classroom.testing import expect, test


@test(
    points=1,
    rounds=1,
    hints=(
        "Which items has A solved?",
        "The items that both solved, and the items that only A solved, divided by all items.",
    ),
)
def of_a(sub, draw):
    "`score` is the fraction of items that A solved."
    both, a, b, neither = table(sub.student)
    expect(
        sub.number("score"),
        (both + a) / (both + a + b + neither),
        what="`score`",
        tolerance=6e-5,
        reveal=False,
        mistakes={
            "the items that neither solved are left out": (both + a) / (both + a + b),
            "the items that both solved are left out": a / (both + a + b + neither),
            "that is B's score": (both + b) / (both + a + b + neither),
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Subtract the two scores.",
        "The items that both solved cancel; the items that one model alone solved remain.",
    ),
)
def of_both(sub, draw):
    "`difference` is A's score minus B's."
    both, a, b, neither = table(sub.student)
    expect(
        sub.number("difference"),
        (a - b) / (both + a + b + neither),
        what="`difference`",
        tolerance=6e-5,
        reveal=False,
        mistakes={
            "that is B's minus A's": (b - a) / (both + a + b + neither),
            "that is a fraction of the items on which the models differ, not of all items": (a - b) / (a + b),
        },
    )


@test(
    points=1,
    rounds=1,
    hints=("Which items carry information about which model is better?", "The items that one model alone has solved."),
)
def of_coins(sub, draw):
    "`tosses` counts the items on which the models differ."
    both, a, b, neither = table(sub.student)
    expect(
        sub.number("tosses"),
        float(a + b),
        what="`tosses`",
        reveal=False,
        mistakes={
            "all items are counted; items on which both models agree are not used": float(both + a + b + neither),
            "only the items that A alone solved are counted": float(a),
            "the items that both solved are counted too": float(both + a + b),
            "that is the difference of the two counts": float(a - b),
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "What remains of Wilson's equation if the fraction is 1?",
        "(1 − p)² = z² p (1 − p)/n: divide by 1 − p and solve for n.",
    ),
)
def enough(sub, draw):
    "`smallest` is the smallest number of items, all solved, with the wanted lower end."
    low, n = wanted(sub.student), 1
    while n / (n + 1.96**2) < low - 1e-12:
        n += 1
    wald, rule = round((1 - low) ** -1), round(3 / (1 - low))
    once = math.ceil(1.96 * low / (1 - low))
    expect(
        sub.number("smallest"),
        float(n),
        what="`smallest`",
        reveal=False,
        mistakes={
            "n is rounded down; round up": float(n - 1),
            "that is the number with one expected error at the wanted score": float(wald),
            "that is the rule of three, which is another interval": float(rule),
            "z is not squared": float(once),
        },
    )


# %% [mutant] without those that neither solved
# caught by: of_a
# says: neither solved
_both, _a, _b, _neither = table(STUDENT)
score = (_both + _a) / (_both + _a + _b)


# %% [mutant] the other way round
# caught by: of_both
# says: B's minus A's
_both, _a, _b, _neither = table(STUDENT)
difference = (_b - _a) / (_both + _a + _b + _neither)


# %% [mutant] of the items that differ
# caught by: of_both
# says: not of all items
_both, _a, _b, _neither = table(STUDENT)
difference = (_a - _b) / (_a + _b)


# %% [mutant] all items are tossed
# caught by: of_coins
# says: are not used
tosses = sum(table(STUDENT))


# %% [mutant] rounded down
# caught by: enough
# says: round up
smallest = math.floor(1.96**2 * wanted(STUDENT) / (1 - wanted(STUDENT)))


# %% [partial] 3: without the last
smallest = 0
