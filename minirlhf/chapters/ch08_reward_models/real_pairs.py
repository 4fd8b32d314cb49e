"""A tiny reward model on real pairs, each held out once, beside two rules: the longer reply wins, and a weight for each word."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from minirlhf.chapters.ch08_reward_models.assistant_rewards import quality
from minirlhf.core.randomness import numpy_generator
from minirlhf.data.chat import encode
from minirlhf.data.records import Comparison
from minirlhf.data.types import PreferenceExample, Tokens, pair
from minirlhf.equations.reward_losses import bradley_terry_loss
from minirlhf.models.heads import RewardModel
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import train_tokenizer
from minirlhf.trainers.loop import TrainerCallback
from minirlhf.trainers.reward import RewardConfig, train_reward


@dataclass(frozen=True)
class RealPlan:
    """How the pairs are read: ``folds`` parts, each held out once; of every transcript the last ``tokens``."""

    folds: int = 5
    preset: str = "nano"
    vocabulary: int = 2048
    tokens: int = 128
    training: RewardConfig = RewardConfig(max_steps=80, batch_size=32, learning_rate=1e-3, lr_scheduler_type="linear")
    epochs: int = 4


def split(pairs: Sequence[Comparison], fold: int, folds: int) -> tuple[list[Comparison], list[Comparison]]:
    """All pairs but one part of them, and that part; pairs of one prompt stay together."""
    prompts = list(dict.fromkeys(repr(p.prompt) for p in pairs))
    order = numpy_generator("folds of real pairs").permutation(len(prompts))
    out = {prompts[i] for i in order[fold::folds]}
    return [p for p in pairs if repr(p.prompt) not in out], [p for p in pairs if repr(p.prompt) in out]


def tokenised(tokenizer: Any, pairs: Sequence[Comparison], tokens: int) -> list[PreferenceExample]:
    """The last tokens of each transcript: the reply, and what is left for the conversation before it."""

    def read(p: Comparison, reply: Any) -> Tokens:
        whole = encode(tokenizer, [*p.prompt, *reply], first_turn=len(p.prompt))
        return Tokens(whole.input_ids[-tokens:], whole.loss_mask[-tokens:])

    return [pair(read(p, p.chosen), read(p, p.rejected)) for p in pairs]


def texts(pairs: Sequence[Comparison]) -> list[str]:
    """All that is said in the conversations and the replies to choose from."""
    return [m["content"] for p in pairs for m in (*p.prompt, *p.chosen, *p.rejected)]


def reward_of(train: Sequence[Comparison], held: Sequence[Comparison], plan: RealPlan, seed: int) -> dict[str, float]:
    """A reward model from random weights, with a tokenizer of these texts.

    Returns:
        Its quality on held-out pairs after the first epoch and after the last, and the minutes of the processor.
    """
    began = time.process_time()
    tokenizer = train_tokenizer(texts(train), plan.vocabulary)
    pad = tokenizer.pad_token_id
    seen, others = (tokenised(tokenizer, pairs, plan.tokens) for pairs in (train, held))
    model = RewardModel.from_causal_lm(tiny_model(plan.preset, tokenizer, seed=seed, context=plan.tokens), seed=seed)
    looks: list[dict[str, float]] = []

    def measure() -> dict[str, float]:
        looks.append({})
        if len(looks) in (1, plan.epochs):
            model.eval()
            looks[-1] |= quality(model, others, pad)
            model.train()
        return {}

    watch = TrainerCallback(plan.training.max_steps // plan.epochs, measure)
    train_reward(model, seen, replace(plan.training, seed=seed), pad_token_id=pad, watch=watch, quiet=True)
    numbers = {f"{name}_1": value for name, value in looks[0].items()}
    numbers |= {f"{name}_{plan.epochs}": value for name, value in looks[plan.epochs - 1].items()}
    return numbers | {"minutes": (time.process_time() - began) / 60}


def longer(pairs: Sequence[Comparison]) -> float:
    """Accuracy of choosing the reply with more characters; a tie counts one half."""
    gaps = torch.tensor([float(_size(p.chosen) - _size(p.rejected)) for p in pairs])
    return float(((gaps.sign() + 1) / 2).mean())


def _size(reply: Any) -> int:
    return sum(len(m["content"]) for m in reply)


def by_words(train: Sequence[Comparison], held: Sequence[Comparison], *, penalty: float = 0.01) -> float:
    """Accuracy of a linear reward on which words a reply contains, fitted to the training pairs with a penalty on its weights."""
    words = {
        word: i for i, word in enumerate(dict.fromkeys(w for p in train for w in _words(p.chosen) | _words(p.rejected)))
    }

    def apart(pairs: Sequence[Comparison]) -> Tensor:
        rows = torch.zeros(len(pairs), len(words))
        for row, p in zip(rows, pairs, strict=True):
            for reply, sign in ((p.chosen, 1.0), (p.rejected, -1.0)):
                for i in [words[w] for w in _words(reply) if w in words]:
                    row[i] += sign
        return rows

    x, weights = apart(train), torch.zeros(len(words), requires_grad=True)
    fit = torch.optim.LBFGS([weights], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        fit.zero_grad()
        reward = x @ weights
        value = bradley_terry_loss(reward, torch.zeros_like(reward)).mean() + penalty * weights.square().sum()
        value.backward()
        return value

    fit.step(loss)
    difference = apart(held) @ weights.detach()
    return float(((difference.sign() + 1) / 2).mean())


def _words(reply: Any) -> set[str]:
    return {word for m in reply for word in m["content"].lower().split()}
