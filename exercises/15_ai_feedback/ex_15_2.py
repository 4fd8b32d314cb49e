# ---
# title: A critic with errors
# kind: derive
# minutes: 25
# ---

# %% [statement]
# There are $K$ principles, each of which names one flaw, and `start` is the fraction of flaws in first completions. A principle is applied to a completion in two steps. First the **critic**: it reports a flaw that is present with probability $1 - m$ (it misses the flaw with $m$). If the flaw is absent, it still reports one
# with probability $a$. Then the **reviser**, which believes the critic. If a flaw is reported, it rewrites that part: a true flaw is removed with probability $q$, and a correct part is broken with probability $h$. If no flaw is reported, it changes nothing.
#
# 1. `end(miss, alarm, repair, harm)`: the limit of the fraction of flaws, for any such chain.
# 2. `in_turn(start, passes, miss, alarm, repair, harm)`: the expected fraction after every principle was applied exactly `passes` times, in a fixed order.
# 3. `drawn(start, rounds, K, miss, alarm, repair, harm)`: the expected fraction after `rounds` rounds, each of which samples one principle at random.
# 4. `enough(target, start, K, miss, alarm, repair, harm)`: the smallest number of rounds with sampled principles after which the expected fraction is at most `target`; `math.inf` if it never is.
#
# All are functions of numbers. `miss`, `alarm`, `repair` and `harm` lie strictly between 0 and 1, and `start` is above `end`.

# %% [given]
import math


# %% [stub]
def end(miss, alarm, repair, harm):
    """Returns a number."""
    raise NotImplementedError


def in_turn(start, passes, miss, alarm, repair, harm):
    """passes: an integer. Returns a number."""
    raise NotImplementedError


def drawn(start, rounds, K, miss, alarm, repair, harm):
    """rounds, K: integers. Returns a number."""
    raise NotImplementedError


def enough(target, start, K, miss, alarm, repair, harm):
    """Returns an integer, or math.inf."""
    raise NotImplementedError


# %% [solution]
def end(miss, alarm, repair, harm):
    out, into = (1 - miss) * repair, alarm * harm
    return into / (out + into)


def in_turn(start, passes, miss, alarm, repair, harm):
    last = end(miss, alarm, repair, harm)
    return last + (start - last) * (1 - (1 - miss) * repair - alarm * harm) ** passes


def drawn(start, rounds, K, miss, alarm, repair, harm):
    last = end(miss, alarm, repair, harm)
    return last + (start - last) * (1 - ((1 - miss) * repair + alarm * harm) / K) ** rounds


def enough(target, start, K, miss, alarm, repair, harm):
    after_one = drawn(start, 1, K, miss, alarm, repair, harm)  # below the limit where the factor is negative
    if target <= end(miss, alarm, repair, harm) and after_one > target:
        return math.inf
    rounds = 0
    while drawn(start, rounds, K, miss, alarm, repair, harm) > target:
        rounds += 1
    return rounds


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, fail, test


def numbers(draw):
    """miss, alarm, repair, harm."""
    pick = lambda *values: values[draw.integer(0, len(values) - 1)]
    return pick(0.1, 0.25, 0.4), pick(0.15, 0.3, 0.45), pick(0.5, 0.65, 0.8), pick(0.2, 0.35, 0.5)


def step(miss, alarm, repair, harm):
    """The transition matrix of one application, (correct, flawed) -> (correct, flawed), from the tree of the critic's and the reviser's outcomes."""
    table = torch.zeros(2, 2, dtype=torch.float64)
    for flawed in (0, 1):
        told = (1 - miss) if flawed else alarm
        changes = repair if flawed else harm
        table[flawed, 1 - flawed] += told * changes
        table[flawed, flawed] += told * (1 - changes) + (1 - told)
    return table


def share(start, times, table):
    place = torch.tensor([1 - start, start], dtype=torch.float64)
    return float((place @ torch.linalg.matrix_power(table, times))[1])


def lazy(table, principles):
    """One principle of K is sampled: this part is examined once in K rounds on average."""
    return table / principles + torch.eye(2, dtype=torch.float64) * (1 - 1 / principles)


