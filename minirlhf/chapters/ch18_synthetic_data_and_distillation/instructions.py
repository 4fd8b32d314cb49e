"""Self-instruct with a tiny model: it is trained on a pool of questions, writes new ones, and two filters choose which of them join the pool.

A question is *valid* if the assistant's world has it. The filters do not know that: one wants a question to be unlike the pool, the other is
a small model that was trained on other questions and wants it to be likely.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from minirlhf.chapters.ch18_synthetic_data_and_distillation.documents import as_tokens, likelihoods
from minirlhf.core.randomness import derive_seed, numpy_generator
from minirlhf.data import tasks
from minirlhf.equations.synthetic import rouge_l
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.texts import completion_texts
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.sft import SFTConfig, train_sft

WORLD: Any = tasks.get("assistant")
#: Questions at the beginning, those the judge has seen, questions that are written in a round, and tokens of one at most.
POOL, JUDGED, WRITTEN, LONGEST = 40, 100, 150, 16
TRAINING = SFTConfig(max_steps=100, batch_size=32, learning_rate=3e-3, lr_scheduler_type="linear")
LIKELY = 0.1  # the judge drops what it finds less likely than this share of real questions


@dataclass(frozen=True)
class Round:
    """What became of the questions that a model has written in a round.

    Attributes:
        valid, novel, likely: ``(WRITTEN,)``, of each.
        pool: how many valid questions the pool holds after the round, each counted once.
        junk: how many others it holds.
    """

    valid: Tensor
    novel: Tensor
    likely: Tensor
    pool: int
    junk: int


def _trained(texts: Sequence[str], plan: SFTConfig) -> Trained:
    start = pipeline.fresh(WORLD, seed=plan.seed)
    examples, pad = as_tokens(start.tokenizer, texts, LONGEST), start.tokenizer.pad_token_id
    train_sft(start.model, examples, plan, pad_token_id=pad, quiet=True)
    return start


def numbers(text: str) -> Tensor:
    """A text as numbers of words."""
    return torch.tensor([WORLD.words.index(word) if word in WORLD.words else -1 for word in text.split()])


def is_novel(text: str, pool: Sequence[Tensor], alike: float) -> bool:
    """Whether the ROUGE-L with every question of the pool is smaller."""
    own = numbers(text)
    return all(float(rouge_l(own, other)) < alike for other in pool)


def grow(
    *, alike: float, judged: bool, seed: int, rounds: int, plan: SFTConfig = TRAINING, written: int = WRITTEN
) -> list[Round]:
    """The pool, round by round; a question joins it if its ROUGE-L with every other is below ``alike`` and, if it is ``judged``, the judge finds it likely."""
    every = {*WORLD.prompts("train"), *WORLD.prompts("test")}
    mixed = numpy_generator("ch18", "questions", seed).permutation(WORLD.prompts("train")).tolist()
    pool, others = mixed[:POOL], mixed[POOL : POOL + JUDGED]
    judge = _trained(others, replace(plan, seed=seed))
    judges = lambda texts: likelihoods(judge.model, judge.tokenizer, texts, LONGEST)
    bar = judges(mixed[POOL + JUDGED :]).quantile(LIKELY)
    found = []
    for k in range(rounds):
        writer = _trained(pool, replace(plan, seed=derive_seed("ch18", "writer", seed, k) % 2**31))
        end, pad = writer.tokenizer.eos_token_id, writer.tokenizer.pad_token_id
        rollout = sample(
            writer.model, [[end]] * written, sampling=Sampling(max_completion_length=LONGEST), eos_token_id=end,
            pad_token_id=pad, seed=derive_seed("ch18", "written", seed), step=k,
        )  # fmt: skip
        texts = [text or "?" for text in completion_texts(rollout, writer.tokenizer)]
        likely, valid, novel = judges(texts) >= bar, [], []
        known = [numbers(text) for text in pool]
        for text, passes in zip(texts, likely.tolist(), strict=True):
            valid.append(text in every)
            novel.append(is_novel(text, known, alike))
            if novel[-1] and (passes or not judged):
                pool.append(text)
                known.append(numbers(text))
        good = sum(text in every for text in pool)
        found.append(Round(torch.tensor(valid), torch.tensor(novel), likely, good, len(pool) - good))
    return found
