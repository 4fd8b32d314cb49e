"""Memorised sequences with errors (*slips*): a teacher trained with slips, and students, mostly trained without.

    <user> w7 <assistant> w22 w3 w19 …      a fixed circle of 30 words, from the word in the prompt, 24 words on

The successor of the last word is the right next word while there was no slip. After a slip this successor is wrong, and
so are all that follow; a model has to look further back. The teacher was trained on sequences with injected slips.
After a slip of its own it is wrong less often than a model that never saw one, although in most seeds still in most
cases. Two or three words later it recovers. Some students are smaller than the teacher. A student learns from the
sequences that it is shown.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from minirlhf.core.randomness import derive_seed, numpy_generator
from minirlhf.data.collate import collate_completions
from minirlhf.data.types import Tokens
from minirlhf.models.forward import completion_logits
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.tiny import tiny_config
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.recipes.distill import DISTILLATIONS, Distillation
from minirlhf.trainers.distill import DistillConfig, divergence_on_batch, train_distill
from minirlhf.trainers.sft import SFTConfig, train_sft

WORDS = tuple(f"w{i}" for i in range(30))
LENGTH = 24
#: Fraction of the words of a disturbed sequence that are replaced by any word.
SLIPS = 0.15
TEACHER = 64  # hidden size of the teacher
SCHOOL = SFTConfig(max_steps=300, batch_size=32, learning_rate=3e-3, lr_scheduler_type="linear")
LESSONS = DistillConfig(max_steps=200, batch_size=32, lr_scheduler_type="linear", max_completion_length=LENGTH)


class Circle:
    """The words in a fixed order, which differs between seeds."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.tokenizer: Any = word_tokenizer(WORDS)
        ids: Any = self.tokenizer.convert_tokens_to_ids(list(WORDS))
        self.order = [ids[i] for i in numpy_generator("ch18", "circle", seed).permutation(len(WORDS))]

    def recitations(self, name: str, count: int, slips: float = 0.0) -> list[Tokens]:
        """Return sequences that start at random words; a slip is any word, and the loss excludes it."""
        rng = numpy_generator("ch18", "recitations", name, self.seed)
        return [self._one(rng, slips) for _ in range(count)]

    def _one(self, rng: np.random.Generator, slips: float) -> Tokens:
        user_id, assistant_id = self.tokenizer.convert_tokens_to_ids(["<user>", "<assistant>"])
        start = int(rng.integers(len(WORDS)))
        correct = [self.order[(start + j) % len(WORDS)] for j in range(LENGTH + 1)]
        is_slip = rng.random(LENGTH) < slips
        ids = [int(rng.choice(self.order)) if slip else word for slip, word in zip(is_slip, correct[1:], strict=True)]
        return Tokens([user_id, correct[0], assistant_id, *ids], [False] * 3 + (~is_slip).tolist())

    def model(self, width: int) -> Any:
        """Return a new model: a nano with another hidden size."""
        config = tiny_config("nano", self.tokenizer)
        config.hidden_size, config.intermediate_size = width, width * 11 // 4
        config.head_dim = width // config.num_attention_heads
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed("ch18", "reciter", width, self.seed))
            return LlamaForCausalLM(config)


def teacher(circle: Circle, school: SFTConfig = SCHOOL) -> Any:
    """Train a model on sequences with slips."""
    model = circle.model(TEACHER)
    examples = circle.recitations("school", school.max_steps * school.batch_size, SLIPS)
    config = replace(school, seed=circle.seed)
    train_sft(model, examples, config, pad_token_id=circle.tokenizer.pad_token_id, quiet=True)
    return model.eval()


def student(
    circle: Circle,
    of: Any,
    *,
    width: int,
    slips: float,
    lessons: DistillConfig,
    recipe: Distillation = DISTILLATIONS["kd"],
) -> Any:
    """Train a new model on the teacher's distributions with the forward KL, along right or disturbed sequences.

    Another ``recipe`` may use another divergence, or sequences that the student samples.
    """
    model, tok = circle.model(width), circle.tokenizer
    examples = circle.recitations("lessons", lessons.max_steps * lessons.batch_size, slips)
    train_distill(
        model, of, examples, recipe, replace(lessons, seed=circle.seed), eos_token_id=tok.eos_token_id,
        pad_token_id=tok.pad_token_id, quiet=True,
    )  # fmt: skip
    return model.eval()


def standing(circle: Circle, model: Any, of: Any, count: int = 400) -> dict[str, float]:
    """Return statistics of the sequences that a model samples.

    Returns:
        ``shown``: expected number of wrong words in a sequence if each follows right ones (teacher forcing);
        ``wrong``: the number if the model continues from its own words; ``after_right``, ``after_slip``: fraction of
        wrong words after a right and after a wrong word; ``whole``: fraction of sequences without a slip; ``kl_right``,
        ``kl_own``: forward KL from the teacher ``of``, nats per word, along right sequences and along the model's own.
    """
    rows, pad = circle.recitations("test", count), circle.tokenizer.pad_token_id
    batch = collate_completions(rows, pad)
    target = batch.input_ids[:, -LENGTH:]
    rollout = sample(
        model, [row.input_ids[:3] for row in rows], sampling=Sampling(max_completion_length=LENGTH),
        eos_token_id=circle.tokenizer.eos_token_id, pad_token_id=pad, seed=derive_seed("ch18", "recited", circle.seed),
    )  # fmt: skip
    sampled = torch.full_like(target, pad)  # a model that stops early is wrong from there on
    sampled[:, : rollout.input_ids.shape[1] - 3] = rollout.input_ids[:, 3:]
    wrong = sampled != target  # (B, T)
    after_wrong = torch.cat([torch.zeros_like(wrong[:, :1]), wrong[:, :-1]], 1)
    own_rows = [
        Tokens([*row.input_ids[:3], *ids], [False] * 3 + [True] * LENGTH)
        for row, ids in zip(rows, sampled.tolist(), strict=True)
    ]
    kls = {
        name: divergence_on_batch(model, of, examples, pad_token_id=pad)["forward_kl"]
        for name, examples in (("right", rows), ("own", own_rows))
    }
    return {
        "shown": float(_missed(model, batch, target).sum(1).mean()),
        "wrong": float(wrong.double().sum(1).mean()),
        "after_right": float(wrong[~after_wrong].double().mean()),
        "after_slip": float(wrong[after_wrong].double().sum() / after_wrong.sum().clamp_min(1)),
        "whole": float((~wrong.any(1)).double().mean()),
        "kl_right": kls["right"],
        "kl_own": kls["own"],
    }


@torch.no_grad()
def _missed(model: Any, batch: Any, target: Tensor) -> Tensor:
    """Return ``(B, T)``: the probability of all words except the right one, after right words."""
    logits = completion_logits(model, batch.input_ids, batch.attention_mask, LENGTH)[:, :-1]
    return 1 - logits.softmax(-1).gather(-1, target[..., None])[..., 0]