@test(
    points=1,
    hints=(
        "When the principle is applied, with what probability is a flaw repaired? With what probability is one introduced?",
        "(1 − m)q and ah. In the limit as many flaws are introduced as are repaired: f·(1 − m)q = (1 − f)·ah.",
    ),
    against="the chain of two states, iterated",
)
def resting(sub, draw):
    "`end` is the limit."
    given = numbers(draw)
    miss, alarm, repair, harm = given
    expect(
        sub.end(*given), share(0.9, 4000, step(*given)), what="`end`", given=dict(zip(("miss", "alarm", "repair", "harm"), given, strict=True)), tolerance=1e-9,
        mistakes={
            "the critic's errors change the limit": harm / (repair + harm),
            "a missed flaw cannot be repaired": alarm * harm / (repair + alarm * harm),
            "harm is done only where the critic reports a flaw": harm / ((1 - miss) * repair + harm),
            "this is the fraction without a flaw": 1 - share(0.9, 4000, step(*given)),
        },
    )  # fmt: skip


@test(
    points=2,
    hints=(
        "In one pass every part is examined once. How does this change the distance from the limit?",
        "It is multiplied by 1 − (1 − m)q − ah. K does not appear: every principle has its own part.",
    ),
    against="the chain of two states, iterated",
)
def passes_in_turn(sub, draw):
    "`in_turn` is the fraction after whole passes."
    given, start, passes = numbers(draw), [0.7, 0.85, 1.0][draw.integer(0, 2)], draw.integer(2, 4)
    miss, alarm, repair, harm = given
    last, factor = share(0.9, 4000, step(*given)), 1 - (1 - miss) * repair - alarm * harm
    expect(
        sub.in_turn(start, passes, *given), share(start, passes, step(*given)), what="`in_turn`", given={"start": start, "passes": passes}, tolerance=1e-9,
        mistakes={
            "in a whole pass every part is examined, not one in K": share(start, passes, lazy(step(*given), 4)),
            "flaws are introduced, too": start * (1 - (1 - miss) * repair) ** passes,
            "the limit is above 0": start * factor**passes,
            "the critic's errors are left out": (harm / (repair + harm)) + (start - harm / (repair + harm)) * (1 - repair - harm) ** passes,
            "this is one pass": last + (start - last) * factor,
        },
    )  # fmt: skip
    given, start = (0.05, 0.9, 0.95, 0.9), 0.9  # the factor is negative: the fraction jumps over the limit in each pass
    expect(
        sub.aside.in_turn(start, passes, *given), share(start, passes, step(*given)), what="`in_turn` with frequent changes",
        given={"miss, alarm, repair, harm": given, "start": start, "passes": passes}, tolerance=1e-9,
    )  # fmt: skip


@test(
    points=1,
    hints=(
        "With what probability is a given part examined in one round?",
        "With probability 1/K, so the factor is 1 − ((1 − m)q + ah)/K.",
    ),
    against="the chain of two states, iterated",
)
def rounds_drawn(sub, draw):
    "`drawn` is the fraction after rounds with sampled principles."
    given, start, rounds, K = (
        numbers(draw),
        [0.7, 0.85, 1.0][draw.integer(0, 2)],
        draw.integer(3, 9),
        draw.integer(3, 6),
    )
    expect(
        sub.drawn(start, rounds, K, *given), share(start, rounds, lazy(step(*given), K)), what="`drawn`", given={"start": start, "rounds": rounds, "K": K}, tolerance=1e-9,
        mistakes={
            "only one of K principles is sampled in a round": share(start, rounds, step(*given)),
            "one principle may be sampled twice, and another never": share(start, 1, step(*given)) if rounds >= K else -1.0,
        },
    )  # fmt: skip


