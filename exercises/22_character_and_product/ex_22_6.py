# ---
# title: Bug hunt: everything is warm, and every rule holds
# kind: bughunt
# minutes: 25
# ---

# %% [statement]
# A model ranks its own answers by a trait, learns from the pairs, and is checked by rules. `tried` simulates the log-probabilities of such a model. In every query two of four answers are warm: the trait raises the log-probability of one of their tokens by 1.5 nats. Then `tried` prints the results of the three functions below.
# A correct ranking nearly always puts a warm answer first, and puts the longest answer first no more often than chance. Instead **the longest answer wins, more reliably the longer it is**. **Some pairs prefer an answer to itself.** **A rule whose grader crashed on most completions has a rate as high as a rule that was graded.**
#
# **There are three bugs, one in each function. Find and fix them.**
#
# * `scores(prompted, plain, mask)`: the score of the chapter for each answer, in nats. The arguments are log-probabilities of tokens with the trait in the system prompt and without it, and a mask that is True at tokens of the answer.
# * `pairs(scores, answers)`: for each query the indices of the answers with the highest and with the lowest score, as a list of `(query, high, low)`. `answers` are numbers, equal if two answers are the same text. Leave out queries in which both indices have the same text.
# * `rates(kept)`: the fraction of completions that satisfy each rule. `kept` is 1 or 0 for each completion, NaN if it could not be graded. First take the fraction among the graded completions of a prompt, then the mean over the prompts with a graded completion. Each rule has at least one.

# %% [given]
import torch


def made(longer, seed=0, queries=400):
    """Return log-probabilities of tokens (queries, 4, T) with and without the trait, the mask, and which answers are warm; the last answer is longer."""
    rng = torch.Generator().manual_seed(seed)
    lengths = torch.full((queries, 4), 5)
    lengths[:, 3] += longer
    plain = -1.5 - torch.rand(queries, 4, 5 + longer, generator=rng, dtype=torch.float64)
    mask = torch.arange(5 + longer) < lengths[:, :, None]
    warm = torch.rand(queries, 4, generator=rng).argsort(-1) < 2
    prompted = plain + 0.1 * torch.randn(plain.shape, generator=rng, dtype=torch.float64)
    prompted[:, :, 0] += 1.5 * warm
    return prompted, plain, mask, warm


def tried():
    """Print the results of the three functions."""
    for longer in (0, 1, 2, 4):
        prompted, plain, mask, warm = made(longer)
        first = scores(prompted, plain, mask).argmax(-1)
        right, last = warm.gather(1, first[:, None]).double().mean(), (first == 3).double().mean()
        print(
            f"{longer} tokens longer: a warm answer is first in {float(right):.2f}, the long one in {float(last):.2f}"
        )
    same = [
        (q, i, j) for q, i, j in pairs(torch.tensor([[1.0, 3, 2], [2, 2, 2]]), torch.tensor([[7, 8, 7], [4, 4, 4]]))
    ]
    print("pairs (the second query has the same answer three times):", same)
    graded = torch.tensor([[[1.0, 0.0], [1.0, 1.0]], [[torch.nan, 0.0], [torch.nan, torch.nan]]])
    print("one rule that was graded, one whose grader crashed:", rates(graded).tolist())


# %% [stub]
def scores(prompted, plain, mask):
    """prompted, plain, mask: (Q, K, T). Returns (Q, K)."""
    said = mask.sum(-1)
    with_trait = torch.where(mask, prompted, 0.0).sum(-1) / said
    without = torch.where(mask, plain, 0.0).sum(-1)
    return with_trait - without


def pairs(scores, answers):
    """scores, answers: (Q, K). Returns a list of (query, high, low)."""
    order = scores.argsort(-1, descending=True)
    return [(q, int(row[0]), int(row[-1])) for q, row in enumerate(order) if row[0] != row[-1]]


def rates(kept):
    """kept: (R, P, G), 1, 0 or NaN. Returns (R,)."""
    return kept.nan_to_num(1.0).mean(-1).mean(-1)


# %% [solution]
def scores(prompted, plain, mask):
    return torch.where(mask, prompted - plain, 0.0).sum(-1)


def pairs(scores, answers):
    order = scores.argsort(-1, descending=True)
    ends = [(q, int(row[0]), int(row[-1])) for q, row in enumerate(order)]
    return [(q, high, low) for q, high, low in ends if answers[q, high] != answers[q, low]]


def rates(kept):
    return kept.nanmean(-1).nanmean(-1)


# %% [tests]
import math

import torch
from minirlhf_course.classroom.testing import Panel, Picture, expect, fail, test, tidy


