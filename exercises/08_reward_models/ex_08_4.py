# ---
# title: What a perfect verifier would say
# kind: derive
# minutes: 25
# ---

# %% [statement]
# A writer adds numbers modulo $M$, one line for each, and writes a wrong sum with probability $e$, independently in every line. A wrong sum is each of the $M-1$ other sums with the same probability.
# The next line continues from the sum that was written. Two errors can cancel.
#
# A perfect outcome model knows, after every line, the probability that the *last* sum will be right if the same writer continues. With $m$ lines left, write
#
# 1. `forecast(so_far_right, left, error, modulus)`: this probability. `so_far_right` says whether the last written sum is right so far.
# 2. `monte_carlo_label(so_far_right, left, error, modulus, count)`: the expected label of "does any of `count` independent continuations end right?".
# 3. `step_label(slip)`: the label of a process model for this line, where `slip` says whether the line itself is wrong: 1 valid, 0 not.
#
# All arguments are plain numbers (`so_far_right` and `slip` are booleans, $0 < e < 1 - 1/M$, $M \ge 3$). Return numbers. Write formulas and do not sample: the tests
# enumerate all continuations.

# %% [stub]
def forecast(so_far_right, left, error, modulus):
    """The probability of a right last sum. Returns a number."""
    raise NotImplementedError


def monte_carlo_label(so_far_right, left, error, modulus, count):
    """The expected "any of count" label. Returns a number."""
    raise NotImplementedError


def step_label(slip):
    """1 for a valid line, 0 for an error. Returns a number."""
    raise NotImplementedError


# %% [solution]
def forecast(so_far_right, left, error, modulus):
    kept = (1 - error * modulus / (modulus - 1)) ** left
    return 1 / modulus + kept * (so_far_right - 1 / modulus if so_far_right else -1 / modulus)


def monte_carlo_label(so_far_right, left, error, modulus, count):
    return 1 - (1 - forecast(so_far_right, left, error, modulus)) ** count


def step_label(slip):
    return 0 if slip else 1


# %% [tests]
import itertools

from minirlhf_course.classroom.testing import expect, test


def every_way(off, left, error, modulus):
    """Enumerate all sequences of errors; ``off`` is the error of the sum so far."""
    total = 0.0
    for slips in itertools.product(range(modulus), repeat=left):
        share = 1.0
        for slip in slips:
            share *= 1 - error if slip == 0 else error / (modulus - 1)
        total += share * ((off + sum(slips)) % modulus == 0)
    return total


def cancelling(right, left, error, modulus):
    """Forecasts in which an error corrects a wrong sum too often, or too rarely."""
    found = {}
    for share, why in (
        (1.0, "every error corrects a wrong sum"),
        (1 / modulus, "one error of M corrects a wrong sum, not one of M − 1"),
    ):
        q = right
        for _ in range(left):
            q = q * (1 - error) + (1 - q) * error * share
        found[why] = q
    return found


def setting(draw):
    return float(draw.uniform(low=0.05, high=0.4)), draw.integer(3, 4), draw.integer(2, 4)


@test(
    points=2,
    against="all continuations, enumerated",
    hints=(
        "Let $q_m$ be the probability of a right sum after m more lines. How does $q_{m+1}$ follow from $q_m$? One particular error makes a wrong sum right.",
        "The recursion is linear in $q_m$ and has the fixed point $1/M$. So the distance to $1/M$ shrinks by the same factor in every line.",
    ),
)
def right_so_far(sub, draw):
    "`forecast` from a right sum."
    error, modulus, left = setting(draw)
    for m in (0, 1, left):
        want = every_way(0, m, error, modulus)
        expect(
            sub.forecast(True, m, error, modulus),
            want,
            what="the forecast from a right sum",
            given={"left": m, "error": error, "modulus": modulus},
            mistakes={
                "errors that cancel are omitted": (1 - error) ** m,
                "it converges to 0 instead of 1/M": (1 - error * modulus / (modulus - 1)) ** m,
                **cancelling(1.0, m, error, modulus),
                "an error can also lead to the right sum": 1 / modulus + (1 - error) ** m * (1 - 1 / modulus),
            }
            if m
            else {"one line too many is counted": 1 - error},
        )
    many, rare, chance = draw.integer(200, 400), draw.integer(1, 4) / 1000, 1.0
    for _ in range(many):
        chance = chance * (1 - rare) + (1 - chance) * rare / (modulus - 1)
    given = {"left": many, "error": rare, "modulus": modulus}
    expect(sub.aside.forecast(True, many, rare, modulus), chance, what="the forecast of a long text", given=given)


