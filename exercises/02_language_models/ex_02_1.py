# ---
# title: The log-probability of a completion
# kind: implement
# minutes: 20
# ---

# %% [statement]
# A causal language model reads `input_ids`, prompt and completion in one row, and returns `logits` of shape `(B, S, V)`: at every
# position, one score for each token of the vocabulary. The scores at position $t$ are about the token that comes *next*, the
# token at position $t+1$. The chain rule then gives the log-probability of the completion:
#
# $$\log \pi(y \mid x) = \sum_{t} \log \pi(y_t \mid x, y_{<t}).$$
#
# Write `sequence_logps(logits, input_ids, mask)`, which returns this sum for every row, shape `(B,)`. `mask` has the shape of
# `input_ids` and is True on the tokens of the completion. The prompt is given and not predicted, and padding never counts. The mask is
# never True on the first token, because no position predicts it.
#
# Two requirements make the function reliable. Values where the mask is False must have no
# effect, not even if they are NaN. Logits may be large, and a model that is very sure of itself must not give $-\infty$ for the
# token it did not expect.

# %% [given]
import torch


# %% [stub]
def sequence_logps(logits, input_ids, mask):
    """Return the log-probability of each row's completion.

    logits: (B, S, V). input_ids: (B, S). mask: (B, S) bool, True on the completion's tokens. Returns (B,).
    """
    raise NotImplementedError


# %% [solution]
def sequence_logps(logits, input_ids, mask):
    log_probs = torch.log_softmax(logits[:, :-1], -1)
    chosen = log_probs.gather(-1, input_ids[:, 1:, None]).squeeze(-1)
    return torch.where(mask[:, 1:], chosen, 0.0).sum(-1)


# %% [tests]
import math

import torch
from minirlhf_course.classroom.testing import expect, test, tidy


def problem(draw):
    """Return two rows of five positions over three tokens: a prompt of one or two tokens, a completion, padding."""
    logits, ids = tidy(draw.normal(2, 5, 3)), (draw.uniform(2, 5) * 3).long()
    mask = torch.zeros(2, 5, dtype=torch.bool)
    mask[0, 2:5] = True
    mask[1, draw.integer(1, 2) : 4] = True
    return logits, ids, mask


def by_hand(logits, ids, mask, shift=1):
    """Compute the definition in plain Python: one token at a time, with exp and log of the standard library."""
    rows = []
    for scores, tokens, kept in zip(logits.tolist(), ids.tolist(), mask.tolist()):
        total = 0.0
        for t in range(shift, len(tokens)):
            if kept[t]:
                row = scores[t - shift]
                total += row[tokens[t]] - max(row) - math.log(sum(math.exp(s - max(row)) for s in row))
        rows.append(total)
    return torch.tensor(rows, dtype=torch.float64)


@test(
    points=3,
    hints=(
        "Take the second token of the completion. Which position's logits predict it, before it is written?",
        "Drop the last position of the logits and the first of `input_ids`. Then both have S − 1 columns that correspond. "
        "`gather` selects each token's log-probability. The mask must lose its first column too.",
    ),
)
def shift_and_gather(sub, draw):
    "The log-probability of each completion is the sum over its tokens, each predicted one position earlier."
    logits, ids, mask = problem(draw)
    everything = mask.clone()
    everything[:, 1:] = True
    late = torch.zeros_like(mask)
    late[:, 1:] = mask[:, :-1]
    expect(
        sub.sequence_logps(logits, ids, mask),
        by_hand(logits, ids, mask),
        what="the log-probability of the completions",
        given={"input_ids": ids, "mask": mask, "logits": logits},
        mistakes={
            "each token is read from the logits at its own position": by_hand(logits, ids, mask, shift=0),
            "prompt and padding are counted too": by_hand(logits, ids, everything),
            "the mask is cut at the wrong end, so that it is one token off": by_hand(logits, ids, late),
            "the sum is divided by the length": by_hand(logits, ids, mask) / mask.sum(-1),
            "the probabilities are multiplied, but their logarithm is not taken": by_hand(logits, ids, mask).exp(),
        },
    )


