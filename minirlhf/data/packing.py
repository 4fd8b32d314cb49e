"""Pack several sequences into one row: which sequences share a row, and how many tokens that saves."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from minirlhf.core.errors import ArgumentError
from minirlhf.data.collate import batch_indices, spread
from minirlhf.data.types import PackedBatch, Tokens


def best_fit_decreasing(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Return the indices of the sequences in each row of at most ``capacity`` tokens.

    The longest sequence comes first; each goes into the fullest row that has room for it. No sequence is truncated, and
    every sequence is in exactly one row. Sequences of equal length keep their order.

    Source: best-fit decreasing bin packing; for language models Ding et al. (2024), "Fewer truncations improve language modeling".

    Raises:
        ValueError: a sequence is longer than a row.
    """
    if max(lengths, default=0) > capacity:
        message = f"a sequence of {max(lengths)} tokens, {capacity=}; expected none that is longer than a row"
        raise ArgumentError(message, argument="lengths", value=max(lengths), expected=capacity)
    rows: list[list[int]] = []
    space: list[tuple[int, int]] = []  # (free tokens of a row, index of the row), ascending
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        position = bisect_left(space, (lengths[index], -1))
        free, row = space.pop(position) if position < len(space) else (capacity, len(rows))
        if row == len(rows):
            rows.append([])
        rows[row].append(index)
        insort(space, (free - lengths[index], row))
    return rows


@dataclass(frozen=True)
class Packing:
    """Sequences packed in rows of equal length.

    Attributes:
        lengths: tokens of each sequence.
        length: tokens of a row.
        rows: indices of the sequences in each row, from left to right.
    """

    lengths: list[int]
    length: int
    rows: list[list[int]]

    @classmethod
    def of(cls, lengths: Sequence[int], length: int) -> Packing:
        """Pack by :func:`best_fit_decreasing`; ``ValueError`` if a sequence is longer than a row."""
        return cls(list(lengths), length, best_fit_decreasing(lengths, length))

    @property
    def filled(self) -> float:
        """Fraction of the tokens in the rows that are not padding."""
        return sum(self.lengths) / (len(self.rows) * self.length)

    def saved(self, batch_size: int, seed: int) -> float:
        """Return the fraction of tokens saved over one epoch, compared with batches of one sequence per row, padded to
        the longest."""
        count = len(self.lengths)
        steps = -(-count // batch_size)
        padded = sum(max(self.lengths[i] for i in batch_indices(count, batch_size, s, seed)) for s in range(steps))
        return 1 - (len(self.rows) * self.length / count) / (padded / steps)

    def __str__(self) -> str:
        """``898 sequences in 353 rows of 512 tokens, 98.0 % filled``."""
        return (
            f"{len(self.lengths)} sequences in {len(self.rows)} rows of {self.length} tokens, {self.filled:.1%} filled"
        )


def collate_packed(rows: Sequence[Sequence[Tokens]], pad_token_id: int, *, length: int) -> PackedBatch:
    """Collate ``B`` rows of sequences to tensors ``(B, length)``, padded on the right."""
    row_lengths = torch.tensor([sum(map(len, row)) for row in rows])
    inside = torch.arange(length) < row_lengths[:, None]  # (B, S)
    joined = [Tokens([i for e in row for i in e.input_ids], [m for e in row for m in e.loss_mask]) for row in rows]
    input_ids, loss_mask = spread(joined, inside, pad_token_id)
    indices = torch.tensor([index for row in rows for index, e in enumerate(row) for _ in range(len(e))])
    documents = torch.full(inside.shape, -1).masked_scatter_(inside, indices)
    is_first = documents != documents.roll(1, dims=1)
    is_first[:, 0] = True
    return PackedBatch(input_ids, documents, loss_mask & ~is_first)
