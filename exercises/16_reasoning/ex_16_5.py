# ---
# title: Identify the reward from a log
# kind: choice
# minutes: 15
# ---

# %% [statement]
# Four runs of the shell game from the same fine-tuned model, sixty rollouts each. Each run had another reward. An entry of a log is the mean over the five rollouts that end with the rollout named above it. Each log has three rows:
#
# * `reward`, the mean reward of the run;
# * `thinks`, the fraction of completions with a chain of thought;
# * `right`, the accuracy, which three of the rewards do not measure.
#
# `logs(STUDENT)` has them in your own order; the numbers come from real runs. Which run had which reward? Answer `log_1`, `log_2`, `log_3` and `log_4` with letters, each used once.
#
# (a) the right answer\
# (b) the format: it begins with *think* and ends with an answer, right or wrong\
# (c) agreement with the majority of the eight completions for the same game\
# (d) a fair coin

# %% [given]
import itertools

from minirlhf_course.ledger.registry import Draw

ROLLOUTS = (5, 10, 20, 30, 40, 50, 60)


# Twelve runs in no order, each reward, thinks and right in hundredths, and which of them can make one task: one of each group.
# fmt: off
RUNS = [
    ("53 60 92 95 97 97 98", "29 46 89 97 99 99 98", "48 58 92 70 74 77 78"),
    ("53 51 48 50 48 49 52", "17 14 21 21 34 31 37", "38 26 25 24 32 24 14"),
    ("48 60 93 97 98 97 98", "30 48 93 98 99 99 99", "48 60 93 97 98 97 98"),
    ("49 51 49 47 49 50 46", "17 9 11 11 18 33 37", "37 31 24 27 22 25 20"),
    ("46 59 89 97 98 97 98", "28 47 86 98 100 99 100", "46 59 89 97 98 97 98"),
    ("27 47 90 98 99 98 99", "28 47 90 99 100 99 100", "46 60 89 91 96 97 97"),
    ("45 62 91 96 96 98 98", "27 50 92 98 99 99 99", "45 62 91 96 96 98 98"),
    ("53 59 83 96 98 98 98", "26 43 80 97 100 99 100", "45 57 82 96 98 98 98"),
    ("28 50 93 97 98 99 99", "28 50 95 99 99 99 99", "46 62 93 95 73 82 78"),
    ("47 50 50 53 49 50 48", "30 66 67 38 41 15 7", "46 71 57 35 27 21 24"),
    ("52 60 87 96 97 96 91", "26 46 86 98 99 99 99", "45 59 87 96 96 69 54"),
    ("30 50 93 97 98 98 98", "30 50 95 98 99 99 98", "48 62 81 64 52 53 35"),
]
GROUPS = ((0, 7, 10), (2, 4, 6), (1, 3, 9), (5, 8, 11))
# fmt: on


def logs(student):
    """Four logs, each three lists of seven numbers: reward, thinks, right."""
    draw = Draw("16.5", student)
    chosen = [group[draw.integer(0, len(group) - 1)] for group in GROUPS]
    order = list(itertools.permutations(range(4)))[draw.integer(0, 23)]
    return [[[int(x) / 100 for x in column.split()] for column in RUNS[chosen[i]]] for i in order]


# %% [stub]
for number, log in enumerate(logs(STUDENT), 1):
    print(f"log {number}   rollout " + " ".join(f"{rollout:5}" for rollout in ROLLOUTS))
    for name, column in zip(("reward", "thinks", "right"), log, strict=True):
        print(f"{name:>15} " + " ".join(f"{x:5.2f}" for x in column))

log_1 = None
log_2 = None
log_3 = None
log_4 = None


# %% [solution]
def paid(log):
    reward, _, right = log
    if max(abs(a - b) for a, b in zip(reward, right, strict=True)) < 0.005:
        return "a"  # it earns what is right
    if max(reward) < 0.6:
        return "d"  # never more than half
    return "b" if reward[0] < right[0] else "c"  # at first fewer think than guess right, and more agree


log_1, log_2, log_3, log_4 = (paid(log) for log in logs(STUDENT))

