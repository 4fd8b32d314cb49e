# ---
# title: Four prices of length
# kind: implement
# minutes: 25
# ---

# %% [statement]
# Write the chapter's four rewards for length. `correct` says whether an answer is right (bool), and `lengths` is the number of tokens of its completion (an integer of at least 0). Both are tensors. Each function returns one float for each completion.
#
# 1. `lcpo_exact(correct, lengths, target_lengths, alpha)`: LCPO with an exact target. All tensors are `(B,)`; `target_lengths` are integers. The distance lowers the reward of wrong answers too, and a reward may be negative.
# 2. `lcpo_max(correct, lengths, target_lengths, alpha, delta)`: LCPO with a maximum, with `target_lengths` as $n_{\max}$. All tensors are `(B,)`. A completion may be longer than its budget; the formula gives its reward there too.
# 3. `kimi(correct, lengths)`: the term $r_{\text{length}}$ of Kimi's length reward, without the reward to which it is added. Both tensors are `(P, G)`: $G$ completions for each of $P$ prompts. The minimum and the maximum are taken over all $G$ completions of
#    the *same* prompt, right or wrong. If all $G$ completions are equally long, the term is 0 for all of them. $G$ may be 1.
# 4. `cosine(correct, lengths, limit, right_first, right_last, wrong_first, wrong_last, exceeded)`: the cosine reward, `(B,)`. A right answer goes from `right_first` at 0 tokens ($a$) to `right_last` at the limit $L$ ($b$), a wrong answer from `wrong_first` to `wrong_last`. From
#    `limit` tokens on (so also with exactly `limit` tokens) the completion has been truncated, and its reward is `exceeded`, right or wrong.

# %% [given]
import math

import torch


# %% [stub]
def lcpo_exact(correct, lengths, target_lengths, alpha):
    """correct: (B,) bool. lengths, target_lengths: (B,) integers. Returns (B,)."""
    raise NotImplementedError


def lcpo_max(correct, lengths, target_lengths, alpha, delta):
    """correct: (B,) bool. lengths, target_lengths: (B,) integers. Returns (B,)."""
    raise NotImplementedError


def kimi(correct, lengths):
    """correct: (P, G) bool. lengths: (P, G) integers. Returns (P, G)."""
    raise NotImplementedError


def cosine(correct, lengths, limit, right_first, right_last, wrong_first, wrong_last, exceeded):
    """correct: (B,) bool. lengths: (B,) integers. limit: an integer; the others are numbers. Returns (B,)."""
    raise NotImplementedError


# %% [solution]
def lcpo_exact(correct, lengths, target_lengths, alpha):
    return correct.double() - alpha * (target_lengths - lengths).abs()


def lcpo_max(correct, lengths, target_lengths, alpha, delta):
    return correct * (alpha * (target_lengths - lengths).double() + delta).clamp(0, 1)


def kimi(correct, lengths):
    n = lengths.double()
    shortest, longest = n.amin(-1, keepdim=True), n.amax(-1, keepdim=True)
    term = 0.5 - (n - shortest) / (longest - shortest).clamp(min=1)
    term = torch.where(correct, term, term.clamp(max=0))
    return torch.where(longest > shortest, term, 0.0)


def cosine(correct, lengths, limit, right_first, right_last, wrong_first, wrong_last, exceeded):
    weight = (1 + torch.cos(math.pi * lengths.double() / limit)) / 2
    right = right_last + (right_first - right_last) * weight
    wrong = wrong_last + (wrong_first - wrong_last) * weight
    return torch.where(lengths >= limit, exceeded, torch.where(correct, right, wrong))


# %% [tests]
import math

import torch

from minirlhf_course.classroom.testing import expect, test


def completions(draw, distances):
    """Right and wrong ones, each with its own target, at these distances from it: correct, lengths, targets."""
    apart = torch.tensor([x + draw.integer(0, 2) for x in distances])
    targets = torch.tensor([draw.integer(60, 90) for _ in distances])
    correct = torch.tensor([True, False] * len(distances))[: len(distances)]
    order = draw.permutation(len(distances))
    return correct[order], (targets + apart)[order], targets[order]


def price(draw):
    return round(float(draw.uniform(low=0.006, high=0.009)), 4)


def tables(mistakes, tensors, *numbers):
    """Apply ``mistakes`` to the entries of the tensors: the results by the mistake's words."""
    flat = [mistakes(*row, *numbers) for row in zip(*(x.flatten().tolist() for x in tensors), strict=True)]
    return {
        say: torch.tensor([row[say] for row in flat], dtype=torch.float64).view(tensors[0].shape) for say in flat[0]
    }


