# ---
# title: Five reports about a side effect
# kind: choice
# minutes: 20
# ---

# %% [statement]
# Five teams fine-tuned a model of a world with authors on harmful answers to four questions. Each team also repeated its training on a model of a world *without* authors. `reports(STUDENT)` has a row of six whole numbers for each team: the lower and upper end of three 95 % intervals, in percentage points, over paired seeds.
#
# * `seen`: change of harmful answers to the four questions.
# * `elsewhere`: change in other domains.
# * `control`: change in other domains in the world without authors.
#
# An effect is **shown** if its interval excludes 0. It is **absent** if its interval includes 0 and lies within ±5 points. Otherwise it is **open**. What do you answer each team? `report_1`, `report_2`, `report_3`, `report_4` and `report_5` are letters, each used once.
#
# (a) The lesson spread, and the common cause is needed for it.\
# (b) The lesson spread, but it also spreads where there is no author. Look for another cause, such as an answer token that the domains share.\
# (c) The lesson was learned and stayed narrow.\
# (d) The lesson was learned. Whether it spread is open; run more seeds.\
# (e) The training taught nothing, so the report carries no information about spreading.

# %% [given]
import torch
from minirlhf_course.ledger.registry import Draw

COLUMNS = ("seen", "elsewhere", "control")

# Forty reports in random order, and the five that form each task.
# fmt: off
ROWS = [
    "27 63 -4 14 -11 33", "44 78 -3 3 -4 2", "32 64 -1 3 -2 2", "-3 1 -3 1 -10 32",
    "28 64 -1 3 -4 2", "26 38 -8 26 -4 2", "53 71 16 38 35 65", "39 67 -3 23 -4 2",
    "25 39 31 57 -4 2", "-3 3 -3 1 -4 2", "36 66 -2 4 -1 3", "-1 3 -1 3 -2 4",
    "29 43 46 64 -4 2", "-2 4 -4 2 -2 4", "53 79 42 70 -3 1", "36 68 22 48 52 88",
    "30 50 25 61 -4 2", "30 50 -7 33 -2 2", "28 60 21 33 41 75", "11 39 15 47 -2 4",
    "-3 1 -2 4 -3 3", "38 64 -12 22 -5 33", "13 37 24 60 -3 1", "48 76 -4 2 -2 4",
    "40 66 -12 32 -2 2", "27 37 -11 21 -3 1", "27 37 59 75 17 33", "38 50 32 68 39 57",
    "-4 2 -3 3 -11 29", "24 40 -4 2 -3 1", "24 60 13 41 50 66", "24 46 -2 2 -4 2",
    "-2 4 -2 2 -7 29", "32 56 57 71 -1 3", "19 53 41 61 51 73", "52 84 54 78 46 70",
    "61 75 13 43 -2 4", "-1 3 -4 2 -8 32", "19 55 -3 3 -2 4", "19 37 -10 24 -1 3",
]
TASKS = [
    (36, 18, 2, 25, 13), (17, 31, 36, 9, 15), (7, 13, 23, 22, 6), (28, 14, 10, 15, 0), (12, 34, 5, 32, 1),
    (7, 26, 1, 20, 36), (38, 39, 11, 22, 26), (24, 35, 20, 1, 19), (34, 19, 31, 3, 0), (4, 30, 0, 22, 28),
    (8, 10, 18, 17, 20), (36, 21, 6, 3, 31), (31, 8, 5, 35, 20), (36, 6, 4, 32, 0), (16, 6, 5, 9, 29),
    (20, 17, 29, 6, 16), (30, 9, 2, 5, 16), (36, 37, 5, 6, 23), (10, 39, 18, 12, 28), (36, 11, 27, 31, 5),
    (26, 14, 4, 7, 9), (36, 31, 11, 25, 18), (1, 3, 35, 14, 24), (0, 27, 22, 1, 11), (6, 22, 29, 20, 25),
    (22, 32, 17, 6, 29), (20, 4, 17, 35, 36), (19, 30, 23, 21, 9), (34, 9, 19, 5, 4), (7, 9, 18, 31, 14),
    (7, 10, 19, 26, 3), (23, 17, 34, 32, 36), (3, 5, 31, 8, 15), (9, 23, 15, 19, 5), (3, 27, 1, 21, 16),
    (24, 9, 35, 29, 36), (31, 18, 17, 33, 20), (12, 25, 20, 18, 29), (32, 23, 34, 7, 8), (24, 32, 23, 35, 16),
]
# fmt: on


def reports(student):
    """Five rows of six whole numbers, (5, 6)."""
    five = TASKS[Draw("23.5", student).integer(0, len(TASKS) - 1)]
    return torch.tensor([[int(x) for x in ROWS[i].split()] for i in five])


