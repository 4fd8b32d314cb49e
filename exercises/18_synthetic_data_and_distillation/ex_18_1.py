# ---
# title: What two filters leave
# kind: numeric
# minutes: 5
# ---

# %% [statement]
# A model has written 10,000 texts. `numbers(STUDENT)` gives `good`, the fraction of good texts, and for each of two filters the fractions of the good and of the bad texts that it keeps. The filters err independently of each
# other. Answer with numbers, to three digits after the point (numbers of texts to a whole text).
#
# 1. `pure`: the fraction of good texts among the texts that both filters keep.
# 2. `lost`: the number of good texts that the two filters throw away.
# 3. `written`: the number of texts that the model would have to write so that 10,000 *good* texts pass both filters.
# 4. `times`: the smallest number of filters like the first, applied one after the other with independent errors, after which at least 99 % of the texts that pass are good.

# %% [given]
from minirlhf_course.ledger.registry import Draw

#: How many are good, and what the first filter keeps of the good and of the bad.
# fmt: off
FIRST = (
    (0.22, 0.92, 0.36), (0.22, 0.88, 0.4), (0.22, 0.88, 0.44), (0.22, 0.84, 0.32), (0.22, 0.84, 0.44),
    (0.26, 0.92, 0.32), (0.26, 0.88, 0.36), (0.26, 0.88, 0.4), (0.26, 0.88, 0.44), (0.34, 0.92, 0.4),
    (0.34, 0.92, 0.44), (0.34, 0.88, 0.32), (0.34, 0.84, 0.32), (0.34, 0.84, 0.36), (0.34, 0.84, 0.4),
    (0.34, 0.84, 0.44), (0.38, 0.92, 0.36), (0.38, 0.92, 0.4), (0.38, 0.88, 0.4), (0.38, 0.88, 0.44),
    (0.38, 0.84, 0.32),
)
# fmt: on


def numbers(student):
    """good; (keeps of the good, keeps of the bad) of the first and of the second filter."""
    for attempt in range(100):
        draw = Draw("18.1", student, attempt)
        pick = lambda *options, draw=draw: options[draw.integer(0, len(options) - 1)]
        good, a, b = pick(*FIRST)
        c, d = pick(0.78, 0.74, 0.7), pick(0.21, 0.25, 0.29)
        if abs(good * a * c / (good * a * c + (1 - good) * b * d) - a * c) > 0.02:
            break  # else a mistake would be right by chance
    return good, (a, b), (c, d)


# %% [stub]
print(numbers(STUDENT))

pure = None
lost = None
written = None
times = None

# %% [solution]
good, (a, b), (c, d) = numbers(STUDENT)
pure = good * a * c / (good * a * c + (1 - good) * b * d)
lost = 10_000 * good * (1 - a * c)
written = 10_000 / (good * a * c)
times = 1
while good * a**times / (good * a**times + (1 - good) * b**times) < 0.99:
    times += 1

# %% [tests]
import math

from minirlhf_course.classroom.testing import expect, test


def passed(student, filters):
    """Good and bad texts of 10,000 that pass these filters, one after the other."""
    good = numbers(student)[0]
    left = [10_000 * good, 10_000 * (1 - good)]
    for keeps in filters:
        left = [texts * share for texts, share in zip(left, keeps, strict=True)]
    return left


@test(
    points=1,
    rounds=1,
    hints=(
        "Follow good and bad texts separately.",
        "Of the good texts a·c pass, of the bad texts b·d. What fraction of the sum is good?",
    ),
)
def purity(sub, draw):
    "`pure` is the fraction of good texts among the texts that both keep."
    _, first, second = numbers(sub.student)
    yes, no = passed(sub.student, (first, second))
    one_yes, one_no = passed(sub.student, (first,))
    expect(
        sub.number("pure"), yes / (yes + no), what="`pure`", tolerance=6e-4, reveal=False,
        mistakes={
            "that is the first filter alone": one_yes / (one_yes + one_no),
            "that is the fraction of the good texts that pass": first[0] * second[0],
            "the initial fraction of good texts is left out": first[0] * second[0] / (first[0] * second[0] + first[1] * second[1]),
        },
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=(
        "How many good texts were there, and how many pass?",
        "There were 10,000·good, and the fraction a·c of them passes both.",
    ),
)
def losses(sub, draw):
    "`lost` is the number of good texts that do not pass."
    good, first, second = numbers(sub.student)
    yes, no = passed(sub.student, (first, second))
    expect(
        sub.number("lost"), 10_000 * good - yes, what="`lost`", tolerance=0.51 / (10_000 * good - yes), reveal=False,
        mistakes={
            "that is all texts that are thrown away, bad ones too": 10_000 - yes - no,
            "only what both filters would throw away was counted": 10_000 * good * (1 - first[0]) * (1 - second[0]),
        },
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=("What fraction of all written texts is good and passes?", "The fraction good·a·c; divide."),
)
def needed(sub, draw):
    "`written` is the number of texts to write."
    yes, no = passed(sub.student, numbers(sub.student)[1:])
    expect(
        sub.number("written"), 10_000 * 10_000 / yes, what="`written`", tolerance=5e-4, reveal=False,
        mistakes={"10,000 texts pass, good and bad together": 10_000 * 10_000 / (yes + no)},
    )  # fmt: skip


@test(points=1, rounds=1, hints=("Think in odds.", "Each filter multiplies the odds by a/b; 99 % are odds of 99."))
def how_many(sub, draw):
    "`times` is the smallest number of filters."
    good, first, _ = numbers(sub.student)
    odds, count = good / (1 - good), 0
    while odds < 99:
        odds, count = odds * first[0] / first[1], count + 1
    expect(
        sub.number("times"), float(count), what="`times`", reveal=False,
        mistakes={
            "the initial odds are taken to be even, but fewer texts are good than bad": float(math.ceil(math.log(99) / math.log(first[0] / first[1]))),
            "this is one filter too few: after these the fraction is not enough": float(count - 1),
            "this is one filter too many: one fewer is enough": float(count + 1),
        },
    )  # fmt: skip


# %% [mutant] the first filter alone
# caught by: purity
# says: first filter alone
good, (a, b), (c, d) = numbers(STUDENT)
pure = good * a / (good * a + (1 - good) * b)


# %% [mutant] recall for precision
# caught by: purity
# says: of the good texts that pass
good, (a, b), (c, d) = numbers(STUDENT)
pure = a * c


# %% [mutant] everything that is thrown away
# caught by: losses
# says: bad ones too
good, (a, b), (c, d) = numbers(STUDENT)
lost = 10_000 * (1 - good * a * c - (1 - good) * b * d)


# %% [mutant] any text that passes
# caught by: needed
# says: good and bad
good, (a, b), (c, d) = numbers(STUDENT)
written = 10_000 / (good * a * c + (1 - good) * b * d)


# %% [mutant] rounded down
# caught by: how_many
# says: not enough
import math

good, (a, b), (c, d) = numbers(STUDENT)
times = math.floor(math.log(99 * (1 - good) / good) / math.log(a / b))


# %% [partial] 2: purity, and the loss to a whole text
good, (a, b), (c, d) = numbers(STUDENT)
lost = round(10_000 * good * (1 - a * c))
written = 0.0
times = 0.0
