"""A judge that writes a verdict, taught on pairs of the assistant world."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from minirlhf.core.randomness import generator
from minirlhf.data.chat import Message, conversation, encode
from minirlhf.data.records import Comparison
from minirlhf.data.types import PreferencePair
from minirlhf.feedback.judge import Judge, Verdicts, lessons
from minirlhf.models.loading import fit_vocabulary
from minirlhf.models.tiny import INIT_STD
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.stages.pipeline import RewardPlan, Trained
from minirlhf.trainers.loop import Watch
from minirlhf.trainers.sft import SFTConfig, train_sft

#: The question in words of the world; replies are called by their place, verdicts by letters.
ASK = "{question} first: {first} second: {second} better?"
VERDICTS = ("[[A]]", "[[B]]", "[[C]]")
WORDS = ("first:", "second:", "better?", *VERDICTS)


@dataclass(frozen=True)
class JudgePlan:
    """How much a judge is taught, and how often it is looked at."""

    pairs: RewardPlan = RewardPlan(pairs=4800, held_out=400)
    training: SFTConfig = SFTConfig(
        max_steps=450, batch_size=64, learning_rate=2e-3, lr_scheduler_type="linear", warmup_steps=20
    )
    looks: int = 3


def grown(world: tuple[str, ...], start: Trained, seed: int) -> Trained:
    """A copy of the start that knows the words of a judge as well; their embeddings are drawn."""
    tokenizer, model = word_tokenizer((*world, *WORDS)), copy.deepcopy(start.model)
    fit_vocabulary(model, tokenizer)
    with torch.no_grad():
        rows = model.get_input_embeddings().weight[-len(WORDS) :]
        rows.copy_(INIT_STD * torch.randn(rows.shape, generator=generator("judge's words", seed)))
    return Trained(model, tokenizer)


def compared(pairs: Sequence[PreferencePair]) -> list[Comparison]:
    """As records, which judges read."""
    return [Comparison(conversation(p.prompt), _said(p.chosen), _said(p.rejected)) for p in pairs]


def _said(text: str) -> list[Message]:
    return [{"role": "assistant", "content": text}]


def judged(judge: Trained, held: Sequence[Comparison]) -> Verdicts:
    """Its verdicts, the chosen reply as the first."""
    ask = Judge(judge.model, judge.tokenizer, ask=ASK, max_completion_length=2, batch_size=256)
    return ask([c.prompt for c in held], [c.chosen for c in held], [c.rejected for c in held])


def measured(found: Verdicts) -> dict[str, float]:
    """Accuracy of single verdicts and of both orders together, agreement of the orders (right or not), share for the first place."""
    single = [v == "A" for v in (*found.given, *found.exchanged)]
    return {
        "single": sum(single) / len(single),
        "accuracy": sum(found.scores) / len(found.scores),
        "consistency": found.consistency,
        "both_right": found.scores.count(1.0) / len(found.scores),
        "first_place": found.first_place,
    }


def train_judge(
    judge: Trained,
    said: Sequence[PreferencePair],
    held: Sequence[PreferencePair],
    plan: JudgePlan,
    seed: int,
    *,
    quiet: bool = True,
) -> list[dict[str, float]]:
    """Teach it, in place; what it is worth at each look."""
    config = replace(plan.training, seed=seed)
    looks: list[dict[str, float]] = []
    pairs = compared(held)

    def look() -> dict[str, float]:
        judge.model.eval()
        looks.append(measured(judged(judge, pairs)))
        judge.model.train()
        return looks[-1]

    watch = Watch(config.max_steps // plan.looks, look)
    taught = [encode(judge.tokenizer, lesson.messages, first_turn=1) for lesson in lessons(compared(said), ask=ASK)]
    train_sft(
        judge.model, taught, config, pad_token_id=judge.tokenizer.pad_token_id, name="judge", watch=watch, quiet=quiet
    )
    return looks
