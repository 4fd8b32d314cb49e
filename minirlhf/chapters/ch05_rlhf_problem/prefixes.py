"""Recursions over the prefixes of a toy language model, which whole-response formulas are held against."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from minirlhf.core.exact import ToyLM


def rows_of(lm: ToyLM) -> list[list[int]]:
    """The responses of the model as lists of tokens, without padding."""
    found = lm.responses()
    return [row[:n] for row, n in zip(found.tokens.tolist(), found.lengths.tolist(), strict=True)]


def next_token(probs: Tensor, rows: list[list[int]], prefix: list[int], vocab_size: int) -> Tensor:
    """``(V,)``: the distribution of the token after ``prefix``, as sums over the responses that agree with it."""
    mass = [
        sum(p for p, row in zip(probs, rows, strict=True) if row[: len(prefix) + 1] == [*prefix, a])
        for a in range(vocab_size)
    ]
    found = torch.stack([torch.as_tensor(m, dtype=torch.float64) for m in mass])
    return found / found.sum()


def from_the_leaves(lm: ToyLM, rewards: Tensor, backup: Callable[[list[int], Tensor], Tensor]) -> Tensor:
    """Value of the empty prefix: leaves are worth their reward, a prefix ``backup(prefix, values of its children)``."""
    rows = rows_of(lm)
    reward_of = {tuple(row): r for row, r in zip(rows, rewards, strict=True)}

    def value(prefix: list[int]) -> Tensor:
        if tuple(prefix) in reward_of:
            return reward_of[tuple(prefix)]
        return backup(prefix, torch.stack([value([*prefix, a]) for a in range(lm.vocab_size)]))

    return value([])
