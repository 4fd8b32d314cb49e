# ---
# title: As if they had not been packed
# kind: implement
# minutes: 25
# ---

# %% [statement]
# Each row contains several conversations, one after another. `documents` gives for each token the number of its conversation in the row; −1 is padding. `marked` is True on the tokens that
# belong to the loss. `logits[b, t]` are the model's logits for token `t + 1` of row `b`.
#
# Write `conversation_losses(logits, ids, documents, marked)`. It returns one number for each conversation that has a token to predict, row after row, in order: the mean of $-\log\pi$ over its marked tokens. It must equal
# the loss of the conversation alone. Nothing predicts the first token of a conversation, even if it is marked. A conversation without a token to predict has no number.
#
# The logits where nothing is to be predicted may be anything, even NaN. They must change neither the losses nor their gradients.

# %% [given]
import torch


# %% [stub]
def conversation_losses(logits, ids, documents, marked):
    """logits: (B, S, V). ids, documents: (B, S) long. marked: (B, S) bool. Returns (C,)."""
    raise NotImplementedError


# %% [solution]
def conversation_losses(logits, ids, documents, marked):
    counts = marked[:, 1:] & (documents[:, 1:] == documents[:, :-1]) & (documents[:, 1:] >= 0)
    rows, places = counts.nonzero(as_tuple=True)
    logps = logits[rows, places].log_softmax(-1)
    surprise = -logps.gather(-1, ids[rows, places + 1][:, None]).squeeze(-1)
    number = rows * (documents.max() + 1) + documents[rows, places]
    _, where = number.unique_consecutive(return_inverse=True)
    total = torch.zeros(int(where.max()) + 1 if len(where) else 0, dtype=logits.dtype)
    return total.index_add(0, where, surprise) / total.index_add(0, where, torch.ones_like(surprise))


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, test


def rows(draw, sizes):
    """Packed rows: ``sizes`` has the lengths of each row's conversations. Where it can, a row begins with the number with which the one before
    it ends, so that the number alone does not say which conversation it is."""
    width = max(map(sum, sizes)) + 1
    ids, documents = torch.zeros(len(sizes), width, dtype=torch.long), torch.full((len(sizes), width), -1)
    last = None
    for b, lengths in enumerate(sizes):
        numbers, at = draw.permutation(len(lengths)).tolist(), 0
        numbers.sort(key=lambda number: number != last)
        last = numbers[-1]
        for number, length in zip(numbers, lengths, strict=True):
            documents[b, at : at + length] = number
            at += length
        ids[b] = torch.tensor([draw.integer(0, 4) for _ in range(width)])
    return draw.normal(len(sizes), width, 5), ids, documents


def by_hand(logits, ids, documents, marked, *, first=False, total=False, shift=1):
    """One conversation after another, token by token."""
    found = []
    for b in range(len(ids)):
        numbers = [n for n in dict.fromkeys(documents[b].tolist()) if n >= 0]
        for number in numbers:
            places = [t for t in range(ids.shape[1]) if documents[b, t] == number]
            wanted = [t for t in places if marked[b, t] and t > 0 and (first or t > places[0])]
            if wanted:
                losses = [-logits[b, t - shift].log_softmax(-1)[ids[b, t]] for t in wanted]
                found.append(sum(losses) / (1 if total else len(losses)))
    return torch.stack(found)


def spoilt(logits, documents, marked):
    """NaN wherever nothing is to be predicted."""
    next_ = torch.zeros_like(marked)
    next_[:, :-1] = marked[:, 1:] & (documents[:, 1:] == documents[:, :-1]) & (documents[:, 1:] >= 0)
    return logits.masked_fill(~next_[..., None], float("nan"))


@test(
    points=2,
    hints=(
        "Which logits predict token t? Then return one number for each conversation, not one for each row.",
        "Take −log π of `ids[:, 1:]` from `logits[:, :-1]`, sum it by (row, document), and divide by the number of terms.",
    ),
)
def alone(sub, draw):
    "Every conversation has the mean loss that it has alone."
    logits, ids, documents = rows(draw, [[3, 4], [5, 2, 3]])
    marked = documents >= 0
    for b in range(2):  # prompts: the first two tokens of each
        for number in documents[b].unique().tolist():
            marked[b, (documents[b] == number).nonzero()[0, 0]] = False
    right = by_hand(logits, ids, documents, marked)
    data = (logits, ids, documents, marked)
    expect(
        sub.conversation_losses(*data),
        right,
        given={"documents": documents, "marked": marked},
        mistakes={
            "the sum is taken, not the mean": by_hand(*data, total=True),
            "logits[t] are used for token t, but they predict token t + 1": by_hand(*data, shift=0),
        },
    )


