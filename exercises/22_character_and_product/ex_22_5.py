# ---
# title: Five releases, five decisions
# kind: choice
# minutes: 20
# ---

# %% [statement]
# Five teams want to ship. Each has checked a new version against its old one with a specification of **ten** rules. Nine have the same result as before on every completion. You see the tenth, a *must*. `releases(STUDENT)` has a row for each team:
#
# * `prompts`: the number of prompts, with one completion each; `must`: the percentage of completions that must satisfy the rule.
# * `before`, `now`: the number of completions of the old and of the new version that satisfy it.
# * `lost`: the number of prompts on which the old version satisfies it and the new one does not; `won`: the number of prompts in the opposite direction.
#
# A rule is shown to hold if its whole 95 % interval by Wilson is at the required rate or above. It fails if the whole interval is below. A rule got worse if the sign test (two-sided, exact, on the prompts where the two differ) is below 5 % after Holm's correction for the ten rules. What do you answer each team? `release_1`, `release_2`, `release_3`, `release_4` and `release_5` are letters, each used once.
#
# (a) Ship: it holds, and in a single test the two versions do not differ significantly.\
# (b) Not yet: nothing is wrong, but it is not shown to hold. Ask for more prompts.\
# (c) Do not ship: it got worse, although it still holds.\
# (d) Do not ship: it fails, and failed before.\
# (e) Ship, and watch it: it holds. A test of this rule alone would be red, but not after correction for ten rules.

# %% [given]
import torch
from minirlhf_course.ledger.registry import Draw

COLUMNS = ("prompts", "must", "before", "now", "lost", "won")


# Fifty rules in random order, and the five that form each task.
# fmt: off
ROWS = [
    "1200 90 1147 1129 29 11", "1000 80 762 758 9 5", "80 85 72 74 6 8", "800 85 629 634 6 11", "400 80 369 351 27 9", "200 80 174 170 14 10",
    "400 85 371 360 13 2", "300 80 268 265 10 7", "1000 95 998 995 4 1", "600 85 561 551 11 1", "500 85 465 464 15 14", "600 95 514 506 19 11",
    "1000 85 930 927 14 11", "1000 85 931 912 31 12", "1200 95 1174 1157 25 8", "120 85 91 90 3 2", "800 80 698 685 17 4", "400 80 329 335 5 11",
    "800 85 737 718 30 11", "100 95 87 82 11 6", "240 90 229 224 10 5", "1000 85 929 907 33 11", "400 80 352 347 17 12", "800 80 682 666 20 4",
    "150 95 132 130 2 0", "600 85 524 527 6 9", "300 80 266 262 10 6", "100 80 87 87 4 4", "120 80 103 104 5 6", "60 90 49 41 16 8",
    "160 85 157 147 10 0", "800 80 676 674 13 11", "600 90 591 579 14 2", "1000 85 941 939 3 1", "300 90 241 242 5 6", "300 90 295 281 19 5",
    "800 90 696 695 11 10", "1000 85 931 911 31 11", "1200 85 1082 1063 26 7", "600 85 547 532 21 6", "800 95 774 771 13 10", "800 85 741 726 21 6",
    "800 90 774 765 23 14", "500 85 454 444 11 1", "800 90 773 765 8 0", "500 80 412 417 6 11", "150 85 131 135 8 12", "800 95 785 779 13 7",
    "1000 90 939 926 15 2", "300 85 232 228 17 13",
]
TASKS = [
    (13, 1, 10, 23, 25), (5, 26, 35, 48, 49), (5, 3, 42, 14, 43), (40, 18, 34, 31, 0), (15, 42, 21, 16, 40),
    (27, 6, 32, 31, 29), (32, 10, 25, 36, 0), (36, 17, 38, 26, 39), (37, 33, 9, 27, 29), (32, 46, 13, 33, 15),
    (47, 20, 24, 4, 13), (15, 32, 6, 42, 2), (40, 3, 38, 31, 39), (30, 12, 11, 17, 43), (38, 7, 9, 45, 15),
    (31, 36, 35, 37, 17), (29, 47, 21, 41, 40), (9, 36, 22, 4, 46), (49, 25, 6, 8, 38), (19, 13, 8, 20, 21),
    (5, 7, 9, 21, 36), (11, 12, 35, 27, 37), (11, 0, 4, 28, 7), (45, 31, 38, 41, 1), (3, 38, 16, 10, 45),
    (47, 32, 16, 15, 20), (12, 49, 39, 18, 45), (3, 17, 38, 9, 10), (12, 16, 36, 17, 48), (39, 25, 1, 7, 23),
    (20, 29, 26, 43, 23), (17, 47, 34, 13, 37), (41, 11, 47, 4, 20), (48, 2, 41, 10, 3), (7, 3, 46, 37, 35),
    (12, 44, 5, 19, 14), (36, 18, 27, 13, 10), (2, 41, 15, 12, 4), (20, 22, 19, 39, 23), (10, 44, 11, 32, 2),
]
# fmt: on


def releases(student):
    """Five rows of six whole numbers, (5, 6)."""
    five = TASKS[Draw("22.5", student).integer(0, len(TASKS) - 1)]
    return torch.tensor([[int(x) for x in ROWS[i].split()] for i in five])


# %% [stub]
print("release   " + " ".join(f"{name:>8}" for name in COLUMNS))
for number, row in enumerate(releases(STUDENT).tolist(), 1):
    print(f"{number:7}   " + " ".join(f"{x:8}" for x in row))

release_1 = None
release_2 = None
release_3 = None
release_4 = None
release_5 = None


