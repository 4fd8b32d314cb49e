# ---
# title: What follows from a report?
# kind: choice
# minutes: 15
# ---

# %% [statement]
# Five comparisons, each of two models on the same items, each model trained once. `report(STUDENT)` has your five: the items that both solved, only the first, only the second, and neither, and a claim about the two models. The printout adds the output of an
# evaluation tool: both scores with their 95 % intervals by **Wald's** equation, and the paired difference with its interval. Does each claim follow, at the level of 95 %? Answer `claim_1`, `claim_2`, `claim_3`, `claim_4` and `claim_5` with a letter each; a
# letter may be used more than once.
#
# (a) it follows from the report\
# (b) the report refutes it\
# (c) the report does not decide it, and more items of the same kind would\
# (d) the report does not decide it, and more items would not: something else must be measured

# %% [given]
import math

from minirlhf_course.ledger.registry import Draw

CLAIMS = (
    "On such questions the first is better than the second: its probability of being right is higher.",
    "On such questions the first is at least five percentage points better than the second.",
    "On such questions the two are less than one percentage point apart.",
    "If you train both again, with other seeds, the recipe of the first gives the better model.",
    "The first solves more than 95 % of such questions.",
)
# both, only the first, only the second, neither: from ... to
COUNTS = (
    (((640, 660), (60, 66), (30, 34), (240, 260)), ((640, 660), (43, 47), (33, 36), (240, 260))),
    (((2700, 2760), (160, 180), (95, 105), (1000, 1100)), ((340, 360), (58, 62), (29, 32), (140, 160))),
    (((14000, 15000), (84, 92), (70, 78), (5000, 6000)), ((100, 120), (14, 16), (11, 13), (60, 70))),
    (((1300, 1330), (146, 155), (86, 94), (420, 450)), ((1100, 1130), (196, 205), (116, 124), (620, 650))),
    (((37, 50), (2, 4), (0, 0), (0, 0)), ((150, 250), (2, 6), (0, 0), (0, 0))),
)


def report(student):
    """Five rows: four numbers of items, and which of CLAIMS is made about them."""
    draw, rows = Draw("19.4", student), []
    for claim in draw.permutation(5).tolist():
        drawn = COUNTS[claim][draw.integer(0, 1)]
        rows.append((tuple(draw.integer(low, high) for low, high in drawn), claim))
    return rows


def show(number, counts, claim):
    """What the tool prints about one row."""
    both, first, second, neither = counts
    n, print_score = sum(counts), "{:.3f} [{:.3f}, {:.3f}]".format
    scores = []
    for right in (both + first, both + second):
        p, half = right / n, 1.96 * math.sqrt(right * (n - right) / n**3)
        scores.append(print_score(p, p - half, p + half))
    gap = (first - second) / n
    half = 1.96 * math.sqrt(((first + second) / n - gap**2) / (n - 1))
    print(f"{number}. {n} items: both {both}, only the first {first}, only the second {second}, neither {neither}")
    print(f"   first {scores[0]}   second {scores[1]}   difference {gap:+.4f} [{gap - half:+.4f}, {gap + half:+.4f}]")
    print(f"   “{CLAIMS[claim]}”")


# %% [stub]
for number, (counts, claim) in enumerate(report(STUDENT), 1):
    show(number, counts, claim)

claim_1 = None
claim_2 = None
claim_3 = None
claim_4 = None
claim_5 = None


# %% [solution]
def inside(low, high, least, most):
    """What an interval says of the claim that the truth is between least and most."""
    if least < low and high < most:
        return "a"
    return "b" if high < least or low > most else "c"


def verdict(counts, claim):
    _, first, second, _ = counts
    n = sum(counts)
    gap = (first - second) / n
    half = 1.96 * math.sqrt(((first + second) / n - gap**2) / (n - 1))
    if claim == 3:
        return "d"
    if claim == 4:
        return inside(n / (n + 1.96**2), 1.0, 0.95, 1.1)
    least, most = ((0, 1), (0.05, 1), (-0.01, 0.01))[claim]
    return inside(gap - half, gap + half, least, most)


claim_1, claim_2, claim_3, claim_4, claim_5 = (verdict(*row) for row in report(STUDENT))

# %% [tests]
from minirlhf_course.classroom.testing import fail, test


def ends(counts):
    """The interval of the difference, item by item."""
    both, first, second, neither = counts
    d = [0.0] * (both + neither) + [1.0] * first + [-1.0] * second
    mean = math.fsum(d) / len(d)
    error = math.sqrt(math.fsum((x - mean) ** 2 for x in d) / (len(d) - 1) / len(d))
    return mean - 1.96 * error, mean + 1.96 * error


def ask(sub, claim, truth, said):
    """The claim's letter, wherever it stands in this student's report; said explains what is wrong with another."""
    rows = report(sub.student)
    at = [made for _, made in rows].index(claim)
    right = truth(rows[at][0])
    got = sub.choice(f"claim_{at + 1}", "abcd")
    if got != right:
        fail(f"`claim_{at + 1}` is not {got!r}: {said[got]}")


