# ---
# title: A canary and its bounds
# kind: implement
# minutes: 30
# ---

# %% [statement]
# Program the canary of the chapter. Users come in pairs, one with the new version and one with the old. A pair counts $+1$ if only the new version's user complains, $-1$ if only the old version's user does, else 0. At $+a$ roll back, at $-b$ ship.
#
# 1. `watch(new, old, rollback, ship)`: `new` and `old` are `(W, N)` tensors of booleans, complaints in $W$ canaries of $N$ pairs each, in their order. Returns two tensors `(W,)`. The first is the outcome: $+1$ for a rollback, $-1$ for shipping and 0 if neither bound was reached. The second is the number of pairs until then ($N$ if neither bound was reached).
# 2. `bounds(new, old, wrong_rollback, wrong_ship)`: choose the bounds. A version that is exactly as good as the old one must be rolled back with a probability of at most `wrong_rollback`. A version with a fraction `new` of complaints, against `old` for the old one, must be shipped with a probability of at most `wrong_ship`. Among all whole numbers $a, b \ge 1$ that satisfy both conditions, return those with the fewest expected pairs of users for equal versions, as a tuple `(a, b)`. You may assume `new > old`, and no bound is above 200.

# %% [given]
import math

import torch


# %% [stub]
def watch(new, old, rollback, ship):
    """new, old: (W, N) booleans. Returns the outcome (W,) and the number of pairs (W,)."""
    raise NotImplementedError


def bounds(new, old, wrong_rollback, wrong_ship):
    """Returns a tuple (a, b) of whole numbers."""
    raise NotImplementedError


# %% [solution]
def watch(new, old, rollback, ship):
    count = (new.long() - old.long()).cumsum(1)  # (W, N)
    over = (count >= rollback) | (count <= -ship)
    ended = over.any(1)
    first = over.long().argmax(1)  # (W,); 0 where none
    at = count.gather(1, first[:, None])[:, 0]
    return torch.where(ended, at.sign(), 0), torch.where(ended, first + 1, new.shape[1])


def bounds(new, old, wrong_rollback, wrong_ship):
    w = new / (1 - new) * (1 - old) / old
    for b in range(1, 201):
        a = 1
        while b / (a + b) > wrong_rollback:
            a += 1
        # the smallest a for this b: a larger one ships more often and takes longer
        if 1 - (1 - w**-b) / (1 - w ** -(a + b)) <= wrong_ship:
            return a, b
    raise ValueError("no bounds up to 200")


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, fail, test


def streams(draw, worlds=6, pairs=40, chance=0.45):
    return draw.uniform(worlds, pairs) < chance, draw.uniform(worlds, pairs) < chance


def one_by_one(new, old, rollback, ship, last=False):
    """Return the outcome of each canary, pair by pair."""
    what, after = [], []
    for mine, theirs in zip(new.tolist(), old.tolist(), strict=True):
        count, ended, n = 0, 0, 0
        for x, y in zip(mine, theirs, strict=True):
            count, n = count + x - y, n + 1
            if not last and (count >= rollback or count <= -ship):
                ended = 1 if count > 0 else -1
                break
        if last:
            ended, n = (1 if count >= rollback else -1 if count <= -ship else 0), len(mine)
        what.append(ended)
        after.append(n)
    return torch.tensor(what), torch.tensor(after)


