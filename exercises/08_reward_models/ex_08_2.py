# ---
# title: The right token
# kind: implement
# minutes: 15
# ---

# %% [statement]
# A backbone has computed one number for every token of a batch, `scores` of shape $(B, S)$. `attention_mask` has the same shape. It is 1 on real tokens and 0 on padding,
# which is on the left or on the right; rows of one batch may differ in this. A row has at least one real token, and its real tokens are contiguous. The scores at padding may be anything, even NaN.
#
# Write two poolings, both `(scores, attention_mask)` to $(B,)$:
#
# 1. `last_token`: the score at each row's last real token.
# 2. `reply_mean(scores, attention_mask, prompt_lengths)`: the mean score of the real tokens *after the prompt*. The lengths of the prompts, in real tokens, are the integers
#    `prompt_lengths` of shape $(B,)$, each at least 0 and smaller than the row's number of real tokens.
#
# Neither may change by more than $10^{-5}$ when the same rows have their padding on the other side, or more padding. Gradients must flow to the scores that count and
# must be exactly zero, not NaN, at padding.

# %% [given]
import torch


# %% [stub]
def last_token(scores, attention_mask):
    """scores, attention_mask: (B, S). Returns (B,)."""
    raise NotImplementedError


def reply_mean(scores, attention_mask, prompt_lengths):
    """scores, attention_mask: (B, S); prompt_lengths: (B,). Returns (B,)."""
    raise NotImplementedError


# %% [solution]
def last_token(scores, attention_mask):
    places = torch.arange(scores.shape[1])
    last = torch.where(attention_mask.bool(), places, -1).amax(1)
    return scores.gather(1, last[:, None]).squeeze(1)


def reply_mean(scores, attention_mask, prompt_lengths):
    real = attention_mask.bool()
    counted = real & (real.long().cumsum(1) > prompt_lengths[:, None])
    return torch.where(counted, scores, torch.zeros((), dtype=scores.dtype)).sum(1) / counted.sum(1)


# %% [tests]
import math

import torch
from minirlhf_course.classroom.testing import expect, test, tidy


def rows(draw, count=3):
    """Rows of different lengths, at least two tokens each, all different."""
    lengths = [2, 5, draw.integer(3, 4)][:count]
    return [tidy(draw.normal(n)) for n in lengths]


def padded(found, side, extra=0, junk=math.nan):
    """As a batch, with junk at padding."""
    width = max(map(len, found)) + extra
    scores, mask = (
        torch.full((len(found), width), junk, dtype=torch.float64),
        torch.zeros(len(found), width, dtype=torch.long),
    )
    for i, row in enumerate(found):
        at = slice(width - len(row), width) if side == "left" else slice(0, len(row))
        scores[i, at], mask[i, at] = row, 1
    return scores, mask


@test(
    points=1,
    hints=(
        "With padding on the right, where does each row end?",
        "Count the real tokens of a row. If indices begin at 0, the last real token has the index count − 1.",
    ),
)
def on_the_right(sub, draw):
    "`last_token` of rows padded on the right."
    found = rows(draw)
    scores, mask = padded(found, "right")
    expect(
        sub.last_token(scores, mask),
        torch.stack([row[-1] for row in found]),
        given={"scores": scores, "attention_mask": mask},
        mistakes={"the first token is read": torch.stack([row[0] for row in found])},
    )


@test(
    points=2,
    hints=(
        "With padding on the left, the number of real tokens does not give the end of the row.",
        "Find the *largest index whose mask is 1*. Take a row of indices, set it to −1 where the mask is 0, and compute the maximum.",
    ),
)
def on_the_left(sub, draw):
    "`last_token` of rows padded on the left, and of rows with extra padding."
    found = rows(draw)
    for extra in (0, 2):
        scores, mask = padded(found, "left", extra, junk=77.0)
        early = torch.stack([scores[i, len(row) - 1] for i, row in enumerate(found)])
        expect(
            sub.last_token(scores, mask),
            torch.stack([row[-1] for row in found]),
            given={"scores": scores, "attention_mask": mask},
            mistakes={"the index is computed as if padding were on the right": early},
        )
    scores, mask = padded(found, "right", 2)
    expect(
        sub.last_token(scores, mask),
        torch.stack([row[-1] for row in found]),
        given={"scores": scores, "attention_mask": mask},
    )
    left = padded(found, "left", 2)
    for first in (0, 1):  # rows of both kinds in one batch
        chosen = (torch.arange(len(found)) % 2 == first)[:, None]
        scores, mask = (torch.where(chosen, a, b) for a, b in zip(left, padded(found, "right", 2), strict=True))
        expect(
            sub.aside.last_token(scores, mask),
            torch.stack([row[-1] for row in found]),
            what="`last_token`, with some rows padded on the left and others on the right,",
            given={"scores": scores, "attention_mask": mask},
        )


