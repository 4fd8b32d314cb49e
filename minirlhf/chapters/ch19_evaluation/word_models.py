"""What the tiny models of this chapter share: a word is a token, they train for seconds, and their next word is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from minirlhf.data.types import Tokens
from minirlhf.models.forward import completion_logits
from minirlhf.models.sampling import left_pad
from minirlhf.models.tiny import tiny_model
from minirlhf.trainers.sft import SFTConfig, train_sft


def ids_of(tokenizer: Any, text: str) -> list[int]:
    """Its words as tokens."""
    return list(tokenizer(text, add_special_tokens=False).input_ids)


def page(tokenizer: Any, text: str) -> Tokens:
    """A text, all of which is learned, and its end."""
    ids = [*ids_of(tokenizer, text), tokenizer.eos_token_id]
    return Tokens(ids, [True] * len(ids))


def answered(tokenizer: Any, prompt: str, reply: str) -> Tokens:
    """A prompt and a reply, of which the reply and its end are learned."""
    asked, said = ids_of(tokenizer, prompt), [*ids_of(tokenizer, reply), tokenizer.eos_token_id]
    return Tokens([*asked, *said], [False] * len(asked) + [True] * len(said))


def trained(tokenizer: Any, examples: Sequence[Tokens], plan: SFTConfig, *, seed: int) -> Any:
    """A new model that has learned the examples."""
    model = tiny_model("nano", tokenizer, seed=seed)
    return tuned(model, tokenizer, examples, plan, seed=seed)


def tuned(model: Any, tokenizer: Any, examples: Sequence[Tokens], plan: SFTConfig, *, seed: int) -> Any:
    """The same model, trained further."""
    train_sft(model, examples, replace(plan, seed=seed), pad_token_id=tokenizer.pad_token_id, quiet=True)
    return model.eval()


@torch.no_grad()
def next_word(model: Any, tokenizer: Any, prompts: Sequence[str]) -> Tensor:
    """Log-probabilities ``(N, V)`` of the word after each prompt."""
    ids, mask = left_pad([ids_of(tokenizer, prompt) for prompt in prompts], tokenizer.pad_token_id)
    return completion_logits(model, ids, mask, 1)[:, -1].log_softmax(-1)


def numbers_of(tokenizer: Any, words: Sequence[str]) -> Tensor:
    """Words as token numbers ``(N,)``."""
    return torch.tensor(tokenizer.convert_tokens_to_ids(list(words)))
