"""Tune a base model to follow instructions on the assistant task: the lab of chapter 10."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from minirlhf.core.randomness import numpy_generator
from minirlhf.data import tasks
from minirlhf.data.chat import ASSISTANT, USER, conversation, encode_prompt
from minirlhf.data.tasks.assistant import features
from minirlhf.data.types import Tokens
from minirlhf.models.adapters import add_lora
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.texts import completion_texts
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.sft import SFTConfig, train_sft

WORLD: Any = tasks.get("assistant")
#: Number of rows of raw text, and tokens per row. A row is cut where it is full; no token marks the end of a document.
ROWS, WIDTH = 2500, 40
BASE = SFTConfig(max_steps=250, batch_size=32, learning_rate=3e-3, lr_scheduler_type="linear")
TUNE = SFTConfig(max_steps=100, batch_size=32, learning_rate=2e-3, lr_scheduler_type="linear")
ASKED = 100  # number of test prompts


def base_model(plan: SFTConfig = BASE, rows: int = ROWS) -> Trained:
    """Train a model on the task's raw text: a stream of documents without end markers."""
    initial = pipeline.fresh(WORLD, seed=plan.seed)
    rng = numpy_generator("streams", plan.seed)
    examples = []
    for _ in range(rows):
        text = " ".join(WORLD.document(rng) for _ in range(3))
        ids = list(initial.tokenizer(text, add_special_tokens=False).input_ids)[:WIDTH]
        examples.append(Tokens(ids, [True] * len(ids)))
    return _trained(initial, examples, plan)


def _trained(start: Trained, examples: Sequence[Tokens], plan: SFTConfig, lora_r: int = 0) -> Trained:
    model = copy.deepcopy(start.model)
    if lora_r:
        model = add_lora(model, lora_r=lora_r, seed=plan.seed)
    history = train_sft(model, examples, plan, pad_token_id=start.tokenizer.pad_token_id, quiet=True)
    return Trained(model, start.tokenizer, history)


def tuned(start: Trained, examples: Sequence[Tokens], plan: SFTConfig = TUNE, *, lora_r: int = 0) -> Trained:
    """Fine-tune on examples; the batch size is at most their number."""
    return _trained(start, examples, replace(plan, batch_size=min(plan.batch_size, len(examples))), lora_r)


def examples(tokenizer: Any, count: int, seed: int) -> list[Tokens]:
    """Return demonstrations in the chat template, with the loss on the completion and on its end."""
    return pipeline.demonstrations(WORLD, tokenizer, count, seed)


def without_end(example: Tokens) -> Tokens:
    """Return the example with its last token, which closes the turn, out of the loss."""
    return Tokens(example.input_ids, [*example.loss_mask[:-1], False])


def all_in_loss(example: Tokens) -> Tokens:
    """Return the example with every token in the loss, also those of the question."""
    return Tokens(example.input_ids, [True] * len(example.input_ids))


# -- evaluation ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReplyCounts:
    """Statistics of completions of the test prompts, one per prompt.

    Attributes:
        stops: fraction of completions that end by themselves within the task's maximal length.
        right: fraction that state a fact about the animals in question, and nothing false.
        gold: mean gold reward.
        replies: the texts.
    """

    stops: float
    right: float
    gold: float
    replies: list[str]


Layout = Callable[[Any, str], list[int]]


def by_template(tokenizer: Any, prompt: str) -> list[int]:
    """Format the question as in training: ``<user> … <assistant>``."""
    return encode_prompt(tokenizer, conversation(prompt))


def _spelled(tokenizer: Any, *parts: str) -> list[int]:
    return list(tokenizer(" ".join(parts), add_special_tokens=False).input_ids)


#: Prompt formats that deviate from the template.
MISTAKES: dict[str, Layout] = {
    "no_generation_prompt": lambda tokenizer, prompt: _spelled(tokenizer, USER, prompt),
    "plain": lambda tokenizer, prompt: _spelled(tokenizer, prompt),
    "swapped": lambda tokenizer, prompt: _spelled(tokenizer, ASSISTANT, prompt, USER),
}


def answers(trained: Trained, *, seed: int, layout: Layout = by_template, asked: int = ASKED) -> ReplyCounts:
    """Sample one completion for each of the first ``asked`` test prompts."""
    prompts, tokenizer = WORLD.prompts("test")[:asked], trained.tokenizer
    rollout = sample(
        trained.model,
        [layout(tokenizer, prompt) for prompt in prompts],
        sampling=Sampling(max_completion_length=WORLD.max_completion_length),
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        prompt_keys=prompts,
        seed=seed,
    )
    return judged(prompts, completion_texts(rollout, tokenizer), rollout.terminated.tolist())


def demonstrated(*, seed: int, asked: int = ASKED) -> ReplyCounts:
    """Return the same statistics for demonstrations, which always end."""
    prompts, rng = WORLD.prompts("test")[:asked], numpy_generator("demonstrators", seed)
    return judged(prompts, [WORLD.demonstration(prompt, rng) for prompt in prompts], [True] * len(prompts))


def judged(prompts: Sequence[str], replies: list[str], ended: Sequence[bool]) -> ReplyCounts:
    """Compute the statistics of completions, one per prompt."""
    completion_features = [features(prompt, completion) for prompt, completion in zip(prompts, replies, strict=True)]
    is_right = [f.facts > 0 and f.wrong == 0 for f in completion_features]
    gold_rewards = [WORLD.grade(prompt, completion) for prompt, completion in zip(prompts, replies, strict=True)]
    mean = lambda values: float(torch.tensor(values, dtype=torch.float64).mean())
    return ReplyCounts(mean(ended), mean(is_right), mean(gold_rewards), replies)


def trainable(model: torch.nn.Module) -> int:
    """Return the number of trainable weights."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)
