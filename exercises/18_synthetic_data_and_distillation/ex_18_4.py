# ---
# title: Answers of an older student
# kind: implement
# minutes: 20
# ---

# %% [statement]
# On-policy distillation compares teacher and student on the student's completions. Sampling is slow, so in practice several steps use the same completions. Then an *older* student has written them. Let $D_t$ be the divergence at token
# $t$. It depends on the prefix $y_{<t}$ and on the two models, not on $y_t$ or on later tokens. We want the mean $\mathbb E_{y\sim\pi}\big[\sum_t D_t\big]$ under the current student $\pi$, from completions of the older $\pi_\text{old}$.
#
# Write `weights(logps, old_logps, mask)`, with which $\mathbb E_{y\sim\pi_\text{old}}\big[\sum_t w_t D_t\big]$ equals this mean exactly. Several weights do; return those that depend on the prefix $y_{<t}$ alone. They are data: no gradient flows through them.
# Positions where `mask` is False are padding and may be NaN; the weights are 0 there.

# %% [given]
import torch


# %% [stub]
def weights(logps, old_logps, mask):
    """logps, old_logps: (B, T), log-probabilities of the sampled tokens under the current and the older student. mask: (B, T), True on tokens. Returns (B, T)."""
    raise NotImplementedError


# %% [solution]
def weights(logps, old_logps, mask):
    ratio = torch.where(mask, logps.detach() - old_logps.detach(), 0.0)
    before = ratio.cumsum(-1) - ratio
    return torch.where(mask, before.exp(), 0.0)


# %% [tests]
import math

import torch
from minirlhf_course.classroom.testing import expect, fail, test, tidy


def answers(draw):
    """All answers of up to three tokens, 0 ends one: tokens (N, 3), mask; and log-probabilities (N, 3) of two random models."""
    found = []

    def grow(prefix):
        for token in range(3):
            one = [*prefix, token]
            found.append(one) if token == 0 or len(one) == 3 else grow(one)

    grow([])
    tables = [{}, {}]

    def said(k, prefix):
        if prefix not in tables[k]:
            tables[k][prefix] = draw.normal(3).log_softmax(-1).tolist()
        return tables[k][prefix]

    mask = torch.tensor([[t < len(one) for t in range(3)] for one in found])
    logps = [
        torch.tensor([[said(k, tuple(one[:t]))[one[t]] if t < len(one) else 0.0 for t in range(3)] for one in found], dtype=torch.float64)
        for k in range(2)
    ]  # fmt: skip
    return found, mask, logps


def by_prefix(rows, old_rows, mask, *, upto):
    """Products of ratios, token by token: of the tokens before, those and the token itself, or of all."""
    out = torch.zeros(mask.shape, dtype=torch.float64)
    for b, (row, old) in enumerate(zip(rows.tolist(), old_rows.tolist(), strict=True)):
        length = int(mask[b].sum())
        for t in range(length):
            end = {"before": t, "itself": t + 1, "all": length}[upto]
            out[b, t] = math.prod(math.exp(row[j] - old[j]) for j in range(end))
    return out


@test(
    points=2,
    hints=(
        "Which tokens decide whether position t is reached with this prefix? Does token t itself?",
        "The probability of the prefix under the current student over its probability under the older student: the product of the ratios of the tokens *before* t. It is 1 for the first token.",
    ),
)
def beginnings(sub, draw):
    "`weights` are the ratios of the prefixes."
    _, mask, (now, then) = answers(draw)
    some = draw.permutation(len(mask))[:4]
    now, then, mask = tidy(now[some]), tidy(then[some]), mask[some]
    mask[0] = True
    expect(
        sub.weights(now, then, mask), by_prefix(now, then, mask, upto="before"), what="`weights`",
        given={"logps": now, "old_logps": then, "mask": mask}, tolerance=1e-9,
        mistakes={
            "the ratio of the token itself is counted, but it does not decide whether its position is reached": by_prefix(now, then, mask, upto="itself"),
            "the ratio of a token that comes later is counted, but it does not decide whether a position is reached": by_prefix(now, then, mask, upto="all"),
            "only the token before is counted, not the whole prefix": torch.where(
                mask, torch.cat([torch.ones(4, 1), (now - then).exp()[:, :-1]], 1), 0.0
            ),
            "the ratio is inverted: the older student over the current one": by_prefix(then, now, mask, upto="before"),
        },
    )  # fmt: skip


@test(
    points=2,
    hints=(
        "Sum over all completions: is the weighted mean the mean under the current student?",
        "Multiply the ratios of all earlier tokens; do not normalise and do not clip.",
    ),
    against="the mean over all completions of the current student",
)
def mean(sub, draw):
    "The mean of the weighted divergences is the mean under the current student."
    found, mask, (now, then) = answers(draw)
    values = {}
    spread = torch.zeros(mask.shape, dtype=torch.float64)
    for b, one in enumerate(found):
        for t in range(len(one)):
            key = tuple(one[:t])
            if key not in values:
                values[key] = float(draw.uniform(low=0.1, high=2.0))
            spread[b, t] = values[key]
    law, old = (torch.where(mask, x, 0.0).sum(-1).exp() for x in (now, then))
    got = sub.weights(now, then, mask)
    if not isinstance(got, torch.Tensor) or got.shape != mask.shape:
        fail("the result of `weights` is not a tensor of the shape of `mask`")
    expect(
        (old * (got * spread).sum(-1)).sum(), (law * spread.sum(-1)).sum(), what="the weighted mean over all answers of the older student",
        tolerance=1e-8, mistakes={"that is the mean under the older student": (old * spread.sum(-1)).sum()},
    )  # fmt: skip


# %% [probes]
# range 1e-4 to 30 of weights: products of ratios may be taken one after the other
# no offset of weights: the same


# %% [mutant] the ratio of the whole answer
# caught by: beginnings
# says: comes later
def weights(logps, old_logps, mask):
    ratio = torch.where(mask, logps.detach() - old_logps.detach(), 0.0)
    return torch.where(mask, ratio.sum(-1, keepdim=True).exp(), 0.0)


# %% [mutant] the token before
# caught by: beginnings
# says: only the token before
def weights(logps, old_logps, mask):
    ratio = torch.where(mask, logps.detach() - old_logps.detach(), 0.0)
    return torch.where(mask, torch.cat([torch.zeros_like(ratio[:, :1]), ratio[:, :-1]], 1).exp(), 0.0)


# %% [mutant] then over now
# caught by: beginnings
# says: the ratio is inverted
def weights(logps, old_logps, mask):
    ratio = torch.where(mask, old_logps.detach() - logps.detach(), 0.0)
    return torch.where(mask, (ratio.cumsum(-1) - ratio).exp(), 0.0)


# %% [partial] 2: the right mean, with noise that is not needed
def weights(logps, old_logps, mask):
    ratio = torch.where(mask, logps.detach() - old_logps.detach(), 0.0)
    return torch.where(mask, ratio.cumsum(-1).exp(), 0.0)
