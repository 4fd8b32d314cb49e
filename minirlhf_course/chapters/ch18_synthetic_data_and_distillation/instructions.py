"""Self-instruct with a tiny model, which is trained on a pool of questions and writes new ones for the pool.

Two filters choose which new questions join the pool. A question is *valid* if it is one of the assistant task's
questions. The filters do not know this. The first filter accepts a question that differs from the pool. The second
filter is a small model, the judge, which was trained on other questions and accepts a question that it finds probable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from minirlhf.core.randomness import derive_seed, numpy_generator
from minirlhf.data import tasks
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.texts import completion_texts
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf_course.chapters.ch18_synthetic_data_and_distillation.documents import as_tokens, likelihoods
from minirlhf_course.chapters.ch18_synthetic_data_and_distillation.equations import rouge_l

WORLD: Any = tasks.get("assistant")
#: Questions of the initial pool, training questions of the judge, questions per round, and most tokens of a question.
POOL, JUDGED, WRITTEN, LONGEST = 40, 100, 150, 16
TRAINING = SFTConfig(max_steps=100, batch_size=32, learning_rate=3e-3, lr_scheduler_type="linear")
LIKELY = 0.1  # the judge rejects a question that is less probable than this quantile of real questions


@dataclass(frozen=True)
class Round:
    """Results of the questions that a model wrote in one round.

    Attributes:
        valid, novel, likely: ``(WRITTEN,)``, a flag for each question.
        pool: number of distinct valid questions in the pool after the round.
        junk: number of invalid questions in the pool.
    """

    valid: Tensor
    novel: Tensor
    likely: Tensor
    pool: int
    junk: int


def _trained(texts: Sequence[str], plan: SFTConfig) -> Trained:
    trained = pipeline.fresh(WORLD, seed=plan.seed)
    examples, pad = as_tokens(trained.tokenizer, texts, LONGEST), trained.tokenizer.pad_token_id
    train_sft(trained.model, examples, plan, pad_token_id=pad, quiet=True)
    return trained


def numbers(text: str) -> Tensor:
    """Return a text as word indices; an unknown word is -1."""
    return torch.tensor([WORLD.words.index(word) if word in WORLD.words else -1 for word in text.split()])


def is_novel(text: str, pool: Sequence[Tensor], alike: float) -> bool:
    """Return whether the ROUGE-L with every question of the pool is below ``alike``."""
    word_ids = numbers(text)
    return all(float(rouge_l(word_ids, other)) < alike for other in pool)


def grow(
    *, alike: float, judged: bool, seed: int, rounds: int, plan: SFTConfig = TRAINING, written: int = WRITTEN
) -> list[Round]:
    """Grow the pool and return the results of every round.

    A question joins the pool if its ROUGE-L with every question there is below ``alike`` and, with ``judged``, if the
    judge finds it probable.
    """
    valid_questions = {*WORLD.prompts("train"), *WORLD.prompts("test")}
    shuffled = numpy_generator("ch18", "questions", seed).permutation(WORLD.prompts("train")).tolist()
    pool, judge_data = shuffled[:POOL], shuffled[POOL : POOL + JUDGED]
    judge = _trained(judge_data, replace(plan, seed=seed))
    score = lambda texts: likelihoods(judge.model, judge.tokenizer, texts, LONGEST)
    threshold = score(shuffled[POOL + JUDGED :]).quantile(LIKELY)
    results = []
    for k in range(rounds):
        writer = _trained(pool, replace(plan, seed=derive_seed("ch18", "writer", seed, k) % 2**31))
        end, pad = writer.tokenizer.eos_token_id, writer.tokenizer.pad_token_id
        rollout = sample(
            writer.model, [[end]] * written, sampling=Sampling(max_completion_length=LONGEST), eos_token_id=end,
            pad_token_id=pad, seed=derive_seed("ch18", "written", seed), step=k,
        )  # fmt: skip
        texts = [text or "?" for text in completion_texts(rollout, writer.tokenizer)]
        likely, valid, novel = score(texts) >= threshold, [], []
        pool_ids = [numbers(text) for text in pool]
        for text, passes in zip(texts, likely.tolist(), strict=True):
            valid.append(text in valid_questions)
            novel.append(is_novel(text, pool_ids, alike))
            if novel[-1] and (passes or not judged):
                pool.append(text)
                pool_ids.append(numbers(text))
        num_valid = sum(text in valid_questions for text in pool)
        results.append(Round(torch.tensor(valid), torch.tensor(novel), likely, num_valid, len(pool) - num_valid))
    return results