@test(
    points=2,
    hints=(
        "Go through the pairs of one canary by hand. When does it end?",
        "Take the cumulative sum of new minus old, and its first position at a bound or beyond. `argmax` of a row without such a position is 0, so check `any` first.",
    ),
    against="pair by pair",
)
def first_passage(sub, draw):
    "`watch` stops at the first bound that is reached."
    for rollback, ship in ((2, 3), (4, 2), (3, 9)):
        new, old = streams(draw)
        new[0], old[0] = True, True  # both complain always: no bound is ever reached
        steps = torch.tensor([1] * rollback + [-1] * (rollback + ship + 1))  # up to one bound, then beyond the other
        new[1], old[1] = False, False
        new[1, : len(steps)], old[1, : len(steps)] = steps > 0, steps < 0
        back = torch.tensor([-1] * ship + [1] * (rollback + ship + 1))  # and the other way round
        new[2], old[2] = False, False
        new[2, : len(back)], old[2, : len(back)] = back > 0, back < 0
        what, after = one_by_one(new, old, rollback, ship)
        got = sub.watch(new, old, rollback, ship)
        if (
            not isinstance(got, tuple | list)
            or len(got) != 2
            or not all(isinstance(x, torch.Tensor) and x.shape == what.shape for x in got)
        ):
            fail("`watch` should return two tensors of shape (W,)")  # fmt: skip
        given = {"new": new.int(), "old": old.int(), "rollback": rollback, "ship": ship}
        at_end = one_by_one(new, old, rollback, ship, last=True)
        swapped = one_by_one(new, old, ship, rollback)
        counts = (new.long() - old.long()).cumsum(1)
        none = after.clone()
        none[what == 0] = 1
        known = {
            "the canary ends only beyond a bound; reaching the bound is enough": one_by_one(new, old, rollback + 1, ship + 1)[0],
            "it looks at the end only, so a canary that came back from a bound continues": at_end[0],
            "+1 is used for shipping and −1 for a rollback": -what,
            "the old version's complaints count +1 and the new one's −1": one_by_one(old, new, rollback, ship)[0],
            "a canary that reached neither bound is treated as one that ships": torch.where(what == 0, -1, what),
            "a rollback after the shipping counts": torch.where(counts.max(1).values >= rollback, 1, what),
            "a shipping after the rollback counts": torch.where(counts.min(1).values <= -ship, -1, what),
            "the two bounds are exchanged": swapped[0],
        }  # fmt: skip
        later = {
            "the pairs are counted from 0, one too few": after - 1,
            "a canary that reached no bound has the first pair instead of N": none,
            "pairs in which both or neither complain are not counted": torch.stack([(new ^ old)[i, : int(n)].sum() for i, n in enumerate(after)]),
        }  # fmt: skip
        distinct = lambda known, want: {
            say: x.double() for say, x in known.items() if not torch.equal(x.long(), want.long())
        }
        expect(got[0].double(), what.double(), what="the outcome", given=given, mistakes=distinct(known, what))
        expect(
            got[1].double(), after.double(), what="the number of pairs", given=given, mistakes=distinct(later, after)
        )
    yes, no = torch.ones(1, 300, dtype=torch.bool), torch.zeros(1, 300, dtype=torch.bool)
    for worse, pairs, rollback, ship, said in (
        (True, 3, 1, 1, "the first pair reaches the bound"),
        (False, 3, 1, 1, "the first pair reaches the bound"),
        (True, 4, 4, 9, "the last pair reaches the bound"),
        (False, 4, 9, 4, "the last pair reaches the bound"),
        (True, 300, 150, 2, "the bound is 150"),
        (True, 2, 3, 3, "no bound is reached"),
    ):
        new, old = (yes, no) if worse else (no, yes)
        want = [float(x) for x in one_by_one(new[:, :pairs], old[:, :pairs], rollback, ship)]
        got = [float(x) for x in sub.aside.watch(new[:, :pairs], old[:, :pairs], rollback, ship)]
        if got != want:
            given = {"pairs": pairs, "rollback": rollback, "ship": ship, "expected": want, "yours": got}
            side = "new" if worse else "old"
            fail(f"`watch` is wrong where only the {side} version's users complain, and {said}", **given)