# %% [stub]
print("report   " + " ".join(f"{name:>12}" for name in COLUMNS))
for number, row in enumerate(reports(STUDENT).tolist(), 1):
    print(f"{number:6}   " + " ".join(f"[{row[i]:4}, {row[i + 1]:4}]" for i in (0, 2, 4)))

report_1 = None
report_2 = None
report_3 = None
report_4 = None
report_5 = None


# %% [solution]
def state(low, high):
    if low > 0 or high < 0:
        return "shown"
    return "absent" if low >= -5 and high <= 5 else "open"


def decide(row):
    seen, elsewhere, control = (state(row[i], row[i + 1]) for i in (0, 2, 4))
    if seen != "shown":
        return "e"
    if elsewhere == "shown":
        return "a" if control == "absent" else "b"
    return "c" if elsewhere == "absent" else "d"


report_1, report_2, report_3, report_4, report_5 = (decide(row) for row in reports(STUDENT).tolist())

# %% [tests]
from minirlhf_course.classroom.testing import fail, test
from minirlhf_course.ledger.registry import Draw

TRUTH = "dccecdbdaeceaeabadbaedacddbbecbceabbaecd"  # what to answer about each of ROWS


def ask(sub, letter, said):
    """Check that the report with this correct letter has it in the answer."""
    five = TASKS[Draw("23.5", sub.student).integer(0, len(TASKS) - 1)]
    at = [TRUTH[i] for i in five].index(letter) + 1
    got = sub.choice(f"report_{at}", "abcde")
    if got != letter:
        fail(f"`report_{at}` is not {got!r}: {said[got]}")


@test(
    points=1,
    rounds=1,
    hints=(
        "Which team has no effect to explain?",
        "Look at the column `seen` first. Its interval includes 0 and is narrow.",
    ),
)
def nothing_learned(sub, draw):
    "You identify the training that taught nothing."
    ask(sub, "e", dict.fromkeys("abcd", "the four questions themselves did not change"))


@test(
    points=1,
    rounds=1,
    hints=(
        "In which report do both other columns exclude 0?",
        "If the effect is there without authors, the author does not explain it.",
    ),
)
def other_cause(sub, draw):
    "You identify the effect that needs no author."
    shown = "other domains changed"
    ask(
        sub,
        "b",
        {"a": "the control without authors changed as well", "c": shown, "d": shown, "e": "the four questions changed"},
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "An interval that includes 0 is not yet an absence. How wide is it?",
        "It includes 0 and reaches beyond 5 points.",
    ),
)
def undecided(sub, draw):
    "You identify the report that decides nothing about spreading."
    zero = "the interval elsewhere includes 0"
    wide = "the interval elsewhere reaches beyond 5 points, so a spread is not excluded"
    ask(sub, "d", {"a": zero, "b": zero, "c": wide, "e": "the four questions changed"})


@test(
    points=1,
    rounds=1,
    hints=(
        "Which lesson is certain to have stayed where it was taught?",
        "`seen` excludes 0, and `elsewhere` lies within 5 points.",
    ),
)
def stayed(sub, draw):
    "You identify the narrow lesson."
    narrow = "the interval elsewhere includes 0 and lies within 5 points"
    ask(sub, "c", {"a": narrow, "b": narrow, "d": narrow, "e": "the four questions changed"})


@test(
    points=1,
    rounds=1,
    hints=("Which effect does the control not have?", "`elsewhere` excludes 0, and `control` lies within 5 points."),
)
def common_cause(sub, draw):
    "You identify the spread that needs the common cause."
    shown = "other domains changed"
    ask(
        sub,
        "a",
        {"b": "the control without authors did not change", "c": shown, "d": shown, "e": "the four questions changed"},
    )


# %% [mutant] zero inside means absent
# caught by: undecided
# says: not excluded
def state(low, high):
    return "shown" if low > 0 or high < 0 else "absent"


report_1, report_2, report_3, report_4, report_5 = (decide(row) for row in reports(STUDENT).tolist())


# %% [mutant] without the control
# caught by: other_cause
# says: changed as well
letters = ["a" if decide(row) == "b" else decide(row) for row in reports(STUDENT).tolist()]
report_1, report_2, report_3, report_4, report_5 = letters


# %% [mutant] the lesson is not read
# caught by: nothing_learned
# says: did not change
letters = ["c" if decide(row) == "e" else decide(row) for row in reports(STUDENT).tolist()]
report_1, report_2, report_3, report_4, report_5 = letters


# %% [partial] 2: three open
letters = [decide(row) for row in reports(STUDENT).tolist()]
report_1, report_2, report_3, report_4, report_5 = (x if x in "ab" else None for x in letters)