@test(
    points=2,
    hints=(
        "Which tokens count? They are real *and* not among the first `prompt_lengths` real tokens.",
        "A cumulative count of real tokens numbers them from 1, on whichever side the padding is. Select with `torch.where` before you sum: 0 times NaN is NaN.",
    ),
)
def the_reply(sub, draw):
    "`reply_mean` averages the real tokens after the prompt, with padding on either side."
    found = rows(draw)
    prompts = torch.tensor([1, draw.integer(1, 3), 2])
    counts = torch.tensor([len(row) for row in found]) - prompts
    want = torch.stack([row[n:].mean() for row, n in zip(found, prompts.tolist())])
    for side in ("right", "left"):
        scores, mask = padded(found, side, 1 + (side == "left"))
        everything = torch.stack([row.mean() for row in found])
        expect(
            sub.reply_mean(scores, mask, prompts),
            want,
            what=f"the mean, padded on the {side}",
            given={"scores": scores, "attention_mask": mask, "prompt_lengths": prompts},
            mistakes={
                "the prompt is included": everything,
                "the last token of the prompt is included": torch.stack(
                    [row[n - 1 :].mean() for row, n in zip(found, prompts.tolist())]
                ),
                "the sum includes the prompt, but the count does not": everything * (counts + prompts) / counts,
                "the sum is not divided": want * counts,
                "the sum is divided by the mean count of the batch, not by the count of each row": want
                * counts
                / counts.double().mean(),
                "the first token of the completion is omitted": torch.stack(
                    [row[n + 1 :].sum() / max(len(row) - n - 1, 1) for row, n in zip(found, prompts.tolist())]
                ),
                "the prompt length is counted in columns, padding included": torch.stack(
                    [scores[i, int(n) :][mask[i, int(n) :] == 1].mean() for i, n in enumerate(prompts)]
                ),
                "the sum is divided by the width": want * counts / scores.shape[1],
                "the sum is divided by all real tokens": want * counts / (counts + prompts),
            },
        )
        prompts[0] = 0
        whole = torch.stack([row[n:].mean() for row, n in zip(found, prompts.tolist())])
        given = {"scores": scores, "attention_mask": mask, "prompt_lengths": prompts}
        expect(sub.aside.reply_mean(scores, mask, prompts), whole, what="the mean, one prompt empty", given=given)
        prompts[0] = 1


# %% [edges]
# the_reply: each at least 0 and smaller than the row's number of real tokens
# on_the_left: or more padding


# %% [probes]
# no size: rows and lengths depend on each other
# no values: lengths and masks are whole numbers that depend on each other


# %% [mutant] the number of real tokens minus one
# caught by: on_the_left
# says: as if padding were on the right
def last_token(scores, attention_mask):
    return scores.gather(1, attention_mask.sum(1, keepdim=True) - 1).squeeze(1)


# %% [mutant] always the last column
# caught by: on_the_right
def last_token(scores, attention_mask):
    return scores[:, -1]


# %% [mutant] the prompt is averaged too
# caught by: the_reply
# says: the prompt is included
def reply_mean(scores, attention_mask, prompt_lengths):
    real = attention_mask.bool()
    return torch.where(real, scores, torch.zeros((), dtype=scores.dtype)).sum(1) / real.sum(1)


# %% [mutant] padding multiplied away
# caught by: the_reply
def reply_mean(scores, attention_mask, prompt_lengths):
    real = attention_mask.bool()
    counted = real & (real.long().cumsum(1) > prompt_lengths[:, None])
    return (scores * counted).sum(1) / counted.sum(1)


# %% [mutant] the prompt is counted from the first column
# caught by: the_reply
def reply_mean(scores, attention_mask, prompt_lengths):
    places = torch.arange(scores.shape[1])
    counted = attention_mask.bool() & (places >= prompt_lengths[:, None])
    return torch.where(counted, scores, torch.zeros((), dtype=scores.dtype)).sum(1) / counted.sum(1)


# %% [mutant] every prompt has a token
# caught by: the_reply
# says: one prompt empty
def reply_mean(scores, attention_mask, prompt_lengths):
    real = attention_mask.bool()
    counted = real & (real.long().cumsum(1) > prompt_lengths[:, None].clamp(min=1))
    return torch.where(counted, scores, torch.zeros((), dtype=scores.dtype)).sum(1) / counted.sum(1)


# %% [partial] 3: the last token on both sides, no mean
def reply_mean(scores, attention_mask, prompt_lengths):
    raise NotImplementedError
