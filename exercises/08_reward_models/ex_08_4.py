# ---
# title: What a perfect verifier would say
# kind: derive
# minutes: 25
# ---

# %% [statement]
# Somebody adds numbers modulo $M$, one line for each, and writes a wrong sum with probability $e$, independently in every line; a wrong sum is each of the $M-1$ others with the same probability.
# The next line goes on from what was written. Two slips can cancel.
#
# A perfect outcome model knows, after every line, the probability that the *last* sum will be right, if the same writer goes on. With $m$ lines left, write
#
# 1. `forecast(so_far_right, left, error, modulus)`: this probability, where `so_far_right` says whether the sum written last is the right one so far.
# 2. `monte_carlo_label(so_far_right, left, error, modulus, count)`: the expected label of "does any of `count` independent ways to go on end well?".
# 3. `step_label(slip)`: what a process model is taught about this line, given whether the line itself is a slip: 1 valid, 0 not.
#
# All arguments are plain numbers (`so_far_right` and `slip` are booleans, $0 < e < 1 - 1/M$, $M \ge 3$); return numbers. Formulas are wanted, no sampling: the tests
# write out all ways to go on.

# %% [stub]
def forecast(so_far_right, left, error, modulus):
    """The probability of a right last sum. Returns a number."""
    raise NotImplementedError


def monte_carlo_label(so_far_right, left, error, modulus, count):
    """The expected "any of count" label. Returns a number."""
    raise NotImplementedError


def step_label(slip):
    """1 for a valid line, 0 for a slip. Returns a number."""
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
    """All sequences of slips are written out; ``off`` is by how much the sum is wrong so far."""
    total = 0.0
    for slips in itertools.product(range(modulus), repeat=left):
        share = 1.0
        for slip in slips:
            share *= 1 - error if slip == 0 else error / (modulus - 1)
        total += share * ((off + sum(slips)) % modulus == 0)
    return total


def cancelling(right, left, error, modulus):
    """Forecasts in which a slip puts a wrong sum right too often, or too seldom."""
    found = {}
    for share, why in (
        (1.0, "every slip puts a wrong sum right"),
        (1 / modulus, "one slip of M puts a wrong sum right, not one of M − 1"),
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
    against="all ways to go on, written out",
    hints=(
        "Call the probability of being right after m more lines $q_m$. How does $q_{m+1}$ follow from $q_m$? A sum that is wrong becomes right by one particular slip.",
        "The recursion is a straight line in $q_m$ with the fixed point $1/M$. So the distance to $1/M$ shrinks by the same factor in every line.",
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
                "slips that cancel are forgotten": (1 - error) ** m,
                "it converges to 0 instead of 1/M": (1 - error * modulus / (modulus - 1)) ** m,
                **cancelling(1.0, m, error, modulus),
                "a slip may also lead to the right sum": 1 / modulus + (1 - error) ** m * (1 - 1 / modulus),
            }
            if m
            else {"one line too many is walked": 1 - error},
        )


@test(
    points=2,
    against="all ways to go on, written out",
    hints=(
        "The recursion is the same; only $q_0$ differs.",
        "From a wrong sum $q_0 = 0$: the distance to $1/M$ is $-1/M$ at the start.",
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
                "it starts as if the sum were right so far": every_way(0, m, error, modulus),
                **cancelling(0.0, m, error, modulus),
            }
            if m
            else {"it starts as if the sum were right so far": 1.0},
        )


@test(
    points=1,
    against="independent ways to go on",
    hints=("When does none of them end well?", "One minus the chance that all fail."),
)
def any_of(sub, draw):
    "`monte_carlo_label` is the chance that at least one way ends well."
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
                "it is the expected share, not the chance of any": q,
                "it is the chance that all end well": q**count,
                "it is rounded to a label: the expectation is asked for": float(fails < 0.5),
                "chances are added up": min(1.0, count * q),
            },
        )


@test(
    points=1,
    hints=(
        "A process model is asked about this line alone.",
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
            mistakes={"it is turned round": 1.0 if slip else 0.0, "a slip is −1, as neutral labels would need": -1.0},
        )


# %% [probes]
# no gradient: plain numbers are asked for
# no values: probabilities and moduli have ranges
# no keywords: probabilities and moduli have ranges
# no integers: counts are whole numbers
# no float32: plain numbers are asked for


# %% [mutant] cancelling slips forgotten
# caught by: right_so_far
# says: cancel are forgotten
def forecast(so_far_right, left, error, modulus):
    return (1 - error) ** left if so_far_right else 0.0


# %% [mutant] never recovers
# caught by: wrong_so_far
# says: never to recover
def forecast(so_far_right, left, error, modulus):
    kept = (1 - error * modulus / (modulus - 1)) ** left
    return 1 / modulus + (1 - 1 / modulus) * kept if so_far_right else 0.0


# %% [mutant] the share, not any
# caught by: any_of
# says: the expected share
def monte_carlo_label(so_far_right, left, error, modulus, count):
    return forecast(so_far_right, left, error, modulus)


# %% [mutant] labels turned round
# caught by: process
# says: turned round
def step_label(slip):
    return 1 if slip else 0


# %% [partial] 4: only the forecast
def monte_carlo_label(so_far_right, left, error, modulus, count):
    raise NotImplementedError


def step_label(slip):
    raise NotImplementedError