@test(
    points=2,
    against="all continuations, enumerated",
    hints=(
        "The recursion is the same. Only $q_0$ differs.",
        "From a wrong sum, $q_0 = 0$. The initial distance to $1/M$ is $-1/M$.",
    ),
)
def wrong_so_far(sub, draw):
    "`forecast` from a wrong sum: which wrong sum it is does not matter."
    error, modulus, left = setting(draw)
    for m in (0, 1, left):
        want = every_way(1, m, error, modulus)
        expect(
            sub.forecast(False, m, error, modulus),
            want,
            what="the forecast from a wrong sum",
            given={"left": m, "error": error, "modulus": modulus},
            mistakes={
                "a wrong sum is taken never to recover": 0.0,
                "it begins as if the sum were right so far": every_way(0, m, error, modulus),
                **cancelling(0.0, m, error, modulus),
            }
            if m
            else {"it begins as if the sum were right so far": 1.0},
        )


@test(
    points=1,
    against="independent continuations",
    hints=("When does none of them end right?", "It is one minus the probability that all fail."),
)
def any_of(sub, draw):
    "`monte_carlo_label` is the probability that at least one continuation ends right."
    error, modulus, left = setting(draw)
    count = draw.integer(2, 5)
    for off in (0, 1):
        q = every_way(off, left, error, modulus)
        fails = 1.0
        for _ in range(count):
            fails *= 1 - q
        expect(
            sub.monte_carlo_label(off == 0, left, error, modulus, count),
            1 - fails,
            what="`monte_carlo_label`",
            given={"so_far_right": off == 0, "left": left, "error": error, "modulus": modulus, "count": count},
            mistakes={
                "it is the expected fraction, not the probability of any": q,
                "it is the probability that all end right": q**count,
                "it is rounded to a label, but the expectation is required": float(fails < 0.5),
                "probabilities are added": min(1.0, count * q),
            },
        )


@test(
    points=1,
    hints=(
        "A process model judges this line alone.",
        "A line that follows from the line before is valid, even if the line before is wrong.",
    ),
)
def process(sub, draw):
    "`step_label` looks at the line itself."
    for slip in (True, False):
        expect(
            sub.step_label(slip),
            0.0 if slip else 1.0,
            what="`step_label`",
            given={"slip": slip},
            mistakes={"it is reversed": 1.0 if slip else 0.0, "an error is −1, as with neutral labels": -1.0},
        )


# %% [probes]
# no gradient: plain numbers are asked for
# no values: probabilities and moduli have ranges
# no keywords: probabilities and moduli have ranges
# no integers: counts are whole numbers
# no float32: plain numbers are asked for


# %% [mutant] cancelling errors omitted
# caught by: right_so_far
# says: cancel are omitted
def forecast(so_far_right, left, error, modulus):
    return (1 - error) ** left if so_far_right else 0.0


# %% [mutant] never recovers
# caught by: wrong_so_far
# says: never to recover
def forecast(so_far_right, left, error, modulus):
    kept = (1 - error * modulus / (modulus - 1)) ** left
    return 1 / modulus + (1 - 1 / modulus) * kept if so_far_right else 0.0


# %% [mutant] the fraction, not any
# caught by: any_of
# says: the expected fraction
def monte_carlo_label(so_far_right, left, error, modulus, count):
    return forecast(so_far_right, left, error, modulus)


# %% [mutant] labels reversed
# caught by: process
# says: reversed
def step_label(slip):
    return 1 if slip else 0


# %% [partial] 4: only the forecast
def monte_carlo_label(so_far_right, left, error, modulus, count):
    raise NotImplementedError


def step_label(slip):
    raise NotImplementedError
