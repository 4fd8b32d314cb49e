"""Pages that a model retells as questions and answers, so that a second model can be asked what they say.

A page names the city first: "in city3 lives name7 .". Whoever has read it can say who lives in a city; asked "where lives name7 ?" it has to
know the fact the other way round. Of half of the names people have written questions and answers as well, which show what a question is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from minirlhf.chapters.ch18_synthetic_data_and_distillation.documents import as_tokens
from minirlhf.core.errors import ArgumentError
from minirlhf.core.randomness import derive_seed, numpy_generator
from minirlhf.data.types import Tokens
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.texts import completion_texts
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.trainers.sft import SFTConfig, train_sft

NAMES, CITIES = tuple(f"name{i}" for i in range(60)), tuple(f"city{i}" for i in range(12))
#: Made-up pages that the rewriter learns from, texts about each name, and tokens of a text at most.
MADE_UP, COPIES, LONGEST = 2000, 20, 16
REWRITER = SFTConfig(max_steps=115, batch_size=32, learning_rate=3e-3, lr_scheduler_type="linear")
READER = SFTConfig(max_steps=300, batch_size=32, learning_rate=3e-3, lr_scheduler_type="linear")
#: What a reader reads of the names of which nobody asked: their pages, half of them retold, or half of them retold where that passed a check.
WAYS = ("pages", "retold", "checked")


def tokenizer() -> Any:
    """The words of this world."""
    return word_tokenizer([*NAMES, *CITIES, "in", "lives", ".", "where", "?", "retell"])


def page(name: str, city: str) -> str:
    """As it was written."""
    return f"in {city} lives {name} ."


def asked(name: str) -> str:
    """A question."""
    return f"where lives {name} ?"


def homes(seed: int) -> dict[str, str]:
    """Who lives where."""
    rng = numpy_generator("ch18", "homes", seed)
    return {name: str(rng.choice(CITIES)) for name in NAMES}


def halves() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of which people have written questions, and the others."""
    return NAMES[::2], NAMES[1::2]


def faithful(text: str, told: str) -> bool:
    """Whether a retold page is a question with an answer, and every name and city in it stands on the page, too."""
    named = [word for word in told.split() if word in NAMES or word in CITIES]
    return re.fullmatch(r"where lives \w+ \? \w+", told) is not None and set(named) <= set(text.split())


def _answered(of: Any, prompt: str, reply: str) -> Tokens:
    ask, say = (list(of(text, add_special_tokens=False).input_ids) for text in (prompt, reply))
    return Tokens([of.eos_token_id, *ask, *say, of.eos_token_id], [False] * (len(ask) + 1) + [True] * (len(say) + 1))


def rewriter(*, seed: int, plan: SFTConfig = REWRITER) -> Any:
    """A model that retells made-up pages as a question and its answer."""
    rng, of = numpy_generator("ch18", "made up", seed), tokenizer()
    drawn = [(str(rng.choice(NAMES)), str(rng.choice(CITIES))) for _ in range(MADE_UP)]
    examples = [_answered(of, f"{page(n, c)} retell", f"{asked(n)} {c}") for n, c in drawn]
    model = tiny_model("nano", of, seed=seed)
    train_sft(model, examples, replace(plan, seed=seed), pad_token_id=of.pad_token_id, quiet=True)
    return model.eval()


def retold(model: Any, home: Mapping[str, str], *, seed: int) -> dict[str, str]:
    """What the rewriter makes of the page of each name of which nobody asked, sampled once."""
    of = tokenizer()
    end, pad, names = of.eos_token_id, of.pad_token_id, halves()[1]
    prompts = [[end, *of(f"{page(n, home[n])} retell", add_special_tokens=False).input_ids] for n in names]
    rollout = sample(
        model, prompts, sampling=Sampling(max_completion_length=LONGEST), eos_token_id=end, pad_token_id=pad,
        seed=derive_seed("ch18", "retold", seed),
    )  # fmt: skip
    return dict(zip(names, completion_texts(rollout, of), strict=True))


def corpus(way: str, home: Mapping[str, str], told: Mapping[str, str]) -> list[str]:
    """What a reader reads, as many texts in every way.

    Args:
        way: of the names of which nobody asked, "pages": the page alone; "retold": half of the copies are what the rewriter has made of it;
            "checked": only where that is :func:`faithful`.
        told: what the rewriter has made of each of these names' pages.
    """
    if way not in WAYS:
        raise ArgumentError(f"way = {way!r}; expected one of {WAYS}", argument="way", value=way, expected=WAYS)
    texts, half = [], COPIES // 2
    for name in NAMES:
        text = page(name, home[name])
        other = told.get(name, f"{asked(name)} {home[name]}")  # people's own question, where they have asked
        keeps = name not in told or way == "retold" or (way == "checked" and faithful(text, other))
        texts += [text] * half + [other if keeps else text] * half
    return texts


def reader(texts: list[str], *, seed: int, plan: SFTConfig = READER) -> Any:
    """A model that has read these texts."""
    of = tokenizer()
    model = tiny_model("nano", of, seed=seed)
    train_sft(model, as_tokens(of, texts, LONGEST), replace(plan, seed=seed), pad_token_id=of.pad_token_id, quiet=True)
    return model.eval()


@torch.no_grad()
def right(model: Any, home: Mapping[str, str], names: tuple[str, ...]) -> float:
    """Share of names of which the likeliest word after the question is the city."""
    of = tokenizer()
    ids = torch.tensor([[of.eos_token_id, *of(asked(name), add_special_tokens=False).input_ids] for name in names])
    best = model(input_ids=ids).logits[:, -1].argmax(-1)
    return float((best == torch.tensor(of.convert_tokens_to_ids([home[name] for name in names]))).double().mean())
