# ---
# title: Four tools
# kind: choice
# minutes: 15
# ---

# %% [statement]
# Four policies learn when to call a tool. Each gets easy questions, of which it answers 90 % rightly from memory, and hard questions, of which it answers 10 % rightly from memory. It reads a tool's output without error and believes it. A right answer gets a reward of 1. The policies are tabular, with one probability of a call for each of the two
# kinds. They begin at one half, and learn for 120 steps from groups of 32 conversations about questions of one kind. Each log has three columns, in percent, means over the ten steps that end with the named step:
#
# * `easy`, the percentage of conversations about easy questions with a call;
# * `hard`, the same for hard questions;
# * `right`, the percentage of right answers to *hard* questions.
#
# `logs(STUDENT)` has them in an order of your own. The numbers come from real runs. Which policy has which tool? Answer `log_1`, `log_2`, `log_3` and `log_4` with letters, each used once.
#
# (a) a tool that always works, free\
# (b) a tool that always works, at a price of .3 for each call\
# (c) a tool that reports a failure in .35 of the calls, free; the policy then answers from memory\
# (d) a tool that returns a wrong value without a warning in .35 of the calls, free

# %% [given]
import itertools

from minirlhf_course.ledger.registry import Draw

STEPS = (20, 40, 60, 80, 100, 120)


# Twelve runs in no order, each easy, hard and right, and which of them can make one task: one of each group.
# fmt: off
RUNS = [
    ("27 15 10 4 3 3", "90 97 98 99 98 100", "90 97 98 99 99 100"),
    ("62 69 77 82 86 88", "90 95 97 99 99 100", "59 62 72 68 66 72"),
    ("62 75 82 91 91 93", "93 98 98 99 99 100", "93 98 98 99 99 100"),
    ("22 12 7 4 3 4", "88 97 98 96 98 98", "58 62 63 65 62 64"),
    ("68 76 82 87 90 91", "94 98 99 99 100 100", "94 98 99 99 100 100"),
    ("52 69 74 77 79 82", "91 96 98 98 98 99", "65 62 68 68 65 68"),
    ("32 8 11 2 3 4", "90 96 96 98 98 99", "63 66 64 60 60 65"),
    ("23 14 10 7 3 3", "93 97 97 98 99 99", "93 97 97 98 99 99"),
    ("68 73 82 82 88 90", "88 97 98 97 100 99", "61 64 63 65 69 65"),
    ("25 12 6 5 5 4", "89 98 96 99 99 98", "90 98 96 99 99 99"),
    ("28 10 7 4 3 2", "89 95 98 99 99 98", "63 57 68 66 63 62"),
    ("65 75 84 90 92 91", "94 98 99 99 100 99", "95 98 99 99 100 99"),
]
# fmt: on
GROUPS = [(2, 4, 11), (0, 7, 9), (1, 5, 8), (3, 6, 10)]


def logs(student):
    """Four logs, each three lists of six numbers: easy, hard, right."""
    draw = Draw("17.5", student)
    order = list(itertools.permutations(range(4)))[draw.integer(0, 23)]
    chosen = [group[draw.integer(0, len(group) - 1)] for group in GROUPS]
    return [[[int(x) for x in column.split()] for column in RUNS[chosen[i]]] for i in order]


# %% [stub]
for number, log in enumerate(logs(STUDENT), 1):
    print(f"log {number}      step " + " ".join(f"{step:4}" for step in STEPS))
    for name, column in zip(("easy", "hard", "right"), log, strict=True):
        print(f"{name:>15} " + " ".join(f"{x:4}" for x in column))

log_1 = None
log_2 = None
log_3 = None
log_4 = None


# %% [solution]
def tool(log):
    easy, _, right = log
    works = right[-1] > 85
    asks = easy[-1] > 50  # worth it where the head is right nine times in ten?
    return {(True, True): "a", (True, False): "b", (False, True): "c", (False, False): "d"}[works, asks]


log_1, log_2, log_3, log_4 = (tool(log) for log in logs(STUDENT))

# %% [tests]
from minirlhf_course.classroom.testing import fail, test

TRUTH = "bcadacdbcbda"  # which tool each of RUNS had


def ask(sub, letter, said):
    """The run that has this letter in truth must have it in the answer."""
    for number, log in enumerate(logs(sub.student), 1):
        run = tuple(" ".join(map(str, column)) for column in log)
        if TRUTH[RUNS.index(run)] == letter:
            got = sub.choice(f"log_{number}", "abcd")
            if got != letter:
                fail(f"`log_{number}` is not {got!r}: {said[got]}")


@test(
    points=1,
    rounds=1,
    hints=(
        "Nearly every hard question leads to a call. How often is the answer right then, with each tool?",
        "A tool that works makes every hard question right. With (c) and (d) about two in three are right.",
    ),
)
def works(sub, draw):
    "The free tool that always works is identified."
    no = "nearly all hard questions are answered rightly, so the tool works"
    ask(sub, "a", {"b": "a price of .3 is more than the error rate of memory on easy questions", "c": no, "d": no})


@test(
    points=1,
    rounds=1,
    hints=(
        "Compute for each tool whether a call about an easy question pays.",
        "One minus the price is below the nine in ten from memory. For hard questions it is above the one in ten from memory.",
    ),
)
def priced(sub, draw):
    "The tool with a price is identified."
    no = "nearly all hard questions are answered rightly, so the tool works"
    ask(
        sub,
        "b",
        {"a": "it stops calling for easy questions, where a free tool that works still helps", "c": no, "d": no},
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "What does a free failure cost?",
        "Nothing: the policy answers from memory. So the value of a free call is (1 − f)(1 − p), where p is the probability from memory. It is never below 0.",
    ),
)
def fails(sub, draw):
    "The tool that fails is identified."
    no = "about a third of the hard questions stays wrong although it calls"
    ask(
        sub,
        "c",
        {
            "a": no,
            "b": no,
            "d": "it calls more and more for easy questions; with so many silent errors it would not",
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "What does a silent error cost on an easy question?",
        "The right answer. The value of a call is 1 − l − p, where p is the probability from memory. It is below 0 for p = .9.",
    ),
)
def lies(sub, draw):
    "The tool with silent errors is identified."
    no = "about a third of the hard questions stays wrong although it calls"
    ask(sub, "d", {"a": no, "b": no, "c": "it stops calling for easy questions, but a free failure costs nothing"})


# %% [mutant] fails and lies exchanged
# caught by: fails
# says: more and more
log_1, log_2, log_3, log_4 = ({"c": "d", "d": "c"}.get(tool(log), tool(log)) for log in logs(STUDENT))


# %% [mutant] the price overlooked
# caught by: works
# says: more than the error rate
log_1, log_2, log_3, log_4 = ({"a": "b", "b": "a"}.get(tool(log), tool(log)) for log in logs(STUDENT))


# %% [mutant] who asks less has a tool that lies
# caught by: priced
# says: so the tool works
log_1, log_2, log_3, log_4 = ({"b": "d", "d": "b"}.get(tool(log), tool(log)) for log in logs(STUDENT))


# %% [partial] 1: those that work
log_1, log_2, log_3, log_4 = ({"c": "d", "d": "c"}.get(tool(log), tool(log)) for log in logs(STUDENT))