@test(
    points=1,
    hints=(
        "Which token comes before the first token of the second conversation? Does it belong to the same conversation?",
        "A token is predicted only if the token before it has the same number.",
    ),
)
def borders(sub, draw):
    "The first token of a conversation is not predicted, even if it is marked; a conversation of one token has no number."
    for sizes in ([[4, 3], [2, 5]], [[4, 1, 3], [2, 5], [3]]):
        logits, ids, documents = rows(draw, sizes)
        marked = documents >= 0
        marked[0, 2] = False
        data = (logits, ids, documents, marked)
        expect(
            sub.conversation_losses(*data),
            by_hand(*data),
            given={"documents": documents, "marked": marked},
            mistakes={"the end of one conversation predicts the beginning of the next": by_hand(*data, first=True)},
        )


@test(
    points=1,
    hints=(
        "NaN times zero is NaN. Is anything multiplied by the mask?",
        "Select the logits that are needed before you take the logarithm, and add up only those.",
    ),
)
def nothing_else(sub, draw):
    "NaN where nothing is to be predicted changes neither the losses nor the gradients."
    logits, ids, documents = rows(draw, [[4, 3], [2, 3]])
    marked = (documents >= 0) & (torch.arange(ids.shape[1]) % 3 != 1)
    right = by_hand(logits, ids, documents, marked)
    given = spoilt(logits, documents, marked)
    expect(sub.conversation_losses(given, ids, documents, marked), right, what="the losses beside NaN")
    slope = sub.gradient("conversation_losses", given, ids, documents, marked, wrt=0)
    leaf = logits.clone().requires_grad_()
    (want,) = torch.autograd.grad(by_hand(leaf, ids, documents, marked).sum(), leaf)
    expect(slope, want, what="the gradient beside NaN")


# %% [probes]
# no single of conversation_losses: a conversation that is cut away has no loss


# %% [mutant] one mean for a row
# caught by: alone
# says: shape
def conversation_losses(logits, ids, documents, marked):
    counts = marked[:, 1:] & (documents[:, 1:] == documents[:, :-1])
    logps = logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    return -torch.where(counts, logps, 0.0).sum(-1) / counts.sum(-1)


# %% [mutant] not shifted
# caught by: alone
# says: predict token t + 1
def conversation_losses(logits, ids, documents, marked):
    counts = marked[:, 1:] & (documents[:, 1:] == documents[:, :-1]) & (documents[:, 1:] >= 0)
    rows, places = counts.nonzero(as_tuple=True)
    surprise = -logits[rows, places + 1].log_softmax(-1).gather(-1, ids[rows, places + 1][:, None]).squeeze(-1)
    _, where = (rows * 100 + documents[rows, places]).unique_consecutive(return_inverse=True)
    total = torch.zeros(int(where.max()) + 1, dtype=logits.dtype)
    return total.index_add(0, where, surprise) / total.index_add(0, where, torch.ones_like(surprise))


# %% [mutant] across the border
# caught by: borders
# says: the beginning of the next
def conversation_losses(logits, ids, documents, marked):
    counts = marked[:, 1:] & (documents[:, 1:] >= 0)
    rows, places = counts.nonzero(as_tuple=True)
    surprise = -logits[rows, places].log_softmax(-1).gather(-1, ids[rows, places + 1][:, None]).squeeze(-1)
    _, where = (rows * 100 + documents[rows, places + 1]).unique_consecutive(return_inverse=True)
    total = torch.zeros(int(where.max()) + 1, dtype=logits.dtype)
    return total.index_add(0, where, surprise) / total.index_add(0, where, torch.ones_like(surprise))


# %% [mutant] multiplied by the mask
# caught by: nothing_else
# says: NaN
def conversation_losses(logits, ids, documents, marked):
    counts = marked[:, 1:] & (documents[:, 1:] == documents[:, :-1]) & (documents[:, 1:] >= 0)
    surprise = -logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1) * counts
    rows, places = (documents[:, 1:] >= 0).nonzero(as_tuple=True)
    _, where = (rows * 100 + documents[rows, places + 1]).unique_consecutive(return_inverse=True)
    total = torch.zeros(int(where.max()) + 1, dtype=logits.dtype)
    sums, sizes = (
        total.index_add(0, where, surprise[rows, places]),
        total.index_add(0, where, counts[rows, places].to(total)),
    )
    return sums[sizes > 0] / sizes[sizes > 0]


# %% [partial] 2: documents, and no borders
def conversation_losses(logits, ids, documents, marked):
    counts = marked[:, 1:] & (documents[:, 1:] >= 0)
    rows, places = counts.nonzero(as_tuple=True)
    surprise = -logits[rows, places].log_softmax(-1).gather(-1, ids[rows, places + 1][:, None]).squeeze(-1)
    _, where = (rows * 100 + documents[rows, places + 1]).unique_consecutive(return_inverse=True)
    total = torch.zeros(int(where.max()) + 1, dtype=logits.dtype)
    return total.index_add(0, where, surprise) / total.index_add(0, where, torch.ones_like(surprise))