@test(
    points=1,
    hints=(
        "Compute round after round. Which targets are never reached?",
        "Targets at or below `end` are never reached if the factor of one round is positive. If it is negative (K = 1), the first round goes below `end`. A target of `start` or more needs 0 rounds.",
    ),
    against="the chain of two states, iterated",
)
def rounds_enough(sub, draw):
    "`enough` is the smallest number of rounds, or infinity."
    given, start, K = numbers(draw), [0.7, 0.85, 1.0][draw.integer(0, 2)], draw.integer(3, 6)
    last, table = share(0.9, 4000, step(*given)), lazy(step(*given), K)
    for target in (last + 0.5 * (start - last), last + 0.07 * (start - last), start + 0.01):
        want = next(n for n in range(2000) if share(start, n, table) <= target)
        got = sub.enough(target, start, K, *given)
        if got == math.inf:
            fail("the target is above the limit, but `enough` returns infinity; expected a number of rounds")
        expect(
            got, float(want), what="`enough`", given={"target": target, "start": start, "K": K},
            mistakes={"after that round the fraction is still above the target": float(want - 1), "this is one round too many; one round fewer is enough": float(want + 1)},
        )  # fmt: skip
    if sub.enough(1.0, last + 0.2 * (1 - last), K, *given) != 0:
        fail("first completions far below the target need no round, but `enough` does not return 0")
    if sub.enough(0.9 * last, start, K, *given) != math.inf:
        fail("a target below the limit is never reached, but `enough` does not return infinity")
    if sub.enough(sub.end(*given), start, K, *given) != math.inf:
        fail("the limit itself is approached and never reached, but `enough` does not return infinity")
    target, slow = last + 0.07 * (start - last), lazy(step(*given), 1000)
    got = float(sub.aside.enough(target, start, 1000, *given))
    around = [share(start, int(got) - k, slow) - target for k in (0, 1)] if 0 < got < math.inf else [1.0, 1.0]
    if around[0] > 1e-9 or around[1] < -1e-9:
        fail(f"with 1,000 principles `enough` returns {got:g}, and this is not the smallest number of rounds", given={"target": target, "start": start, "K": 1000})  # fmt: skip
    often = (0.1, 0.9, 0.9, 0.9)  # with K = 1 the first round ends below the limit of 0.5, at 0.19
    for target, want in ((0.3, 1.0), (0.15, math.inf)):
        if sub.aside.enough(target, 1.0, 1, *often) != want:
            fail(
                f"`enough` should return {want:g}: with frequent changes the first round ends below the limit, at 0.19",
                given={"target": target, "start": 1.0, "K": 1, "miss, alarm, repair, harm": often},
            )


# %% [edges]
# rounds_enough: `math.inf` if it never is


# %% [probes]
# no integers, size, values, float32, gradient, keywords: numbers are asked for, not tensors


# %% [mutant] a perfect critic
# caught by: resting
# says: critic's errors
def end(miss, alarm, repair, harm):
    return harm / (repair + harm)


# %% [mutant] harm without an alarm
# caught by: resting
# says: reports a flaw
def end(miss, alarm, repair, harm):
    return harm / ((1 - miss) * repair + harm)


# %% [mutant] nothing is ever broken
# caught by: passes_in_turn
# says: are introduced, too
def in_turn(start, passes, miss, alarm, repair, harm):
    return start * (1 - (1 - miss) * repair) ** passes


# %% [mutant] every principle in every round
# caught by: rounds_drawn
# says: only one of K
def drawn(start, rounds, K, miss, alarm, repair, harm):
    return in_turn(start, rounds, miss, alarm, repair, harm)


# %% [mutant] by a logarithm, rounded down
# caught by: rounds_enough
def enough(target, start, K, miss, alarm, repair, harm):
    last = end(miss, alarm, repair, harm)
    if target <= last:
        return math.inf
    factor = 1 - ((1 - miss) * repair + alarm * harm) / K
    return max(0, int(math.log((target - last) / (start - last)) / math.log(factor)))


# %% [mutant] by a logarithm, also above the start
# caught by: rounds_enough
# says: need no round
def enough(target, start, K, miss, alarm, repair, harm):
    last = end(miss, alarm, repair, harm)
    if target <= last:
        return math.inf
    factor = 1 - ((1 - miss) * repair + alarm * harm) / K
    return math.ceil(math.log((target - last) / (start - last)) / math.log(factor))


# %% [mutant] the end is reached
# caught by: rounds_enough
# says: never reached
def enough(target, start, K, miss, alarm, repair, harm):
    last = end(miss, alarm, repair, harm)
    if target < last:
        return math.inf
    return next((n for n in range(20_000) if drawn(start, n, K, miss, alarm, repair, harm) <= target), 20_000)


# %% [partial] 3: one pass after the other
def drawn(start, rounds, K, miss, alarm, repair, harm):
    return in_turn(start, rounds, miss, alarm, repair, harm)


def enough(target, start, K, miss, alarm, repair, harm):
    return 1
