# ---
# title: Five releases, five decisions
# kind: choice
# minutes: 20
# ---

# %% [statement]
# Five teams want to ship. Each has checked a new version against its old one by a specification of **ten** rules; nine are the same as before in every reply, and you see the tenth, a *must*. `releases(STUDENT)` has a row for each:
#
# * `prompts`: how many prompts, with one reply each; `must`: the share of replies that has to keep the rule, in per cent.
# * `before`, `now`: how many replies of the old and of the new version keep it.
# * `lost`: prompts on which the old version keeps it and the new one does not; `won`: the other way round.
#
# A rule is shown to hold if its whole 95 % interval by Wilson is at the bar or above, and fails if the interval is below. A rule got worse if the sign test (two-sided, exact, on the prompts where the two differ) is below 5 % after Holm's correction for the ten rules. What do you answer each team? `release_1`, `release_2`, `release_3`, `release_4` and `release_5` are letters, each used once.
#
# (a) Ship: it holds, and the two versions differ by no more than chance explains in a single test.\\
# (b) Not yet: nothing is wrong, but it is not shown to hold. Ask for more prompts.\\
# (c) Do not ship: it got worse, although it still holds.\\
# (d) Do not ship: it fails, and did so before.\\
# (e) Ship, and watch it: it holds. A test of this rule alone would be red, and among ten rules that is not enough.

# %% [given]
import torch

from minirlhf.ledger.registry import Draw

COLUMNS = ("prompts", "must", "before", "now", "lost", "won")


