# ---
# title: A critic who errs
# kind: derive
# minutes: 25
# ---

# %% [statement]
# There are $K$ principles, each of which names one flaw, and `start` is the share of flaws in first replies. A principle is applied to a reply in two steps. First the **critic**: a flaw that is there is noticed with probability $1 - m$ (it is missed with $m$); where there is none, one is announced
# nevertheless with probability $a$. Then the **reviser**, who believes the critic: told of a flaw, it rewrites that place. A true flaw is gone afterwards with probability $q$; a place that was whole is broken with probability $h$. Told that all is fine, it changes nothing.
#
# 1. `end(miss, alarm, repair, harm)`: the share of flaws that any such chain ends in.
# 2. `in_turn(start, passes, miss, alarm, repair, harm)`: the expected share after every principle was applied exactly `passes` times, in a fixed order.
# 3. `drawn(start, rounds, K, miss, alarm, repair, harm)`: the same after `rounds` rounds, each of which draws one principle at random.
# 4. `enough(target, start, K, miss, alarm, repair, harm)`: the smallest number of rounds with drawn principles after which the expected share is at most `target`; `math.inf` if it never is.
#
# All are functions of numbers; `miss`, `alarm`, `repair` and `harm` lie strictly between 0 and 1, and `start` above `end`.

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
    if target <= end(miss, alarm, repair, harm):
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
    """What one application does to a place, (whole, flawed) -> (whole, flawed), from the tree of what critic and reviser do."""
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
    """One principle of K is drawn: this place is looked at once in K rounds."""
    return table / principles + torch.eye(2, dtype=torch.float64) * (1 - 1 / principles)


@test(
    points=1,
    hints=(
        "How likely is a flaw repaired when its principle is applied? How likely is one put in?",
        "(1 − m)q and ah. In the end as many come as go: f·(1 − m)q = (1 − f)·ah.",
    ),
    against="the chain of two states, iterated",
)
def resting(sub, draw):
    "`end` is where it ends."
    given = numbers(draw)
    miss, alarm, repair, harm = given
    expect(
        sub.end(*given), share(0.9, 4000, step(*given)), what="`end`", given=dict(zip(("miss", "alarm", "repair", "harm"), given, strict=True)), tolerance=1e-9,
        mistakes={
            "it is forgotten that the critic's errors change it": harm / (repair + harm),
            "it is forgotten that a missed flaw cannot be repaired": alarm * harm / (repair + alarm * harm),
            "it is forgotten that harm is done only where the critic raised an alarm": harm / ((1 - miss) * repair + harm),
            "that is the share that is whole": 1 - share(0.9, 4000, step(*given)),
        },
    )  # fmt: skip


@test(
    points=2,
    hints=(
        "In one pass every place is looked at once. What does that do to the distance from the end?",
        "It is multiplied by 1 − (1 − m)q − ah. K does not appear: every principle has its own place.",
    ),
    against="the chain of two states, iterated",
)
def passes_in_turn(sub, draw):
    "`in_turn` is the share after whole passes."
    given, start, passes = numbers(draw), [0.7, 0.85, 1.0][draw.integer(0, 2)], draw.integer(2, 4)
    miss, alarm, repair, harm = given
    last, factor = share(0.9, 4000, step(*given)), 1 - (1 - miss) * repair - alarm * harm
    expect(
        sub.in_turn(start, passes, *given), share(start, passes, step(*given)), what="`in_turn`", given={"start": start, "passes": passes}, tolerance=1e-9,
        mistakes={
            "it is forgotten that in a whole pass every place is looked at, not one in K": share(start, passes, lazy(step(*given), 4)),
            "it is forgotten that flaws are put in, too": start * (1 - (1 - miss) * repair) ** passes,
            "it is forgotten that it ends above 0": start * factor**passes,
            "the critic's errors are left out": (harm / (repair + harm)) + (start - harm / (repair + harm)) * (1 - repair - harm) ** passes,
            "that is one pass": last + (start - last) * factor,
        },
    )  # fmt: skip


@test(
    points=1,
    hints=(
        "How likely is a given place looked at in one round?",
        "With probability 1/K, so the factor is 1 − ((1 − m)q + ah)/K.",
    ),
    against="the chain of two states, iterated",
)
def rounds_drawn(sub, draw):
    "`drawn` is the share after rounds with drawn principles."
    given, start, rounds, K = (
        numbers(draw),
        [0.7, 0.85, 1.0][draw.integer(0, 2)],
        draw.integer(3, 9),
        draw.integer(3, 6),
    )
    expect(
        sub.drawn(start, rounds, K, *given), share(start, rounds, lazy(step(*given), K)), what="`drawn`", given={"start": start, "rounds": rounds, "K": K}, tolerance=1e-9,
        mistakes={
            "it is forgotten that only one of K principles is drawn in a round": share(start, rounds, step(*given)),
            "it is forgotten that a place may be drawn twice, and another not at all": share(start, 1, step(*given)) if rounds >= K else -1.0,
        },
    )  # fmt: skip


@test(
    points=1,
    hints=(
        "Try round after round. Which targets are never reached?",
        "None at or below `end`: the chain comes as near as one likes and never arrives. A target of `start` or more needs 0 rounds.",
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
            fail("the target lies above the end, and `enough` is infinite")
        expect(
            got, float(want), what="`enough`", given={"target": target, "start": start, "K": K},
            mistakes={"that round is still above the target": float(want - 1), "one round too many is made; one round fewer is enough": float(want + 1)},
        )  # fmt: skip
    if sub.enough(1.0, last + 0.2 * (1 - last), K, *given) != 0:
        fail("first replies that are far below the target need no round, and `enough` is not 0")
    if sub.enough(0.9 * last, start, K, *given) != math.inf:
        fail("a target below the end is never reached, and `enough` is not infinite")
    if sub.enough(sub.end(*given), start, K, *given) != math.inf:
        fail("the end itself is approached and never reached, and `enough` is not infinite")


# %% [probes]
# no inputs, integers, size, values, float32, gradient, keywords: numbers are asked for, not tensors


# %% [mutant] a perfect critic
# caught by: resting
# says: critic's errors
def end(miss, alarm, repair, harm):
    return harm / (repair + harm)


# %% [mutant] harm without an alarm
# caught by: resting
# says: raised an alarm
def end(miss, alarm, repair, harm):
    return harm / ((1 - miss) * repair + harm)


# %% [mutant] nothing is ever broken
# caught by: passes_in_turn
# says: put in, too
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
