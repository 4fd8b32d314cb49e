"""From a base model to one that answers, in the assistant world: the lab of chapter 10."""

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
#: Rows of raw text: so many, so many tokens each, cut where they are full. Nothing in them ends.
ROWS, WIDTH = 2500, 40
BASE = SFTConfig(max_steps=250, batch_size=32, learning_rate=3e-3, lr_scheduler_type="linear")
TUNE = SFTConfig(max_steps=100, batch_size=32, learning_rate=2e-3, lr_scheduler_type="linear")
ASKED = 100  # test prompts


def base_model(plan: SFTConfig = BASE, rows: int = ROWS) -> Trained:
    """A model of the world's raw text as a stream: documents one behind another, without a sign of their ends."""
    start = pipeline.fresh(WORLD, seed=plan.seed)
    rng = numpy_generator("streams", plan.seed)
    examples = []
    for _ in range(rows):
        text = " ".join(WORLD.document(rng) for _ in range(3))
        ids = list(start.tokenizer(text, add_special_tokens=False).input_ids)[:WIDTH]
        examples.append(Tokens(ids, [True] * len(ids)))
    return _trained(start, examples, plan)


def _trained(start: Trained, examples: Sequence[Tokens], plan: SFTConfig, lora_r: int = 0) -> Trained:
    model = copy.deepcopy(start.model)
    if lora_r:
        model = add_lora(model, lora_r=lora_r, seed=plan.seed)
    history = train_sft(model, examples, plan, pad_token_id=start.tokenizer.pad_token_id, quiet=True)
    return Trained(model, start.tokenizer, history)


def tuned(start: Trained, examples: Sequence[Tokens], plan: SFTConfig = TUNE, *, lora_r: int = 0) -> Trained:
    """Fine-tuned on some examples; no more of them in a batch than there are."""
    return _trained(start, examples, replace(plan, batch_size=min(plan.batch_size, len(examples))), lora_r)


def examples(tokenizer: Any, count: int, seed: int) -> list[Tokens]:
    """Demonstrations with a chat template, the loss on the reply and on its end."""
    return pipeline.demonstrations(WORLD, tokenizer, count, seed)


def without_end(example: Tokens) -> Tokens:
    """The same with the last token, which closes the turn, out of the loss."""
    return Tokens(example.input_ids, [*example.loss_mask[:-1], False])


def all_in_loss(example: Tokens) -> Tokens:
    """The same with every token in the loss, the question's too."""
    return Tokens(example.input_ids, [True] * len(example.input_ids))


# -- what a model does ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReplyCounts:
    """How a model answers the test prompts, one sampled reply each.

    Attributes:
        stops: share of replies that end by themselves within the world's longest.
        right: share that say a fact of the animals asked about, and nothing false.
        gold: mean gold reward.
        replies: the texts.
    """

    stops: float
    right: float
    gold: float
    replies: list[str]


Layout = Callable[[Any, str], list[int]]


def by_template(tokenizer: Any, prompt: str) -> list[int]:
    """The question as in training: ``<user> … <assistant>``."""
    return encode_prompt(tokenizer, conversation(prompt))


def _spelled(tokenizer: Any, *parts: str) -> list[int]:
    return list(tokenizer(" ".join(parts), add_special_tokens=False).input_ids)


#: Ways to ask that are not the template's.
MISTAKES: dict[str, Layout] = {
    "no_generation_prompt": lambda tokenizer, prompt: _spelled(tokenizer, USER, prompt),
    "plain": lambda tokenizer, prompt: _spelled(tokenizer, prompt),
    "swapped": lambda tokenizer, prompt: _spelled(tokenizer, ASSISTANT, prompt, USER),
}


def answers(trained: Trained, *, seed: int, layout: Layout = by_template, asked: int = ASKED) -> ReplyCounts:
    """Ask a model the first test prompts."""
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
    """The same of those who wrote the demonstrations. Their replies end."""
    prompts, rng = WORLD.prompts("test")[:asked], numpy_generator("demonstrators", seed)
    return judged(prompts, [WORLD.demonstration(prompt, rng) for prompt in prompts], [True] * len(prompts))


def judged(prompts: Sequence[str], replies: list[str], ended: Sequence[bool]) -> ReplyCounts:
    """What is counted of replies, one to each prompt."""
    counted = [features(prompt, reply) for prompt, reply in zip(prompts, replies, strict=True)]
    right = [f.facts > 0 and f.wrong == 0 for f in counted]
    gold = [WORLD.grade(prompt, reply) for prompt, reply in zip(prompts, replies, strict=True)]
    mean = lambda values: float(torch.tensor(values, dtype=torch.float64).mean())
    return ReplyCounts(mean(ended), mean(right), mean(gold), replies)


def trainable(model: torch.nn.Module) -> int:
    """Weights that are trained."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)
