"""Cross-validate a tiny reward model on real pairs, and compare it with two rules.

The rules are: the longer completion wins, and a linear reward with one weight per word.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from minirlhf.core.randomness import numpy_generator
from minirlhf.data import tasks
from minirlhf.data.chat import Message, conversation, encode
from minirlhf.data.preferences import sample_pairs
from minirlhf.data.records import Comparison
from minirlhf.data.types import PreferenceExample, Tokens, pair
from minirlhf.equations.reward_losses import bradley_terry_loss
from minirlhf.models.heads import RewardModel
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import train_tokenizer
from minirlhf.trainers.loop import TrainerCallback
from minirlhf.trainers.reward import RewardConfig, train_reward
from minirlhf_course.chapters.ch08_reward_models.assistant_rewards import quality


@dataclass(frozen=True)
class RealPlan:
    """How the pairs are used: ``folds`` parts, each held out once; the last ``tokens`` tokens of every transcript."""

    folds: int = 5
    preset: str = "nano"
    vocabulary: int = 2048
    tokens: int = 128
    training: RewardConfig = RewardConfig(max_steps=80, batch_size=32, learning_rate=1e-3, lr_scheduler_type="linear")
    epochs: int = 4


def split(pairs: Sequence[Comparison], fold: int, folds: int) -> tuple[list[Comparison], list[Comparison]]:
    """Return the pairs outside one fold, and those of the fold. Pairs with the same prompt stay together."""
    prompts = list(dict.fromkeys(repr(p.prompt) for p in pairs))
    order = numpy_generator("folds of real pairs").permutation(len(prompts))
    held = {prompts[i] for i in order[fold::folds]}
    return [p for p in pairs if repr(p.prompt) not in held], [p for p in pairs if repr(p.prompt) in held]


def toy_pairs(count: int) -> list[Comparison]:
    """Pairs of the assistant task in the form of the real ones, for probes."""

    def said(text: str) -> list[Message]:
        return [{"role": "assistant", "content": text}]

    pairs = sample_pairs(tasks.get("assistant"), count)
    return [Comparison(conversation(p.prompt), said(p.chosen), said(p.rejected)) for p in pairs]


def tokenised(tokenizer: Any, pairs: Sequence[Comparison], tokens: int) -> list[PreferenceExample]:
    """Encode the last ``tokens`` tokens of each transcript: the completion, and the end of its conversation."""

    def encode_tail(p: Comparison, completion: Any) -> Tokens:
        transcript = encode(tokenizer, [*p.prompt, *completion], first_turn=len(p.prompt))
        return Tokens(transcript.input_ids[-tokens:], transcript.loss_mask[-tokens:])

    return [pair(encode_tail(p, p.chosen), encode_tail(p, p.rejected)) for p in pairs]


def texts(pairs: Sequence[Comparison]) -> list[str]:
    """Return all texts of the conversations and of their two completions."""
    return [m["content"] for p in pairs for m in (*p.prompt, *p.chosen, *p.rejected)]


def reward_of(train: Sequence[Comparison], held: Sequence[Comparison], plan: RealPlan, seed: int) -> dict[str, float]:
    """Train a reward model from random weights, with a tokenizer trained on the same texts.

    Returns:
        Its quality on held-out pairs after the first and after the last epoch, and the CPU time in minutes.
    """
    start_time = time.process_time()
    tokenizer = train_tokenizer(texts(train), plan.vocabulary)
    pad = tokenizer.pad_token_id
    train_examples, held_examples = (tokenised(tokenizer, pairs, plan.tokens) for pairs in (train, held))
    model = RewardModel.from_causal_lm(tiny_model(plan.preset, tokenizer, seed=seed, context=plan.tokens), seed=seed)
    epoch_metrics: list[dict[str, float]] = []

    def measure() -> dict[str, float]:
        epoch_metrics.append({})
        if len(epoch_metrics) in (1, plan.epochs):
            model.eval()
            epoch_metrics[-1] |= quality(model, held_examples, pad)
            model.train()
        return {}

    callback = TrainerCallback(plan.training.max_steps // plan.epochs, measure)
    train_reward(model, train_examples, replace(plan.training, seed=seed), pad_token_id=pad, watch=callback, quiet=True)
    metrics = {f"{name}_1": value for name, value in epoch_metrics[0].items()}
    metrics |= {f"{name}_{plan.epochs}": value for name, value in epoch_metrics[plan.epochs - 1].items()}
    return metrics | {"minutes": (time.process_time() - start_time) / 60}


def longer(pairs: Sequence[Comparison]) -> float:
    """Return the accuracy of choosing the completion with more characters; a tie counts ½."""
    return float(credit(length_differences(pairs)).mean())


def length_differences(pairs: Sequence[Comparison]) -> Tensor:
    """Return the characters of the chosen completion minus the characters of the rejected one, ``(P,)``."""
    return torch.tensor([float(_size(p.chosen) - _size(p.rejected)) for p in pairs])


def credit(differences: Tensor) -> Tensor:
    """Return 1 where the chosen completion has the larger score, 0 where the smaller, ½ for a tie: ``(P,) -> (P,)``."""
    return (differences.sign() + 1) / 2


def _size(completion: Any) -> int:
    return sum(len(message["content"]) for message in completion)


def by_words(train: Sequence[Comparison], held: Sequence[Comparison]) -> float:
    """Return the accuracy of :func:`word_scores`."""
    return float(credit(word_scores(train, held)).mean())


def word_scores(train: Sequence[Comparison], held: Sequence[Comparison], *, penalty: float = 0.01) -> Tensor:
    """Return the chosen minus the rejected reward of the held pairs, ``(P,)``, by a linear reward on a completion's set
    of words, fitted to the training pairs."""
    words = {
        word: i for i, word in enumerate(dict.fromkeys(w for p in train for w in _words(p.chosen) | _words(p.rejected)))
    }

    def word_differences(pairs: Sequence[Comparison]) -> Tensor:
        features = torch.zeros(len(pairs), len(words))
        for feature_row, p in zip(features, pairs, strict=True):
            for completion, sign in ((p.chosen, 1.0), (p.rejected, -1.0)):
                for i in [words[w] for w in _words(completion) if w in words]:
                    feature_row[i] += sign
        return features

    return word_differences(held) @ linear_reward(word_differences(train), penalty)


def linear_reward(differences: Tensor, penalty: float) -> Tensor:
    """Return the weights ``(F,)`` of the linear reward with the smallest Bradley-Terry loss plus L2 penalty.

    Args:
        differences: features of the chosen completion minus features of the rejected one, ``(P, F)``.
        penalty: factor of the sum of squared weights.
    """
    weights = torch.zeros(differences.shape[1], dtype=differences.dtype, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        gaps = differences @ weights
        loss = bradley_terry_loss(gaps, torch.zeros_like(gaps)).mean() + penalty * weights.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return weights.detach()


def _words(completion: Any) -> set[str]:
    return {word for m in completion for word in m["content"].lower().split()}
