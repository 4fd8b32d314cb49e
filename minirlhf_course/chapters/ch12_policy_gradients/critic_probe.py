"""The values that a critic assigns to fixed completions while it learns."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from minirlhf.data.chat import encode_prompt
from minirlhf.data.records import Message
from minirlhf.models.critics import completion_values


class CriticProbe:
    """Record a critic's values of the same completions repeatedly during training.

    Args:
        critic: the critic; it is trained elsewhere.
        tokenizer: the policy's tokenizer.
        replies: ``(prompt, completion)``, messages and a text, by the name of their kind; EOS is appended to every completion.

    Attributes:
        seen: one row per :meth:`look`: under ``"before"`` the mean value before the first token, and under the name of
            each kind the mean value after the first token.
    """

    def __init__(
        self, critic: nn.Module, tokenizer: Any, replies: Mapping[str, Sequence[tuple[Sequence[Message], str]]]
    ) -> None:
        self._critic, self._tokenizer, self._replies = critic, tokenizer, replies
        self.seen: list[dict[str, float]] = []

    @torch.no_grad()
    def values(self, prompt: Sequence[Message], reply: str) -> Tensor:
        """Return the critic's value before each token of a completion, EOS included, ``(T,)``."""
        prompt_ids = encode_prompt(self._tokenizer, prompt)
        completion_ids = [*self._tokenizer(reply, add_special_tokens=False).input_ids, self._tokenizer.eos_token_id]
        ids = torch.tensor([[*prompt_ids, *completion_ids]])
        return completion_values(self._critic, ids, torch.ones_like(ids), len(completion_ids))[0]

    def look(self) -> None:
        """Append a row to :attr:`seen`."""
        first_values, row = [], {}
        for kind, replies in self._replies.items():
            values = [self.values(prompt, completion)[:2].tolist() for prompt, completion in replies]
            first_values += [first for first, _ in values]
            row[kind] = statistics.fmean(after for _, after in values)
        self.seen.append({"before": statistics.fmean(first_values), **row})
