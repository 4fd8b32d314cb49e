# ---
# title: Cyclic preferences
# kind: numeric
# minutes: 5
# ---

# %% [statement]
# Seven friends have each said, for every pair of four desserts, which of the two they prefer. `friends(STUDENT)` is a list of seven matrices. In each,
# entry `[a, b]` is 1 if the friend prefers dessert `a` to dessert `b`, and 0 otherwise. (The friends are yours alone; put your student id
# into `STUDENT` at the top of the notebook.)
#
# A money pump works on a friend whose preferences contain a cycle: a dessert is preferred to a second one, the second to a third, and the third to the first.
#
# 1. `pumped`: the list of the numbers (0 to 6) of the friends with a cycle, in rising order.
# 2. `spared`: one friend has a cycle and also a favourite, a dessert preferred to all others. The number of this friend. (If this friend already holds the favourite, the pump does not work.)
#
# You may inspect the matrices, or write a line of code.

# %% [given]
import itertools

import torch
from minirlhf_course.ledger.registry import Draw


def _likes(order, circular):
    """Zeros and ones of a friend who has the desserts in this order, but for a circle among those marked."""
    likes = torch.zeros(4, 4, dtype=torch.long)
    for better, worse in itertools.combinations(order, 2):
        likes[better, worse] = 1
    inner = [a for a in order if a in circular]
    likes[inner[0], inner[-1]], likes[inner[-1], inner[0]] = 0, 1
    return likes


def friends(student):
    """Seven friends of this student: a list of (4, 4) tensors of zeros and ones."""
    draw = Draw("06.1", student)
    alone = draw.permutation(4).tolist()  # each dessert stands outside of somebody's only circle
    up = draw.permutation(4) % 2 == 0  # half of these circles run up the alphabet, half down
    found = []
    for k, dessert in enumerate(alone):
        others = sorted(set(alone) - {dessert}, reverse=not up[k])
        # the first is a favourite above a circle, the others a worst below one
        found.append(_likes([*others, dessert] if k else [dessert, *others], others))
    everything = draw.permutation(4).tolist()
    found.append(_likes(everything, everything))
    for _ in range(2):
        line, none = draw.permutation(4).tolist(), torch.zeros(4, 4, dtype=torch.long)
        for better, worse in itertools.combinations(line, 2):
            none[better, worse] = 1
        found.append(none)
    order = draw.permutation(7).tolist()
    favourite, line = order.index(0), min(order.index(5), order.index(6))
    if favourite < line:  # so that a place among those who can be pumped is not the friend's own number
        order[favourite], order[line] = order[line], order[favourite]
    return [found[k] for k in order]


# %% [stub]
for number, likes in enumerate(friends(STUDENT)):
    print(number, [f"{'abcd'[a]} over {'abcd'[b]}" for a, b in likes.nonzero().tolist()])

pumped = None
spared = None

# %% [solution]
pumped = [n for n, likes in enumerate(friends(STUDENT)) if sorted(likes.sum(-1).tolist()) != [0, 1, 2, 3]]
[spared] = [n for n, likes in enumerate(friends(STUDENT)) if sorted(likes.sum(-1).tolist()) == [1, 1, 1, 3]]

# %% [tests]
import itertools

from minirlhf_course.classroom.testing import expect, fail, test


def circular(likes):
    """Is there a circle of three? (In a tournament any longer circle contains one.)"""
    return any(likes[a, b] and likes[b, c] and likes[c, a] for a, b, c in itertools.permutations(range(4), 3))


@test(
    points=2,
    rounds=1,
    hints=(
        "For each dessert, count how many others it is preferred to. What are these counts if the preferences are transitive?",
        "Transitive preferences over four desserts have the counts 3, 2, 1, 0. With other counts, two desserts have the same count, and then there is a cycle.",
    ),
)
def circles(sub, draw):
    "`pumped` lists the friends with a cycle, and no other friends."
    given = sub.value("pumped")
    if isinstance(given, list | tuple | torch.Tensor):
        given = [n.item() if isinstance(n, torch.Tensor) and n.numel() == 1 else n for n in given]
    if not isinstance(given, list | tuple) or not all(isinstance(n, int) for n in given):
        fail("`pumped` is not a list of whole numbers")
    everybody = friends(sub.student)
    want = [n for n, likes in enumerate(everybody) if circular(likes)]
    if list(given) == [n for n in range(7) if n not in want]:
        fail("`pumped` lists the friends WITHOUT a cycle")
    top = [n for n, likes in enumerate(everybody) if not (likes.sum(-1) == 3).any()]
    if list(given) == top:
        fail("`pumped` lists the friends without a favourite, but a friend can have a favourite and a cycle below it")
    if list(given) == [n + 1 for n in want]:
        fail("`pumped` counts the friends from 1, but their numbers are 0 to 6")
    if list(given) == [n for n, likes in enumerate(everybody) if (likes.sum(-1) == 3).any()]:
        fail("`pumped` lists the friends with a favourite, but most of these have no cycle")
    if list(given) == [n for n, likes in enumerate(everybody) if not (likes.sum(-1) == 0).any()]:
        fail("`pumped` lists the friends without a worst dessert, but a friend can have a worst dessert below a cycle")
    if list(given) != want and sorted(set(given)) == want:
        fail("`pumped` contains the right friends, but not each once in rising order")
    round_all = [n for n in want if sorted(everybody[n].sum(-1).tolist()) == [1, 1, 2, 2]]
    if list(given) == round_all:
        fail("`pumped` lists the friends with a cycle through all four desserts, but a cycle of three is enough")
    missed, blamed = len(set(want) - set(given)), len(set(given) - set(want))
    if missed or blamed:
        fail(f"{blamed} friends in `pumped` have no cycle, and {missed} friends with a cycle are missing")


@test(
    points=1,
    rounds=1,
    hints=(
        "Find the friend with a dessert that is preferred to all three others, and a cycle among these three.",
        "The counts are 3, 1, 1, 1.",
    ),
)
def a_favourite(sub, draw):
    "`spared` is the friend with a favourite above a cycle."
    everybody = friends(sub.student)
    [want] = [n for n, likes in enumerate(everybody) if circular(likes) and bool((likes.sum(-1) == 3).any())]
    worst = [n for n, likes in enumerate(everybody) if circular(likes) and bool((likes.sum(-1) == 0).any())]
    pumped = [n for n, likes in enumerate(everybody) if circular(likes)]
    found = sub.number("spared")
    if found in worst:
        fail("`spared` is a friend with a worst dessert below a cycle, not a favourite above it")
    if found in range(7) and found not in pumped:
        fail("`spared` is a friend with transitive preferences")
    expect(
        found,
        float(want),
        what="`spared`",
        reveal=False,
        tolerance=1e-6,
    )


# %% [mutant] those who have a line
# caught by: circles
# says: WITHOUT a cycle
pumped = [n for n in range(7) if n not in pumped]

# %% [mutant] those without a favourite
# caught by: circles
# says: can have a favourite
pumped = [n for n, likes in enumerate(friends(STUDENT)) if not (likes.sum(-1) == 3).any()]

# %% [mutant] numbered from one
# caught by: circles
# says: from 1
pumped = [n + 1 for n in pumped]

# %% [mutant] the one with a worst dessert
# caught by: a_favourite
# says: not a favourite
spared = next(n for n, likes in enumerate(friends(STUDENT)) if sorted(likes.sum(-1).tolist()) == [0, 2, 2, 2])

# %% [partial] 2: no favourite named
spared = None
