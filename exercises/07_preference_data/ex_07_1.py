# ---
# title: Whose votes are these?
# kind: numeric
# minutes: 5
# ---

# %% [statement]
# Your annotators have ranked several replies to each of a few prompts, without ties: `ranked(STUDENT)` says how many to each prompt. (The list is yours alone; put your student
# id into `STUDENT` at the top of the notebook.) Every ranking is written out as all of its pairs, and a reward model is trained on all pairs alike.
#
# 1. `pairs`: how many pairs are there in all?
# 2. `loudest`: which share of the pairs, between 0 and 1, belongs to the prompt that has the most?
# 3. `fair`: each prompt should count as much as any other and all weights should add up to 1. What is the weight of *one pair* of that prompt?
#
# Numbers to 0.1 %.

# %% [given]
from minirlhf_course.ledger.registry import Draw


def ranked(student):
    """How many replies were ranked, for each prompt of this student: five numbers, one of them the largest."""
    draw = Draw("07.1", student)
    sizes = [draw.integer(3, 6) for _ in range(4)] + [draw.integer(8, 9)]
    return [sizes[int(n)] for n in draw.permutation(5)]


# %% [stub]
print(ranked(STUDENT))

pairs = None
loudest = None
fair = None

# %% [solution]
sizes = ranked(STUDENT)
of_each = [k * (k - 1) // 2 for k in sizes]
pairs = sum(of_each)
loudest = max(of_each) / pairs
fair = 1 / len(sizes) / max(of_each)

# %% [tests]
from itertools import combinations

from minirlhf_course.classroom.testing import expect, test


def written_out(student):
    """How many pairs each prompt has, by writing them out."""
    return [len(list(combinations(range(k), 2))) for k in ranked(student)]


@test(
    points=1,
    rounds=1,
    hints=(
        "Two replies give one pair, three give three. What does a fourth one add?",
        "A new reply makes a pair with every reply that was there before. Add up over the prompts.",
    ),
)
def how_many(sub, draw):
    "`pairs` counts every pair of every prompt."
    each, sizes = written_out(sub.student), ranked(sub.student)
    expect(
        sub.number("pairs"),
        float(sum(each)),
        what="`pairs`",
        reveal=False,
        mistakes={
            "every pair is counted twice, once in each order": 2.0 * sum(each),
            "only neighbours in the ranking are paired": float(sum(k - 1 for k in sizes)),
            "a reply is paired with itself": float(sum(each) + sum(sizes)),
            "K² is halved, where K (K − 1) should be": sum(k * k for k in sizes) / 2,
            "the pairs of all replies, also of different prompts": sum(sizes) * (sum(sizes) - 1) / 2,
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Which prompt has the most pairs, and how many of all pairs are its own?",
        "Divide the pairs of the longest ranking by all pairs, not its replies by all replies.",
    ),
)
def share(sub, draw):
    "`loudest` is the share of the longest ranking's pairs."
    each, sizes = written_out(sub.student), ranked(sub.student)
    expect(
        sub.number("loudest"),
        max(each) / sum(each),
        what="`loudest`",
        tolerance=0.0005,
        reveal=False,
        mistakes={
            "it is the share of the replies": max(sizes) / sum(sizes),
            "it is the share of the pairs with the first reply": (max(sizes) - 1) / sum(k - 1 for k in sizes),
            "every prompt is taken as equally loud": 1 / len(sizes),
            "it is the share of the prompt with the fewest": min(each) / sum(each),
            "it is in percent": 100 * max(each) / sum(each),
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "First share the weight among prompts, then among the pairs of one prompt.",
        "Each of the five prompts gets one fifth; the pairs of the longest ranking share theirs equally.",
    ),
)
def weight(sub, draw):
    "`fair` is what one pair of that prompt may weigh."
    each = written_out(sub.student)
    expect(
        sub.number("fair"),
        1 / len(each) / max(each),
        what="`fair`",
        tolerance=1e-5,
        reveal=False,
        mistakes={
            "all pairs weigh the same": 1 / sum(each),
            "it is a pair of the prompt with the fewest": 1 / len(each) / min(each),
            "the prompt's weight is one, so all weights add up to the number of prompts": 1 / max(each),
            "it is the weight of the whole prompt": 1 / len(each),
            "the prompt's weight is shared among the pairs of all prompts": 1 / len(each) / sum(each),
        },
    )


# %% [mutant] twice each
# caught by: how_many
# says: counted twice
pairs = 2 * pairs

# %% [mutant] neighbours only
# caught by: how_many
# says: only neighbours
pairs = sum(k - 1 for k in sizes)

# %% [mutant] a share of replies
# caught by: share
# says: share of the replies
loudest = max(sizes) / sum(sizes)

# %% [mutant] all pairs alike
# caught by: weight
# says: all pairs weigh the same
fair = 1 / pairs

# %% [partial] 2: the weight is not answered
fair = None
