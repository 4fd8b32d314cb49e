"""Reciting: a teacher who has practised with slips, and students, some smaller, that have mostly never seen one.

    <user> w7 <assistant> w22 w3 w19 …      a fixed circle of 30 words, from the word in the prompt, 24 words on

The word after the last one is right as long as no slip was made. After a slip it is wrong, and so are all that follow: one has to look further
back. The teacher has practised with slips that were put into recitations; after one of its own it is wrong less often than who never saw any,
and in most seeds still mostly wrong; two or three words later it is back. A student learns from what it is shown.
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
#: Share of the words of a disturbed recitation that are any word.
SLIPS = 0.15
TEACHER = 64  # its width
SCHOOL = SFTConfig(max_steps=300, batch_size=32, learning_rate=3e-3, lr_scheduler_type="linear")
LESSONS = DistillConfig(max_steps=200, batch_size=32, lr_scheduler_type="linear", max_completion_length=LENGTH)


class Circle:
    """The words in their order, which every seed has of its own."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.tokenizer: Any = word_tokenizer(WORDS)
        ids: Any = self.tokenizer.convert_tokens_to_ids(list(WORDS))
        self.order = [ids[i] for i in numpy_generator("ch18", "circle", seed).permutation(len(WORDS))]

    def recitations(self, name: str, count: int, slips: float = 0.0) -> list[Tokens]:
        """From random words on; a slip is any word, and is not itself learned."""
        rng = numpy_generator("ch18", "recitations", name, self.seed)
        return [self._one(rng, slips) for _ in range(count)]

    def _one(self, rng: np.random.Generator, slips: float) -> Tokens:
        asks, replies = self.tokenizer.convert_tokens_to_ids(["<user>", "<assistant>"])
        start = int(rng.integers(len(WORDS)))
        right = [self.order[(start + j) % len(WORDS)] for j in range(LENGTH + 1)]
        slipped = rng.random(LENGTH) < slips
        said = [int(rng.choice(self.order)) if slip else word for slip, word in zip(slipped, right[1:], strict=True)]
        return Tokens([asks, right[0], replies, *said], [False] * 3 + (~slipped).tolist())

    def model(self, width: int) -> Any:
        """A new one: a nano of another width."""
        config = tiny_config("nano", self.tokenizer)
        config.hidden_size, config.intermediate_size = width, width * 11 // 4
        config.head_dim = width // config.num_attention_heads
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed("ch18", "reciter", width, self.seed))
            return LlamaForCausalLM(config)


def teacher(circle: Circle, school: SFTConfig = SCHOOL) -> Any:
    """A model that has practised with slips."""
    model = circle.model(TEACHER)
    practice = circle.recitations("school", school.max_steps * school.batch_size, SLIPS)
    plan = replace(school, seed=circle.seed)
    train_sft(model, practice, plan, pad_token_id=circle.tokenizer.pad_token_id, quiet=True)
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
    """A new model that has learned from the teacher's distributions, by the forward KL, along right recitations or along disturbed ones.

    Another ``recipe`` compares otherwise, or along recitations that the student samples.
    """
    model, end = circle.model(width), circle.tokenizer
    rows = circle.recitations("lessons", lessons.max_steps * lessons.batch_size, slips)
    train_distill(
        model, of, rows, recipe, replace(lessons, seed=circle.seed), eos_token_id=end.eos_token_id,
        pad_token_id=end.pad_token_id, quiet=True,
    )  # fmt: skip
    return model.eval()


def standing(circle: Circle, model: Any, of: Any, count: int = 400) -> dict[str, float]:
    """What a model recites, sampled.

    Returns:
        ``shown``: wrong words in a recitation, expected, if each stands after right ones; ``wrong``: if the model goes on from its own;
        ``after_right``, ``after_slip``: share of wrong words after a right and after a wrong one; ``whole``: share of recitations without a
        slip; ``kl_right``, ``kl_own``: the forward KL from the teacher ``of``, nats at a word, along right recitations and the model's own.
    """
    rows, pad = circle.recitations("test", count), circle.tokenizer.pad_token_id
    batch = collate_completions(rows, pad)
    want = batch.input_ids[:, -LENGTH:]
    rollout = sample(
        model, [row.input_ids[:3] for row in rows], sampling=Sampling(max_completion_length=LENGTH),
        eos_token_id=circle.tokenizer.eos_token_id, pad_token_id=pad, seed=derive_seed("ch18", "recited", circle.seed),
    )  # fmt: skip
    said = torch.full_like(want, pad)  # who stops early is wrong from there on
    said[:, : rollout.input_ids.shape[1] - 3] = rollout.input_ids[:, 3:]
    wrong = said != want  # (B, T)
    before = torch.cat([torch.zeros_like(wrong[:, :1]), wrong[:, :-1]], 1)
    own = [
        Tokens([*row.input_ids[:3], *ids], [False] * 3 + [True] * LENGTH)
        for row, ids in zip(rows, said.tolist(), strict=True)
    ]
    along = {
        name: divergence_on_batch(model, of, some, pad_token_id=pad)["forward_kl"]
        for name, some in (("right", rows), ("own", own))
    }
    return {
        "shown": float(_missed(model, batch, want).sum(1).mean()),
        "wrong": float(wrong.double().sum(1).mean()),
        "after_right": float(wrong[~before].double().mean()),
        "after_slip": float(wrong[before].double().sum() / before.sum().clamp_min(1)),
        "whole": float((~wrong.any(1)).double().mean()),
        "kl_right": along["right"],
        "kl_own": along["own"],
    }


@torch.no_grad()
def _missed(model: Any, batch: Any, want: Tensor) -> Tensor:
    """``(B, T)``: the probability of all words but the right one, after right ones."""
    logits = completion_logits(model, batch.input_ids, batch.attention_mask, LENGTH)[:, :-1]
    return 1 - logits.softmax(-1).gather(-1, want[..., None])[..., 0]
