# ---
# title: Accuracy of a majority vote
# kind: numeric
# minutes: 10
# ---

# %% [statement]
# A question has three possible answers. Completions are independent. Each is right with probability $p$, gives the first wrong answer with probability $q$, and the second with probability $1-p-q$. The plain vote takes the answer of most completions.
# If answers tie, it takes the one that was given first. `numbers(STUDENT)` gives $p$ and $q$. Answer with three decimals.
#
# 1. `two`: the probability that the vote of two completions is right.
# 2. `three`: the probability that the vote of three completions is right.
# 3. `one`: the probability that at least one of three completions is right.
# 4. There are four kinds of questions, equally frequent; `kinds(STUDENT)` lists $(p, q)$ of each. `endless`: the accuracy of the vote in the limit of many completions, over all questions.

# %% [given]
from minirlhf_course.ledger.registry import Draw


def numbers(student):
    """p and q of the question."""
    draw = Draw("16.1", student)
    return [0.42, 0.46, 0.52, 0.56][draw.integer(0, 3)], [0.31, 0.27, 0.34][draw.integer(0, 2)]


def kinds(student):
    """(p, q) of four kinds of questions."""
    draw = Draw("16.1 kinds", student)
    easy, likely = [0.87, 0.71, 0.73][draw.integer(0, 2)], [0.44, 0.46, 0.48][draw.integer(0, 2)]
    fooled, hard = [0.38, 0.36, 0.35][draw.integer(0, 2)], [0.12, 0.1, 0.17][draw.integer(0, 2)]
    every = [(easy, 0.1), (likely, 0.3), (fooled, 0.5), (round(hard + 0.25, 2), 0.13)]
    if draw.integer(0, 1):
        every[2:] = [
            (fooled, round(0.5 - fooled, 2)),
            (round(hard + 0.25, 2), 0.32),
        ]  # the other wrong answer wins; the right one does
    return [every[i] for i in draw.permutation(4).tolist()]


# %% [stub]
print(numbers(STUDENT), kinds(STUDENT))

two = None
three = None
one = None
endless = None

# %% [solution]
p, q = numbers(STUDENT)
rest = 1 - p - q
two = p
three = p**3 + 3 * p**2 * (1 - p) + 2 * p * q * rest
one = 1 - (1 - p) ** 3
endless = sum(a > max(b, 1 - a - b) for a, b in kinds(STUDENT)) / 4

# %% [tests]
import itertools
from math import prod

from minirlhf_course.classroom.testing import expect, test


def voted(student, replies):
    """How often the vote is right, from every sequence of replies; the right answer is number 0."""
    p, q = numbers(student)
    chances, total = (p, q, 1 - p - q), 0.0
    for given in itertools.product(range(3), repeat=replies):
        most = max(given.count(a) for a in given)
        winner = next(a for a in given if given.count(a) == most)
        total += prod(chances[a] for a in given) * (winner == 0)
    return total


@test(
    points=1,
    rounds=1,
    hints=(
        "When do two completions agree, and what happens when they do not?",
        "If they agree, the vote is the first one; if they differ, they tie, and the first one wins again.",
    ),
)
def of_two(sub, draw):
    "`two` is the accuracy of the vote of two completions."
    p, _ = numbers(sub.student)
    expect(
        sub.number("two"), voted(sub.student, 2), what="`two`", tolerance=6e-4, reveal=False,
        mistakes={
            "that is the probability that both are right; if they differ, the first one wins the tie": p**2,
            "that is the probability that at least one of them is right": 1 - (1 - p) ** 2,
        },
    )  # fmt: skip


@test(
    points=2,
    rounds=1,
    hints=(
        "There are three cases: three right, two right, and three different answers.",
        "Three different answers have six orders, each with probability p·q·(1−p−q). In two of them the right answer is first.",
    ),
)
def of_three(sub, draw):
    "`three` is the accuracy of the vote of three completions."
    p, q = numbers(sub.student)
    at_least = p**3 + 3 * p**2 * (1 - p)
    expect(
        sub.number("three"), voted(sub.student, 3), what="`three`", tolerance=6e-4, reveal=False,
        mistakes={
            "the case of three different answers is missing": at_least,
            "three different answers are counted as right in all six orders; the right one must be first": at_least + 6 * p * q * (1 - p - q),
            "two right completions are counted in one order; they have three": p**3 + p**2 * (1 - p) + 2 * p * q * (1 - p - q),
        },
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=("When is none of the three right?", "All three are wrong with probability (1−p)³."),
)
def of_one(sub, draw):
    "`one` is the probability that at least one of three is right."
    p, _ = numbers(sub.student)
    expect(
        sub.number("one"), 1 - (1 - p) ** 3, what="`one`", tolerance=6e-4, reveal=False,
        mistakes={
            "only exactly one right completion is counted; two or three also count": 3 * p * (1 - p) ** 2,
            "that is the probability that all are right": p**3,
        },
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=(
        "For one kind of question, which answer wins as the number of completions grows?",
        "The most probable answer wins. Is it the right one, for each of the four kinds? The second wrong answer has probability 1−p−q.",
    ),
)
def in_the_end(sub, draw):
    "`endless` is the limit of many completions."
    every = kinds(sub.student)
    want = sum(max((a, 0), (b, 1), (1 - a - b, 2))[1] == 0 for a, b in every) / 4
    others = {
        "that is the mean of p, the accuracy of one completion": sum(a for a, _ in every) / 4,
        "p is compared with a half; the right answer wins with less than a half if it is the most probable": sum(
            a > 0.5 for a, _ in every
        )
        / 4,
        "p is compared with the first wrong answer alone, not with both wrong answers": sum(a > b for a, b in every)
        / 4,
        "p is compared with half of the rest, not with the most probable wrong answer": sum(
            a > (1 - a) / 2 for a, _ in every
        )
        / 4,
    }
    expect(
        sub.number("endless"), want, what="`endless`", tolerance=6e-4, reveal=False,
        mistakes={say: x for say, x in others.items() if abs(x - want) > 1e-3},
    )  # fmt: skip


# %% [mutant] both are right
# caught by: of_two
# says: the first one wins the tie
p, q = numbers(STUDENT)
two = p**2


# %% [mutant] without three different answers
# caught by: of_three
# says: three different answers
p, q = numbers(STUDENT)
three = p**3 + 3 * p**2 * (1 - p)


# %% [mutant] exactly one
# caught by: of_one
# says: exactly one right
p, q = numbers(STUDENT)
one = 3 * p * (1 - p) ** 2


# %% [mutant] a majority is more than a half
# caught by: in_the_end
# says: compared with a half
endless = sum(a > 0.5 for a, _ in kinds(STUDENT)) / 4


# %% [mutant] the mean of p
# caught by: in_the_end
# says: accuracy of one completion
endless = sum(a for a, _ in kinds(STUDENT)) / 4


# %% [partial] 2: as if three were endless
p, q = numbers(STUDENT)
two, one, three, endless = p, 1 - (1 - p) ** 3, 0.5, 0.0
