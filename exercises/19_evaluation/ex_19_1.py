# ---
# title: Two models, one test
# kind: numeric
# minutes: 5
# ---

# %% [statement]
# Two models have answered the same items. `table(STUDENT)` says how many items both solved, only A, only B, and neither: these are your numbers.
#
# 1. `score`: A's score, to four digits behind the point.
# 2. `difference`: A's score minus B's, likewise.
# 3. `tosses`: how many items the sign test looks at.
# 4. `smallest`: a third model has solved *all* items of another test. How many must these have been, at least, so that the lower end of Wilson's 95 % interval is no
#    lower than `wanted(STUDENT)`? A whole number; $z = 1.96$.

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
    hints=("Which items has A solved?", "Those that both solved, and those that only A did; of all."),
)
def of_a(sub, draw):
    "`score` is the share of items that A solved."
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
            "that is B's": (both + b) / (both + a + b + neither),
        },
    )


@test(
    points=1,
    rounds=1,
    hints=("Subtract the two scores.", "The items that both solved cancel; those are left that one alone solved."),
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
            "it is a share of those that differ and not of all items": (a - b) / (a + b),
        },
    )


@test(points=1, rounds=1, hints=("Which items say who is better?", "Those that one model alone has solved."))
def of_coins(sub, draw):
    "`tosses` counts the items on which the models differ."
    both, a, b, neither = table(sub.student)
    expect(
        sub.number("tosses"),
        float(a + b),
        what="`tosses`",
        reveal=False,
        mistakes={
            "all items were counted; where both models agree nothing is tossed": float(both + a + b + neither),
            "only A's were counted": float(a),
            "those that both solved are counted, too": float(both + a + b),
            "the difference was counted": float(a - b),
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "With a share of 1, what does Wilson's equation leave?",
        "(1 − p)² = z² p (1 − p)/n: divide by 1 − p and solve for n.",
    ),
)
def enough(sub, draw):
    "`smallest` items, all solved, prove as much as is wanted."
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
            "n is rounded down, where one has to round up": float(n - 1),
            "so many are taken as make one mistake likely": float(wald),
            "the rule of three is taken for this interval": float(rule),
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
# says: of all items
_both, _a, _b, _neither = table(STUDENT)
difference = (_a - _b) / (_a + _b)


# %% [mutant] all items are tossed
# caught by: of_coins
# says: nothing is tossed
tosses = sum(table(STUDENT))


# %% [mutant] rounded down
# caught by: enough
# says: round up
smallest = math.floor(1.96**2 * wanted(STUDENT) / (1 - wanted(STUDENT)))


# %% [partial] 3: without the last
smallest = 0