# Fifty rules in no order, and which five make one task.
# fmt: off
ROWS = [
    "120 85 99 104 5 10", "100 85 92 87 12 7", "600 85 569 555 26 12", "1000 80 762 758 9 5", "300 80 251 248 11 8", "1000 80 864 843 29 8",
    "500 85 465 464 15 14", "800 80 696 683 15 2", "800 90 771 759 20 8", "800 80 676 674 13 11", "800 80 712 691 22 1", "400 80 352 347 17 12",
    "60 85 51 55 3 7", "120 80 102 100 8 6", "150 95 132 130 2 0", "1000 85 930 927 14 11", "1000 95 998 995 4 1", "800 80 707 685 30 8",
    "800 90 774 765 23 14", "800 95 785 779 13 7", "800 90 696 695 11 10", "120 80 99 98 2 1", "1000 85 933 918 24 9", "1000 80 861 849 16 4",
    "100 80 79 83 8 12", "300 80 268 265 10 7", "120 85 91 90 3 2", "600 80 523 507 19 3", "800 80 695 686 11 2", "800 90 755 749 6 0",
    "1000 85 938 931 8 1", "600 95 514 506 19 11", "200 85 179 176 17 14", "1000 80 869 847 23 1", "800 85 629 634 6 11", "1000 80 881 859 30 8",
    "400 85 367 358 10 1", "300 80 266 262 10 6", "1000 80 899 877 24 2", "100 95 87 82 11 6", "300 85 232 228 17 13", "200 80 168 163 11 6",
    "300 80 270 261 12 3", "1000 85 917 901 21 5", "1000 90 939 928 16 5", "1000 85 941 939 3 1", "60 90 49 41 16 8", "300 90 241 242 5 6",
    "800 85 734 714 28 8", "120 80 102 99 11 8",
]
TASKS = [
    (22, 49, 40, 27, 45), (15, 13, 43, 47, 44), (37, 46, 23, 10, 49), (46, 5, 6, 41, 2), (25, 39, 0, 28, 17),
    (5, 20, 28, 12, 25), (19, 14, 0, 2, 17), (3, 38, 37, 36, 32), (36, 46, 33, 6, 12), (43, 46, 25, 0, 28),
    (27, 2, 20, 6, 4), (24, 15, 14, 10, 44), (1, 43, 31, 6, 44), (24, 18, 36, 34, 35), (30, 43, 12, 37, 26),
    (21, 34, 5, 30, 37), (18, 5, 31, 30, 13), (39, 42, 10, 0, 9), (7, 44, 0, 31, 37), (36, 49, 5, 47, 18),
    (44, 47, 0, 37, 17), (24, 5, 36, 39, 9), (33, 21, 18, 42, 46), (28, 20, 43, 6, 12), (41, 15, 36, 47, 17),
    (13, 15, 44, 20, 5), (40, 17, 44, 37, 13), (28, 38, 16, 3, 21), (23, 19, 27, 3, 0), (17, 11, 22, 46, 41),
    (13, 37, 33, 2, 46), (46, 42, 10, 21, 16), (10, 18, 34, 8, 21), (35, 6, 30, 46, 13), (1, 37, 36, 7, 47),
    (47, 0, 7, 2, 19), (30, 45, 47, 10, 41), (45, 5, 32, 42, 14), (0, 5, 34, 2, 6), (31, 33, 6, 21, 22),
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
from minirlhf.classroom.testing import fail, test
from minirlhf.ledger.registry import Draw

TRUTH = "bbedbcaceacabbdaacaadbeebadceeedbcdceacddbeceaddcb"  # what to answer about each of ROWS


def ask(sub, letter, said):
    """The release that has this letter in truth must have it in the answer."""
    five = TASKS[Draw("22.5", sub.student).integer(0, len(TASKS) - 1)]
    at = [TRUTH[i] for i in five].index(letter) + 1
    got = sub.choice(f"release_{at}", "abcde")
    if got != letter:
        fail(f"`release_{at}` is not {got!r}: {said[got]}")


@test(
    points=1,
    rounds=1,
    hints=("Whose rate is so far below the bar that the interval does not reach it?", "Compute the upper end of Wilson's interval of `now` and compare it with the bar."),
)  # fmt: skip
def failing(sub, draw):
    "The release whose rule fails is found."
    ask(sub, "d", dict.fromkeys("abce", "its whole interval is below the bar"))


@test(
    points=1,
    rounds=1,
    hints=("A rate above the bar is not yet an interval above the bar. Whose is not?", "Compute the lower end of Wilson's interval: with few prompts it lies far below the rate."),
)  # fmt: skip
def too_few(sub, draw):
    "The release with too few prompts is found."
    holds = "its rate is above the bar, and the lower end of its interval is not"
    ask(sub, "b", {"a": holds, "c": holds, "e": holds, "d": "its rate is above the bar: nothing shows that it fails"})


@test(
    points=1,
    rounds=1,
    hints=(
        "On how many prompts do the two versions differ, and in which direction?",
        "The sign test of lost against won, times ten: is it below 5 %? That it still holds is no excuse.",
    ),
)
def got_worse(sub, draw):
    "The release whose rule got worse is found."
    paired = "in pairs the loss is clear, even after ten tests"
    ask(
        sub, "c",
        {"a": paired, "e": paired, "b": "the lower end of its interval is above the bar", "d": "its interval is above the bar"},
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=("Ten rules are ten tests. Which p-value is below 5 % and above half a per cent?", "Holm's smallest p-value is multiplied by the number of rules, ten, also where the other nine are unchanged."),
)  # fmt: skip
def one_of_ten(sub, draw):
    "The release whose rule is red only by itself is found."
    ask(
        sub, "e",
        {
            "c": "its p-value is below 5 % by itself, and not when it is multiplied by the ten rules",
            "a": "by itself its p-value is below 5 %: more was lost than chance explains in a single test",
            "b": "the lower end of its interval is above the bar", "d": "its interval is above the bar",
        },
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=("Which release has nothing against it?", "It holds, and its lost and won prompts are what a fair coin would give."),
)  # fmt: skip
def all_well(sub, draw):
    "The release that is ready is found."
    coin = "fewer replies keep it than before, but a fair coin often loses as many"
    ask(
        sub,
        "a",
        {
            "c": coin,
            "e": coin,
            "b": "the lower end of its interval is above the bar",
            "d": "its interval is above the bar",
        },
    )


# %% [mutant] the rate in place of the interval
# caught by: failing
release_1, release_2, release_3, release_4, release_5 = (
    decide(row, lambda kept, n: (kept / n, 1.0)) for row in releases(STUDENT)
)


# %% [mutant] a rate above the bar holds
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
# says: in pairs
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


# %% [partial] 4: one test, not ten
release_1, release_2, release_3, release_4, release_5 = (decide(row, rules=1) for row in releases(STUDENT))
