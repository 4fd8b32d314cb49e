# ---
# title: How surprised is the model?
# kind: implement
# minutes: 20
# ---

# %% [statement]
# A model is trained and measured by *teacher forcing*: at every position it receives the true text so far, never its own samples,
# and predicts the next token. One forward pass does this for all positions at once. The result is a log-probability for each
# true token, and the mean of their negatives, in nats, is the loss. The exponential of the loss is the *perplexity*: the number of equally
# probable tokens among which a guess would be as surprising.
#
# Write three functions:
#
# 1. `teacher_forcing(input_ids)`: for a batch of texts `(B, S)`, the model's inputs and its targets. Return two tensors
#    `(B, S − 1)`, inputs first.
# 2. `perplexity(logps, mask)`: the perplexity of a whole corpus. `logps` holds the log-probability of each true token, `(B, T)`. `mask` is True on
#    real tokens. Return one number. Every *token* has the same weight, so a long text has more weight than a short one.
# 3. `bits_per_byte(logps, mask, num_bytes)`: perplexities of models with different tokenizers cannot be compared, because their tokens
#    have different sizes. Bytes are the same for all. Return the number of *bits* that the model needs for the whole corpus,
#    divided by the corpus length in bytes. `num_bytes` is `(B,)`, whole numbers.

# %% [given]
import torch


# %% [stub]
def teacher_forcing(input_ids):
    """Return the model's inputs and its targets: two tensors (B, S − 1)."""
    raise NotImplementedError


def perplexity(logps, mask):
    """Return the perplexity of all tokens together. logps: (B, T), nats. mask: (B, T) bool. Returns one number."""
    raise NotImplementedError


def bits_per_byte(logps, mask, num_bytes):
    """Return the bits that the corpus costs, per byte of its text. num_bytes: (B,). Returns one number."""
    raise NotImplementedError


# %% [solution]
import math


def teacher_forcing(input_ids):
    return input_ids[:, :-1], input_ids[:, 1:]


def perplexity(logps, mask):
    return torch.exp(-torch.where(mask, logps, 0.0).sum() / mask.sum())


def bits_per_byte(logps, mask, num_bytes):
    return -torch.where(mask, logps, 0.0).sum() / math.log(2) / num_bytes.sum()


# %% [tests]
import math

import torch
from minirlhf_course.classroom.testing import expect, fail, test, tidy


def problem(draw):
    """Return log-probabilities of three texts of unequal length, at least one of them padded, and their sizes in bytes."""
    mask = draw.mask(3, 4)
    mask[0, 1:], mask[1] = False, True
    num_bytes = (draw.uniform(3, low=3, high=6) * mask.sum(-1)).ceil().long()
    return tidy(draw.logps(3, 4)), mask, num_bytes


def totals(logps, mask):
    """Return the sum of the log-probabilities, the number of tokens, and the values per row, counted one by one."""
    rows = [[p for p, kept in zip(r, k) if kept] for r, k in zip(logps.tolist(), mask.tolist())]
    return sum(map(sum, rows)), sum(map(len, rows)), rows


@test(
    points=1,
    hints=(
        "The first token of a text is an input but never a target. Which token is a target but never an input?",
        "Inputs are all tokens except the last. Targets are all tokens except the first.",
    ),
)
def fed_and_predicted(sub, draw):
    "`teacher_forcing` gives each true token as input and the next token as target."
    ids = (draw.uniform(2, 5) * 90).long() + 10
    got = sub.teacher_forcing(ids)
    if not isinstance(got, list | tuple) or len(got) != 2:
        fail("the result of `teacher_forcing` is not a pair of tensors", input_ids=ids)
    fed = torch.tensor([row[:4] for row in ids.tolist()])
    asked = torch.tensor([row[1:] for row in ids.tolist()])
    swapped = "inputs and targets are swapped: the model would predict the past"
    expect(got[0], fed, what="the input", given={"input_ids": ids}, mistakes={swapped: asked})
    expect(
        got[1],
        asked,
        what="the target",
        given={"input_ids": ids},
        mistakes={"the targets are not shifted: the model predicts the token that it has just read": fed},
    )


