# ---
# title: Five models on a leaderboard
# kind: choice
# minutes: 15
# ---

# %% [statement]
# Five models were compared with one baseline on 4,000 instructions each. `models(STUDENT)` has them in an order that depends on your student id. Each row is a model:
#
# * `words`: the mean difference in words between its completions and the baseline's (the standard deviation over instructions is 20 words);
# * `raw`: its win rate by a model as judge; `equal`: the judge's length-controlled win rate, by the regression of the chapter; `people`: its win rate by users who read both completions to the end.
#
# Each of the last three has a standard error of about .01. Judges may differ between models. Which description fits which model? Answer `model_1`, `model_2`, `model_3`, `model_4` and `model_5` with letters, each used once.
#
# (a) has less content than the baseline, and pads; its judge has a length bias\
# (b) is no better than the baseline at equal length; users want longer completions, and its judge values length as they do\
# (c) is as long as the baseline and better; its judge has a length bias\
# (d) is better, and short; its judge has a length bias\
# (e) is no better than the baseline at equal length; users want longer completions, and its judge values length more than they do

# %% [given]
import torch
from minirlhf_course.ledger.registry import Draw

COLUMNS = ("words", "raw", "equal", "people")


# Fifty models in no order: words, and three rates in thousandths; and which five make one task.
# fmt: off
ROWS = [
    "25 687 387 574", "21 661 447 588", "25 554 406 546", "26 628 451 632", "0 538 542 561", "25 716 431 618",
    "-19 501 663 657", "27 648 368 552", "0 558 564 548", "26 595 405 606", "28 748 466 622", "18 506 317 332",
    "24 592 415 585", "-27 387 642 630", "-1 602 615 607", "23 552 414 552", "0 568 579 580", "28 752 473 655",
    "21 574 357 356", "27 578 443 578", "25 614 394 409", "24 582 439 570", "-25 458 691 677", "27 594 356 336",
    "0 648 661 685", "-20 578 743 728", "-23 457 687 660", "24 669 369 354", "0 687 703 708", "-21 514 610 619",
    "20 644 377 398", "23 566 304 320", "-29 456 670 664", "0 621 640 621", "28 645 479 652", "0 572 579 572",
    "25 606 359 387", "-21 542 661 666", "-19 474 597 566", "29 627 445 615", "25 576 386 383",
    "21 669 463 534", "19 554 461 560", "25 634 389 554", "0 642 663 671", "22 634 410 558", "26 524 285 300",
    "26 704 436 605", "0 532 536 554", "-24 511 660 652",
]
TASKS = [
    (42, 23, 44, 22, 17), (12, 23, 35, 45, 38), (10, 6, 9, 48, 18), (21, 5, 37, 31, 48), (36, 12, 24, 10, 32),
    (49, 30, 1, 48, 39), (34, 35, 17, 13, 18), (13, 33, 21, 27, 0), (15, 0, 25, 40, 44), (39, 25, 46, 41, 4),
    (30, 19, 28, 41, 22), (39, 46, 45, 49, 8), (38, 21, 27, 24, 10), (4, 32, 46, 19, 47), (27, 26, 7, 39, 16),
    (18, 44, 25, 2, 17), (31, 43, 15, 26, 44), (44, 2, 25, 11, 41), (46, 5, 8, 25, 9), (27, 49, 45, 12, 14),
    (25, 23, 16, 10, 15), (29, 39, 18, 43, 28), (13, 39, 46, 44, 43), (35, 25, 20, 39, 7), (37, 34, 27, 24, 7),
    (30, 43, 28, 32, 9), (27, 7, 28, 22, 12), (10, 28, 29, 11, 34), (25, 12, 14, 40, 7), (38, 43, 46, 34, 24),
    (7, 27, 42, 6, 48), (45, 32, 28, 34, 46), (45, 28, 46, 37, 15), (37, 28, 46, 41, 39), (44, 38, 34, 20, 45),
    (24, 15, 20, 7, 25), (42, 14, 25, 30, 7), (43, 38, 30, 42, 44),
]
# fmt: on


def models(student):
    """Five rows of four numbers, (5, 4)."""
    five = TASKS[Draw("21.5", student).integer(0, len(TASKS) - 1)]
    rows = [[int(x) for x in ROWS[i].split()] for i in five]
    return torch.tensor(rows, dtype=torch.float64) / torch.tensor([1, 1000, 1000, 1000])


# %% [stub]
print("model   " + " ".join(f"{name:>8}" for name in COLUMNS))
for number, row in enumerate(models(STUDENT).tolist(), 1):
    print(f"{number:5}   {row[0]:8.0f} " + " ".join(f"{x:8.3f}" for x in row[1:]))

