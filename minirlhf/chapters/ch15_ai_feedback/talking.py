"""Small models that learn conversations and go on with them."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch

from minirlhf.data.chat import conversation, encode, encode_prompt, ends_of
from minirlhf.data.records import Message
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.texts import completion_texts
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.sft import SFTConfig, train_sft

Taught = tuple[Sequence[str], int]  # what user and assistant say in turn, and the first message that is learnt


def fresh(words: Sequence[str], seed: int) -> Trained:
    """An untrained model that knows these words."""
    tokenizer = word_tokenizer(tuple(dict.fromkeys(words)))
    return Trained(tiny_model("nano", tokenizer, seed=seed), tokenizer)


def learnt(start: Trained, lessons: Sequence[Taught], training: SFTConfig) -> Trained:
    """A copy of the start that has learnt what the assistant says in these conversations, from some message on."""
    model, tokenizer = copy.deepcopy(start.model), start.tokenizer
    tokens = [encode(tokenizer, conversation(*said), first_turn=first) for said, first in lessons]
    return Trained(
        model, tokenizer, train_sft(model, tokens, training, pad_token_id=tokenizer.pad_token_id, quiet=True)
    )


@torch.no_grad()
def say(
    speaker: Trained,
    told: Sequence[Sequence[str]],
    length: int,
    *,
    begun: Sequence[Sequence[int]] = (),
    seed: int = 0,
    greedy: bool = False,
) -> list[str]:
    """What the assistant answers to each of these conversations, in at most ``length`` tokens; how it goes on, where its answer is ``begun``,
    in tokens of each."""
    found: list[str] = []
    for at in range(0, len(told), 256):
        some: list[list[Message]] = [conversation(*said) for said in told[at : at + 256]]
        rollout = sample(
            speaker.model,
            [
                [*encode_prompt(speaker.tokenizer, messages), *(begun[at + i] if begun else ())]
                for i, messages in enumerate(some)
            ],
            sampling=Sampling(max_completion_length=length, greedy=greedy),
            eos_token_id=ends_of(speaker.tokenizer, speaker.model).ids,
            pad_token_id=speaker.tokenizer.pad_token_id,
            prompt_keys=[f"conversation {at + i}" for i in range(len(some))],
            seed=seed,
        )
        found += completion_texts(rollout, speaker.tokenizer)
    return found
