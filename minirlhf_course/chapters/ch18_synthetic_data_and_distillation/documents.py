"""Texts without a prompt: each starts and ends with the end token; the first one is the start signal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from minirlhf.data.collate import collate_completions
from minirlhf.data.types import Tokens
from minirlhf.models.forward import completion_logps


def as_tokens(tokenizer: Any, texts: Sequence[str], longest: int) -> list[Tokens]:
    """Return each text with at most ``longest`` tokens, the final end token included; the loss covers all of them."""
    end = tokenizer.eos_token_id
    ids = [list(tokenizer(text, add_special_tokens=False).input_ids)[: longest - 1] for text in texts]
    return [Tokens([end, *text_ids, end], [False, *[True] * (len(text_ids) + 1)]) for text_ids in ids]


@torch.no_grad()
def likelihoods(model: nn.Module, tokenizer: Any, texts: Sequence[str], longest: int) -> Tensor:
    """Return the mean log-probability per token of each text, ``(N,)``."""
    means = []
    for start in range(0, len(texts), 256):
        batch = collate_completions(as_tokens(tokenizer, texts[start : start + 256], longest), tokenizer.pad_token_id)
        logps = completion_logps(model, batch.input_ids, batch.attention_mask, batch.mask.shape[1])
        means.append(torch.where(batch.mask, logps, 0.0).sum(-1) / batch.mask.sum(-1))
    return torch.cat(means)
