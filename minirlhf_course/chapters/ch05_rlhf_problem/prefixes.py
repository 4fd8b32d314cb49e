"""Recursions over the prefixes of a toy language model, to check formulas for whole completions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from minirlhf.core.exact import ToyLM


def rows_of(lm: ToyLM) -> list[list[int]]:
    """Return the completions of the model as lists of tokens, without padding."""
    completions = lm.completions()
    return [row[:n] for row, n in zip(completions.tokens.tolist(), completions.lengths.tolist(), strict=True)]


def next_token(probs: Tensor, rows: list[list[int]], prefix: list[int], vocab_size: int) -> Tensor:
    """``(V,)``: the distribution of the token after ``prefix``, as sums over the completions that begin with it."""
    masses = [
        sum(p for p, row in zip(probs, rows, strict=True) if row[: len(prefix) + 1] == [*prefix, a])
        for a in range(vocab_size)
    ]
    next_probs = torch.stack([torch.as_tensor(m, dtype=torch.float64) for m in masses])
    return next_probs / next_probs.sum()


def from_the_leaves(lm: ToyLM, rewards: Tensor, backup: Callable[[list[int], Tensor], Tensor]) -> Tensor:
    """Value of the empty prefix: a leaf has its reward, any other prefix ``backup(prefix, values of its children)``."""
    rows = rows_of(lm)
    reward_of = {tuple(row): r for row, r in zip(rows, rewards, strict=True)}

    def value(prefix: list[int]) -> Tensor:
        if tuple(prefix) in reward_of:
            return reward_of[tuple(prefix)]
        return backup(prefix, torch.stack([value([*prefix, a]) for a in range(lm.vocab_size)]))

    return value([])
