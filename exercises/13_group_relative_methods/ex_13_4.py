# ---
# title: Which prompts still teach
# kind: numeric
# minutes: 25
# ---

# %% [statement]
# Before a run, somebody answered every prompt of the training set many times with the model as it is and wrote down how often the answer was right.
# `histogram(STUDENT)` is the result, yours alone: pairs of a pass rate $p$ and the share of the prompts that have it. Rewards are 0 and 1, groups have
# `size(STUDENT)` replies, and a prompt is as good as drawn anew for every group.
#
# Answer with expressions; do not round.
#
# 1. `dead`: the expected share of groups without a gradient.
# 2. `groups_needed`: with DAPO's dynamic sampling, the expected number of groups that must be sampled until 64 with a gradient have been found. (Sampling stops at the
#    64th, group by group.)
# 3. `easy_share`: among the groups that have a gradient, the share that belongs to prompts with $p > 0.9$.
# 4. `most_moved`: the pass rate of the histogram whose prompts the *expected* gradient of **MaxRL** changes most. Its gradient is that of $-\sum_{k=1}^{G-1} (1-p)^k/k$; count the change
#    of $p$'s logit, with $\nabla p = p(1-p)$ in that logit. One number from the histogram.

# %% [given]
from minirlhf_course.ledger.registry import Draw


def histogram(student):
    """[(pass rate, share of the prompts), ...], shares adding up to 1."""
    draw = Draw("13.4", student)
    percent = [0, 11 + draw.integer(0, 5), 28 + draw.integer(0, 5), 52 + draw.integer(0, 6), 95]
    rates = [p / 100 for p in percent]
    parts = [draw.integer(2, 6) for _ in rates]
    return [(rate, part / sum(parts)) for rate, part in zip(rates, parts)]


def size(student):
    """Replies per group."""
    return [4, 8, 16][Draw("13.4 size", student).integer(0, 2)]


# %% [stub]
print("group size", size(STUDENT))
for p, share in histogram(STUDENT):
    print(f"pass rate {p:.2f}: {share:.3f} of the prompts")

dead = None
groups_needed = None
easy_share = None
most_moved = None

# %% [solution]
_rows, _g = histogram(STUDENT), size(STUDENT)
dead = sum(share * (p**_g + (1 - p) ** _g) for p, share in _rows)
groups_needed = 64 / (1 - dead)
easy_share = sum(share * (1 - p**_g - (1 - p) ** _g) for p, share in _rows if p > 0.9) / (1 - dead)
most_moved = max((p * (1 - p) * sum((1 - p) ** (k - 1) for k in range(1, _g)), p) for p, _ in _rows)[1]

# %% [tests]
import itertools

import torch

from minirlhf_course.classroom.testing import expect, test
from minirlhf_course.ledger.registry import Draw


def mine(student):
    """The student's numbers, drawn again."""
    draw = Draw("13.4", student)
    percent = [0, 11 + draw.integer(0, 5), 28 + draw.integer(0, 5), 52 + draw.integer(0, 6), 95]
    rates = [p / 100 for p in percent]
    parts = [draw.integer(2, 6) for _ in rates]
    group = [4, 8, 16][Draw("13.4 size", student).integer(0, 2)]
    return rates, [part / sum(parts) for part in parts], group


def alive(p, group):
    """The chance that two replies differ: every group of outcomes written down."""
    total = 0.0
    for outcome in itertools.product((0, 1), repeat=group):
        if 0 < sum(outcome) < group:
            total += p ** sum(outcome) * (1 - p) ** (group - sum(outcome))
    return total


def expected_alive(rates, group):
    return [alive(p, group) for p in rates]


