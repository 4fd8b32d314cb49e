# ---
# title: The expected update with a majority reward
# kind: derive
# minutes: 30
# ---

# %% [statement]
# One question has two answers. The policy gives the first with probability $p = \sigma(z)$. A group of $G$ completions is sampled ($G$ is odd and at most 999), completion $i$ gets the reward $r_i$, and its advantage is $A_i = r_i - \bar r$ with the mean of the group. The step of the logit is
# $\frac1G\sum_i A_i\,\partial\log\pi(y_i)/\partial z$. What is its **expectation**, exactly, for this $G$?
#
# 1. `paid_by_truth(p, group)`: the first answer is right: its reward is 1, the reward of the other answer is 0.
# 2. `paid_by_majority(p, group)`: the reward is 1 for the answer of most completions in the group, else 0.
# 3. `paid_by_very_many(p)`: the limit of 2. for $G \to \infty$, for $p \ne \frac12$.
#
# All three take and return numbers. Nothing is sampled.

# %% [given]
import math


# %% [stub]
def paid_by_truth(p, group):
    """p: a number in (0, 1). group: an odd integer. Returns a number."""
    raise NotImplementedError


def paid_by_majority(p, group):
    """Returns a number."""
    raise NotImplementedError


def paid_by_very_many(p):
    """Returns a number."""
    raise NotImplementedError


# %% [solution]
def paid_by_truth(p, group):
    # with k first answers the step is k/G (1 - k/G), and its mean lacks the variance of k/G
    return p * (1 - p) * (1 - 1 / group)


def paid_by_majority(p, group):
    total = 0.0
    for k in range(group + 1):
        share = k / group
        side = 1 if 2 * k > group else -1
        total += math.comb(group, k) * p**k * (1 - p) ** (group - k) * side * share * (1 - share)
    return total


def paid_by_very_many(p):
    return math.copysign(p * (1 - p), p - 0.5)


# %% [tests]
import itertools
import math
from fractions import Fraction

import torch
from minirlhf_course.classroom.testing import expect, test


def stepped(p, group, reward, centred=True):
    """The expected step over all possible groups, with the gradient by autograd. ``reward``: replies (G,) of 0 and 1 -> (G,)."""
    z = torch.tensor(math.log(p / (1 - p)), dtype=torch.float64, requires_grad=True)
    logps = torch.stack([torch.sigmoid(-z), torch.sigmoid(z)]).log()  # of the second and of the first answer
    total = torch.zeros((), dtype=torch.float64)
    for said in itertools.product((0, 1), repeat=group):
        replies = torch.tensor(said)
        earned = reward(replies)
        chance = p ** sum(said) * (1 - p) ** (group - sum(said))
        total = total + chance * ((earned - centred * earned.mean()) * logps[replies]).mean()
    return float(torch.autograd.grad(total, z)[0])


def truth(replies):
    return replies.double()


def majority(replies):
    most = int(2 * int(replies.sum()) > len(replies))
    return (replies == most).double()


def numbers(draw):
    return [0.2, 0.3, 0.35, 0.6, 0.7, 0.8][draw.integer(0, 5)], [3, 5, 7][draw.integer(0, 2)]


@test(
    points=2,
    hints=(
        "Let k of the G completions give the first answer. What are the mean reward and the step, as functions of k/G?",
        "The step is (k/G)(1−k/G). The mean of (k/G)² is the square of its mean plus the variance p(1−p)/G.",
    ),
    against="all groups, gradients by autograd",
)
def by_truth(sub, draw):
    "`paid_by_truth` is the expected step."
    p, group = numbers(draw)
    expect(
        sub.paid_by_truth(p, group), stepped(p, group, truth), what="`paid_by_truth`", given={"p": p, "group": group}, tolerance=1e-9,
        mistakes={
            "that is the limit of a large group, and the result with the leave-one-out baseline; the mean of the whole group, which includes the completion itself, shortens the step": p * (1 - p),
            "the factor is 1 + 1/G; the mean of the whole group shortens the step": p * (1 - p) * (1 + 1 / group),
            "log π of the second answer has a gradient too, and it is missing": (1 - p) * p * (1 - p) * (1 - 1 / group),
        },
    )  # fmt: skip