@test(
    points=1,
    hints=(
        "NaN times zero is NaN. Multiplying by the mask does not remove the value.",
        "Select instead of multiplying: `torch.where(mask, values, 0.0)`.",
    ),
)
def padding_is_nothing(sub, draw):
    "Values outside the mask have no effect, not even NaN."
    logits, ids, mask = problem(draw)
    spoilt = logits.clone()
    needed = mask.roll(-1, 1)  # logits one position before a token of the completion
    spoilt[~needed] = math.nan
    expect(
        sub.sequence_logps(spoilt, ids, mask),
        by_hand(logits, ids, mask),
        what="the log-probability, with NaN in the logits that predict no token of the completion,",
        given={"mask": mask},
    )


@test(
    points=1,
    hints=(
        "What is the softmax of (0, −2000) in floating point, and what is its logarithm?",
        "Never take the logarithm of a softmax. torch has one function for both, and it works with logarithms only.",
    ),
)
def very_sure(sub, draw):
    "A token that the model finds nearly impossible has a very low log-probability, not −∞."
    logits, ids, mask = problem(draw)
    logits = logits * 2000
    expect(
        sub.sequence_logps(logits, ids, mask),
        by_hand(logits, ids, mask),
        what="the log-probability under logits in the thousands",
        given={"input_ids": ids, "logits": logits},
    )


# %% [edges]
# very_sure: must not give $-\infty$ for the token it did not expect


# %% [probes]
# no nan of sequence_logps.mask: the logits that predict a token are one position before it; a test spoils the others


# %% [mutant] every token read from its own position
# caught by: shift_and_gather
# says: at its own position
def sequence_logps(logits, input_ids, mask):
    chosen = torch.log_softmax(logits, -1).gather(-1, input_ids[..., None]).squeeze(-1)
    return torch.where(mask, chosen, 0.0).sum(-1)


# %% [mutant] the prompt is counted
# caught by: shift_and_gather
# says: prompt and padding
def sequence_logps(logits, input_ids, mask):
    return torch.log_softmax(logits[:, :-1], -1).gather(-1, input_ids[:, 1:, None]).squeeze(-1).sum(-1)


# %% [mutant] the mask keeps its first column and loses its last
# caught by: shift_and_gather
# says: one token off
def sequence_logps(logits, input_ids, mask):
    chosen = torch.log_softmax(logits[:, :-1], -1).gather(-1, input_ids[:, 1:, None]).squeeze(-1)
    return torch.where(mask[:, :-1], chosen, 0.0).sum(-1)


# %% [mutant] a mean per token instead of the sum
# caught by: shift_and_gather
# says: divided by the length
def sequence_logps(logits, input_ids, mask):
    chosen = torch.log_softmax(logits[:, :-1], -1).gather(-1, input_ids[:, 1:, None]).squeeze(-1)
    return torch.where(mask[:, 1:], chosen, 0.0).sum(-1) / mask.sum(-1)


# %% [mutant] the mask is multiplied
# caught by: padding_is_nothing
# says: NaN
def sequence_logps(logits, input_ids, mask):
    chosen = torch.log_softmax(logits[:, :-1], -1).gather(-1, input_ids[:, 1:, None]).squeeze(-1)
    return (chosen * mask[:, 1:]).sum(-1)


# %% [mutant] the logarithm of a softmax
# caught by: very_sure
# says: infinity
def sequence_logps(logits, input_ids, mask):
    chosen = logits[:, :-1].softmax(-1).gather(-1, input_ids[:, 1:, None]).squeeze(-1).log()
    return torch.where(mask[:, 1:], chosen, 0.0).sum(-1)


# %% [partial] 3: shift and gather are right, but NaN and large logits break the result
def sequence_logps(logits, input_ids, mask):
    chosen = logits[:, :-1].softmax(-1).gather(-1, input_ids[:, 1:, None]).squeeze(-1).log()
    return (chosen * mask[:, 1:]).sum(-1)


# %% [partial] 4: everything is right except NaN
def sequence_logps(logits, input_ids, mask):
    chosen = torch.log_softmax(logits[:, :-1], -1).gather(-1, input_ids[:, 1:, None]).squeeze(-1)
    return (chosen * mask[:, 1:]).sum(-1)
