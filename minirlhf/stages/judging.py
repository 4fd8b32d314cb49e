"""A tiny judge that writes a verdict, taught on pairs of a world."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from minirlhf.core.randomness import generator
from minirlhf.data.chat import conversation, encode
from minirlhf.data.records import Comparison, Message
from minirlhf.data.tasks.base import Task
from minirlhf.data.types import PreferencePair, Tokens
from minirlhf.feedback.judge import judge_training_examples
from minirlhf.models.loading import fit_vocabulary
from minirlhf.models.tiny import INIT_STD
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import RewardPlan, Trained
from minirlhf.trainers.reward import RewardConfig
from minirlhf.trainers.sft import SFTConfig, train_sft

#: The question in words of a world; replies are called by their place, verdicts by letters.
ASK = "{question} first: {first} second: {second} better?"
VERDICTS = ("[[A]]", "[[B]]", "[[C]]")
WORDS = ("first:", "second:", "better?", *VERDICTS)


@dataclass(frozen=True)
class WrittenJudgePlan:
    """How much a judge is taught: pairs of the start's own replies, labelled with the gold reward and some noise."""

    pairs: int = 9600
    held_out: int = 1
    temperature: float = 0.25
    training: SFTConfig = SFTConfig(
        max_steps=450, batch_size=64, learning_rate=2e-3, lr_scheduler_type="linear", warmup_steps=20
    )


def add_judge_tokens(world: Sequence[str], start: Trained, seed: int) -> Trained:
    """A copy of the start that knows the words of a judge as well; their embeddings are drawn."""
    tokenizer, model = word_tokenizer((*world, *WORDS)), copy.deepcopy(start.model)
    fit_vocabulary(model, tokenizer)
    with torch.no_grad():
        rows = model.get_input_embeddings().weight[-len(WORDS) :]
        rows.copy_(INIT_STD * torch.randn(rows.shape, generator=generator("judge's words", seed)))
    return Trained(model, tokenizer)


def judge_pairs(pairs: Sequence[PreferencePair]) -> list[Comparison]:
    """As records, which judges read."""
    return [Comparison(conversation(p.prompt), _said(p.chosen), _said(p.rejected)) for p in pairs]


def _said(text: str) -> list[Message]:
    return [{"role": "assistant", "content": text}]


def finetune_judge(tokenizer: Any, said: Sequence[PreferencePair]) -> list[Tokens]:
    """Every pair in both orders, with its verdict, as tokens; the loss lies on the verdict."""
    return [
        encode(tokenizer, lesson.messages, first_turn=1)
        for lesson in judge_training_examples(judge_pairs(said), ask=ASK)
    ]


def written_judge(task: Task, start: Trained, plan: WrittenJudgePlan, **run: Any) -> Trained:
    """A judge of a world; its config says how it wants to be asked."""
    seed = plan.training.seed
    pairs = RewardPlan(plan.pairs, plan.held_out, plan.temperature, training=RewardConfig(seed=seed))
    said, _ = pipeline.preferences(task, start, pairs)
    judge = add_judge_tokens(task.words, start, seed)
    judge.model.config.judge_ask = ASK
    pad = judge.tokenizer.pad_token_id
    history = train_sft(judge.model, finetune_judge(judge.tokenizer, said), plan.training, pad_token_id=pad, **run)
    return Trained(judge.model, judge.tokenizer, history)