SEEDS = "the claim is about these two models, so more items would decide it"


@test(
    points=1,
    rounds=1,
    hints=(
        "The intervals of the two scores overlap. Is that the question?",
        "Both answered the same items: look at the interval of the difference, and whether it contains 0.",
    ),
)
def better(sub, draw):
    "The claim that one model is better is judged by the paired difference."

    def truth(counts):
        return "a" if ends(counts)[0] > 0 else "c"

    ask(
        sub, 0, truth,
        {
            "a": "the interval of the difference contains 0", "b": "the report does not exclude that the first is better",
            "c": "the interval of the difference is above 0; the overlap of the intervals of the scores does not matter", "d": SEEDS,
        },
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=(
        "Which differences does the report still allow?",
        "All those in the interval. Is .05 below it, in it or above it?",
    ),
)
def by_much(sub, draw):
    "The claim that a difference is large is judged by where .05 lies."

    def truth(counts):
        return "b" if ends(counts)[1] < 0.05 else "c"

    ask(
        sub, 1, truth,
        {
            "a": "the interval contains differences below .05; better does not mean five points better",
            "b": "the interval contains .05: five points are possible", "c": "the whole interval is below .05", "d": SEEDS,
        },
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=(
        "If an interval contains 0, the difference is not significant. Does that show that it is small?",
        "Two models are shown to be close if the whole interval lies between −.01 and .01.",
    ),
)
def alike(sub, draw):
    "The claim that two models are close is judged by the whole interval."

    def truth(counts):
        low, high = ends(counts)
        return "a" if low > -0.01 and high < 0.01 else "c"

    ask(
        sub, 2, truth,
        {
            "a": "a difference that is not significant need not be small: the interval reaches beyond .01",
            "b": "the interval contains differences of less than .01", "c": "every difference in the interval is smaller than .01", "d": SEEDS,
        },
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=(
        "What are the items a sample of, and of what would the claim need a sample?",
        "It is about recipes, and each was trained once. Which part of the variance is not reduced by more items?",
    ),
)
def of_recipes(sub, draw):
    "The claim about recipes needs several seeds."
    once = "each recipe was trained once, and the interval carries no information about other seeds"
    more = "more items would show the difference of these two models more exactly, and it is significant already; the report contains no other seed"
    ask(sub, 3, lambda counts: "d", {"a": once, "b": once, "c": more})


@test(
    points=1,
    rounds=1,
    hints=(
        "All items were solved. Is the tool's interval valid there?",
        "Wald's interval has no width there. The lower end of Wilson's is n/(n + z²).",
    ),
)
def nearly_perfect(sub, draw):
    "The claim about a model that solved every item is judged by Wilson's interval."

    def truth(counts):
        n, p = sum(counts), 0.95
        return "a" if (1 - p) > 1.96 * math.sqrt(p * (1 - p) / n) else "c"  # is .95 within 1.96 errors of its own?

    ask(
        sub, 4, truth,
        {
            "a": "an interval without width proves nothing: a model with .95 would solve all of so few items with probability above 5 %",
            "b": "all items were solved", "c": "with this number of items, all solved, Wilson's interval is above .95", "d": SEEDS,
        },
    )  # fmt: skip


# %% [shared]
# 1.96: a quantile of the normal distribution


# %% [mutant] overlap
# caught by: better
def verdict_by_overlap(counts, claim):
    return "c" if claim == 0 and verdict(counts, claim) == "a" else "a" if claim == 0 else verdict(counts, claim)


claim_1, claim_2, claim_3, claim_4, claim_5 = (verdict_by_overlap(*row) for row in report(STUDENT))


# %% [mutant] by the measured difference
# caught by: by_much
def by_middle(counts, claim):
    return "a" if claim == 1 else verdict(counts, claim)


claim_1, claim_2, claim_3, claim_4, claim_5 = (by_middle(*row) for row in report(STUDENT))


# %% [mutant] not significant, so alike; significant, so not
# caught by: alike
def absent(counts, claim):
    return ("a" if sum(counts) < 1000 else "b") if claim == 2 else verdict(counts, claim)


claim_1, claim_2, claim_3, claim_4, claim_5 = (absent(*row) for row in report(STUDENT))


# %% [mutant] a recipe is its model
# caught by: of_recipes
# says: trained once
def recipe(counts, claim):
    return "a" if claim == 3 else verdict(counts, claim)


claim_1, claim_2, claim_3, claim_4, claim_5 = (recipe(*row) for row in report(STUDENT))


# %% [mutant] Wald is believed where it must not be, and not where it may
# caught by: nearly_perfect
def believed(counts, claim):
    return ("a" if sum(counts) < 100 else "c") if claim == 4 else verdict(counts, claim)


claim_1, claim_2, claim_3, claim_4, claim_5 = (believed(*row) for row in report(STUDENT))


# %% [partial] 3.5: all but the recipes
def without(counts, claim):
    return "c" if claim == 3 else verdict(counts, claim)


claim_1, claim_2, claim_3, claim_4, claim_5 = (without(*row) for row in report(STUDENT))
