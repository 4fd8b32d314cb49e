# ---
# title: Is that task new?
# kind: implement
# minutes: 25
# ---

# %% [statement]
# The pool of self-instruct. Texts are lists of integers, one for each word. Write two functions.
#
# 1. `overlap(a, b)`: twice the length of the longest common subsequence of two texts divided by the sum of their lengths, a number. Neither text is empty.
# 2. `admit(pool, candidates, limit)`: go through the candidates in their order. Admit a candidate if its overlap with *every* text of the current pool is below `limit`. Admitted candidates join the pool, which may be empty at first. Return
#    the positions of the admitted candidates, a list of integers. Do not change the lists that you were given.
#
# Texts have up to forty words, so trying all subsequences takes too long. Think of the longest common subsequence of the prefixes of both texts.

# %% [given]
import torch


# %% [stub]
def overlap(a, b):
    """a, b: lists of integers. Returns a number from 0 to 1."""
    raise NotImplementedError


def admit(pool, candidates, limit):
    """pool, candidates: lists of lists of integers. Returns a list of positions among the candidates."""
    raise NotImplementedError


# %% [solution]
def overlap(a, b):
    longest = [0] * (len(b) + 1)  # of what was read of a so far and the first j words of b
    for word in a:
        before, longest = longest, [0]
        for j, other in enumerate(b):
            longest.append(before[j] + 1 if word == other else max(before[j + 1], longest[j]))
    return 2 * longest[-1] / (len(a) + len(b))


def admit(pool, candidates, limit):
    inside, places = list(pool), []
    for place, text in enumerate(candidates):
        if all(overlap(text, other) < limit for other in inside):
            inside.append(text)
            places.append(place)
    return places


# %% [tests]
import difflib
import itertools

import torch
from minirlhf_course.classroom.testing import expect, fail, test


def subsequences(text):
    """All of them."""
    return {found for size in range(len(text) + 1) for found in itertools.combinations(text, size)}


def by_definition(a, b):
    return 2 * max(map(len, subsequences(a) & subsequences(b))) / (len(a) + len(b))


def text(draw, size, words=4):
    return [draw.integer(0, words - 1) for _ in range(size)]


def block(a, b):
    """The longest run without a gap."""
    runs = lambda x: {tuple(x[i:j]) for i in range(len(x)) for j in range(i, len(x) + 1)}
    return 2 * max(map(len, runs(a) & runs(b))) / (len(a) + len(b))


EARLY = "each word is matched as early as it can be, but a later match would leave room for more"


def early(a, b):
    """Each word of a, in turn, is matched as early as it can be, and never given back; the better of both ways round."""
    found = []
    for one, other in ((a, b), (b, a)):
        at = count = 0
        for word in one:
            if word in other[at:]:
                at, count = other.index(word, at) + 1, count + 1
        found.append(count)
    return 2 * max(found) / (len(a) + len(b))


RUNS_FIRST = "the longest common run is matched first, but this may lose more words on both sides of it"


def runs_first(a, b):
    """The longest common run, then those before and after it; the better of both ways round."""
    either = [difflib.SequenceMatcher(None, *pair, autojunk=False).ratio() for pair in ((a, b), (b, a))]
    return max(either)


def bag(a, b):
    return 2 * sum(min(a.count(w), b.count(w)) for w in set(a)) / (len(a) + len(b))


@test(
    points=2,
    hints=(
        "A subsequence keeps the order and may leave words out. Compare the prefixes of both texts, word by word.",
        "If the last words agree, the length is one more than for both texts without them. Otherwise leave out one last word or the other, and take the better result.",
    ),
    against="all subsequences of both",
)
def alike(sub, draw):
    "`overlap` of two texts."
    for sizes in ((7, 5), (4, 8)):
        a, b = text(draw, sizes[0]), text(draw, sizes[1])
        want = by_definition(a, b)
        others = {
            "that is the longest run without a gap": block(a, b),
            "the order of the words is ignored": bag(a, b),
            EARLY: early(a, b),
            RUNS_FIRST: runs_first(a, b),
            "it is divided by the shorter length, where it should be the mean of the two": want
            * (len(a) + len(b))
            / 2
            / min(len(a), len(b)),
        }
        expect(
            sub.overlap(a, b), want, what="`overlap`", given={"a": a, "b": b}, tolerance=1e-9,
            mistakes={say: value for say, value in others.items() if abs(value - want) > 1e-6},
        )  # fmt: skip
    for fixed in (
        ([0, 1, 2, 3, 0, 2], [1, 3, 2, 0]),
        ([0, 3, 2, 0, 2, 4], [0, 4, 3, 0, 0, 2]),
        ([4, 0, 0, 0, 1, 4, 4, 0], [3, 0, 2, 0, 0, 4, 0]),
    ):
        want = by_definition(*fixed)
        others = {
            "that is the longest run without a gap": block(*fixed),
            "the order of the words is ignored": bag(*fixed),
            EARLY: early(*fixed),
            RUNS_FIRST: runs_first(*fixed),
        }
        expect(
            sub.overlap(*fixed), want, what="`overlap`", given={"a": fixed[0], "b": fixed[1]}, tolerance=1e-9,
            mistakes={say: value for say, value in others.items() if abs(value - want) > 1e-6},
        )  # fmt: skip