@test(
    points=3,
    hints=(
        "If the second answer is the majority of a group, the advantages have the opposite signs. Sum over k.",
        "The step is +(k/G)(1−k/G) if k is more than half of G, and −(k/G)(1−k/G) otherwise; weigh it with the binomial probability of k.",
    ),
    against="all groups, gradients by autograd",
)
def by_majority(sub, draw):
    "`paid_by_majority` is the expected step."
    p, group = numbers(draw)
    wins = sum(math.comb(group, k) * p**k * (1 - p) ** (group - k) for k in range((group + 1) // 2, group + 1))
    expect(
        sub.paid_by_majority(p, group), stepped(p, group, majority), what="`paid_by_majority`", given={"p": p, "group": group}, tolerance=1e-9,
        mistakes={
            "that is the step if the first answer is right": stepped(p, group, truth),
            "the probability of the majority is multiplied by the mean length of the step; the two are not independent": (2 * wins - 1) * p * (1 - p) * (1 - 1 / group),
            "the sign is wrong": -stepped(p, group, majority),
            "the mean of the group is not subtracted": stepped(p, group, majority, centred=False),
            "the more probable answer is taken as the majority of every group": math.copysign(p * (1 - p) * (1 - 1 / group), p - 0.5),
        },
    )  # fmt: skip
    # by symmetry there is no step at p = 1/2; near it a large group matters, and exact fractions do not overflow
    many, near = 2 * draw.integer(150, 249) + 1, Fraction(26, 50)
    chances = [math.comb(many, k) * near**k * (1 - near) ** (many - k) for k in range(many + 1)]
    steps = [Fraction(k * (many - k), many**2) * (1 if 2 * k > many else -1) for k in range(many + 1)]
    want, given = float(sum(c * s for c, s in zip(chances, steps, strict=True))), {"p": 0.52, "group": many}
    expect(sub.paid_by_majority(0.52, many), want, what="`paid_by_majority` of many", given=given, tolerance=1e-9)


@test(
    points=1,
    hints=(
        "What is k/G in a very large group?",
        "It is p. So which answer is the majority, and how large is the step?",
    ),
)
def by_very_many(sub, draw):
    "`paid_by_very_many` is the limit."
    for p in ([0.2, 0.3, 0.35, 0.6, 0.7, 0.8][draw.integer(0, 5)], 0.498, 0.502):
        want = p * (1 - p) * (1 if p > 0.5 else -1)
        expect(
            sub.paid_by_very_many(p), want, what="`paid_by_very_many`", given={"p": p}, tolerance=1e-9,
            mistakes={"the sign is wrong: for p below ½ the majority is the other answer": -want, "that is the difference of the two probabilities; the size of the step is p(1−p)": 2 * p - 1} | {
                f"the size of the step does not depend on p here; it should be p(1−p){' ' * i}": x for i, x in enumerate((1.0, -1.0, 0.25, -0.25))
            },
        )  # fmt: skip


# %% [edges]
# by_majority: is odd and at most 999


# %% [probes]
# no integers, size, values, float32, gradient, keywords: numbers are asked for, not tensors


# %% [mutant] a large group
# caught by: by_truth
# says: limit of a large group
def paid_by_truth(p, group):
    return p * (1 - p)


# %% [mutant] the variance is added
# caught by: by_truth
# says: shortens the step
def paid_by_truth(p, group):
    return p * (1 - p) * (1 + 1 / group)


# %% [mutant] wins times the mean step
# caught by: by_majority
# says: not independent
def paid_by_majority(p, group):
    wins = sum(math.comb(group, k) * p**k * (1 - p) ** (group - k) for k in range((group + 1) // 2, group + 1))
    return (2 * wins - 1) * p * (1 - p) * (1 - 1 / group)


# %% [mutant] the more probable answer always wins
# caught by: by_majority
# says: of every group
def paid_by_majority(p, group):
    return math.copysign(p * (1 - p) * (1 - 1 / group), p - 0.5)


# %% [mutant] the majority is right
# caught by: by_very_many
# says: the other answer
def paid_by_very_many(p):
    return math.copysign(p * (1 - p), 0.5 - p)


# %% [partial] 3: the truth, and the limit
def paid_by_majority(p, group):
    return paid_by_very_many(p)
