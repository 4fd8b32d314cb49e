"""Collate token lists to padded batches, and select the examples of each step."""

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
    """Collate ``B`` examples to tensors ``(B, S)``, padded on the right to the longest one."""
    lengths = torch.tensor([len(e) for e in examples])
    inside = torch.arange(int(lengths.max())) < lengths[:, None]
    input_ids, loss_mask = spread(examples, inside, pad_token_id)
    loss_mask[:, 0] = False  # the first token has no context, so it is not predicted
    return TokenBatch(input_ids, inside.long(), loss_mask)


def spread(examples: Sequence[Tokens], inside: Tensor, pad_token_id: int) -> tuple[Tensor, Tensor]:
    """Return ids and loss mask of all tokens at their positions in rows ``(B, S)``.

    Each is filled from one flat list, because one tensor per row is far slower.
    """
    ids = np.fromiter(chain.from_iterable(e.input_ids for e in examples), dtype=np.int64)
    loss_mask = np.fromiter(chain.from_iterable(e.loss_mask for e in examples), dtype=bool)
    input_ids = torch.full(inside.shape, pad_token_id).masked_scatter_(inside, torch.from_numpy(ids))
    return input_ids, torch.zeros_like(inside).masked_scatter_(inside, torch.from_numpy(loss_mask))


def batch_indices(count: int, batch_size: int, step: int, seed: int) -> np.ndarray:
    """Return the indices of the ``batch_size`` examples of a step, out of ``count``. Each epoch has its own order.

    The result depends only on ``(count, batch_size, step, seed)``, so a resumed run continues where it stopped.
    """
    if count < 1 or batch_size < 1:
        raise ValueError(f"{count=} and {batch_size=}; expected both to be at least 1")
    indices: list[int] = []
    position = step * batch_size
    while len(indices) < batch_size:
        epoch, offset = divmod(position, count)
        order = numpy_generator("order", seed, epoch).permutation(count)
        chosen = order[offset : offset + batch_size - len(indices)]
        indices.extend(chosen.tolist())
        position += len(chosen)
    return np.asarray(indices)


def collate_completions(answers: Sequence[Tokens], pad_token_id: int) -> CompletionBatch:
    """Align completions in the same columns: prompts are padded on the left, completions on the right.

    A completion starts at the first token in the loss mask, and never before the second token of its row;
    ``ValueError`` if a row has no completion.
    """
    starts = [next((t for t, in_loss in enumerate(a.loss_mask) if in_loss and t), 0) for a in answers]
    if not all(starts):
        raise ArgumentError(
            f"row {starts.index(0)} of {len(answers)} has no completion: no token after the first is in the loss mask",
            argument="answers",
            value=starts.index(0),
            problem="empty",
        )
    row_start = max(starts) - torch.tensor(starts)[:, None]  # the column in which a row begins
    row_end = row_start + torch.tensor([len(a) for a in answers])[:, None]
    column = torch.arange(int(row_end.max()))
    inside = (column >= row_start) & (column < row_end)
    input_ids, in_loss = spread(answers, inside, pad_token_id)
    return CompletionBatch(input_ids, inside.long(), in_loss[:, max(starts) :])
