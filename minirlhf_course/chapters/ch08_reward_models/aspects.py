"""Compare a reward model conditioned on an aspect with one model per aspect and an unconditioned model."""

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

#: The two halves of the gold reward: the content of a completion, and its style.
ASPECTS: Mapping[str, Callable[[Features], float]] = {
    "substance": lambda f: 1.2 * sqrt(f.facts) - 0.5 * f.wrong,
    "manner": lambda f: 0.7 * min(f.polite, 1) - 0.6 * max(f.polite - 1, 0) + 0.6 * min(f.praise, 1) - 0.6 * max(f.praise - 1, 0)
    - 0.3 * f.filler - 0.5 * f.repeats - 0.1 * f.length,
}  # fmt: skip
#: The system message that names the aspect. The supervised model saw no system message in training.
TOLD = {"substance": "about", "manner": "please"}


@dataclass(frozen=True)
class AspectsPlan:
    """The amount of training: the pairs, each labelled once per aspect, and the steps."""

    pairs: RewardPlan = RewardPlan(pairs=800, held_out=300)
    training: RewardConfig = RewardConfig(max_steps=50, batch_size=32, learning_rate=1e-3, lr_scheduler_type="linear")


class _Aspect:
    """The assistant task, graded by one aspect."""

    def __init__(self, name: str) -> None:
        self.worth = ASPECTS[name]

    def grade(self, prompt: str, completion: str) -> float:
        return self.worth(features(prompt, completion))


def labelled(
    start: Trained, plan: AspectsPlan, seed: int
) -> dict[str, tuple[list[PreferencePair], list[PreferencePair]]]:
    """Label the same pairs of completions once per aspect; return the training pairs and the held-out pairs of each."""
    splits = pipeline.preferences(tasks.get("assistant"), start, pipeline.with_seed(plan.pairs, seed))
    annotator = SimulatedAnnotator(temperature=plan.pairs.temperature)
    pairs_by_aspect = {}
    for index, aspect in enumerate(ASPECTS):
        labelled_splits, task = [], cast(Task, _Aspect(aspect))  # only its grade method is called
        for part, pairs in enumerate(splits):
            # Sorting the two completions removes every trace of the old label.
            triples = [(p.prompt, min(p.chosen, p.rejected), max(p.chosen, p.rejected)) for p in pairs]
            labelled_splits.append(label_pairs(task, triples, labeller=annotator, seed=seed + 10 * index + 5 * part))
        pairs_by_aspect[aspect] = (labelled_splits[0], labelled_splits[1])
    return pairs_by_aspect


def told(tokenizer: object, pairs: Sequence[PreferencePair], word: str | None) -> list[PreferenceExample]:
    """Tokenise pairs with ``word`` as the system message, or without a system message if it is None."""
    system = [] if word is None else [{"role": "system", "content": word}]

    def tokenise(prompt: str, completion: str) -> Tokens:
        return encode(tokenizer, [*system, *conversation(prompt, completion)], first_turn=len(system) + 1)  # type: ignore[arg-type]

    return [pair(tokenise(p.prompt, p.chosen), tokenise(p.prompt, p.rejected)) for p in pairs]


def accuracies(start: Trained, plan: AspectsPlan, seed: int) -> dict[str, float]:
    """Return the held-out accuracies of four models on each aspect.

    Keys that end in ``_differ`` count only the pairs for which the annotators of the two aspects chose different
    completions. ``differ`` is the fraction of these pairs.
    """
    pairs = labelled(start, plan, seed)
    pad, tokenizer = start.tokenizer.pad_token_id, start.tokenizer
    config = replace(plan.training, seed=seed)

    def fit(examples: Sequence[PreferenceExample], steps: int) -> RewardModel:
        model = RewardModel.from_causal_lm(start.model, seed=seed)
        train_reward(model, examples, replace(config, max_steps=steps), pad_token_id=pad, quiet=True)
        return model

    def encoded(words: Mapping[str, str | None], part: int) -> dict[str, list[PreferenceExample]]:
        return {name: told(tokenizer, splits[part], words[name]) for name, splits in pairs.items()}

    no_words = dict.fromkeys(ASPECTS)
    conditioned = fit(_mixed(encoded(TOLD, 0)), config.max_steps)
    unconditioned = fit(_mixed(encoded(no_words, 0)), config.max_steps)
    single = {name: fit(examples, config.max_steps // 2) for name, examples in encoded(no_words, 0).items()}
    disagree = torch.tensor([a.chosen != b.chosen for a, b in zip(*(s[1] for s in pairs.values()), strict=True)])
    metrics = {"differ": float(disagree.double().mean())}
    for name in ASPECTS:
        differences: dict[str, Tensor] = {
            "conditioned": pair_differences(conditioned, encoded(TOLD, 1)[name], pad_token_id=pad),
            "untold": pair_differences(unconditioned, encoded(no_words, 1)[name], pad_token_id=pad),
            "own": pair_differences(single[name], encoded(no_words, 1)[name], pad_token_id=pad),
        }
        for kind, difference in differences.items():
            hits = (difference.sign().double() + 1) / 2
            metrics |= {f"{kind}_{name}": float(hits.mean()), f"{kind}_{name}_differ": float(hits[disagree].mean())}
    for kind in ("conditioned", "untold", "own"):
        for suffix in ("", "_differ"):
            metrics[f"{kind}{suffix}"] = sum(metrics[f"{kind}_{name}{suffix}"] for name in ASPECTS) / len(ASPECTS)
    return metrics


def _mixed(examples: Mapping[str, Sequence[PreferenceExample]]) -> list[PreferenceExample]:
    return [example for row in zip(*examples.values(), strict=True) for example in row]
