"""One reward model that is told which aspect to judge, beside one for each aspect and one that is told nothing (the assistant world)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import cast

import torch
from torch import Tensor

from minirlhf.data import tasks
from minirlhf.data.chat import conversation, encode
from minirlhf.data.preferences import SimulatedAnnotator, label_pairs
from minirlhf.data.tasks.assistant import Features, features
from minirlhf.data.tasks.base import Task
from minirlhf.data.types import PreferenceExample, PreferencePair, Tokens, pair
from minirlhf.models.heads import RewardModel
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import RewardPlan, Trained
from minirlhf.trainers.reward import RewardConfig, pair_differences, train_reward

#: Two halves of the gold reward: what a reply says, and how it says it.
ASPECTS: Mapping[str, Callable[[Features], float]] = {
    "substance": lambda f: 1.2 * sqrt(f.facts) - 0.5 * f.wrong,
    "manner": lambda f: 0.7 * min(f.polite, 1) - 0.6 * max(f.polite - 1, 0) + 0.6 * min(f.praise, 1) - 0.6 * max(f.praise - 1, 0)
    - 0.3 * f.filler - 0.5 * f.repeats - 0.1 * f.length,
}  # fmt: skip
#: The word by which the model is told; the supervised model has never seen a system message.
TOLD = {"substance": "about", "manner": "please"}


@dataclass(frozen=True)
class AspectsPlan:
    """How much is trained on: so many pairs, each labelled once for each aspect."""

    pairs: RewardPlan = RewardPlan(pairs=800, held_out=300)
    training: RewardConfig = RewardConfig(max_steps=50, batch_size=32, learning_rate=1e-3, lr_scheduler_type="linear")


class _Aspect:
    """The assistant world, graded by one aspect."""

    def __init__(self, name: str) -> None:
        self.worth = ASPECTS[name]

    def grade(self, prompt: str, completion: str) -> float:
        return self.worth(features(prompt, completion))


def labelled(
    start: Trained, plan: AspectsPlan, seed: int
) -> dict[str, tuple[list[PreferencePair], list[PreferencePair]]]:
    """The same pairs of replies labelled once for each aspect: to train on and held out."""
    said = pipeline.preferences(tasks.get("assistant"), start, pipeline.with_seed(plan.pairs, seed))
    labeller = SimulatedAnnotator(temperature=plan.pairs.temperature)
    found = {}
    for number, aspect in enumerate(ASPECTS):
        parts, graded = [], cast(Task, _Aspect(aspect))  # nothing but its grade is asked for
        for part, pairs in enumerate(said):
            triples = [
                (p.prompt, min(p.chosen, p.rejected), max(p.chosen, p.rejected)) for p in pairs
            ]  # no order is left of the old label
            parts.append(label_pairs(graded, triples, labeller=labeller, seed=seed + 10 * number + 5 * part))
        found[aspect] = (parts[0], parts[1])
    return found


def told(tokenizer: object, pairs: Sequence[PreferencePair], word: str | None) -> list[PreferenceExample]:
    """Tokenised, with the word as a system message, or without any."""
    before = [] if word is None else [{"role": "system", "content": word}]

    def tokens(prompt: str, reply: str) -> Tokens:
        return encode(tokenizer, [*before, *conversation(prompt, reply)], first_turn=len(before) + 1)  # type: ignore[arg-type]

    return [pair(tokens(p.prompt, p.chosen), tokens(p.prompt, p.rejected)) for p in pairs]


def accuracies(start: Trained, plan: AspectsPlan, seed: int) -> dict[str, float]:
    """Held-out accuracy on each aspect of four models; and where the annotators of the two aspects chose different replies."""
    pairs = labelled(start, plan, seed)
    pad, tokenizer = start.tokenizer.pad_token_id, start.tokenizer
    config = replace(plan.training, seed=seed)

    def trained(examples: Sequence[PreferenceExample], steps: int) -> RewardModel:
        model = RewardModel.from_causal_lm(start.model, seed=seed)
        train_reward(model, examples, replace(config, max_steps=steps), pad_token_id=pad, quiet=True)
        return model

    def seen(words: Mapping[str, str | None], part: int) -> dict[str, list[PreferenceExample]]:
        return {name: told(tokenizer, both[part], words[name]) for name, both in pairs.items()}

    untold = dict.fromkeys(ASPECTS)
    conditioned = trained(_mixed(seen(TOLD, 0)), config.max_steps)
    mixed = trained(_mixed(seen(untold, 0)), config.max_steps)
    own = {name: trained(examples, config.max_steps // 2) for name, examples in seen(untold, 0).items()}
    differ = torch.tensor([a.chosen != b.chosen for a, b in zip(*(both[1] for both in pairs.values()), strict=True)])
    numbers = {"differ": float(differ.double().mean())}
    for name in ASPECTS:
        readings: dict[str, Tensor] = {
            "conditioned": pair_differences(conditioned, seen(TOLD, 1)[name], pad_token_id=pad),
            "untold": pair_differences(mixed, seen(untold, 1)[name], pad_token_id=pad),
            "own": pair_differences(own[name], seen(untold, 1)[name], pad_token_id=pad),
        }
        for kind, difference in readings.items():
            right = (difference.sign().double() + 1) / 2
            numbers |= {f"{kind}_{name}": float(right.mean()), f"{kind}_{name}_differ": float(right[differ].mean())}
    for kind in ("conditioned", "untold", "own"):
        for end in ("", "_differ"):
            numbers[f"{kind}{end}"] = sum(numbers[f"{kind}_{name}{end}"] for name in ASPECTS) / len(ASPECTS)
    return numbers


def _mixed(examples: Mapping[str, Sequence[PreferenceExample]]) -> list[PreferenceExample]:
    return [example for both in zip(*examples.values(), strict=True) for example in both]
