"""Shared functions of the tiny models of this chapter: a word is a token, training takes seconds, and the next word
is evaluated."""

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
    """Return the token ids of the words of a text."""
    return list(tokenizer(text, add_special_tokens=False).input_ids)


def page(tokenizer: Any, text: str) -> Tokens:
    """Return a text and its end token, with the loss on all tokens."""
    ids = [*ids_of(tokenizer, text), tokenizer.eos_token_id]
    return Tokens(ids, [True] * len(ids))


def answered(tokenizer: Any, prompt: str, reply: str) -> Tokens:
    """Return a prompt and a completion, with the loss on the completion and its end token."""
    prompt_ids, completion_ids = ids_of(tokenizer, prompt), [*ids_of(tokenizer, reply), tokenizer.eos_token_id]
    return Tokens([*prompt_ids, *completion_ids], [False] * len(prompt_ids) + [True] * len(completion_ids))


def trained(tokenizer: Any, examples: Sequence[Tokens], plan: SFTConfig, *, seed: int) -> Any:
    """Train a new model on the examples."""
    model = tiny_model("nano", tokenizer, seed=seed)
    return tuned(model, tokenizer, examples, plan, seed=seed)


def tuned(model: Any, tokenizer: Any, examples: Sequence[Tokens], plan: SFTConfig, *, seed: int) -> Any:
    """Train the same model further."""
    train_sft(model, examples, replace(plan, seed=seed), pad_token_id=tokenizer.pad_token_id, quiet=True)
    return model.eval()


@torch.no_grad()
def next_word(model: Any, tokenizer: Any, prompts: Sequence[str]) -> Tensor:
    """Return the log-probabilities ``(N, V)`` of the word after each prompt."""
    ids, mask = left_pad([ids_of(tokenizer, prompt) for prompt in prompts], tokenizer.pad_token_id)
    return completion_logits(model, ids, mask, 1)[:, -1].log_softmax(-1)


def numbers_of(tokenizer: Any, words: Sequence[str]) -> Tensor:
    """Return the token ids ``(N,)`` of words."""
    return torch.tensor(tokenizer.convert_tokens_to_ids(list(words)))
