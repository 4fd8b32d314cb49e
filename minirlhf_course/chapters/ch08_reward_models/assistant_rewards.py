"""Reward models of the assistant task: epochs, pooling, centring, margins, and a report card by kind of damage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from minirlhf.core.randomness import numpy_generator
from minirlhf.data import tasks
from minirlhf.data.preferences import SimulatedAnnotator, label_pairs
from minirlhf.data.tasks.assistant import FACTS, FILLER, PRAISE
from minirlhf.data.types import PreferenceExample, PreferencePair, pair
from minirlhf.equations.reward_losses import bradley_terry_loss, expected_calibration_error
from minirlhf.models.heads import RewardModel
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import RewardPlan, Trained
from minirlhf.trainers.loop import TrainerCallback
from minirlhf.trainers.reward import RewardConfig, completion_rewards, pair_differences, train_reward


@dataclass(frozen=True)
class GradersPlan:
    """The amount of training.

    One epoch takes 8 steps on the first ``few`` pairs, 50 steps on the first ``many`` pairs, and 64 steps on all pairs.
    """

    pairs: RewardPlan = RewardPlan(pairs=2048, held_out=400)
    few: int = 256
    many: int = 1600
    epochs: int = 8
    repeated: RewardConfig = RewardConfig(max_steps=64, batch_size=32, learning_rate=1e-3)
    once: RewardConfig = RewardConfig(max_steps=50, batch_size=32, learning_rate=1e-3, lr_scheduler_type="linear")
    damaged: int = 200


def labelled_pairs(start: Trained, plan: GradersPlan, seed: int) -> tuple[list[PreferencePair], list[PreferencePair]]:
    """Return pairs of the initial model's own completions, for training and held out."""
    return pipeline.preferences(tasks.get("assistant"), start, pipeline.with_seed(plan.pairs, seed))


def relabelled(pairs: Sequence[PreferencePair], seed: int) -> list[PreferencePair]:
    """Label the same pairs of completions by the gold reward, without noise."""
    # Sorting the two completions removes every trace of the old label.
    triples = [(p.prompt, min(p.chosen, p.rejected), max(p.chosen, p.rejected)) for p in pairs]
    return label_pairs(tasks.get("assistant"), triples, labeller=SimulatedAnnotator(temperature=0.0), seed=seed)


def with_margins(examples: Sequence[PreferenceExample], pairs: Sequence[PreferencePair]) -> list[PreferenceExample]:
    """Set the margin of each tokenised pair to its gap in gold reward, which the annotator saw."""
    return [pair(e.chosen, e.rejected, p.margin) for e, p in zip(examples, pairs, strict=True)]


def quality(model: nn.Module, pairs: Sequence[PreferenceExample], pad: int) -> dict[str, float]:
    """Return a reward model's accuracy, negative log-likelihood in nats and calibration error on pairs."""
    difference = pair_differences(model, pairs, pad_token_id=pad).double()
    probabilities = torch.sigmoid(torch.cat([difference, -difference]))
    outcomes = torch.cat([torch.ones_like(difference), torch.zeros_like(difference)])
    return {
        "accuracy": float(((difference.sign() + 1) / 2).mean()),
        "nll": float(bradley_terry_loss(difference, torch.zeros_like(difference)).mean()),
        "ece": float(expected_calibration_error(probabilities, outcomes)),
    }


