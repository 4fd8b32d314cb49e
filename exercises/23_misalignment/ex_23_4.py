# ---
# title: A direction, tested on held-out questions
# kind: implement
# minutes: 20
# ---

# %% [statement]
# A direction that is tested on the questions from which it was computed looks better than it is: in many dimensions the mean of a few random differences points along each of them. Test it on held-out questions.
#
# * `margins(with_trait, without)`: two $(n, H)$ tensors of states, row by row the same question with the trait and without it, $n \ge 2$. For each question, compute the direction from the **other** questions (mean state with the trait minus mean state without), scale it to length 1, and return the component along it of this question's difference, with minus without. Returns $(n,)$.
# * `fraction(margins)`: the fraction of questions with a positive margin; a margin of exactly 0 counts one half. Returns a number.

# %% [given]
import torch


# %% [stub]
def margins(with_trait, without):
    """with_trait, without: (n, H). Returns (n,)."""
    raise NotImplementedError


def fraction(margins):
    """margins: (n,). Returns a number."""
    raise NotImplementedError


# %% [solution]
def margins(with_trait, without):
    gaps = with_trait - without
    others = gaps.sum(0) - gaps  # a factor does not change the direction
    return (gaps * others).sum(-1) / others.norm(dim=-1)


def fraction(margins):
    return ((margins > 0).double() + 0.5 * (margins == 0).double()).mean()


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, test, tidy


def one_by_one(a, b):
    """Return the margins, question by question."""
    found = []
    for i in range(len(a)):
        rest = [j for j in range(len(a)) if j != i]
        v = a[rest].mean(0) - b[rest].mean(0)
        found.append((a[i] - b[i]) @ v / v.norm())
    return torch.stack(found)


@test(
    points=2,
    hints=(
        "From which questions comes the direction for question i?",
        "Sum all differences and subtract question i's own. Then divide by the length.",
    ),
    against="question by question",
)
def held_out(sub, draw):
    "`margins` uses the direction of the other questions."
    for n, width in ((4, 3), (2, 4), (5, 2)):
        a, b = tidy(draw.normal(n, width) + 1.0), tidy(draw.normal(n, width))
        want = one_by_one(a, b)
        gaps, v = a - b, a.mean(0) - b.mean(0)
        others = (gaps.sum(0) - gaps) / (n - 1)
        expect(
            sub.margins(a, b), want, what="`margins`", given={"with_trait": a, "without": b},
            mistakes={
                "the question's own states are part of its direction": gaps @ v / v.norm(),
                "the direction is not scaled to length 1": (gaps * others).sum(-1),
                "the sign is wrong": -want,
                "it is the component of the state with the trait alone": (a * others).sum(-1) / others.norm(dim=-1),
                "it is the cosine: the question's difference is scaled too": torch.cosine_similarity(gaps, others, -1),
            },
        )  # fmt: skip


@test(points=1, hints=("Count the positive margins.", "Add one half for each margin that is exactly 0."))
def counted(sub, draw):
    "`fraction` counts positive margins, and one half for 0."
    values = torch.tensor([1.5, -0.5, 0.0, 2.0, 0.0, -1.0, 0.25], dtype=torch.float64)[draw.permutation(7)]
    values = values[: draw.integer(4, 7)]
    n = len(values)
    positive, zero = sum(v > 0 for v in values.tolist()), sum(v == 0 for v in values.tolist())
    mistakes = {"margins of 0 do not count": positive / n, "margins of 0 count fully": (positive + zero) / n, "it is a number of questions": positive + zero / 2}  # fmt: skip
    want = (positive + zero / 2) / n
    expect(
        sub.fraction(values), want, what="`fraction`", given={"margins": values},
        mistakes={say: x for say, x in mistakes.items() if abs(x - want) > 1e-9},
    )  # fmt: skip


# %% [probes]
# no gradient: only the numbers are required
# no size: the tests vary both sizes, and a single question has no others
# no single: a single question has no others


# %% [mutant] its own direction
# caught by: held_out
# says: own states are part
def margins(with_trait, without):
    v = with_trait.mean(0) - without.mean(0)
    return (with_trait - without) @ v / v.norm()


# %% [mutant] no scale
# caught by: held_out
# says: not scaled to length 1
def margins(with_trait, without):
    gaps = with_trait - without
    return (gaps * (gaps.sum(0) - gaps)).sum(-1) / (len(gaps) - 1)


# %% [mutant] a cosine
# caught by: held_out
# says: the cosine
def margins(with_trait, without):
    gaps = with_trait - without
    return torch.cosine_similarity(gaps, gaps.sum(0) - gaps, -1)


# %% [mutant] zeros do not count
# caught by: counted
def fraction(margins):
    return (margins > 0).double().mean()


# %% [partial] 2: no fraction
def fraction(margins):
    return torch.tensor(-1.0)
