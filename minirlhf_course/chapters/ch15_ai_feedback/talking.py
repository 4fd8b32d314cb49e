"""Small models that learn conversations and continue them."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch

from minirlhf.data.chat import conversation, encode, encode_prompt, end_tokens
from minirlhf.data.records import Message
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.texts import completion_texts
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.sft import SFTConfig, train_sft

Taught = tuple[Sequence[str], int]  # messages of user and assistant in turn, and the first message that is learnt


def fresh(words: Sequence[str], seed: int) -> Trained:
    """Return an untrained model with these words as its vocabulary."""
    tokenizer = word_tokenizer(tuple(dict.fromkeys(words)))
    return Trained(tiny_model("nano", tokenizer, seed=seed), tokenizer)


def learnt(start: Trained, lessons: Sequence[Taught], training: SFTConfig) -> Trained:
    """Return a copy of the initial model, fine-tuned on the assistant's messages in these conversations, from some
    message on."""
    model, tokenizer = copy.deepcopy(start.model), start.tokenizer
    tokens = [encode(tokenizer, conversation(*messages), first_turn=first) for messages, first in lessons]
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
    """Sample the assistant's next message in each conversation, with at most ``length`` tokens.

    If ``begun`` gives the first tokens of each message, the continuation is returned.
    """
    texts: list[str] = []
    for start in range(0, len(told), 256):
        conversations: list[list[Message]] = [conversation(*turns) for turns in told[start : start + 256]]
        rollout = sample(
            speaker.model,
            [
                [*encode_prompt(speaker.tokenizer, messages), *(begun[start + i] if begun else ())]
                for i, messages in enumerate(conversations)
            ],
            sampling=Sampling(max_completion_length=length, greedy=greedy),
            eos_token_id=end_tokens(speaker.tokenizer, speaker.model).ids,
            pad_token_id=speaker.tokenizer.pad_token_id,
            prompt_keys=[f"conversation {start + i}" for i in range(len(conversations))],
            seed=seed,
        )
        texts += completion_texts(rollout, speaker.tokenizer)
    return texts
