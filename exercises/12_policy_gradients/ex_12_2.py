# ---
# title: Many tokens, one loss
# kind: implement
# minutes: 25
# ---

# %% [statement]
# An objective has one number per token, `(B, T)`, and an optimiser needs one number. The kind of mean decides how much a token of
# a long completion counts. Write the two most common means as weights: the loss is then `-(weights * objective).sum()`.
#
# 1. `sequence_mean_weights(mask)`: the mean over completions of each completion's mean over tokens.
# 2. `token_mean_weights(mask)`: the mean over all tokens of the batch.
#
# Then the trap. The batch does not fit into memory, so it is cut into micro-batches of `size` rows. The losses are computed one after
# the other, and PyTorch adds up their gradients.
#
# 3. `micro_batch_losses(objective, mask, size)`: the list of losses, one for each micro-batch, such that their **sum** is the
#    token-mean loss of the *whole* batch, for every `size`. The last micro-batch may be smaller.
#
# `mask` is `(B, T)` bool, True on the tokens of a completion; no row is empty. Outside the mask `objective` may be NaN.

# %% [given]
import torch


# %% [stub]
def sequence_mean_weights(mask):
    """Returns (B, T), 0 outside the mask."""
    raise NotImplementedError


def token_mean_weights(mask):
    """Returns (B, T), 0 outside the mask."""
    raise NotImplementedError


def micro_batch_losses(objective, mask, size):
    """Returns a list of scalars, one for each micro-batch of `size` rows."""
    raise NotImplementedError


# %% [solution]
def sequence_mean_weights(mask):
    return mask / (mask.shape[0] * mask.sum(-1, keepdim=True))


def token_mean_weights(mask):
    return mask / mask.sum()


def micro_batch_losses(objective, mask, size):
    terms = token_mean_weights(mask) * torch.where(mask, objective, 0.0)
    return [-part.sum() for part in terms.split(size)]


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, fail, test, tidy


def problem(draw):
    """Return a batch of four completions of lengths 2, 5, 3 and 1 in a random order, with NaN on the padding."""
    length = torch.tensor([2, 5, 3, 1])[draw.permutation(4)]
    mask = torch.arange(5)[None, :] < length[:, None]
    return torch.where(mask, tidy(1 + draw.uniform(4, 5, low=0.1, high=2.0)), torch.nan), mask


def rows_of(mask, entry):
    """Return a weight for every token, from a function of its completion's length."""
    weights = torch.zeros(mask.shape, dtype=torch.float64)
    for i, row in enumerate(mask.tolist()):
        for t, inside in enumerate(row):
            weights[i, t] = entry(sum(row)) if inside else 0.0
    return weights


@test(
    points=1,
    hints=(
        "First the mean within each completion, then the mean over completions. What is a token's weight in its completion, and the completion's weight in the batch?",
        "A token of a completion of length n has weight 1/(B·n). `mask.sum(-1, keepdim=True)` holds the lengths.",
    ),
)
def by_sequence(sub, draw):
    "`sequence_mean_weights` gives every completion the same weight, divided equally among its tokens."
    _, mask = problem(draw)
    total = float(mask.sum())
    expect(
        sub.sequence_mean_weights(mask),
        rows_of(mask, lambda n: 1 / (4 * n)),
        what="the weights",
        given={"mask": mask},
        mistakes={
            "every token has the same weight": rows_of(mask, lambda n: 1 / total),
            "padding counts as tokens": rows_of(mask, lambda n: 1 / 20),
            "the completions are added up, not averaged": rows_of(mask, lambda n: 1 / n),
        },
    )


@test(
    points=1,
    hints=(
        "Put all tokens of the batch into one list and take its mean.",
        "One divisor for all: the number of tokens that the mask marks.",
    ),
)
def by_token(sub, draw):
    "`token_mean_weights` gives every token of the batch the same weight."
    _, mask = problem(draw)
    total = float(mask.sum())
    expect(
        sub.token_mean_weights(mask),
        rows_of(mask, lambda n: 1 / total),
        what="the weights",
        given={"mask": mask},
        mistakes={
            "padding counts as tokens": rows_of(mask, lambda n: 1 / 20),
            "every completion has the same weight": rows_of(mask, lambda n: 1 / (4 * n)),
        },
    )


@test(
    points=2,
    hints=(
        "A micro-batch does not know the lengths of the completions outside it. Which number must it receive?",
        "First compute the weights from the mask of the whole batch. Then cut weights and objective into pieces together.",
    ),
)
def whatever_the_size(sub, draw):
    "The losses of the micro-batches add up to the loss of the whole batch, whatever their size."
    objective, mask = problem(draw)
    total = -float(objective[mask].sum() / mask.sum())
    for size in (1, 3, 2, 4):
        losses = sub.micro_batch_losses(objective, mask, size)
        count = -(-4 // size)
        if not isinstance(losses, list | tuple) or len(losses) != count:
            fail(f"`micro_batch_losses` with size = {size} is not a list of {count} losses", size=size)
        pieces = list(zip(objective.split(size), mask.split(size), strict=True))
        means = [-float(o[m].mean()) for o, m in pieces]
        expect(
            sum(torch.as_tensor(loss, dtype=torch.float64) for loss in losses),
            total,
            what=f"the sum of the losses for micro-batches of {size}",
            given={"objective": objective, "mask": mask},
            mistakes={
                "each micro-batch takes the mean of its own tokens, and these means are averaged": sum(means) / count,
                "each micro-batch takes the mean of its own tokens": sum(means),
                "the loss is not negated": -total,
            },
        )
        for i, (o, m) in enumerate(pieces):
            expect(
                torch.as_tensor(losses[i], dtype=torch.float64),
                -float(o[m].sum() / mask.sum()),
                what=f"loss {i} of {count}, which is to be computed from its own rows alone,",
                given={"objective": objective, "mask": mask, "size": size},
                mistakes={
                    "the whole loss is in one piece": 0.0 if i else total,
                    "it is an equal share of the whole loss": total / count,
                },
            )


# %% [edges]
# whatever_the_size: The last micro-batch may be smaller


# %% [probes]
# no gradient of sequence_mean_weights, token_mean_weights: weights are data


# %% [mutant] sums over the completions
# caught by: by_sequence
# says: added up, not averaged
def sequence_mean_weights(mask):
    return mask / mask.sum(-1, keepdim=True)


# %% [mutant] padding counts in the sequence mean
# caught by: by_sequence
# says: padding counts
def sequence_mean_weights(mask):
    return mask / mask.numel()


# %% [mutant] padding counts in the token mean
# caught by: by_token
# says: padding counts
def token_mean_weights(mask):
    return mask / mask.numel()


# %% [mutant] each micro-batch by itself
# caught by: whatever_the_size
# says: these means are averaged
def micro_batch_losses(objective, mask, size):
    pieces = list(zip(objective.split(size), mask.split(size)))
    return [-o[m].mean() / len(pieces) for o, m in pieces]


# %% [mutant] nobody divides by the number of micro-batches
# caught by: whatever_the_size
# says: the mean of its own tokens
def micro_batch_losses(objective, mask, size):
    return [-o[m].mean() for o, m in zip(objective.split(size), mask.split(size))]


# %% [partial] 2: the weights are right
def micro_batch_losses(objective, mask, size):
    raise NotImplementedError