# %% [tests]
from minirlhf_course.classroom.testing import fail, test

TRUTH = "cdadabacbdcb"  # the reward of each of RUNS


def ask(sub, letter, said):
    """The run whose reward has this letter must have it in the answer."""
    for number, log in enumerate(logs(sub.student), 1):
        run = [[f"{round(100 * x)}" for x in column] for column in log]
        if TRUTH[[[column.split() for column in each] for each in RUNS].index(run)] == letter:
            got = sub.choice(f"log_{number}", "abcd")
            if got != letter:
                fail(f"`log_{number}` is not {got!r}: {said[got]}")


@test(
    points=1,
    rounds=1,
    hints=("What is the mean of a fair coin?", "One of the rewards stays near a half, whatever the completions are."),
)
def coin(sub, draw):
    "The run with the random reward is identified."
    ask(sub, "d", dict.fromkeys("abc", "its reward stays near a half while the completions change"))


@test(
    points=1,
    rounds=1,
    hints=(
        "Compare reward and right, number by number.",
        "With (a) the mean reward is exactly the fraction of right answers.",
    ),
)
def answer(sub, draw):
    "The run that was rewarded for right answers is identified."
    ask(sub, "a", dict.fromkeys("bcd", "two of its rows are equal in every column: which?"))


@test(
    points=1,
    rounds=1,
    hints=(
        "Which reward can a completion without a chain of thought get under (b), and which under (c)?",
        "Under (b) it gets 0, so the mean reward is never larger than the fraction with a chain of thought.",
    ),
)
def shape(sub, draw):
    "The run that was rewarded for the format is identified."
    ask(
        sub, "b",
        {
            "a": "reward and accuracy differ", "d": "its reward rises",
            "c": "its reward is never larger than the fraction with a chain of thought; under (c) some of eight direct guesses agree",
        },
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=(
        "Eight completions guess among four cups. How many agree with the most frequent answer, at least?",
        "The most frequent answer of a group has at least as many votes as the right one, so this reward is never below the accuracy. At the beginning many groups agree on a wrong answer, and it is *above* the accuracy.",
    ),
)
def majority(sub, draw):
    "The run that was rewarded for agreement is identified."
    ask(
        sub, "c",
        {
            "a": "reward and accuracy differ at the beginning", "d": "its reward rises",
            "b": "at the beginning its reward exceeds the fraction with a chain of thought",
        },
    )  # fmt: skip


# %% [mutant] format and majority exchanged
# caught by: shape
# says: eight direct guesses
def paid(log):
    reward, _, right = log
    if max(abs(a - b) for a, b in zip(reward, right, strict=True)) < 0.005:
        return "a"
    if max(reward) < 0.6:
        return "d"
    return "c" if reward[0] < right[0] else "b"


log_1, log_2, log_3, log_4 = (paid(log) for log in logs(STUDENT))


# %% [mutant] random reward and majority exchanged
# caught by: coin
# says: near a half
def paid(log):
    reward, _, right = log
    if max(reward) < 0.6:
        return "c"
    if max(abs(a - b) for a, b in zip(reward, right, strict=True)) < 0.005:
        return "a"
    return "b" if reward[0] < right[0] else "d"


log_1, log_2, log_3, log_4 = (paid(log) for log in logs(STUDENT))


# %% [mutant] the right answer and the majority exchanged
# caught by: answer
# says: equal in every column
def paid(log):
    reward, _, right = log
    if max(abs(a - b) for a, b in zip(reward, right, strict=True)) < 0.005:
        return "c"
    if max(reward) < 0.6:
        return "d"
    return "b" if reward[0] < right[0] else "a"


log_1, log_2, log_3, log_4 = (paid(log) for log in logs(STUDENT))


# %% [partial] 1: those that are plain
def paid(log):
    reward, _, right = log
    if max(abs(a - b) for a, b in zip(reward, right, strict=True)) < 0.005:
        return "a"
    if max(reward) < 0.6:
        return "d"
    return "c" if reward[0] < right[0] else "b"


log_1, log_2, log_3, log_4 = (paid(log) for log in logs(STUDENT))
