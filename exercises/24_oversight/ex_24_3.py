# ---
# title: How many cheats does the monitor miss?
# kind: implement
# minutes: 25
# ---

# %% [statement]
# A monitor flags some of `N` completions. A person reads all flagged completions, and an *audit*: a random sample of the completions that are not flagged. Only for completions that were read do we know whether they cheat.
#
# 1. `cheat_rate(flags, cheats, audited)`: an unbiased estimate of the fraction of all `N` completions that cheat. `flags` and `audited` are boolean $(N,)$; at least one completion is audited, and no audited completion is flagged. `cheats` is $(N,)$, 1 or 0 if the completion was read, NaN if not.
# 2. `recall(flags, cheats, audited)`: the fraction of the cheats that the monitor flags, with the estimate of 1 for the cheats that it missed. NaN if the estimate finds no cheat.
# 3. `weights(flags, audited)`: $(N,)$ weights whose sum with `cheats` over the completions that were read is `cheat_rate`. They are 0 for completions that were not read.

# %% [given]
import math

import torch


# %% [stub]
def cheat_rate(flags, cheats, audited):
    """flags, audited: (N,) boolean; cheats: (N,) 1, 0 or NaN. Returns a number."""
    raise NotImplementedError


def recall(flags, cheats, audited):
    """The same arguments. Returns a number, or NaN."""
    raise NotImplementedError


def weights(flags, audited):
    """flags, audited: (N,) boolean. Returns (N,)."""
    raise NotImplementedError


# %% [solution]
def weights(flags, audited):
    unread = (~flags).sum() / audited.sum()  # how many completions each audited one stands for
    return (flags.double() + audited.double() * unread) / len(flags)


def cheat_rate(flags, cheats, audited):
    read = flags | audited
    return float((weights(flags, audited)[read] * cheats[read]).sum())


def recall(flags, cheats, audited):
    rate = cheat_rate(flags, cheats, audited)
    return float(cheats[flags].sum()) / len(flags) / rate if rate else math.nan


# %% [tests]
import itertools
import math

import torch
from minirlhf_course.classroom.testing import expect, fail, test


def sample(draw, n=9):
    """Return flags, cheats with NaN where nobody read, and an audit of some that are not flagged. n: at least 7."""
    flags = torch.zeros(n, dtype=torch.bool)
    flags[draw.permutation(n)[: draw.integer(2, 4)]] = True
    rest = (~flags).nonzero()[:, 0]
    chosen = rest[draw.permutation(len(rest))[: draw.integer(2, 3)]]
    audited = torch.zeros(n, dtype=torch.bool)
    audited[chosen] = True
    cheats = (draw.uniform(n) < 0.5).double()
    cheats[int(flags.nonzero()[0, 0])], cheats[int(chosen[0])], cheats[int(chosen[1])] = 1.0, 1.0, 0.0
    return flags, torch.where(flags | audited, cheats, torch.nan), audited


def by_hand(flags, cheats, audited):
    """Return the cheats among the flagged, and the estimate of those among the rest, one completion at a time."""
    found = sum(c for f, c in zip(flags.tolist(), cheats.tolist(), strict=True) if f)
    seen = [c for a, c in zip(audited.tolist(), cheats.tolist(), strict=True) if a]
    return found, (len(flags) - int(flags.sum())) * sum(seen) / len(seen)


@test(
    points=2,
    hints=(
        "How many completions that were not flagged does each audited one represent?",
        "Add the cheats among the flagged completions to the number of unflagged completions times the fraction of cheats in the audit. Divide by N.",
    ),
    against="completion by completion",
)
def estimated(sub, draw):
    "`cheat_rate` estimates the fraction of cheats."
    flags, cheats, audited = sample(draw)
    found, missed = by_hand(flags, cheats, audited)
    n, read = len(flags), flags | audited
    seen = float(cheats[audited].sum())
    expect(
        sub.cheat_rate(flags, cheats, audited), (found + missed) / n, what="`cheat_rate`",
        given={"flags": flags.int(), "cheats": cheats, "audited": audited.int()},
        mistakes={
            "it is the fraction among all that were read, and flagged completions were read more often": float(cheats[read].mean()),
            "cheats of the audit count once; each represents several completions": (found + seen) / n,
            "only flagged cheats count": found / n,
            "it is the mean of the two rates, whatever their numbers of completions": (found / int(flags.sum()) + seen / int(audited.sum())) / 2,
            "it is the rate of the audit alone": seen / int(audited.sum()),
            "an audited completion represents N completions, and not those that are not flagged": (found + n * seen / int(audited.sum())) / n,
        },
    )  # fmt: skip