def ends(chance_up, rollback, ship):
    """Return the probability that a walk with this probability of a step up ends at the rollback, from the linear equations of its positions."""
    n = rollback + ship + 1
    A, right = torch.eye(n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
    right[-1] = 1.0
    for k in range(1, n - 1):
        A[k, k + 1], A[k, k - 1] = -chance_up, -(1 - chance_up)
    return float(torch.linalg.solve(A, right)[ship])


def allowed(new, old, wrong_rollback, wrong_ship):
    """Return which bounds satisfy the first and which the second condition, and which would satisfy the second with fractions instead of odds."""
    up, down = new * (1 - old), old * (1 - new)
    level = lambda a, b: ends(0.5, a, b) <= wrong_rollback
    worse = lambda a, b: 1 - ends(up / (up + down), a, b) <= wrong_ship
    by_shares = lambda a, b: 1 - ends(new / (new + old), a, b) <= wrong_ship
    return level, worse, by_shares


@test(
    points=3,
    hints=(
        "For a given b, which a satisfy the first condition? Which of them is best for the second one?",
        "An equal version is rolled back with probability b/(a + b). Take the smallest a that satisfies the first condition, because a larger a ships more often. Try b = 1, 2, … with that a, and check the second condition with the chapter's formula. Expected pairs at equal versions are proportional to ab. This a grows with b, so the first b is smallest in both.",
    ),
    against="the linear equations of the count's positions",
)
def cheapest(sub, draw):
    "`bounds` satisfy both conditions at the least cost."
    cases = [
        (0.33, 0.12, 0.3, 0.4)
    ]  # here fractions, odds and other ratios require different bounds, whatever is sampled
    for wrong_rollback, wrong_ship, factor in ((0.283, 0.117, 1.9), (0.367, 0.213, 1.6), (0.183, 0.093, 2.6)):
        old = 0.2 + 0.01 * draw.integer(0, 4)
        cases.append((wrong_rollback, wrong_ship, old, round(old * (factor + 0.1 * draw.integer(0, 3)), 4)))
    for wrong_rollback, wrong_ship, old, new in cases:
        given = {"new": new, "old": old, "wrong_rollback": wrong_rollback, "wrong_ship": wrong_ship}
        got = sub.bounds(new, old, wrong_rollback, wrong_ship)
        if not isinstance(got, tuple | list) or len(got) != 2:
            fail("`bounds` should return two whole numbers, a and b", given=given)
        a, b = (round(float(x)) for x in got)
        if (a, b) != tuple(float(x) for x in got) or min(a, b) < 1:
            fail("`bounds` should return two whole numbers, 1 or more", given=given)
        if a > 200 or b > 200:
            fail("`bounds` returns a bound above 200", given=given)
        level, worse, by_shares = allowed(new, old, wrong_rollback, wrong_ship)
        if not level(a, b):
            if level(b, a) and worse(b, a):
                fail("the bounds are exchanged: a is the bound of the rollback", given=given)
            fail(f"with a = {a}, b = {b} an equal version is rolled back with probability {ends(0.5, a, b):.3f}, which is too often", given=given)  # fmt: skip
        if not worse(a, b):
            up, down = new * (1 - old), old * (1 - new)
            fail(f"with a = {a}, b = {b} the worse version is shipped with probability {1 - ends(up / (up + down), a, b):.3f}, which is too often", given=given)  # fmt: skip
        smaller = [
            (c, d) for c in range(1, min(a * b, 60) + 1) for d in range(1, min((a * b - 1) // c, 60) + 1) if level(c, d) and worse(c, d)
        ]  # fmt: skip
        if smaller:
            if by_shares(a, b) and not any(by_shares(*some) for some in smaller):
                fail(f"a = {a}, b = {b} are the bounds for the ratio of the fractions of complaints; use the ratio of their odds", given=given)  # fmt: skip
            fail(f"a = {a}, b = {b} satisfy both conditions, but smaller bounds do too, and need fewer users", given=given)  # fmt: skip
    for numbers, want, say in (
        ((0.2, 0.05, 0.25, 0.2), (6, 2), "roll an equal version back with a probability of exactly 0.25, which is allowed"),
        ((0.24, 0.2, 0.1, 0.05), (117, 13), "satisfy both conditions with the fewest pairs"),
        ((0.22, 0.2, 0.103, 0.1), (175, 20), "satisfy both conditions with the fewest pairs"),
        ((0.21, 0.2, 0.41, 0.02), (93, 64), "satisfy both conditions with the fewest pairs"),
        ((0.3, 0.2, 0.7, 0.1), (2, 4), "satisfy both conditions with the fewest pairs"),
    ):  # fmt: skip
        a, b = sub.aside.bounds(*numbers)
        if (int(a), int(b)) != want:
            given = dict(zip(("new", "old", "wrong_rollback", "wrong_ship"), numbers, strict=True))
            fail(f"a = {want[0]}, b = {want[1]} {say}; yours are a = {a}, b = {b}", given=given)


# %% [edges]
# first_passage: if neither bound was reached
# cheapest: with a probability of at most
# cheapest: no bound is above 200


# %% [probes]
# no integers, size, values, float32, gradient, keywords, nan: booleans and whole numbers


# %% [mutant] only at the end
# caught by: first_passage
# says: at the end only
def watch(new, old, rollback, ship):
    count = (new.long() - old.long()).sum(1)
    what = (count >= rollback).long() - (count <= -ship).long()
    return what, torch.full_like(what, new.shape[1])


# %% [mutant] no bound counts as shipping
# caught by: first_passage
# says: treated as one that ships
def watch(new, old, rollback, ship):
    count = (new.long() - old.long()).cumsum(1)
    over = (count >= rollback) | (count <= -ship)
    first = over.long().argmax(1)
    at = count.gather(1, first[:, None])[:, 0]
    what = torch.where(at >= rollback, 1, -1)
    return what, torch.where(over.any(1), first + 1, new.shape[1])


# %% [mutant] counted from 0
# caught by: first_passage
# says: one too few
def watch(new, old, rollback, ship):
    count = (new.long() - old.long()).cumsum(1)
    over = (count >= rollback) | (count <= -ship)
    ended = over.any(1)
    first = over.long().argmax(1)
    at = count.gather(1, first[:, None])[:, 0]
    return torch.where(ended, at.sign(), 0), torch.where(ended, first, new.shape[1] - 1)


# %% [mutant] equal on both sides
# caught by: cheapest
# says: too often
def bounds(new, old, wrong_rollback, wrong_ship):
    w = new / (1 - new) * (1 - old) / old
    a = 1
    while 1 - (1 - w**-a) / (1 - w ** (-2 * a)) > wrong_ship:
        a += 1
    return a, a


# %% [mutant] a is one larger
# caught by: cheapest
# says: fewer users
def bounds(new, old, wrong_rollback, wrong_ship):
    w = new / (1 - new) * (1 - old) / old
    for b in range(1, 201):
        a = math.ceil(b * (1 - wrong_rollback) / wrong_rollback) + 1
        if 1 - (1 - w**-b) / (1 - w ** -(a + b)) <= wrong_ship:
            return a, b
    return 1, 1


# %% [mutant] exchanged
# caught by: cheapest
# says: exchanged
def bounds(new, old, wrong_rollback, wrong_ship):
    w = new / (1 - new) * (1 - old) / old
    for b in range(1, 201):
        a = 1
        while b / (a + b) > wrong_rollback:
            a += 1
        if 1 - (1 - w**-b) / (1 - w ** -(a + b)) <= wrong_ship:
            return b, a
    return 1, 1


# %% [partial] 2: the canary, with bounds of twenty
def bounds(new, old, wrong_rollback, wrong_ship):
    return 20, 20
