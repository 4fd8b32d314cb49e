# ---
# title: Pairs from rankings
# kind: numeric
# minutes: 5
# ---

# %% [statement]
# Your annotators have ranked several completions for each of five prompts, without ties. `ranked(STUDENT)` lists the number of completions of each prompt. (The list is yours alone; put your student
# id into `STUDENT` at the top of the notebook.) Every ranking is split into all of its pairs, and a reward model is trained on all pairs with equal weights.
#
# 1. `pairs`: the number of pairs in all.
# 2. `loudest`: the fraction of the pairs, between 0 and 1, that belongs to the prompt with the most pairs.
# 3. `fair`: the weight of *one pair* of that prompt if all prompts have the same total weight and all weights add up to 1.
#
# Give numbers to 0.1 %.

# %% [given]
from minirlhf_course.ledger.registry import Draw


def ranked(student):
    """Return the number of ranked completions for each prompt of this student: five numbers, with a single largest one."""
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
    """Return the number of pairs of each prompt, by listing them."""
    return [len(list(combinations(range(k), 2))) for k in ranked(student)]


@test(
    points=1,
    rounds=1,
    hints=(
        "Two completions give one pair, three give three. How many pairs does a fourth one add?",
        "A new completion forms a pair with every earlier completion. Add up over the prompts.",
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
            "completions are paired with themselves": float(sum(each) + sum(sizes)),
            "this is half of K² instead of half of K (K − 1)": sum(k * k for k in sizes) / 2,
            "completions of different prompts are paired": sum(sizes) * (sum(sizes) - 1) / 2,
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Which prompt has the most pairs, and what fraction of all pairs does it have?",
        "Divide the number of pairs of the longest ranking by the number of all pairs. Do not count completions.",
    ),
)
def share(sub, draw):
    "`loudest` is the fraction of pairs from the longest ranking."
    each, sizes = written_out(sub.student), ranked(sub.student)
    expect(
        sub.number("loudest"),
        max(each) / sum(each),
        what="`loudest`",
        tolerance=0.0005,
        reveal=False,
        mistakes={
            "this is the fraction of the completions": max(sizes) / sum(sizes),
            "this is the fraction of the pairs that contain the first completion": (max(sizes) - 1)
            / sum(k - 1 for k in sizes),
            "all prompts have the same number of pairs here": 1 / len(sizes),
            "this is the fraction of the prompt with the fewest pairs": min(each) / sum(each),
            "this is in percent": 100 * max(each) / sum(each),
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "First split the weight among the prompts, then among the pairs of one prompt.",
        "Each of the five prompts has the weight 1/5; split it equally among the pairs of the longest ranking.",
    ),
)
def weight(sub, draw):
    "`fair` is the weight of one pair of that prompt."
    each = written_out(sub.student)
    expect(
        sub.number("fair"),
        1 / len(each) / max(each),
        what="`fair`",
        tolerance=1e-5,
        reveal=False,
        mistakes={
            "all pairs have the same weight": 1 / sum(each),
            "this is the weight of a pair of the prompt with the fewest pairs": 1 / len(each) / min(each),
            "the prompt has a total weight of 1, so all weights add up to the number of prompts": 1 / max(each),
            "this is the weight of the whole prompt": 1 / len(each),
            "the prompt's weight is split among the pairs of all prompts": 1 / len(each) / sum(each),
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
# says: fraction of the completions
loudest = max(sizes) / sum(sizes)

# %% [mutant] all pairs alike
# caught by: weight
# says: all pairs have the same weight
fair = 1 / pairs

# %% [partial] 2: the weight is not answered
fair = None
