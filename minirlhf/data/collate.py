"""From token lists to padded batches, and which examples a step takes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError
from minirlhf.core.randomness import numpy_generator
from minirlhf.data.types import CompletionBatch, TokenBatch, Tokens


def collate(examples: Sequence[Tokens], pad_token_id: int) -> TokenBatch:
    """Pad on the right to the longest: ``B`` examples to tensors ``(B, S)``."""
    lengths = torch.tensor([len(e) for e in examples])
    inside = torch.arange(int(lengths.max())) < lengths[:, None]
    input_ids, loss_mask = spread(examples, inside, pad_token_id)
    loss_mask[:, 0] = False  # nothing stands before the first token, so nothing predicts it
    return TokenBatch(input_ids, inside.long(), loss_mask)


def spread(examples: Sequence[Tokens], inside: Tensor, pad_token_id: int) -> tuple[Tensor, Tensor]:
    """Ids and marks of all tokens at their places in rows ``(B, S)``. From one flat list each: a tensor for every row costs far more."""
    ids = np.fromiter(chain.from_iterable(e.input_ids for e in examples), dtype=np.int64)
    marks = np.fromiter(chain.from_iterable(e.loss_mask for e in examples), dtype=bool)
    input_ids = torch.full(inside.shape, pad_token_id).masked_scatter_(inside, torch.from_numpy(ids))
    return input_ids, torch.zeros_like(inside).masked_scatter_(inside, torch.from_numpy(marks))


def batch_indices(count: int, batch_size: int, step: int, seed: int) -> np.ndarray:
    """The ``batch_size`` examples of a step, out of ``count``: epoch after epoch, each in an order of its own.

    Depends on ``(count, batch_size, step, seed)`` only, so a resumed run goes on where it stopped.
    """
    if count < 1 or batch_size < 1:
        raise ValueError(f"{count=} and {batch_size=}; expected at least one each")
    picked: list[int] = []
    position = step * batch_size
    while len(picked) < batch_size:
        epoch, offset = divmod(position, count)
        order = numpy_generator("order", seed, epoch).permutation(count)
        taken = order[offset : offset + batch_size - len(picked)]
        picked.extend(taken.tolist())
        position += len(taken)
    return np.asarray(picked)


def collate_completions(answers: Sequence[Tokens], pad_token_id: int) -> CompletionBatch:
    """Answers flush with one another: prompts padded on the left, answers on the right. An answer starts at the first marked
    token (and never before the second token of its row); ``ValueError`` if a row has none."""
    starts = [next((t for t, marked in enumerate(a.loss_mask) if marked and t), 0) for a in answers]
    if not all(starts):
        raise ArgumentError(
            f"row {starts.index(0)} of {len(answers)} has no answer: no token after the first is marked",
            argument="answers",
            value=starts.index(0),
            problem="empty",
        )
    first = max(starts) - torch.tensor(starts)[:, None]  # where a row begins
    last = first + torch.tensor([len(a) for a in answers])[:, None]
    column = torch.arange(int(last.max()))
    inside = (column >= first) & (column < last)
    input_ids, marked = spread(answers, inside, pad_token_id)
    return CompletionBatch(input_ids, inside.long(), marked[:, max(starts) :])
