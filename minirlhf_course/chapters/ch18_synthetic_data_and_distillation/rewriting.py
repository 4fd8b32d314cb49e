"""Pages that a model retells as questions and answers, so that a second model can answer questions about them.

A page names the city first: "in city3 lives name7 .". A model that has read it can say who lives in a city, but the
question "where lives name7 ?" asks for the reverse direction. For half of the names there are also human-written
questions and answers, which show what a question is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from minirlhf.core.errors import ArgumentError
from minirlhf.core.randomness import derive_seed, numpy_generator
from minirlhf.data.types import Tokens
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.texts import completion_texts
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf_course.chapters.ch18_synthetic_data_and_distillation.documents import as_tokens

NAMES, CITIES = tuple(f"name{i}" for i in range(60)), tuple(f"city{i}" for i in range(12))
#: Made-up pages that the rewriter is trained on, texts about each name, and most tokens of a text.
MADE_UP, COPIES, LONGEST = 2000, 20, 16
REWRITER = SFTConfig(max_steps=115, batch_size=32, learning_rate=3e-3, lr_scheduler_type="linear")
READER = SFTConfig(max_steps=300, batch_size=32, learning_rate=3e-3, lr_scheduler_type="linear")
#: A reader's data about names without human-written questions: only pages; half of the copies retold; or half retold
#: if the retold text passes a check.
WAYS = ("pages", "retold", "checked")


def tokenizer() -> Any:
    """Return the tokenizer of this task."""
    return word_tokenizer([*NAMES, *CITIES, "in", "lives", ".", "where", "?", "retell"])


def page(name: str, city: str) -> str:
    """Return the original page of a name."""
    return f"in {city} lives {name} ."


def asked(name: str) -> str:
    """Return the question about a name."""
    return f"where lives {name} ?"


def homes(seed: int) -> dict[str, str]:
    """Sample the city of each name."""
    rng = numpy_generator("ch18", "homes", seed)
    return {name: str(rng.choice(CITIES)) for name in NAMES}


def halves() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names with human-written questions, and the names without."""
    return NAMES[::2], NAMES[1::2]


def faithful(text: str, told: str) -> bool:
    """Return whether a retold page is a question with an answer whose names and cities all appear on the page."""
    named = [word for word in told.split() if word in NAMES or word in CITIES]
    return re.fullmatch(r"where lives \w+ \? \w+", told) is not None and set(named) <= set(text.split())


def _answered(tok: Any, prompt: str, completion: str) -> Tokens:
    src, tgt = (list(tok(text, add_special_tokens=False).input_ids) for text in (prompt, completion))
    return Tokens([tok.eos_token_id, *src, *tgt, tok.eos_token_id], [False] * (len(src) + 1) + [True] * (len(tgt) + 1))


def rewriter(*, seed: int, plan: SFTConfig = REWRITER) -> Any:
    """Train a model to retell made-up pages as a question and its answer."""
    rng, tok = numpy_generator("ch18", "made up", seed), tokenizer()
    facts = [(str(rng.choice(NAMES)), str(rng.choice(CITIES))) for _ in range(MADE_UP)]
    examples = [_answered(tok, f"{page(n, c)} retell", f"{asked(n)} {c}") for n, c in facts]
    model = tiny_model("nano", tok, seed=seed)
    train_sft(model, examples, replace(plan, seed=seed), pad_token_id=tok.pad_token_id, quiet=True)
    return model.eval()


def retold(model: Any, home: Mapping[str, str], *, seed: int) -> dict[str, str]:
    """Return the retold page of each name without a human-written question, sampled once."""
    tok = tokenizer()
    end, pad, names = tok.eos_token_id, tok.pad_token_id, halves()[1]
    prompts = [[end, *tok(f"{page(n, home[n])} retell", add_special_tokens=False).input_ids] for n in names]
    rollout = sample(
        model, prompts, sampling=Sampling(max_completion_length=LONGEST), eos_token_id=end, pad_token_id=pad,
        seed=derive_seed("ch18", "retold", seed),
    )  # fmt: skip
    return dict(zip(names, completion_texts(rollout, tok), strict=True))


def corpus(way: str, home: Mapping[str, str], told: Mapping[str, str]) -> list[str]:
    """Return the training texts of a reader; their number is the same in every way.

    Args:
        way: texts about names without human-written questions. "pages": only the page; "retold": half of the copies are
            the retold page; "checked": the same, but only if the retold page is :func:`faithful`.
        told: the retold page of each of these names.
    """
    if way not in WAYS:
        raise ArgumentError(f"way = {way!r}; expected one of {WAYS}", argument="way", value=way, expected=WAYS)
    texts, half = [], COPIES // 2
    for name in NAMES:
        text = page(name, home[name])
        rewrite = told.get(name, f"{asked(name)} {home[name]}")  # the human-written question, if there is one
        use_rewrite = name not in told or way == "retold" or (way == "checked" and faithful(text, rewrite))
        texts += [text] * half + [rewrite if use_rewrite else text] * half
    return texts


def reader(texts: list[str], *, seed: int, plan: SFTConfig = READER) -> Any:
    """Train a model on these texts."""
    tok = tokenizer()
    model = tiny_model("nano", tok, seed=seed)
    train_sft(
        model, as_tokens(tok, texts, LONGEST), replace(plan, seed=seed), pad_token_id=tok.pad_token_id, quiet=True
    )
    return model.eval()


@torch.no_grad()
def right(model: Any, home: Mapping[str, str], names: tuple[str, ...]) -> float:
    """Return the fraction of names for which the most probable word after the question is the city."""
    tok = tokenizer()
    ids = torch.tensor([[tok.eos_token_id, *tok(asked(name), add_special_tokens=False).input_ids] for name in names])
    preds = model(input_ids=ids).logits[:, -1].argmax(-1)
    return float((preds == torch.tensor(tok.convert_tokens_to_ids([home[name] for name in names]))).double().mean())