@test(
    points=2,
    hints=(
        "Which unit does the first term of the score have, and which the second?",
        "The first is a mean over tokens, the second a sum. The score is the difference of two log-probabilities of the whole answer.",
    ),
)
def whole_answers(sub, draw):
    "`scores` are differences of log-probabilities of whole answers."
    plain, prompted = (tidy(-draw.uniform(2, 3, 6, low=0.2, high=3.0)) for _ in range(2))
    lengths = torch.tensor([[draw.integer(2, 5) for _ in range(3)] for _ in range(2)])
    lengths[0, 0], lengths[0, 1] = 2, 5
    mask = torch.arange(6) < lengths[:, :, None]
    kept = lambda x: torch.where(mask, x, torch.zeros_like(x)).sum(-1)
    n = lengths.double()
    want = torch.tensor(
        [[sum((prompted[q, k, t] - plain[q, k, t]).item() for t in range(lengths[q, k])) for k in range(3)] for q in range(2)],
        dtype=torch.float64,
    )  # fmt: skip
    expect(
        sub.scores(prompted, plain, mask), want, what="`scores`", given={"prompted": prompted, "plain": plain, "mask": mask.int()},
        mistakes={
            "it is a mean under one prompt minus a sum under the other": kept(prompted) / n - kept(plain),
            "these are means over tokens; the score is for the whole answer": (kept(prompted) - kept(plain)) / n,
            "positions after the answer count too": (prompted - plain).sum(-1),
            "the sign is wrong: the log-probability without the trait minus the one with it": -want,
            "the log-probability without the trait is not subtracted": kept(prompted),
            "it is a sum with the trait minus a mean without it": kept(prompted) - kept(plain) / n,
            "positions after the answer count without the trait": kept(prompted) - plain.sum(-1),
            "positions after the answer count with the trait": prompted.sum(-1) - kept(plain),
            "the mean is multiplied by the longest length, not by the length of the answer": (kept(prompted) - kept(plain)) / n * 6,
        },
    )  # fmt: skip


@test(
    points=2,
    hints=(
        "Can two answers with different indices be the same text?",
        "The indices always differ. Compare `answers` at the two indices.",
    ),
)
def different_texts(sub, draw):
    "`pairs` prefer no text to itself."
    for queries, size in ((4, 4), (5, 6)):
        _different_texts(sub, draw, queries, size)
    one = tidy(draw.normal(2, 1))
    if list(sub.aside.pairs(one, torch.tensor([[3], [4]]))):
        fail("`pairs` is wrong: a query with a single answer has no pair", given={"scores": one})


def _different_texts(sub, draw, queries, size):
    scores = torch.stack([draw.permutation(size) for _ in range(queries)]).double()
    answers = torch.arange(size).repeat(queries, 1) + draw.integer(2, 9)
    order = scores.argsort(-1).tolist()
    for q, (i, j) in ((0, (1, 2)), (2, (2, 3))):  # two answers are the same text, but the first and the last differ
        answers[q, order[q][i]] = answers[q, order[q][j]]
    for q in (1, 3):  # the first and the last are the same text
        answers[q, int(scores[q].argmin())] = answers[q, int(scores[q].argmax())]
    high, low = scores.argmax(-1).tolist(), scores.argmin(-1).tolist()
    ends = [(q, high[q], low[q]) for q in range(queries)]
    want = [e for e in ends if e[0] not in (1, 3)]
    got = sub.pairs(scores, answers)
    given = {"scores": scores, "answers": answers}
    if not isinstance(got, tuple | list):
        fail("`pairs` should return a list of (query, high, low)", given=given)
    got = [tuple(int(x) for x in row) for row in got]
    if got == want:
        return
    if got == ends:
        fail("`pairs` is wrong: an answer is preferred to the same text at another index", given=given)
    if got == [(q, j, i) for q, i, j in want]:
        fail("`pairs` is wrong: high and low are exchanged", given=given)
    if {row[0] for row in got} < {row[0] for row in want}:
        fail("`pairs` is wrong: it leaves out queries whose first and last answers are different texts", given=given)
    instead = {(q, i, j) for q in (1, 3) for i in range(size) for j in range(size) if answers[q, i] != answers[q, j]}
    if len({row[0] for row in got}) == len(got) > len(want) and set(got) - set(want) <= instead:
        fail(
            "`pairs` is wrong: leave out a query whose first and last answers are the same text; no other answer takes their place",
            given=given,
        )
    fail(f"`pairs` is wrong: it is {got}; expected {want}", given=given)


@test(
    points=2,
    hints=(
        "Does a completion that could not be graded satisfy the rule?",
        "It carries no information. Take the mean over the graded completions, first within a prompt, then over the prompts with a graded completion.",
    ),
)
def what_was_graded(sub, draw):
    "`rates` are fractions of the graded completions, prompt by prompt."
    for prompts, completions in ((4, 3), (6, 5)):
        _what_was_graded(sub, draw, prompts, completions)