@test(
    points=1,
    hints=(
        "Does your function try the same prefixes again and again?",
        "Keep a table: one row of numbers for each word of the first text.",
    ),
)
def long_texts(sub, draw):
    "Texts of forty words."
    a = text(draw, 40, 9)
    gone = [w for i, w in enumerate(a) if i % 4]  # every fourth word is gone, so 30 are common
    expect(sub.overlap(a, gone), 60 / 70, what="`overlap` of a text and three quarters of it", tolerance=1e-9)
    expect(sub.overlap(a, [w + 9 for w in a]), 0.0, what="`overlap` of texts without a common word", tolerance=1e-9)


@test(
    points=2,
    hints=(
        "With which texts is the third candidate compared?",
        "With the pool, which now includes every admitted one of the first two candidates. Not with rejected candidates.",
    ),
)
def order(sub, draw):
    "`admit` compares with the current pool; an overlap equal to the limit is too much."
    k = draw.permutation(12).tolist()
    pool = [k[:4], *([word, word + 1] for word in range(20, 50, 2))]
    candidates = [
        k[4:8],  # new
        [*k[4:7], k[8]],  # three of four words as the first: .75
        [*k[:2], *k[9:11]],  # half of the pool's text: .5
        [k[8], k[11], k[3], k[9]],  # .25 with the second, which is outside; .25 with the pool
        [*k[:3], k[11]],  # .75 with the pool
        [*k[5:7], k[8], k[11]],  # .75 with the second, .5 with the first and with the fourth
    ]

    def admitted(limit, strict=True, growing=True, everyone=False):
        inside, places = list(pool), []
        for place, one in enumerate(candidates):
            most = max(by_definition(one, other) for other in inside)
            if fits := (most < limit if strict else most <= limit):
                places.append(place)
            if growing and (fits or everyone):
                inside.append(one)
        return places

    alone = [int(x) for x in sub.admit([], candidates[:1], 0.5)]
    if alone != [0]:
        fail(
            f"`admit` into an empty pool gives {alone}; expected [0]: there is no text with which the first could overlap"
        )
    if [int(x) for x in sub.aside.admit([k[:3]], [[k[0], *k[3:6]]], 0.28572)] != [0]:
        fail("an overlap of 2/7 = 0.2857… is below a limit of 0.28572, but `admit` rejects it")
    for limit in (0.6, 0.5):
        want = admitted(limit)
        got = sub.admit(pool, candidates, limit)
        if not isinstance(got, list | tuple | torch.Tensor):
            fail("the result of `admit` is not a list")
        others = {
            "admitted candidates are not compared with, although they belong to the pool": admitted(
                limit, growing=False
            ),
            "candidates are compared with rejected candidates, too": admitted(limit, everyone=True),
            "a candidate whose overlap equals the limit is admitted, although it is not below it": admitted(
                limit, strict=False
            ),
        }
        places = [int(x) for x in got]
        if places != sorted(set(places)) or not set(places) <= set(range(len(candidates))):
            fail(f"`admit` gives {places}; expected positions among the candidates, in their order, each once")
        marks = lambda those: torch.tensor([float(i in those) for i in range(len(candidates))])
        expect(
            marks(places), marks(want), what="`admit`, as 1 for each candidate that was admitted",
            given={"pool": pool, "candidates": candidates, "limit": limit},
            mistakes={say: marks(v) for say, v in others.items() if v != want},
        )  # fmt: skip


# %% [edges]
# order: which may be empty at first
# long_texts: Texts have up to forty words


# %% [probes]
# no integers, keywords, size, values, float32, gradient: lists of words, not tensors


# %% [mutant] without gaps
# caught by: alike
# says: without a gap
def overlap(a, b):
    best = 0
    for i in range(len(a)):
        for j in range(len(b)):
            k = 0
            while i + k < len(a) and j + k < len(b) and a[i + k] == b[j + k]:
                k += 1
            best = max(best, k)
    return 2 * best / (len(a) + len(b))


# %% [mutant] as early as it can be
# caught by: alike
# says: leave room for more
def overlap(a, b):
    found = []
    for one, other in ((a, b), (b, a)):
        at = count = 0
        for word in one:
            if word in other[at:]:
                at, count = other.index(word, at) + 1, count + 1
        found.append(count)
    return 2 * max(found) / (len(a) + len(b))


# %% [mutant] words in any order
# caught by: alike
# says: order of the words
def overlap(a, b):
    return 2 * sum(min(a.count(w), b.count(w)) for w in set(a)) / (len(a) + len(b))


# %% [mutant] the pool does not grow
# caught by: order
# says: belong to the pool
def admit(pool, candidates, limit):
    return [i for i, text in enumerate(candidates) if all(overlap(text, other) < limit for other in pool)]


# %% [mutant] refused ones count, too
# caught by: order
# says: rejected candidates
def admit(pool, candidates, limit):
    places = []
    for i, text in enumerate(candidates):
        if all(overlap(text, other) < limit for other in [*pool, *candidates[:i]]):
            places.append(i)
    return places


# %% [mutant] equal to the limit is let in
# caught by: order
# says: not below it
def admit(pool, candidates, limit):
    inside, places = list(pool), []
    for place, text in enumerate(candidates):
        if all(overlap(text, other) <= limit for other in inside):
            inside.append(text)
            places.append(place)
    return places


# %% [partial] 3: the overlap alone
def admit(pool, candidates, limit):
    return []