# %% [solution]
import math


def wilson(kept, n, z=1.96):
    middle, half = kept + z * z / 2, z * math.sqrt(kept * (n - kept) / n + z * z / 4)
    return (middle - half) / (n + z * z), (middle + half) / (n + z * z)


def sign(lost, won):
    n = lost + won
    return min(1.0, 2 * sum(math.comb(n, k) for k in range(min(lost, won) + 1)) / 2**n)


def decide(row, bar_by=wilson, rules=10):
    n, must, _, now, lost, won = row.tolist()
    low, high = bar_by(now, n)
    if high < must / 100:
        return "d"
    if low < must / 100:
        return "b"
    p = sign(lost, won)
    if lost > won and rules * p < 0.05:
        return "c"
    return "e" if lost > won and p < 0.05 else "a"


release_1, release_2, release_3, release_4, release_5 = (decide(row) for row in releases(STUDENT))

# %% [tests]
from minirlhf_course.classroom.testing import fail, test
from minirlhf_course.ledger.registry import Draw

TRUTH = "edbdcbeaaeadaecdebcdbcacdbabbdcacadedccebeaeebbacd"  # what to answer about each of ROWS


def ask(sub, letter, said):
    """Check that the release with this correct letter has it in the answer."""
    five = TASKS[Draw("22.5", sub.student).integer(0, len(TASKS) - 1)]
    at = [TRUTH[i] for i in five].index(letter) + 1
    got = sub.choice(f"release_{at}", "abcde")
    if got != letter:
        fail(f"`release_{at}` is not {got!r}: {said[got]}")


@test(
    points=1,
    rounds=1,
    hints=("Which rate is so far below the required rate that its interval does not reach it?", "Compute the upper end of Wilson's interval of `now` and compare it with the required rate."),
)  # fmt: skip
def failing(sub, draw):
    "You identify the release whose rule fails."
    ask(sub, "d", dict.fromkeys("abce", "its whole interval is below the required rate"))


@test(
    points=1,
    rounds=1,
    hints=("A rate above the required rate is not yet an interval above it. Which interval reaches below?", "Compute the lower end of Wilson's interval. With few prompts it lies far below the rate."),
)  # fmt: skip
def too_few(sub, draw):
    "You identify the release with too few prompts."
    holds = "its rate is above the required rate, but the lower end of Wilson's 95 % interval is below; Wald's interval, or one of 90 %, would be above"
    ask(
        sub,
        "b",
        {"a": holds, "c": holds, "e": holds, "d": "its rate is above the required rate: nothing shows that it fails"},
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "On how many prompts do the two versions differ, and in which direction?",
        "Multiply the p-value of the sign test of lost against won by ten. Is it below 5 %? A rule that got worse stops the release even if it still holds.",
    ),
)
def got_worse(sub, draw):
    "You identify the release whose rule got worse."
    paired = "the paired test is significant, even after correction for ten tests"
    ask(
        sub, "c",
        {"a": paired, "e": paired, "b": "the lower end of its interval is above the required rate", "d": "its interval is above the required rate"},
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=("Ten rules are ten tests. Which p-value is below 5 % and above half a percent?", "Holm's correction multiplies the smallest p-value by the number of rules, ten, even if the other nine are unchanged."),
)  # fmt: skip
def one_of_ten(sub, draw):
    "You identify the release whose rule is red only without correction."
    ask(
        sub, "e",
        {
            "c": "its p-value, two-sided and exact, is below 5 % before the correction, and not when it is multiplied by the ten rules",
            "a": "its p-value is below 5 % before the correction: in a single test the loss is significant",
            "b": "the lower end of its interval is above the required rate", "d": "its interval is above the required rate",
        },
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=("For which release is there no objection?", "It holds, and its lost and won prompts are compatible with a fair coin."),
)  # fmt: skip
def all_well(sub, draw):
    "You identify the release that is ready."
    coin = "fewer completions satisfy it than before, but a fair coin often gives such a loss"
    ask(
        sub,
        "a",
        {
            "c": coin,
            "e": coin,
            "b": "the lower end of its interval is above the required rate",
            "d": "its interval is above the required rate",
        },
    )


# %% [mutant] the rate instead of the interval
# caught by: failing
release_1, release_2, release_3, release_4, release_5 = (
    decide(row, lambda kept, n: (kept / n, 1.0)) for row in releases(STUDENT)
)


# %% [mutant] a rate above the required rate holds
# caught by: too_few
# says: lower end
release_1, release_2, release_3, release_4, release_5 = (
    decide(row, lambda kept, n: (kept / n, wilson(kept, n)[1])) for row in releases(STUDENT)
)


# %% [mutant] one test, not ten
# caught by: one_of_ten
# says: multiplied by the ten rules
release_1, release_2, release_3, release_4, release_5 = (decide(row, rules=1) for row in releases(STUDENT))


# %% [mutant] not in pairs
# caught by: got_worse
# says: the paired test
def decide(row):
    n, must, before, now, _, _ = row.tolist()
    low, high = wilson(now, n)
    if high < must / 100:
        return "d"
    if low < must / 100:
        return "b"
    p, q = before / n, now / n
    z = (p - q) / math.sqrt((p * (1 - p) + q * (1 - q)) / n)
    return "c" if z > 2.81 else "e" if z > 1.96 else "a"


release_1, release_2, release_3, release_4, release_5 = (decide(row) for row in releases(STUDENT))


# %% [partial] 3.5: one test, not ten
release_1, release_2, release_3, release_4, release_5 = (decide(row, rules=1) for row in releases(STUDENT))