@test(
    points=2,
    hints=(
        "Add up the negative log-probabilities of all real tokens of all texts first. How many tokens are there?",
        "Take one mean over all real tokens, then one exponential. A mean of each text's own perplexity is another number: a short text would have the same weight as a long one.",
    ),
)
def whole_corpus(sub, draw):
    "`perplexity` is the exponential of the mean surprise per real token."
    logps, mask, _ = problem(draw)
    total, count, rows = totals(logps, mask)
    each = [math.exp(-sum(r) / len(r)) for r in rows]
    mean_of_means = sum(sum(r) / len(r) for r in rows) / len(rows)
    padded = math.exp(-total / mask.numel())
    expect(
        sub.perplexity(logps, mask),
        math.exp(-total / count),
        what="the perplexity",
        given={"logps": logps, "mask": mask},
        mistakes={
            "each text's perplexity is averaged": sum(each) / len(each),
            "each text has the same weight, whatever its length": math.exp(-mean_of_means),
            "the sum is divided by all positions, padding included": padded,
            "padding is counted as if it were text": math.exp(-float(logps.mean())),
            "the surprise is in nats, and 2 is raised to it": 2 ** (-total / count),
            "the minus sign is missing": math.exp(total / count),
            "the exponential is missing": -total / count,
        },
    )


@test(
    points=2,
    hints=(
        "A token of probability 1/2 costs one bit, and its log-probability is −log 2 nats. How many nats are one bit?",
        "Divide the total surprise by log 2 to get bits, and then by the total number of bytes. The number of tokens does not appear.",
    ),
)
def bits(sub, draw):
    "`bits_per_byte` is the corpus's total surprise in bits over its total bytes."
    logps, mask, num_bytes = problem(draw)
    total, count, rows = totals(logps, mask)
    size = sum(num_bytes.tolist())
    want = -total / math.log(2) / size
    per_text = [-sum(r) / math.log(2) / b for r, b in zip(rows, num_bytes.tolist())]
    expect(
        sub.bits_per_byte(logps, mask, num_bytes),
        want,
        what="the bits per byte",
        given={"logps": logps, "mask": mask, "num_bytes": num_bytes},
        mistakes={
            "surprise is left in nats": want * math.log(2),
            "nats are multiplied by log 2 instead of divided": want * math.log(2) ** 2,
            "the logarithm to base 2 is taken of the sum, not of the probabilities": math.log2(-total / size),
            "the bytes are averaged over the texts": want * len(rows),
            "the sum is divided by tokens, not by bytes": want * size / count,
            "each text's bits per byte are averaged": sum(per_text) / len(per_text),
        },
    )


# %% [probes]
# no gradient: a measurement, not a loss


# %% [mutant] targets not shifted
# caught by: fed_and_predicted
# says: not shifted
def teacher_forcing(input_ids):
    return input_ids[:, :-1], input_ids[:, :-1]


# %% [mutant] inputs and targets swapped
# caught by: fed_and_predicted
# says: predict the past
def teacher_forcing(input_ids):
    return input_ids[:, 1:], input_ids[:, :-1]


# %% [mutant] the mean of the texts' perplexities
# caught by: whole_corpus
# says: is averaged
def perplexity(logps, mask):
    rows = torch.where(mask, logps, 0.0).sum(-1) / mask.sum(-1)
    return torch.exp(-rows).mean()


# %% [mutant] padding dilutes the mean
# caught by: whole_corpus
# says: divided by all positions
def perplexity(logps, mask):
    return torch.exp(-torch.where(mask, logps, 0.0).mean())


# %% [mutant] nats instead of bits
# caught by: bits
# says: left in nats
def bits_per_byte(logps, mask, num_bytes):
    return -torch.where(mask, logps, 0.0).sum() / num_bytes.sum()


# %% [mutant] bits per token
# caught by: bits
# says: divided by tokens
def bits_per_byte(logps, mask, num_bytes):
    return -torch.where(mask, logps, 0.0).sum() / math.log(2) / mask.sum()


# %% [partial] 3: teacher forcing and perplexity are right
def bits_per_byte(logps, mask, num_bytes):
    raise NotImplementedError


# %% [partial] 1: only teacher forcing is right, texts are averaged
def perplexity(logps, mask):
    rows = torch.where(mask, logps, 0.0).sum(-1) / mask.sum(-1)
    return torch.exp(-rows.mean())


def bits_per_byte(logps, mask, num_bytes):
    return (-torch.where(mask, logps, 0.0).sum(-1) / math.log(2) / num_bytes).mean()