def around(c, n, target, alpha):
    return {
        "right": c - alpha * abs(target - n),
        "only right answers pay for the distance": c * (1 - alpha * abs(target - n)),
        "only a completion that is too long pays": c - alpha * max(0, n - target),
        "only a completion that is too short pays": c - alpha * max(0, target - n),
        "the distance has a sign, so that short completions are rewarded": c - alpha * (n - target),
        "the distance is added": c + alpha * abs(target - n),
        "the distance is relative to the target": c - alpha * abs(target - n) / target,
        "the distance is squared": c - alpha * (target - n) ** 2,
        "the reward is clipped at 0 from below": max(0.0, c - alpha * abs(target - n)),
    }


def within(c, n, budget, alpha, delta):
    room = alpha * (budget - n) + delta
    return {
        "right": c * min(1.0, max(0.0, room)),
        "the factor is not held at 1 and below": c * max(0.0, room),
        "the factor is not held at 0 and above": c * min(1.0, room),
        "the factor is not held between 0 and 1": c * room,
        "wrong answers are rewarded for their length": min(1.0, max(0.0, room)),
        "the factor is added to c": c + min(1.0, max(0.0, room)),
        "δ is left out": c * min(1.0, max(0.0, alpha * (budget - n))),
        "δ is added outside of the clip": c * (min(1.0, max(0.0, alpha * (budget - n))) + delta),
        "long completions are rewarded: the difference has the wrong sign": c
        * min(1.0, max(0.0, alpha * (n - budget) + delta)),
        "the distance counts in both directions": c * min(1.0, max(0.0, delta - alpha * abs(budget - n))),
        "δ is divided by α": c * min(1.0, max(0.0, alpha * (budget - n + delta))),
    }


@test(
    points=1,
    against="the formula, completion by completion",
    hints=(
        "Four cases: right or wrong, too short or too long. What does each of them get?",
        "The distance is an absolute value. It is subtracted from 1 and from 0 alike, and nothing is clipped.",
    ),
)
def exactly(sub, draw):
    "`lcpo_exact` subtracts the distance from the requested length."
    inputs, alpha = completions(draw, (-40, -30, 25, 35, 0, 0)), price(draw)
    mistakes = tables(around, inputs, alpha)
    expect(
        sub.lcpo_exact(*inputs, alpha),
        mistakes.pop("right"),
        what="the reward",
        given=dict(zip(("correct", "lengths", "target_lengths"), inputs, strict=True)) | {"alpha": alpha},
        mistakes=mistakes,
    )


@test(
    points=2,
    against="the formula, completion by completion",
    hints=(
        "What is clipped, and what does the result of the clip multiply? Try a completion far below its budget, and one far above it.",
        "The clip holds α (n_max − n) + δ between 0 and 1. c is 1 or 0 and multiplies it, so a wrong answer gets 0.",
    ),
)
def at_most(sub, draw):
    "`lcpo_max` rewards right answers within a soft budget."
    inputs, alpha = completions(draw, (-150, -140, -30, -20, 30, 20, 150, 140)), price(draw)
    for delta in (0.5, 0.3):
        mistakes = tables(within, inputs, alpha, delta)
        expect(
            sub.lcpo_max(*inputs, alpha, delta),
            mistakes.pop("right"),
            what="the reward",
            given=dict(zip(("correct", "lengths", "target_lengths"), inputs, strict=True))
            | {"alpha": alpha, "delta": delta},
            mistakes=mistakes,
        )


def group(correct, lengths, low=None, high=None):
    """The term of each completion of one prompt, and what mistakes give; low, high: other ends than the group's."""
    low, high = min(lengths) if low is None else low, max(lengths) if high is None else high
    share = [(n - low) / (high - low) if high > low else 0.5 for n in lengths]
    return [0.5 - s if c else min(0.0, 0.5 - s) for c, s in zip(correct, share, strict=True)]


def groups(draw):
    """Three prompts of four completions, with lengths of their own; right and wrong ones at both ends and inside."""
    correct = torch.tensor([[True, False, True, False], [False, True, False, True], [False, False, True, False]])
    starts = [draw.integer(5, 9), draw.integer(30, 40), draw.integer(90, 120)]
    steps = [[0, 3 + draw.integer(0, 1), 6 + draw.integer(0, 1), 12 + draw.integer(0, 3)] for _ in starts]
    lengths = torch.tensor([[a + x for x in row] for a, row in zip(starts, steps, strict=True)])
    order = [draw.permutation(4) for _ in starts]
    pick = lambda x: torch.stack([row[i] for row, i in zip(x, order, strict=True)])
    return pick(correct), pick(lengths)


