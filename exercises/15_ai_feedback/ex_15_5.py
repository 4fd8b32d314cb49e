# ---
# title: Four judges
# kind: choice
# minutes: 15
# ---

# %% [statement]
# Four judges compare the same pairs of completions, the better one shown first in half of them. They see the quality of a completion equally well, and their single verdicts are equally noisy. They differ in their biases. `judges(STUDENT)` gives, for each judge in an order of your own, four exact fractions:
#
# * `one`: a single verdict names the better completion;
# * `majority`: the majority of verdicts in **one** order names it, in the limit of many verdicts (an even split is decided by a fair coin);
# * `both`: one verdict, sampled with the mean log-odds of both orders, names it;
# * `passes`: in the limit of many verdicts in each order, the two orders do not contradict each other (an even split contradicts nothing).
#
# Which is which? Answer `judge_1`, `judge_2`, `judge_3` and `judge_4` with letters, each used once.
#
# (a) has no bias\
# (b) has a position bias\
# (c) has a length bias\
# (d) has a position bias and a length bias

# %% [given]
import itertools

from minirlhf_course.ledger.registry import Draw

COLUMNS = ("one", "majority", "both", "passes")

# One list of variants for each kind of judge, in no order.
# fmt: off
VARIANTS = (
    ((0.753, 0.775, 0.812, 0.550), (0.717, 0.704, 0.812, 0.424), (0.644, 0.602, 0.812, 0.211), (0.784, 0.845, 0.812, 0.707)),
    ((0.773, 0.807, 0.807, 0.667), (0.751, 0.763, 0.791, 0.611), (0.748, 0.758, 0.776, 0.683), (0.709, 0.724, 0.791, 0.490)),
    ((0.812, 1.000, 0.812, 1.000),),
    ((0.791, 0.844, 0.791, 1.000), (0.776, 0.802, 0.776, 1.000), (0.762, 0.774, 0.762, 1.000), (0.807, 0.877, 0.807, 1.000)),
)
# fmt: on


def judges(student):
    """Four rows of four fractions."""
    draw = Draw("15.5", student)
    rows = [kind[draw.integer(0, len(kind) - 1)] for kind in VARIANTS]
    order = list(itertools.permutations(range(4)))[draw.integer(0, 23)]
    return [rows[i] for i in order]


# %% [stub]
print(" " * 8 + "".join(f"{name:>10}" for name in COLUMNS))
for number, row in enumerate(judges(STUDENT), 1):
    print(f"judge {number} " + "".join(f"{x:10.3f}" for x in row))

judge_1 = None
judge_2 = None
judge_3 = None
judge_4 = None


# %% [solution]
def likes(row):
    _, majority, both, passes = row
    if passes == 1:
        return "a" if majority == 1 else "c"  # nothing depends on the order
    return "b" if both == 0.812 else "d"  # without its position bias it is as good as the judge without a bias


judge_1, judge_2, judge_3, judge_4 = (likes(row) for row in judges(STUDENT))

# %% [tests]
from minirlhf_course.classroom.testing import fail, test

TRUTH = "bdac"  # of VARIANTS


def ask(sub, letter, said):
    """The judge with this letter must have it in the answer."""
    for number, row in enumerate(judges(sub.student), 1):
        if TRUTH[[row in kind for kind in VARIANTS].index(True)] == letter:
            got = sub.choice(f"judge_{number}", "abcd")
            if got != letter:
                fail(f"`judge_{number}` is not {got!r}: {said[got]}")


@test(
    points=1,
    rounds=1,
    hints=(
        "Which judge has a majority that is right on every pair?",
        "Voting removes noise completely. A bias stays in every majority.",
    ),
)
def fair(sub, draw):
    "The judge without a bias is identified."
    ask(
        sub, "a", dict.fromkeys("bcd", "in one order the majority of its verdicts is right on every pair, in the limit")
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "For which judges does the order make no difference?",
        "`passes` is 1, but the majority is sometimes wrong.",
    ),
)
def wordy(sub, draw):
    "The judge with a length bias is identified."
    ask(
        sub, "c",
        {
            "a": "the majority of its verdicts is sometimes wrong", "b": "its verdicts do not depend on the order",
            "d": "its verdicts do not depend on the order",
        },
    )  # fmt: skip


@test(
    points=2,
    rounds=1,
    hints=(
        "The mean of both orders removes the position bias. What bias remains in the two judges that fail the swap test?",
        "Compare `both` with the value of the judge without a bias: one of the two has the same value, the other a lower one.",
    ),
)
def place(sub, draw):
    "The two judges with a position bias are distinguished."
    ask(
        sub, "b",
        {
            "a": "the orders disagree on some pairs", "c": "the orders disagree on some pairs",
            "d": "without its position bias it is as good as the judge without a bias",
        },
    )  # fmt: skip
    ask(
        sub, "d",
        {
            "a": "the orders disagree on some pairs", "c": "the orders disagree on some pairs",
            "b": "both orders together are worse than the judge without a bias",
        },
    )  # fmt: skip


# %% [mutant] place with and without length exchanged
# caught by: place
# says: without its position bias
def likes(row):
    _, majority, both, passes = row
    if passes == 1:
        return "a" if majority == 1 else "c"
    return "d" if both == 0.812 else "b"


judge_1, judge_2, judge_3, judge_4 = (likes(row) for row in judges(STUDENT))


# %% [mutant] whoever passes the swap test is fair
# caught by: fair
# says: on every pair
def likes(row):
    _, majority, both, passes = row
    if passes == 1:
        return "c" if majority == 1 else "a"
    return "b" if both == 0.812 else "d"


judge_1, judge_2, judge_3, judge_4 = (likes(row) for row in judges(STUDENT))


# %% [mutant] length spoils the swap test
# caught by: wordy
# says: do not depend on the order
def likes(row):
    _, majority, both, passes = row
    if passes == 1:
        return "a" if majority == 1 else "d"
    return "b" if both == 0.812 else "c"


judge_1, judge_2, judge_3, judge_4 = (likes(row) for row in judges(STUDENT))


# %% [partial] 1: those that pass
def likes(row):
    _, majority, both, passes = row
    if passes == 1:
        return "a" if majority == 1 else "c"
    return "d" if both == 0.812 else "b"


judge_1, judge_2, judge_3, judge_4 = (likes(row) for row in judges(STUDENT))
