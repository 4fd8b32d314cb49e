# ---
# title: Which questions to ask
# kind: numeric
# minutes: 10
# ---

# %% [statement]
# A policy answers five kinds of questions, each equally frequent. `numbers(STUDENT)` gives the price $c$ of a call, the probability $f$ that the tool reports a failure, the probability $\ell$ that it returns a wrong value without a warning, and for each of the five kinds the probability of a right answer from memory.
# A right answer gets a reward of 1. The policy reads and believes the tool's output without error; after a failure it answers from memory. It makes one call at most. Answer to three digits after the point.
#
# 1. `asked`: for how many of the five kinds does the best policy call the tool?
# 2. `earned`: its mean reward.
# 3. `edge`: the probability of a right answer from memory, for a sixth kind, at which a call and no call have the same expected reward.
# 4. `blind`: the mean reward of the best policy that cannot distinguish the kinds, and calls always or never.

# %% [given]
from minirlhf_course.ledger.registry import Draw


def numbers(student):
    """c, f, l, and how often the head is right about five kinds."""
    draw = Draw("17.1", student)
    price, fail, lie = (
        [0.08, 0.12, 0.15][draw.integer(0, 2)],
        [0.1, 0.2, 0.25][draw.integer(0, 2)],
        [0.06, 0.1][draw.integer(0, 1)],
    )
    edge = 1 - (lie + price) / (1 - fail)
    near = [
        0.07,
        [round(0.4 + 0.02 * draw.integer(0, 4), 2), round(edge + 0.12, 2)][draw.integer(0, 1)],
        round(edge - 0.03, 2),
        round(edge + 0.04, 2),
        round(edge + [-0.08, 0.08][draw.integer(0, 1)], 2),
    ]
    return price, fail, lie, [near[i] for i in draw.permutation(5).tolist()]


# %% [stub]
print(numbers(STUDENT))

asked = None
earned = None
edge = None
blind = None

# %% [solution]
c, f, l, heads = numbers(STUDENT)
called = [1 - f - l + f * head - c for head in heads]
asked = sum(a > b for a, b in zip(called, heads, strict=True))
earned = sum(map(max, called, heads)) / 5
edge = (1 - f - l - c) / (1 - f)
blind = max(sum(called), sum(heads)) / 5

# %% [tests]
import itertools

from minirlhf_course.classroom.testing import expect, test


def with_call(student, head):
    """The mean reward of a call, over what the tool may do and whether the head is right then."""
    c, f, l, _ = numbers(student)
    total = 0.0
    for tool, right in itertools.product(("works", "fails", "lies"), (True, False)):
        chance = {"works": 1 - f - l, "fails": f, "lies": l}[tool] * (head if right else 1 - head)
        total += chance * (float(tool == "works" or (tool == "fails" and right)) - c)
    return total


@test(
    points=1,
    rounds=1,
    hints=(
        "For each kind: what is the expected reward with a call, and without?",
        "With a call it is 1 − f − l + f·p − c, where p is the probability of a right answer from memory. Count the kinds for which this exceeds p.",
    ),
)
def kinds_asked(sub, draw):
    "`asked` counts the kinds for which a call pays."
    c, f, l, heads = numbers(sub.student)
    want = float(sum(with_call(sub.student, head) > head for head in heads))
    wrong = {
        "calls are free": float(sum(with_call(sub.student, head) + c > head for head in heads)),
        "the tool is taken never to fail and never to return a wrong value": float(sum(head < 1 - c for head in heads)),
        "there is no answer after a failure": float(sum(1 - f - l - c > head for head in heads)),
        "memory answers after a wrong value, too": float(sum(1 - f - l + (f + l) * head - c > head for head in heads)),
    }
    expect(
        sub.number("asked"), want, what="`asked`", reveal=False, mistakes={s: x for s, x in wrong.items() if x != want}
    )