def _what_was_graded(sub, draw, prompts, completions):
    kept = (draw.uniform(3, prompts, completions) < 0.5).double()
    kept[1, 0, 0] = kept[1, 1, :] = math.nan
    kept[2, 3, 1:] = kept[2, 0, :2] = math.nan
    first, pattern = (torch.arange(completions) > 0).double(), (torch.arange(completions) < completions - 1).double()
    kept[1, 0, 1:], kept[1, 2], kept[1, 3] = first[:-1], first, 0.0
    kept[2, 3, 0], kept[2, 0, 2], kept[2, 1] = 1.0, 0.0, pattern
    want = []
    for rule in kept.tolist():
        shares = [[x for x in some if x == x] for some in rule]
        shares = [sum(some) / len(some) for some in shares if some]
        want.append(sum(shares) / len(shares))
    want = torch.tensor(want, dtype=torch.float64)
    expect(
        sub.rates(kept), want, what="`rates`", given={"kept": kept},
        mistakes={
            "a completion that could not be graded counts as one that satisfies the rule": kept.nan_to_num(1.0).mean((-1, -2)),
            "a completion that could not be graded counts as one that breaks the rule": kept.nan_to_num(0.0).mean((-1, -2)),
            "a prompt with more graded completions has more weight": kept.flatten(1).nanmean(-1),
            "a prompt without a graded completion counts as one that satisfies the rule": kept.nanmean(-1).nan_to_num(1.0).mean(-1),
            "a prompt without a graded completion counts as one that breaks the rule": kept.nanmean(-1).nan_to_num(0.0).mean(-1),
            "one completion without a grade makes the rate NaN": kept.mean((-1, -2)),
            "the mean over the prompts comes first, completion by completion": kept.nanmean(1).nanmean(-1),
        },
    )  # fmt: skip


# %% [picture]
import torch


def picture(sub):
    """Plot how often the longest answer ranks first, against its length."""
    longer, first = torch.arange(0.0, 7.0, dtype=torch.float64), []
    for more in range(7):
        rng = torch.Generator().manual_seed(more)
        plain = -1.5 - torch.rand(300, 4, 5 + more, generator=rng, dtype=torch.float64)
        mask = torch.arange(5 + more) < torch.tensor([5, 5, 5, 5 + more])[None, :, None]
        prompted = plain + 0.1 * torch.randn(plain.shape, generator=rng, dtype=torch.float64)
        scores = sub.scores(prompted, plain, mask.expand(300, 4, 5 + more))
        first.append(float((scores.argmax(-1) == 3).double().mean()))
    right = torch.full_like(longer, 0.25)
    return Picture(
        "A longer answer must not rank first because of its length.",
        (Panel("the longest answer ranks first", longer, torch.tensor(first, dtype=torch.float64), right, "tokens longer", "fraction of queries"),),
    )  # fmt: skip


# %% [probes]
# no gradient, integers, float32, keywords: rankings and shares
# no size, nan of pairs, rates: rankings and shares
# no values of rates: a completion satisfies a rule or not
# no ties of pairs: of equal scores any is the highest


# %% [mutant] means
# caught by: whole_answers
# says: means over tokens
def scores(prompted, plain, mask):
    return torch.where(mask, prompted - plain, 0.0).sum(-1) / mask.sum(-1)


# %% [mutant] padding
# caught by: whole_answers
# says: after the answer
def scores(prompted, plain, mask):
    return (prompted - plain).sum(-1)


# %% [mutant] different scores
# caught by: different_texts
# says: same text
def pairs(scores, answers):
    high, low = scores.argmax(-1).tolist(), scores.argmin(-1).tolist()
    return [(q, i, j) for q, (i, j) in enumerate(zip(high, low, strict=True)) if scores[q, i] > scores[q, j]]


# %% [mutant] another answer instead
# caught by: different_texts
# says: no other answer takes their place
def pairs(scores, answers):
    preferred = []
    for query, places in enumerate(scores.argsort(-1, descending=True).tolist()):
        others = [k for k in places if answers[query, k] != answers[query, places[0]]]
        preferred += [(query, places[0], others[-1])] if others else []
    return preferred


# %% [mutant] every pair of different texts
# caught by: different_texts
# says: is wrong: it is
def pairs(scores, answers):
    preferred = []
    for query, places in enumerate(scores.argsort(-1, descending=True).tolist()):
        both = [(i, j) for k, i in enumerate(places) for j in places[k + 1 :]]
        preferred += [(query, i, j) for i, j in both if answers[query, i] != answers[query, j]]
    return preferred


# %% [mutant] not graded is broken
# caught by: what_was_graded
# says: breaks the rule
def rates(kept):
    return kept.nan_to_num(0.0).mean((-1, -2))


# %% [mutant] pooled
# caught by: what_was_graded
# says: has more weight
def rates(kept):
    return kept.flatten(1).nanmean(-1)


# %% [partial] 4: without the rates
def rates(kept):
    return kept.nan_to_num(1.0).mean(-1).mean(-1)
