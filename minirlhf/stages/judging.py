"""A tiny language model that writes verdicts as a judge, trained on pairs of a toy task."""

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
from minirlhf.models.loading import resize_embeddings
from minirlhf.models.tiny import INIT_STD
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import RewardPlan, Trained
from minirlhf.trainers.reward import RewardConfig
from minirlhf.trainers.sft import SFTConfig, train_sft

#: The judge prompt, in the words of a toy task. Completions are named by position, verdicts by letters.
ASK = "{question} first: {first} second: {second} better?"
VERDICTS = ("[[A]]", "[[B]]", "[[C]]")
WORDS = ("first:", "second:", "better?", *VERDICTS)


@dataclass(frozen=True)
class WrittenJudgePlan:
    """The training data of a judge: pairs of on-policy completions, labelled with the gold reward and some noise."""

    pairs: int = 9600
    held_out: int = 1
    temperature: float = 0.25
    training: SFTConfig = SFTConfig(
        max_steps=450, batch_size=64, learning_rate=2e-3, lr_scheduler_type="linear", warmup_steps=20
    )


def add_judge_tokens(world: Sequence[str], start: Trained, seed: int) -> Trained:
    """Return a copy of the initial model with the judge's tokens added; their embeddings are sampled at random."""
    tokenizer, model = word_tokenizer((*world, *WORDS)), copy.deepcopy(start.model)
    resize_embeddings(model, tokenizer)
    with torch.no_grad():
        rows = model.get_input_embeddings().weight[-len(WORDS) :]
        rows.copy_(INIT_STD * torch.randn(rows.shape, generator=generator("judge's words", seed)))
    return Trained(model, tokenizer)


def judge_pairs(pairs: Sequence[PreferencePair]) -> list[Comparison]:
    """Convert the pairs to the records that judges read."""
    return [Comparison(conversation(p.prompt), _said(p.chosen), _said(p.rejected)) for p in pairs]


def _said(text: str) -> list[Message]:
    return [{"role": "assistant", "content": text}]


def finetune_judge(tokenizer: Any, said: Sequence[PreferencePair]) -> list[Tokens]:
    """Tokenise every pair in both orders with its verdict; the loss is computed on the verdict."""
    return [
        encode(tokenizer, example.messages, first_turn=1)
        for example in judge_training_examples(judge_pairs(said), ask=ASK)
    ]


def written_judge(task: Task, start: Trained, plan: WrittenJudgePlan, **run: Any) -> Trained:
    """Train a judge for a toy task; its config holds the judge prompt (``judge_ask``)."""
    seed = plan.training.seed
    reward_plan = RewardPlan(plan.pairs, plan.held_out, plan.temperature, training=RewardConfig(seed=seed))
    labelled_pairs, _ = pipeline.preferences(task, start, reward_plan)
    judge = add_judge_tokens(task.words, start, seed)
    judge.model.config.judge_ask = ASK
    pad = judge.tokenizer.pad_token_id
    history = train_sft(
        judge.model, finetune_judge(judge.tokenizer, labelled_pairs), plan.training, pad_token_id=pad, **run
    )
    return Trained(judge.model, judge.tokenizer, history)