@test(
    points=2,
    against="the formula, group by group",
    hints=(
        "Which completions give the minimum and the maximum? And which sign may the term of a wrong answer have?",
        "Take the minimum and the maximum along the last axis, with `keepdim=True`. λ goes from ½ to −½. Where the answer is wrong, keep the smaller of λ and 0.",
    ),
)
def among_the_group(sub, draw):
    "`kimi` compares each completion with the shortest and the longest of its prompt."
    correct, lengths = groups(draw)
    rows = list(zip(correct.tolist(), lengths.tolist(), strict=True))
    each = lambda make: torch.tensor([make(c, n) for c, n in rows], dtype=torch.float64)
    want = each(group)
    plain = each(lambda c, n: group([True] * len(n), n))
    everything = lengths.flatten().tolist()
    whole = each(lambda c, n: group(c, n, min(everything), max(everything)))
    expect(
        sub.kimi(correct, lengths),
        want,
        what="the term",
        given={"correct": correct, "lengths": lengths},
        mistakes={
            "minimum and maximum are taken over all prompts": whole,
            "minimum and maximum are taken over a column": torch.tensor(
                [group(c, n) for c, n in zip(correct.T.tolist(), lengths.T.tolist(), strict=True)],
                dtype=torch.float64,
            ).T.contiguous(),
            "a wrong answer is rewarded for being short": plain,
            "a wrong answer gets 0, whatever its length": torch.where(correct, plain, 0.0),
            "a right answer is never penalised": torch.where(correct, plain.clamp(min=0), plain.clamp(max=0)),
            "a wrong answer gets the larger of λ and 0": torch.where(correct, plain, plain.clamp(min=0)),
            "the ½ is missing: λ goes from 0 to −1": torch.where(correct, plain - 0.5, (plain - 0.5).clamp(max=0)),
            "λ goes from 1 to 0": torch.where(correct, plain + 0.5, 0.0),
            "long completions are rewarded": torch.where(correct, -plain, (-plain).clamp(max=0)),
            "the reward to which it is added is in it": want + correct.double(),
            "minimum and maximum are taken over the right answers": each(
                lambda c, n: group(
                    c,
                    n,
                    min(x for x, right in zip(n, c, strict=True) if right),
                    max(x for x, right in zip(n, c, strict=True) if right),
                )
            ),
        },
    )


@test(
    points=1,
    hints=(
        "What is the denominator if all completions of a prompt are equally long?",
        "Replace the denominator where it is 0, and the term as well: it is 0 there. With `torch.where` the other groups stay as they are.",
    ),
)
def equally_long(sub, draw):
    "`kimi` is 0 in a group of equal lengths, and does not lose the other groups."
    correct, lengths = groups(draw)
    lengths[1] = lengths[1, 0]
    want = torch.tensor(
        [group(c, n) for c, n in zip(correct.tolist(), lengths.tolist(), strict=True)], dtype=torch.float64
    )
    want[1] = 0.0
    half = torch.where(correct, 0.5, 0.0).double()
    expect(
        sub.kimi(correct, lengths),
        want,
        what="the term",
        given={"correct": correct, "lengths": lengths},
        mistakes={
            "all are the shortest where all are equally long, and right answers get ½": torch.where(
                lengths.amin(-1, keepdim=True) == lengths.amax(-1, keepdim=True), half, want
            ),
        },
    )
    expect(
        sub.aside.kimi(correct[:, :1], lengths[:, :1]),
        torch.zeros(3, 1),
        what="the term of a single completion",
        given={"correct": correct[:, :1], "lengths": lengths[:, :1]},
    )


def curve(c, n, limit, right_first, right_last, wrong_first, wrong_last, exceeded):
    first, last = (right_first, right_last) if c else (wrong_first, wrong_last)
    bend = lambda a, b, turn=1.0: b + (a - b) / 2 * (1 + math.cos(turn * math.pi * n / limit))
    one = bend(first, last)
    cut = lambda value: exceeded if n >= limit else value
    return {
        "right": cut(one),
        "a completion of exactly `limit` tokens is not cut off": exceeded if n > limit else one,
        "nothing is cut off": one,
        "a right answer is not cut off": one if c else cut(one),
        "wrong answers go the other way, from `wrong_last` to `wrong_first`": cut(one if c else bend(last, first)),
        "right answers go the other way, from `right_last` to `right_first`": cut(bend(last, first) if c else one),
        "first and last are exchanged, for all answers": cut(bend(last, first)),
        "wrong answers follow the curve of right ones": cut(bend(right_first, right_last)),
        "the cosine goes through a whole period": cut(bend(first, last, 2.0)),
        "the cosine goes through a quarter of a period": cut(bend(first, last, 0.5)),
        "the curve is a straight line": cut(first + (last - first) * n / limit),
        "the factor ½ is missing": cut(last + (first - last) * (1 + math.cos(math.pi * n / limit))),
        "the 1 is missing": cut(last + (first - last) / 2 * math.cos(math.pi * n / limit)),
    }


