# ---
# title: Zero-variance groups: which prompts still have a gradient
# kind: numeric
# minutes: 25
# ---

# %% [statement]
# Before a run, many completions of the current model were sampled for every prompt of the training set, and the fraction of right answers was recorded.
# `histogram(STUDENT)` is the result, and only you have this one: pairs of a pass rate $p$ and the fraction of prompts that have it. Rewards are 0 and 1, and groups have
# `size(STUDENT)` completions. Assume that every group samples its prompt independently.
#
# Answer with expressions; do not round.
#
# 1. `dead`: the expected fraction of groups without a gradient.
# 2. `groups_needed`: with DAPO's dynamic sampling, the expected number of groups that must be sampled to find 64 groups with a gradient. (Sampling goes group by group and stops at the
#    64th.)
# 3. `easy_share`: among the groups that have a gradient, the fraction that belongs to prompts with $p > 0.9$.
# 4. `most_moved`: the pass rate of the histogram whose prompts change most by the *expected* gradient of **MaxRL**. This is the gradient of $-\sum_{k=1}^{G-1} (1-p)^k/k$. Measure the change
#    in the logit of $p$, with $\nabla p = p(1-p)$ in that logit. Answer one number from the histogram.

# %% [given]
from minirlhf_course.ledger.registry import Draw


def histogram(student):
    """[(pass rate, fraction of the prompts), ...]; the fractions add up to 1."""
    draw = Draw("13.4", student)
    percent = [0, 11 + draw.integer(0, 5), 28 + draw.integer(0, 5), 52 + draw.integer(0, 6), 95]
    rates = [p / 100 for p in percent]
    parts = [draw.integer(2, 6) for _ in rates]
    return [(rate, part / sum(parts)) for rate, part in zip(rates, parts)]


def size(student):
    """Completions per group."""
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
    """Return the student's numbers again."""
    draw = Draw("13.4", student)
    percent = [0, 11 + draw.integer(0, 5), 28 + draw.integer(0, 5), 52 + draw.integer(0, 6), 95]
    rates = [p / 100 for p in percent]
    parts = [draw.integer(2, 6) for _ in rates]
    group = [4, 8, 16][Draw("13.4 size", student).integer(0, 2)]
    return rates, [part / sum(parts) for part in parts], group


def alive(p, group):
    """Return the probability that two rewards differ, from all groups of outcomes."""
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
        "A group has no gradient if all its answers are right, or all are wrong. Both happen.",
        "For one prompt it is p^G + (1 − p)^G; average over the histogram. A prompt that is never solved has p = 0, and it counts.",
    ),
)
def without_gradient(sub, draw):
    "`dead` is the probability that all rewards of a group are equal, averaged over the prompts."
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
            "the mean pass rate is taken for a prompt: average the probabilities, not the rates": mean**group
            + (1 - mean) ** group,
            "the groups have one completion fewer": 1
            - sum(s * x for s, x in zip(shares, expected_alive(rates, group - 1), strict=True)),
            "that is the fraction of groups with a gradient": sum(s * x for s, x in zip(shares, lives, strict=True)),
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Every sampled group has a gradient with the same probability. How many do you sample, on average, to find the first? And the 64th?",
        "The expected number of trials until the n-th success is n divided by the probability of success.",
    ),
)
def price_of_refilling(sub, draw):
    "`groups_needed` is the expected number of groups sampled until 64 with a gradient are found."
    rates, shares, group = mine(sub.student)
    living = sum(s * x for s, x in zip(shares, expected_alive(rates, group), strict=True))
    expect(
        sub.number("groups_needed"),
        64 / living,
        what="`groups_needed`",
        reveal=False,
        tolerance=1e-4,
        mistakes={
            "zero-variance groups are replaced only once, and some replacements have zero variance again": 64
            * (2 - living),
            "that is divided by the probability of a zero-variance group": 64 / (1 - living),
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Dynamic sampling changes which prompts a batch contains. How probable is it that a group with a gradient belongs to an easy prompt?",
        "Bayes: the fraction of the prompt times its probability of a gradient, divided by the sum of this over all prompts.",
    ),
)
def what_is_left(sub, draw):
    "`easy_share` is the fraction of easy prompts among the groups with a gradient."
    rates, shares, group = mine(sub.student)
    weights = [s * x for s, x in zip(shares, expected_alive(rates, group), strict=True)]
    expect(
        sub.number("easy_share"),
        weights[-1] / sum(weights),
        what="`easy_share`",
        reveal=False,
        mistakes={
            "that is their fraction of the prompts": shares[-1],
            "that is their fraction of all groups, zero-variance groups included": weights[-1],
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Differentiate −Σ (1 − p)^k / k in p. It is a finite geometric series. What is its limit for large G?",
        "The logit moves by p(1 − p) times Σ (1 − p)^(k−1), k from 1 to G − 1. Compute it for every pass rate of your histogram.",
    ),
)
def hard_ones_first(sub, draw):
    "`most_moved` is the pass rate whose logit MaxRL changes most."
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
            "that is what centred rewards change most": rates[int(plain.argmax())],
            "its gradient in p is the largest, but p = 0 does not change: ∇p is 0 there": 0.0,
        },
    )


# %% [mutant] only hopeless groups
# caught by: without_gradient
# says: all right are forgotten
dead = sum(share * (1 - p) ** size(STUDENT) for p, share in histogram(STUDENT))

# %% [mutant] the mean pass rate
# caught by: without_gradient
# says: average the probabilities
_mean = sum(share * p for p, share in histogram(STUDENT))
dead = _mean ** size(STUDENT) + (1 - _mean) ** size(STUDENT)

# %% [mutant] refilled once
# caught by: price_of_refilling
# says: zero variance again
groups_needed = 64 * (1 + dead)

# %% [mutant] shares of the prompts
# caught by: what_is_left
# says: their fraction of the prompts
easy_share = histogram(STUDENT)[-1][1]

# %% [mutant] hardest of all
# caught by: hard_ones_first
# says: does not change
most_moved = 0.0

# %% [partial] 3: the counting is right
easy_share = None
most_moved = None
