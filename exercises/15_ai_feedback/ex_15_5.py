# ---
# title: Four judges
# kind: choice
# minutes: 15
# ---

# %% [statement]
# Four judges look at the same pairs of replies, the better one shown first in half of them. They see the quality of a reply equally well, and their single verdicts are equally noisy. What they like beside quality differs. `judges(STUDENT)` gives, for each judge in an order of your own, four exact shares:
#
# * `one`: a single verdict names the better reply;
# * `majority`: the majority of endlessly many verdicts in **one** order does (an even split is a coin toss);
# * `both`: a single draw does whose log-odds are the mean of both orders;
# * `passes`: with endlessly many verdicts in each order, the two orders do not contradict each other (an even split contradicts nothing).
#
# Which is which? Answer `judge_1`, `judge_2`, `judge_3` and `judge_4` with letters, each used once.
#
# (a) likes nothing beside quality\
# (b) likes the first place\
# (c) likes long replies\
# (d) likes the first place and long replies

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
    """Four rows of four shares."""
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
    return "b" if both == 0.812 else "d"  # without the place it is as good as the judge that likes nothing


judge_1, judge_2, judge_3, judge_4 = (likes(row) for row in judges(STUDENT))

# %% [tests]
from minirlhf_course.classroom.testing import fail, test

TRUTH = "bdac"  # of VARIANTS


def ask(sub, letter, said):
    """The judge that has this letter in truth must have it in the answer."""
    for number, row in enumerate(judges(sub.student), 1):
        if TRUTH[[row in kind for kind in VARIANTS].index(True)] == letter:
            got = sub.choice(f"judge_{number}", "abcd")
            if got != letter:
                fail(f"`judge_{number}` is not {got!r}: {said[got]}")


@test(
    points=1,
    rounds=1,
    hints=(
        "Whose majority is right on every pair?",
        "Only noise can be voted away entirely. A liking stays in every majority.",
    ),
)
def fair(sub, draw):
    "The judge that likes nothing else is found."
    ask(sub, "a", dict.fromkeys("bcd", "endlessly many of its verdicts are right on every pair, in one order"))


@test(
    points=1,
    rounds=1,
    hints=("For whom does the order make no difference?", "`passes` is 1, and still the majority errs."),
)
def wordy(sub, draw):
    "The judge that likes length is found."
    ask(
        sub, "c",
        {
            "a": "the majority of its verdicts errs", "b": "its verdicts do not depend on the order",
            "d": "its verdicts do not depend on the order",
        },
    )  # fmt: skip


@test(
    points=2,
    rounds=1,
    hints=(
        "Both orders take a liking for the place out. What is left of the two judges that fail the swap test?",
        "Compare `both` with that of the judge that likes nothing: one of the two has the same, the other has less.",
    ),
)
def place(sub, draw):
    "The two that like the first place are told apart."
    ask(
        sub, "b",
        {
            "a": "the orders disagree on some pairs", "c": "the orders disagree on some pairs",
            "d": "without the place it is as good as the judge that likes nothing",
        },
    )  # fmt: skip
    ask(
        sub, "d",
        {
            "a": "the orders disagree on some pairs", "c": "the orders disagree on some pairs",
            "b": "both orders together are worse than the judge that likes nothing",
        },
    )  # fmt: skip


# %% [mutant] place with and without length exchanged
# caught by: place
# says: without the place
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


# %% [partial] 2: those that pass
def likes(row):
    _, majority, both, passes = row
    if passes == 1:
        return "a" if majority == 1 else "c"
    return "d" if both == 0.812 else "b"


judge_1, judge_2, judge_3, judge_4 = (likes(row) for row in judges(STUDENT))