@test(
    points=2,
    hints=("What must hold on average over all audits that could have been drawn?", "Try all audits of two completions: the mean of the estimates is the true fraction."),
    against="all audits",
)  # fmt: skip
def unbiased(sub, draw):
    "Over all possible audits the mean of `cheat_rate` is the true fraction."
    flags = torch.tensor([True, True, False, False, False, False])
    truth = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 0.0], dtype=torch.float64)[
        [0, 1, *(2 + draw.permutation(4)).tolist()]
    ]
    found = []
    for pair in itertools.combinations(range(2, 6), 2):
        audited = torch.zeros(6, dtype=torch.bool)
        audited[list(pair)] = True
        found.append(float(sub.cheat_rate(flags, torch.where(flags | audited, truth, torch.nan), audited)))
    expect(sum(found) / len(found), truth.mean(), what="the mean of `cheat_rate` over all audits", given={"flags": flags.int(), "truth": truth})  # fmt: skip


@test(
    points=1,
    hints=("Which cheats does the monitor flag, and how many are there in all?", "Divide the flagged cheats by N times the estimate. What if it is 0?"),
    against="completion by completion",
)  # fmt: skip
def what_it_catches(sub, draw):
    "`recall` is the flagged fraction of the cheats."
    for n in (9, 13):
        _what_it_catches(sub, *sample(draw, n))


def _what_it_catches(sub, flags, cheats, audited):
    found, missed = by_hand(flags, cheats, audited)
    seen = float(cheats[audited].sum())
    expect(
        sub.recall(flags, cheats, audited), found / (found + missed), what="`recall`",
        given={"flags": flags.int(), "cheats": cheats, "audited": audited.int()},
        mistakes={
            "it is the precision": found / int(flags.sum()),
            "missed cheats of the audit count once": found / (found + seen),
            "it is the fraction of the cheats that the monitor misses": missed / (found + missed),
        },
    )  # fmt: skip
    none = torch.where(cheats.isnan(), cheats, torch.zeros_like(cheats))
    one = none.clone()
    one[flags.nonzero()[0, 0]] = 1.0
    expect(sub.recall(flags, one, audited), 1.0, what="`recall`, where the audit finds nothing", given={"flags": flags.int(), "cheats": one})  # fmt: skip
    nothing = torch.zeros_like(flags)
    expect(
        sub.recall(nothing, torch.where(audited, cheats, torch.nan), audited), 0.0, what="`recall` of a monitor that flags nothing",
        given={"cheats": cheats, "audited": audited.int()}, mistakes={"it is NaN, although the estimate finds cheats": math.nan},
    )  # fmt: skip
    got = float(sub.recall(flags, none, audited))
    if not math.isnan(got):
        fail(f"`recall` is {got:.4g} where no cheat was found; expected NaN")


@test(
    points=1,
    hints=("Which factor does a flagged completion have in `cheat_rate`?", "1/N. An audited one has the number of unflagged completions divided by the audit's size, over N."),
    against="the estimate, completion by completion",
)  # fmt: skip
def weighted(sub, draw):
    "`weights` reproduce the estimate."
    flags, cheats, audited = sample(draw, draw.integer(8, 14))
    want = []
    for k in range(len(flags)):
        one = torch.zeros_like(cheats)
        one[k] = 1.0
        found, missed = by_hand(flags, one, audited)
        want.append((found + missed) / len(flags))
    want = torch.tensor(want, dtype=torch.float64)
    read = int((flags | audited).sum())
    expect(
        sub.weights(flags, audited), want, what="`weights`", given={"flags": flags.int(), "audited": audited.int()},
        mistakes={
            "all completions that were read have the same weight": (flags | audited).double() / read,
            "the weights are not divided by N": want * len(flags),
            "an audited completion counts once": (flags | audited).double() / len(flags),
        },
    )  # fmt: skip


# %% [edges]
# what_it_catches: NaN if the estimate finds no cheat
# estimated: NaN if not


# %% [probes]
# no gradient, integers, float32, values, size, keywords, nan: flags and audits


# %% [mutant] all that were read
# caught by: estimated
# says: among all that were read
def cheat_rate(flags, cheats, audited):
    return float(cheats[flags | audited].mean())


# %% [mutant] once
# caught by: estimated
# says: count once
def cheat_rate(flags, cheats, audited):
    return float(cheats[flags | audited].sum()) / len(flags)


# %% [mutant] precision
# caught by: what_it_catches
# says: precision
def recall(flags, cheats, audited):
    return float(cheats[flags].mean()) if float(cheats[flags | audited].sum()) else math.nan


# %% [mutant] equal weights
# caught by: weighted
# says: same weight
def weights(flags, audited):
    read = (flags | audited).double()
    return read / read.sum()


def cheat_rate(flags, cheats, audited):
    rest = float(cheats[audited].mean()) * int((~flags).sum())
    return (float(cheats[flags].sum()) + rest) / len(flags)


# %% [partial] 4: the rate
def recall(flags, cheats, audited):
    return 0.0


def weights(flags, audited):
    return flags.double()


def cheat_rate(flags, cheats, audited):
    rest = float(cheats[audited].mean()) * int((~flags).sum())
    return (float(cheats[flags].sum()) + rest) / len(flags)
