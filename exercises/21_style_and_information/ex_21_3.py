# ---
# title: Style first, or content first
# kind: implement
# minutes: 25
# ---

# %% [statement]
# A policy $\pi$ has a higher mean score than the reference. How much of the gain is style? You can change the reference's *style* first and its content afterwards, or in the opposite order, and the two orders disagree. All completions are listed; `style` `(N,)` is the style of each
# (equal numbers are one style), and both policies give every style a positive probability.
#
# 1. `mixed(laws, replies, style)`: log-probabilities `(N,)` of the policy whose *styles* are as frequent as under `laws`, and whose completions within a style are distributed as under `replies`. `laws` and `replies` are log-probabilities `(N,)`; a completion may have $-\infty$.
# 2. `gains(logps, ref_logps, style, scores)`: two numbers, the parts of style and of content in the gain $\mathbb E_\pi[\text{score}] - \mathbb E_{\pi_\text{ref}}[\text{score}]$. Each part is the mean of its gain when it is changed first and its gain when it is changed last. They sum to the whole gain.
#    Returns a tensor `(2,)`.
#
# Probabilities can be as small as $e^{-1000}$; work with logarithms. The scores are finite.

# %% [given]
import torch


# %% [stub]
def mixed(laws, replies, style):
    """laws, replies: (N,) log-probabilities. style: (N,). Returns (N,)."""
    raise NotImplementedError


def gains(logps, ref_logps, style, scores):
    """All (N,). Returns (2,): style, content."""
    raise NotImplementedError


# %% [solution]
def mixed(laws, replies, style):
    out = torch.empty_like(laws)
    for s in style.unique():
        here = style == s
        out[here] = replies[here] - torch.logsumexp(replies[here], 0) + torch.logsumexp(laws[here], 0)
    return out


def gains(logps, ref_logps, style, scores):
    mean = lambda x: (x.exp() * scores).sum()
    whole, start = mean(logps), mean(ref_logps)
    style_only, content_only = mean(mixed(logps, ref_logps, style)), mean(mixed(ref_logps, logps, style))
    of_style = ((style_only - start) + (whole - content_only)) / 2
    return torch.stack([of_style, whole - start - of_style])


# %% [tests]
import math

import torch
from minirlhf_course.classroom.testing import expect, test, tidy


def laws_of(draw, count):
    """Return two log-laws of some completions and their styles, in no order; one completion has probability 0 in the second."""
    style = torch.tensor([0.5, 2.0, 2.0, -1.0, 0.5, 2.0, -1.0], dtype=torch.float64)[draw.permutation(7)][:count]
    for s in (0.5, 2.0, -1.0):
        if not bool((style == s).any()):
            style[draw.integer(0, count - 1)] = s
    first, second = tidy(draw.normal(count)).log_softmax(-1), tidy(draw.normal(count)).log_softmax(-1)
    return first, second, style


def by_hand(laws, replies, style):
    """Probabilities, style by style, in the plain."""
    p, q = laws.exp().tolist(), replies.exp().tolist()
    names = style.tolist()
    share = {s: math.fsum(x for x, t in zip(p, names, strict=True) if t == s) for s in names}
    own = {s: math.fsum(x for x, t in zip(q, names, strict=True) if t == s) for s in names}
    return torch.tensor([share[s] * x / own[s] for x, s in zip(q, names, strict=True)], dtype=torch.float64)


@test(
    points=2,
    hints=(
        "What is the probability of a completion, given its style? And what is the probability of the style?",
        "Within each style, take `replies` minus its logsumexp, plus the logsumexp of `laws`.",
    ),
)
def both_laws(sub, draw):
    "`mixed` has the styles of one policy and the completions of the other."
    laws, replies, style = laws_of(draw, 7)
    want = by_hand(laws, replies, style)
    got = sub.mixed(laws, replies, style)
    swapped = by_hand(replies, laws, style)
    tilted = replies.clone()
    for s in style.unique():
        tilted[style == s] += torch.logsumexp(laws[style == s], 0)
    expect(
        got.exp() if isinstance(got, torch.Tensor) else got, want, what="the probabilities of `mixed`", given={"laws": laws, "replies": replies, "style": style},
        mistakes={
            "this has the styles of `replies` and the completions of `laws`": swapped,
            "the completions of a style do not sum to one yet": tilted.exp(),
            "they are normalised over all completions, not style by style": tilted.softmax(-1),
            "within a style all completions are equally probable": by_hand(laws, torch.zeros_like(replies), style),
        },
    )  # fmt: skip
    near = torch.where(
        style == -1, 0.2, torch.where(style == 0.5, 0.200001, 1.3)
    ).double()  # styles are not whole numbers
    got = sub.aside.mixed(laws, replies, near)
    expect(
        got.exp() if isinstance(got, torch.Tensor) else got, want, what="the probabilities of `mixed`", given={"laws": laws, "replies": replies, "style": near},
    )  # fmt: skip


