# ---
# title: Two calls that agree
# kind: derive
# minutes: 30
# ---

# %% [statement]
# A tool gives the right value with probability $1-\ell$. Otherwise it gives one of $M$ wrong values, each equally probable. Calls are independent, also calls about the same question. The policy reads without error. A right answer gets a reward of 1.
#
# 1. `agree(lie, M)`: the probability that two calls about one question give the same value.
# 2. `trust(lie, M)`: the probability that this value is right, if they agree.
# 3. `third(lie, M)`: the probability of a right answer for this policy. It calls twice. It calls a third time only where the two differ, and then answers the value that two of the three have; where all three differ, it answers the first value.
# 4. `price(lie, M)`: the price of a call at which this policy has the same expected reward as one call that is believed. (Every call is paid, the first as well.)
#
# All are functions of numbers. Nothing is sampled.

# %% [stub]
def agree(lie, M):
    """lie: a number in (0, 1). M: an integer, at least 2. Returns a number."""
    raise NotImplementedError


def trust(lie, M):
    """Returns a number."""
    raise NotImplementedError


def third(lie, M):
    """Returns a number."""
    raise NotImplementedError


def price(lie, M):
    """Returns a number."""
    raise NotImplementedError


# %% [solution]
def agree(lie, M):
    return (1 - lie) ** 2 + lie**2 / M


def trust(lie, M):
    return (1 - lie) ** 2 / agree(lie, M)


def third(lie, M):
    # right and right; right, wrong, and not the same wrong again; wrong, right, right
    return (1 - lie) ** 2 + (1 - lie) * lie * (1 - lie / M) + lie * (1 - lie) ** 2


def price(lie, M):
    calls = 1 + (1 - agree(lie, M))  # beyond the first
    return (third(lie, M) - (1 - lie)) / calls


# %% [tests]
import itertools

from minirlhf_course.classroom.testing import expect, test


def every(lie, M, calls):
    """All sequences of values with their probabilities; 0 is the right one."""
    for said in itertools.product(range(M + 1), repeat=calls):
        chance = 1.0
        for value in said:
            chance *= 1 - lie if value == 0 else lie / M
        yield said, chance


def numbers(draw):
    return [0.1, 0.2, 0.25, 0.3, 0.4][draw.integer(0, 4)], [2, 3, 5][draw.integer(0, 2)]


def same(lie, M):
    return sum(chance for (a, b), chance in every(lie, M, 2) if a == b)


def answered(lie, M):
    total = 0.0
    for (a, b, c), chance in every(lie, M, 3):
        value = a if a in (b, c) else b if b == c else a
        total += chance * (value == 0)
    return total


@test(
    points=1,
    hints=(
        "In which ways can two calls agree?",
        "Both are right, or both are wrong *and* return the same of the M wrong values.",
    ),
    against="every pair of values",
)
def agreeing(sub, draw):
    "`agree` is the probability that two calls agree."
    lie, M = numbers(draw)
    expect(
        sub.agree(lie, M), same(lie, M), what="`agree`", given={"lie": lie, "M": M}, tolerance=1e-9,
        mistakes={
            "agreement on a wrong value is left out": (1 - lie) ** 2,
            "any two wrong values are taken to agree, but they need not be the same": (1 - lie) ** 2 + lie**2,
            "agreement is counted for one of the M wrong values only": (1 - lie) ** 2 + lie**2 / M**2,
        },
    )  # fmt: skip


@test(
    points=1,
    hints=("Of all pairs that agree, what fraction is right?", "Bayes: (1−l)² over the probability of agreeing."),
    against="every pair of values",
)
def trusting(sub, draw):
    "`trust` is the probability that an agreed value is right."
    lie, M = numbers(draw)
    expect(
        sub.trust(lie, M), (1 - lie) ** 2 / same(lie, M), what="`trust`", given={"lie": lie, "M": M}, tolerance=1e-9,
        mistakes={
            "that is the probability that both are right, without the condition that they agree": (1 - lie) ** 2,
            "any two wrong values are taken to agree, but they need not be the same": (1 - lie) ** 2 / ((1 - lie) ** 2 + lie**2),
            "that is the accuracy of one call, but agreement is evidence": 1 - lie,
        },
    )  # fmt: skip


@test(
    points=2,
    hints=(
        "Go through the pairs: right and right, right and wrong, wrong and right, two different wrong ones.",
        "After right and wrong, the answer is wrong only if the third call returns the *same* wrong value, since otherwise the first value is the answer. After wrong and right, the third value must be right.",
    ),
    against="every triple of values",
)
def with_a_third(sub, draw):
    "`third` is the probability of a right answer."
    lie, M = numbers(draw)
    p = 1 - lie
    expect(
        sub.third(lie, M), answered(lie, M), what="`third`", given={"lie": lie, "M": M}, tolerance=1e-9,
        mistakes={
            "where all three differ, the answer is taken to be wrong, but the first value may be right": p**2 + 2 * lie * p**2,
            "where all three differ, the answer is taken to be right, but it is wrong if the first is wrong": p**2 + 2 * p * lie * (1 - lie / M),
            "it is right as often as one call": p,
        },
    )  # fmt: skip


@test(
    points=2,
    hints=(
        "What is the gain over one call, and how many calls after the first are paid, on average?",
        "The second is always paid, the third where two differ: 1 + (1 − agree). The gain is third − (1 − l).",
    ),
    against="every triple of values, with the calls counted",
)
def break_even(sub, draw):
    "`price` is where both have the same expected reward."
    lie, M = numbers(draw)
    gain, calls = answered(lie, M) - (1 - lie), 2 - same(lie, M)
    expect(
        sub.price(lie, M), gain / calls, what="`price`", given={"lie": lie, "M": M}, tolerance=1e-9,
        mistakes={
            "the third call is always paid, but it is not always made": gain / 2,
            "the second call is not paid, but it is always made": gain / (1 - same(lie, M)),
            "the first call is counted, but it is paid either way": gain / (calls + 1),
            "that is the mean reward, not the gain over one call": answered(lie, M) / calls,
        },
    )  # fmt: skip


# %% [probes]
# no integers, size, values, float32, gradient: numbers are asked for, not tensors


# %% [mutant] only the truth agrees
# caught by: agreeing
# says: agreement on a wrong value
def agree(lie, M):
    return (1 - lie) ** 2


# %% [mutant] liars always agree
# caught by: agreeing
# says: need not be the same
def agree(lie, M):
    return (1 - lie) ** 2 + lie**2


# %% [mutant] both are right
# caught by: trusting
# says: the condition that they agree
def trust(lie, M):
    return (1 - lie) ** 2


# %% [mutant] two of three are right
# caught by: with_a_third
# says: may be
def third(lie, M):
    return (1 - lie) ** 2 + 2 * lie * (1 - lie) ** 2


# %% [mutant] the first is as good as right
# caught by: with_a_third
# says: the first is wrong
def third(lie, M):
    return (1 - lie) ** 2 + 2 * (1 - lie) * lie * (1 - lie / M)


# %% [mutant] three calls always
# caught by: break_even
# says: not always made
def price(lie, M):
    return (third(lie, M) - (1 - lie)) / 2


# %% [mutant] the first call is extra too
# caught by: break_even
# says: either way
def price(lie, M):
    return (third(lie, M) - (1 - lie)) / (3 - agree(lie, M))


# %% [partial] 2: agreement only
def third(lie, M):
    return 1 - lie


def price(lie, M):
    return 0.0
