"""Layer 7: what a critic comes to expect of some fixed replies while it learns."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from minirlhf.data.chat import conversation, encode_prompt
from minirlhf.models.critics import completion_values


class CriticProbe:
    """Values of the same replies, again and again.

    Args:
        critic: the one that is trained elsewhere.
        tokenizer: of the policy.
        replies: ``(prompt, reply)`` texts of each kind, by its name; every reply ends with EOS.

    Attributes:
        seen: one row per :meth:`look`: the mean value before the first word under ``"before"``, and after the first word of each
            kind under its name.
    """

    def __init__(self, critic: nn.Module, tokenizer: Any, replies: Mapping[str, Sequence[tuple[str, str]]]) -> None:
        self._critic, self._tokenizer, self._replies = critic, tokenizer, replies
        self.seen: list[dict[str, float]] = []

    @torch.no_grad()
    def values(self, prompt: str, reply: str) -> Tensor:
        """``(T,)``, what the critic expects before each token of a reply, EOS included."""
        first = encode_prompt(self._tokenizer, conversation(prompt))
        rest = [*self._tokenizer(reply, add_special_tokens=False).input_ids, self._tokenizer.eos_token_id]
        ids = torch.tensor([[*first, *rest]])
        return completion_values(self._critic, ids, torch.ones_like(ids), len(rest))[0]

    def look(self) -> None:
        """Add a row to :attr:`seen`."""
        before, row = [], {}
        for kind, replies in self._replies.items():
            values = [self.values(prompt, reply)[:2].tolist() for prompt, reply in replies]
            before += [first for first, _ in values]
            row[kind] = statistics.fmean(after for _, after in values)
        self.seen.append({"before": statistics.fmean(before), **row})
