"""From token lists to padded batches, and which examples a step takes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from minirlhf.core.randomness import numpy_generator
from minirlhf.data.types import AnswerBatch, TokenBatch, Tokens


def collate(examples: Sequence[Tokens], pad_token_id: int) -> TokenBatch:
    """Pad on the right to the longest: ``B`` examples to tensors ``(B, S)``."""
    width = max(len(e.input_ids) for e in examples)
    input_ids = torch.full((len(examples), width), pad_token_id)
    attention_mask = torch.zeros(len(examples), width, dtype=torch.long)
    loss_mask = torch.zeros(len(examples), width, dtype=torch.bool)
    for i, example in enumerate(examples):
        n = len(example.input_ids)
        input_ids[i, :n] = torch.tensor(example.input_ids)
        attention_mask[i, :n] = 1
        loss_mask[i, :n] = torch.tensor(example.loss_mask)
    loss_mask[:, 0] = False  # nothing stands before the first token, so nothing predicts it
    return TokenBatch(input_ids, attention_mask, loss_mask)


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


def collate_answers(answers: Sequence[Tokens], pad_token_id: int) -> AnswerBatch:
    """Answers flush with one another: prompts padded on the left, answers on the right. An answer starts at the first marked
    token (and never before the second token of its row); ``ValueError`` if a row has none."""
    starts = [next((t for t, marked in enumerate(a.loss_mask) if marked and t), 0) for a in answers]
    if not all(starts):
        raise ValueError(f"row {starts.index(0)} of {len(answers)} has no answer: no token after the first is marked")
    before, after = max(starts), max(len(a) - start for a, start in zip(answers, starts, strict=True))
    input_ids = torch.full((len(answers), before + after), pad_token_id)
    attention_mask = torch.zeros_like(input_ids)
    mask = torch.zeros(len(answers), after, dtype=torch.bool)
    for i, (answer, start) in enumerate(zip(answers, starts, strict=True)):
        first, last = before - start, before - start + len(answer)
        input_ids[i, first:last] = torch.tensor(answer.input_ids)
        attention_mask[i, first:last] = 1
        mask[i, : len(answer) - start] = torch.tensor(answer.loss_mask[start:])
    return AnswerBatch(input_ids, attention_mask, mask)