model_1 = None
model_2 = None
model_3 = None
model_4 = None
model_5 = None


# %% [solution]
def who(row):
    words, raw, _, people = row.tolist()
    if abs(words) < 10:
        return "c"
    if words < 0:
        return "d"
    if people < 0.5:
        return "a"
    return "b" if raw - people < 0.04 else "e"


model_1, model_2, model_3, model_4, model_5 = (who(row) for row in models(STUDENT))

# %% [tests]
from minirlhf_course.classroom.testing import fail, test
from minirlhf_course.ledger.registry import Draw

TRUTH = "eebbcedecbeabdcbceababdacddacdaadcbcaddbaebeceaecd"  # who each of ROWS is


def ask(sub, letter, said):
    """The model that has this letter in truth must have it in the answer."""
    five = TASKS[Draw("21.5", sub.student).integer(0, len(TASKS) - 1)]
    at = [TRUTH[i] for i in five].index(letter) + 1
    got = sub.choice(f"model_{at}", "abcde")
    if got != letter:
        fail(f"`model_{at}` is not {got!r}: {said[got]}")


@test(
    points=1,
    rounds=1,
    hints=("Which model's win rate does the control leave unchanged, and why?", "If completions are equally long, there is nothing to control."),
)  # fmt: skip
def as_long(sub, draw):
    "The model that is as long as the baseline is identified."
    ask(sub, "c", dict.fromkeys("abde", "its completions are as long as the baseline's"))


@test(
    points=1,
    rounds=1,
    hints=("Which model does the control raise, and which does it lower?", "A judge with a length bias underrates a short model; the control corrects this."),
)  # fmt: skip
def short(sub, draw):
    "The short model is identified."
    ask(sub, "d", dict.fromkeys("abce", "its completions are shorter than the baseline's"))


@test(
    points=1,
    rounds=1,
    hints=("Three models are longer. To which of them do users prefer the baseline?", "Its length-controlled win rate equals the win rate by users: the control is right about it."),
)  # fmt: skip
def padding(sub, draw):
    "The model that pads is identified."
    unliked = "users prefer the baseline to it"
    ask(sub, "a", {"b": unliked, "e": unliked, "c": "its completions are longer", "d": "its completions are longer"})


@test(
    points=1,
    rounds=1,
    hints=(
        "For which of the longer models does the judge's raw win rate equal the win rate by users?",
        "There the judge has no excess bias, and the control removes a real value of length.",
    ),
)
def earned(sub, draw):
    "The model whose judge values length as users do is identified."
    ask(
        sub, "b",
        {
            "a": "users prefer it to the baseline", "c": "its completions are longer", "d": "its completions are longer",
            "e": "its raw win rate equals the win rate by users, so its judge has no excess bias",
        },
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=(
        "For which model is the raw win rate too high and the controlled one too low?",
        "Users want some length and the judge wants more, so the win rate by users is between the two.",
    ),
)
def overpaid(sub, draw):
    "The model whose judge values length more than users do is identified."
    ask(
        sub, "e",
        {
            "a": "users prefer it to the baseline", "c": "its completions are longer", "d": "its completions are longer",
            "b": "its raw win rate is far above the win rate by users",
        },
    )  # fmt: skip


# %% [mutant] the control is right about everybody
# caught by: earned
# says: no excess bias
def who(row):
    words, raw, _, people = row.tolist()
    if abs(words) < 10:
        return "c"
    if words < 0:
        return "d"
    if people < 0.5:
        return "a"
    return "e" if raw - people < 0.04 else "b"


model_1, model_2, model_3, model_4, model_5 = (who(row) for row in models(STUDENT))


# %% [mutant] whoever is best by the judge is better
# caught by: as_long
def who(row):
    return "abcde"[int(row[1] > 0.65) + int(row[0] > 0)]


model_1, model_2, model_3, model_4, model_5 = (who(row) for row in models(STUDENT))


# %% [mutant] what is preferred does not pad
# caught by: padding
# says: prefer the baseline
def who(row):
    words, raw, _, people = row.tolist()
    if abs(words) < 10:
        return "c"
    if words < 0:
        return "d"
    if raw - people > 0.15:
        return "b"
    return "a" if raw - people < 0.04 else "e"


model_1, model_2, model_3, model_4, model_5 = (who(row) for row in models(STUDENT))


# %% [partial] 2: the longer ones that are preferred, exchanged
def who(row):
    words, raw, _, people = row.tolist()
    if abs(words) < 10:
        return "c"
    if words < 0:
        return "d"
    if people < 0.5:
        return "a"
    return "e" if raw - people < 0.04 else "b"


model_1, model_2, model_3, model_4, model_5 = (who(row) for row in models(STUDENT))