@test(
    points=2,
    rounds=1,
    hints=(
        "A group is dead if all its replies are right, or all are wrong. Both happen.",
        "For one prompt it is p^G + (1 − p)^G; average over the histogram. A prompt that is never solved has p = 0, and counts.",
    ),
)
def without_gradient(sub, draw):
    "`dead` is the chance of a group whose rewards are all equal, averaged over the prompts."
    rates, shares, group = mine(sub.student)
    lives = expected_alive(rates, group)
    mean = sum(s * p for s, p in zip(shares, rates, strict=True))
    expect(
        sub.number("dead"),
        1 - sum(s * x for s, x in zip(shares, lives, strict=True)),
        what="`dead`",
        reveal=False,
        mistakes={
            "groups that are all right are forgotten": sum(
                s * (1 - p) ** group for s, p in zip(shares, rates, strict=True)
            ),
            "groups that are all wrong are forgotten": sum(s * p**group for s, p in zip(shares, rates, strict=True)),
            "the mean pass rate is taken for a prompt: average the chances, not the rates": mean**group
            + (1 - mean) ** group,
            "the groups have one reply fewer": 1
            - sum(s * x for s, x in zip(shares, expected_alive(rates, group - 1), strict=True)),
            "that is the share of groups with a gradient": sum(s * x for s, x in zip(shares, lives, strict=True)),
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Each group that is sampled lives with one and the same chance. How long does one wait for the first? For the 64th?",
        "The expected number of trials until the n-th success is n divided by the chance of success.",
    ),
)
def price_of_refilling(sub, draw):
    "`groups_needed` is the expected number of groups sampled until 64 live ones are found."
    rates, shares, group = mine(sub.student)
    living = sum(s * x for s, x in zip(shares, expected_alive(rates, group), strict=True))
    expect(
        sub.number("groups_needed"),
        64 / living,
        what="`groups_needed`",
        reveal=False,
        tolerance=1e-4,
        mistakes={
            "the dead ones are only replaced once, and some of those are dead again": 64 * (2 - living),
            "that is divided by the chance of a dead group": 64 / (1 - living),
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Dynamic sampling changes which prompts a batch is made of. How likely is it that a living group is an easy prompt's?",
        "Bayes: share of the prompt times its chance to live, over the same summed over all prompts.",
    ),
)
def what_is_left(sub, draw):
    "`easy_share` is the share of easy prompts among the groups that live."
    rates, shares, group = mine(sub.student)
    weights = [s * x for s, x in zip(shares, expected_alive(rates, group), strict=True)]
    expect(
        sub.number("easy_share"),
        weights[-1] / sum(weights),
        what="`easy_share`",
        reveal=False,
        mistakes={
            "that is their share of the prompts": shares[-1],
            "that is their share of all groups, dead ones included": weights[-1],
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Differentiate −Σ (1 − p)^k / k by p. It is a finite geometric series; what does it tend to when G is large?",
        "The logit moves by p(1 − p) times Σ (1 − p)^(k−1), k from 1 to G − 1. Compute it for every pass rate of your histogram.",
    ),
)
def hard_ones_first(sub, draw):
    "`most_moved` is the pass rate whose logit MaxRL moves most."
    rates, _, group = mine(sub.student)
    p = torch.tensor(rates, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(-sum(((1 - p) ** k).sum() / k for k in range(1, group)), p)
    speed = slope * (p * (1 - p)).detach()
    plain = (p * (1 - p)).detach()
    expect(
        sub.number("most_moved"),
        rates[int(speed.argmax())],
        what="`most_moved`",
        reveal=False,
        mistakes={
            "that is what centred rewards move most": rates[int(plain.argmax())],
            "its gradient in p is the largest, but p = 0 does not move: ∇p is 0 there": 0.0,
        },
    )


# %% [mutant] only hopeless groups
# caught by: without_gradient
# says: all right are forgotten
dead = sum(share * (1 - p) ** size(STUDENT) for p, share in histogram(STUDENT))

# %% [mutant] the mean pass rate
# caught by: without_gradient
# says: average the chances
_mean = sum(share * p for p, share in histogram(STUDENT))
dead = _mean ** size(STUDENT) + (1 - _mean) ** size(STUDENT)

# %% [mutant] refilled once
# caught by: price_of_refilling
# says: dead again
groups_needed = 64 * (1 + dead)

# %% [mutant] shares of the prompts
# caught by: what_is_left
# says: their share of the prompts
easy_share = histogram(STUDENT)[-1][1]

# %% [mutant] hardest of all
# caught by: hard_ones_first
# says: does not move
most_moved = 0.0

# %% [partial] 3: the counting is right
easy_share = None
most_moved = None