@test(
    points=2,
    hints=(
        "What is log 0, and what happens to the smallest probabilities in a division?",
        "Use logsumexp in each style. A completion of probability 0 stays at −∞ and affects nothing else.",
    ),
)
def tiny(sub, draw):
    "`mixed` accepts completions of probability 0, and styles of tiny probability."
    laws, replies, style = laws_of(draw, 7)
    crowded = next(s for s in style.unique().tolist() if int((style == s).sum()) > 1)
    replies = replies.clone()
    silent = int((style == crowded).nonzero()[0])
    replies[silent] = -math.inf
    rare = next(s for s in style.unique().tolist() if s != crowded)
    replies = torch.where(style == rare, replies - 1000.0, replies)
    got = sub.mixed(laws, replies, style)
    want = by_hand(laws, torch.where(style == rare, replies + 1000.0, replies), style).log()
    expect(got, want, what="`mixed`", given={"laws": laws, "replies": replies, "style": style}, tolerance=1e-8)
    laws = torch.where(style == rare, laws - 1000.0, laws)
    got = sub.mixed(laws, replies, style)
    want = torch.where(style == rare, want - 1000.0, want)
    expect(
        got,
        want,
        what="`mixed` with a style of tiny probability",
        given={"laws": laws, "style": style},
        tolerance=1e-8,
    )


@test(
    points=2,
    hints=(
        "There are four policies: style and content of π, style and content of the reference, and two mixtures. What does each step gain?",
        "Style first gains E[π's styles, the reference's completions] − E_ref. Style last gains E_π − E[the reference's styles, π's completions]. Take the mean.",
    ),
)
def two_orders(sub, draw):
    "`gains` is the mean of both orders, and the two sum to the whole."
    for count, drop in ((7, 0.0), (5, 1000.0)):
        first, second, style = laws_of(draw, count)
        scores = tidy(draw.normal(count, scale=2.0))
        rare = style == style[draw.integer(0, count - 1)]
        ref = (second - drop * rare).log_softmax(-1)  # the same completions within each style
        s_only, c_only = by_hand(first, second, style), by_hand(ref, first, style)
        whole, start, of_s, of_c = (float(x @ scores) for x in (first.exp(), ref.exp(), s_only, c_only))
        split = lambda a: torch.tensor([a, whole - start - a], dtype=torch.float64)  # noqa: B023
        expect(
            sub.gains(first, ref, style, scores), split((of_s - start + whole - of_c) / 2), what="`gains`",
            given={"logps": first, "ref_logps": ref, "style": style, "scores": scores},
            mistakes={
                "style is changed first, never last": split(of_s - start),
                "style is changed last, never first": split(whole - of_c),
                "each is changed first; the two do not sum to the whole": torch.tensor([of_s - start, of_c - start], dtype=torch.float64),
                "each is changed last; the two do not sum to the whole": torch.tensor([whole - of_c, whole - of_s], dtype=torch.float64),
                "content is the first number": split((of_s - start + whole - of_c) / 2).flip(0),
            },
        )  # fmt: skip


# %% [probes]
# no gradient, integers, float32, size: log-probabilities of whole laws
# no values of mixed.style, gains.style: names


# %% [mutant] exchanged
# caught by: both_laws
# says: styles of `replies`
def mixed(laws, replies, style):
    out = torch.empty_like(laws)
    for s in style.unique():
        here = style == s
        out[here] = laws[here] - torch.logsumexp(laws[here], 0) + torch.logsumexp(replies[here], 0)
    return out


# %% [mutant] not normalised within
# caught by: both_laws
# says: do not sum to one
def mixed(laws, replies, style):
    out = torch.empty_like(laws)
    for s in style.unique():
        here = style == s
        out[here] = replies[here] + torch.logsumexp(laws[here], 0)
    return out


# %% [mutant] in the plain
# caught by: tiny
def mixed(laws, replies, style):
    out = torch.empty_like(laws)
    for s in style.unique():
        here = style == s
        out[here] = (laws.exp()[here].sum() * replies.exp()[here] / replies.exp()[here].sum()).log()
    return out


# %% [mutant] each first
# caught by: two_orders
# says: do not sum
def gains(logps, ref_logps, style, scores):
    mean = lambda x: (x.exp() * scores).sum()
    start = mean(ref_logps)
    return torch.stack([mean(mixed(logps, ref_logps, style)) - start, mean(mixed(ref_logps, logps, style)) - start])


# %% [mutant] style first only
# caught by: two_orders
# says: never last
def gains(logps, ref_logps, style, scores):
    mean = lambda x: (x.exp() * scores).sum()
    of_style = mean(mixed(logps, ref_logps, style)) - mean(ref_logps)
    return torch.stack([of_style, mean(logps) - mean(ref_logps) - of_style])


# %% [partial] 4: the mixtures
def gains(logps, ref_logps, style, scores):
    raise NotImplementedError