@test(
    points=1,
    rounds=1,
    hints=("Take the better of the two for each kind.", "The mean of max(with a call, without) over the five kinds."),
)
def best_reward(sub, draw):
    "`earned` is the mean reward of the best policy."
    c, f, l, heads = numbers(sub.student)
    want = sum(max(with_call(sub.student, head), head) for head in heads) / 5
    wrong = {
        "the price is left out": sum(
            with_call(sub.student, head) + c if with_call(sub.student, head) > head else head for head in heads
        )
        / 5,
        "there is no answer after a failure": sum(max(1 - f - l - c, head) for head in heads) / 5,
        "memory answers after a wrong value, too": sum(max(1 - f - l + (f + l) * head - c, head) for head in heads) / 5,
        "it calls for every kind": sum(with_call(sub.student, head) for head in heads) / 5,
    }
    expect(
        sub.number("earned"), want, what="`earned`", tolerance=6e-4, reveal=False,
        mistakes={s: x for s, x in wrong.items() if abs(x - want) > 2e-3},
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=(
        "Write down both expected rewards with an unknown probability p from memory, and set them equal.",
        "1 − f − l + f·p − c = p. The unknown p is on both sides.",
    ),
)
def at_the_edge(sub, draw):
    "`edge` is where a call has the value 0."
    c, f, l, _ = numbers(sub.student)
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if with_call(sub.student, middle) > middle else (low, middle)
    wrong = {
        "the tool is taken never to fail and never to return a wrong value": 1 - c,
        "there is no answer after a failure": 1 - f - l - c,
        "memory answers after a wrong value, too": (1 - f - l - c) / (1 - f - l),
        "calls are free": (1 - f - l) / (1 - f),
    }
    expect(
        sub.number("edge"), low, what="`edge`", tolerance=6e-4, reveal=False,
        mistakes={s: x for s, x in wrong.items() if abs(x - low) > 2e-3},
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=(
        "Such a policy has two choices, and makes the same choice for all five kinds.",
        "The larger of two means: with a call for every kind, and from memory for every kind.",
    ),
)
def cannot_tell(sub, draw):
    "`blind` is the mean reward of the best policy that cannot distinguish the kinds."
    _, _, _, heads = numbers(sub.student)
    always, never = sum(with_call(sub.student, head) for head in heads) / 5, sum(heads) / 5
    want = max(always, never)
    wrong = {
        "it can distinguish the kinds": sum(max(with_call(sub.student, head), head) for head in heads) / 5,
        "the other choice is made": min(always, never),
    }
    expect(
        sub.number("blind"), want, what="`blind`", tolerance=6e-4, reveal=False,
        mistakes={s: x for s, x in wrong.items() if abs(x - want) > 2e-3},
    )  # fmt: skip


# %% [mutant] as of a perfect tool
# caught by: kinds_asked
# says: never to fail
c, f, l, heads = numbers(STUDENT)
asked = sum(head < 1 - c for head in heads)


# %% [mutant] asks about everything
# caught by: best_reward
# says: calls for every kind
c, f, l, heads = numbers(STUDENT)
earned = sum(1 - f - l + f * head - c for head in heads) / 5


# %% [mutant] right answers in place of rewards
# caught by: best_reward
# says: price is left out
c, f, l, heads = numbers(STUDENT)
earned = 0
for head in heads:
    right = 1 - f - l + f * head
    earned += (right if right - c > head else head) / 5


# %% [mutant] a failure is a wrong answer
# caught by: at_the_edge
# says: there is no answer
c, f, l, heads = numbers(STUDENT)
edge = 1 - f - l - c


# %% [mutant] always the worse
# caught by: cannot_tell
# says: other choice
c, f, l, heads = numbers(STUDENT)
blind = min(sum(1 - f - l + f * head - c for head in heads), sum(heads)) / 5


# %% [partial] 1: the edge only
c, f, l, heads = numbers(STUDENT)
asked, earned, blind = 5, 0.0, 0.0