def epochs(
    start: Trained,
    train: Sequence[PreferenceExample],
    held: Sequence[PreferenceExample],
    plan: GradersPlan,
    seed: int,
    *,
    after: Sequence[int],
    quiet: bool = True,
) -> dict[int, dict[str, float]]:
    """Train a reward model on these pairs for as many steps as the plan's epochs of the first ``few`` pairs take.

    Args:
        after: numbers of epochs after which the model is measured; an epoch is one pass over ``few`` pairs.

    Returns:
        For each number in ``after``: the model's quality on the first ``few`` pairs of ``train`` (``seen_…``) and on
        held-out pairs (``held_…``).
    """
    pad = start.tokenizer.pad_token_id
    model = RewardModel.from_causal_lm(start.model, seed=seed)
    config = replace(plan.repeated, seed=seed)
    epoch_metrics: list[dict[str, float]] = []

    def measure() -> dict[str, float]:
        epoch_metrics.append({})
        if len(epoch_metrics) in after:
            model.eval()
            parts = {"seen": list(train)[: plan.few], "held": held}
            for part, pairs in parts.items():
                epoch_metrics[-1] |= {f"{part}_{name}": value for name, value in quality(model, pairs, pad).items()}
            model.train()
        return {}

    callback = TrainerCallback(max(1, config.max_steps // plan.epochs), measure)
    train_reward(model, train, config, pad_token_id=pad, watch=callback, quiet=quiet)
    return {epoch: epoch_metrics[epoch - 1] for epoch in after}


def trained(
    start: Trained, train: Sequence[PreferenceExample], config: RewardConfig, *, pooling: str = "last"
) -> RewardModel:
    """Train a reward model that starts from the initial model's weights."""
    model = RewardModel.from_causal_lm(start.model, pooling=pooling, seed=config.seed)
    train_reward(model, train, config, pad_token_id=start.tokenizer.pad_token_id, quiet=True)
    return model


@torch.no_grad()
def offsets(model: nn.Module, pairs: Sequence[PreferenceExample], pad: int) -> Tensor:
    """Return the mean reward of each pair, ``(N,)``. Comparisons carry no information about it."""
    rewards = [
        completion_rewards(model, pairs[start : start + 64], pad).view(-1, 2) for start in range(0, len(pairs), 64)
    ]
    return torch.cat(rewards).mean(1)


#: The kinds of damage to a good completion in the report card.
DAMAGES = ("gibberish", "untrue", "incomplete", "filler", "flattery")


def damaged(kind: str, prompt: str, reply: str, seed: int) -> str:
    """Return a completion, which must state a fact, with one kind of damage."""
    rng = numpy_generator("damage", kind, seed, prompt)
    words = reply.split()
    fact_indices = [i for i, word in enumerate(words) if any(word in facts for facts in FACTS.values())]
    match kind:
        case "gibberish":
            return " ".join(rng.permutation(words).tolist())
        case "untrue":
            position = int(rng.choice(fact_indices))
            subject = next(animal for animal, facts in FACTS.items() if words[position] in facts)
            pool = [word for animal, facts in FACTS.items() if animal != subject for word in facts if word not in words]
            words[position] = str(rng.choice(pool))
        case "incomplete":
            del words[fact_indices[-1] - 1 : fact_indices[-1] + 1]
        case "filler":
            words.insert(int(rng.integers(len(words) + 1)), str(rng.choice(FILLER)))
        case "flattery":
            words[1:1] = [word for word in PRAISE if word not in words]
    return " ".join(words)


def damaged_pairs(kind: str, replies: Sequence[tuple[str, str]], seed: int) -> list[PreferencePair]:
    """Prefer each completion to its copy with one kind of damage, if the damage costs gold reward.

    The items of ``replies`` are (prompt, completion). The cost in gold reward is the margin of the pair.
    """
    task, pairs = tasks.get("assistant"), []
    for prompt, completion in replies:
        corrupted = damaged(kind, prompt, completion, seed)
        cost = task.grade(prompt, completion) - task.grade(prompt, corrupted)
        if cost > 1e-9:
            pairs.append(PreferencePair(prompt, completion, corrupted, margin=cost))
    return pairs


def report_card(
    start: Trained, model: nn.Module, replies: Sequence[tuple[str, str]], seed: int
) -> dict[str, dict[str, float]]:
    """Measure how often a model prefers original completions to damaged ones.

    Returns:
        For each kind of damage that costs gold reward in any pair: the number of such ``pairs``, their mean ``cost`` in
        gold reward, and the ``share`` of them in which the model prefers the original.
    """
    tokenizer, report = start.tokenizer, {}
    for kind in DAMAGES:
        if not (pairs := damaged_pairs(kind, replies, seed)):
            continue
        difference = pair_differences(
            model, pipeline.pair_tokens(tokenizer, pairs), pad_token_id=tokenizer.pad_token_id
        )
        report[kind] = {
            "pairs": float(len(pairs)),
            "cost": sum(p.margin or 0.0 for p in pairs) / len(pairs),
            "share": float(((difference.sign() + 1) / 2).mean()),
        }
    return report


def best_replies(plan: GradersPlan) -> list[tuple[str, str]]:
    """Return (prompt, best completion) for test prompts about two animals."""
    task = tasks.get("assistant")
    return [(p, task.reference(p)) for p in task.prompts("test") if "and" in p][: plan.damaged]


def usual_replies(pairs: Sequence[PreferencePair]) -> list[tuple[str, str]]:
    """Return (prompt, completion) for the policy's own completions that state a fact."""
    return [
        (p.prompt, completion)
        for p in pairs
        for completion in (p.chosen, p.rejected)
        if any(word in facts for word in completion.split() for facts in FACTS.values())
    ]