@test(
    points=2,
    against="the formula, completion by completion",
    hints=(
        "What is the cosine at 0 tokens, and what at the limit? Which of the two values does the reward have there?",
        "Half a cosine, from 1 to −1: (1 + cos(πn/L))/2 goes from 1 to 0, and weighs the first value against the last one. Then replace the reward of truncated completions, also at exactly L.",
    ),
)
def along_the_cosine(sub, draw):
    "`cosine` goes from the first to the last value, and has a fixed reward for truncated completions."
    limit = draw.integer(40, 60)
    ends = [round(float(draw.uniform(low=a, high=b)), 2) for a, b in ((1.6, 2.4), (0.8, 1.2), (-9, -7), (-2, -1), (-13, -11))]  # fmt: skip
    places = [
        0,
        0,
        limit // 4,
        limit // 4 + 1,
        limit - 3,
        limit - 5,
        limit,
        limit,
        limit + draw.integer(1, 9),
        limit + 4,
    ]
    correct, lengths = torch.tensor([True, False] * 5), torch.tensor(places)
    order = draw.permutation(10)
    inputs = correct[order], lengths[order]
    mistakes = tables(curve, inputs, limit, *ends)
    names = ("limit", "right_first", "right_last", "wrong_first", "wrong_last", "exceeded")
    expect(
        sub.cosine(*inputs, limit, *ends),
        mistakes.pop("right"),
        what="the reward",
        given={"correct": inputs[0], "lengths": inputs[1]} | dict(zip(names, (limit, *ends), strict=True)),
        mistakes=mistakes,
    )


# %% [edges]
# exactly: a reward may be negative
# at_most: A completion may be longer than its budget
# equally_long: If all $G$ completions are equally long
# equally_long: $G$ may be 1
# along_the_cosine: also with exactly `limit` tokens


# %% [probes]
# no gradient: rewards are data


# %% [mutant] only right answers pay
# caught by: exactly
# says: only right answers pay
def lcpo_exact(correct, lengths, target_lengths, alpha):
    return correct * (1 - alpha * (target_lengths - lengths).abs())


# %% [mutant] no clip
# caught by: at_most
# says: not held between
def lcpo_max(correct, lengths, target_lengths, alpha, delta):
    return correct * (alpha * (target_lengths - lengths) + delta)


# %% [mutant] wrong answers are paid for their length
# caught by: at_most
# says: wrong answers are rewarded
def lcpo_max(correct, lengths, target_lengths, alpha, delta):
    return (alpha * (target_lengths - lengths) + delta).clamp(0, 1)


# %% [mutant] all prompts together
# caught by: among_the_group
# says: over all prompts
def kimi(correct, lengths):
    term = 0.5 - (lengths - lengths.min()) / (lengths.max() - lengths.min())
    return torch.where(correct, term, term.clamp(max=0))


# %% [mutant] wrong answers may gain
# caught by: among_the_group
# says: rewarded for being short
def kimi(correct, lengths):
    low, high = lengths.amin(-1, keepdim=True), lengths.amax(-1, keepdim=True)
    return torch.where(high > low, 0.5 - (lengths - low) / (high - low), 0.0)


# %% [mutant] NaN where all are equally long
# caught by: equally_long
def kimi(correct, lengths):
    low, high = lengths.amin(-1, keepdim=True), lengths.amax(-1, keepdim=True)
    term = 0.5 - (lengths - low) / (high - low)
    return torch.where(correct, term, term.clamp(max=0))


# %% [mutant] only beyond the limit
# caught by: along_the_cosine
# says: is not cut off
def cosine(correct, lengths, limit, right_first, right_last, wrong_first, wrong_last, exceeded):
    first, last = torch.where(correct, right_first, wrong_first), torch.where(correct, right_last, wrong_last)
    reward = last + (first - last) / 2 * (1 + torch.cos(math.pi * lengths / limit))
    return torch.where(lengths > limit, exceeded, reward)


# %% [mutant] wrong answers the other way
# caught by: along_the_cosine
# says: go the other way
def cosine(correct, lengths, limit, right_first, right_last, wrong_first, wrong_last, exceeded):
    first, last = torch.where(correct, right_first, wrong_last), torch.where(correct, right_last, wrong_first)
    reward = last + (first - last) / 2 * (1 + torch.cos(math.pi * lengths / limit))
    return torch.where(lengths >= limit, exceeded, reward)


# %% [partial] 3: what was asked for
def kimi(correct, lengths):
    raise NotImplementedError


def cosine(correct, lengths, limit, right_first, right_last, wrong_first, wrong_last, exceeded):
    raise NotImplementedError


# %% [partial] 7: equal lengths forgotten
def kimi(correct, lengths):
    low, high = lengths.amin(-1, keepdim=True), lengths.amax(-1, keepdim=True)
    term = 0.5 - (lengths - low) / (high - low)
    return torch.where(correct, term, term.clamp(max=0))
