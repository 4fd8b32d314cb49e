"""Reward models of the assistant world: epochs, pooling, centring, margins, and a report card by kinds of damage."""

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
from minirlhf.trainers.reward import RewardConfig, answer_rewards, pair_differences, train_reward


@dataclass(frozen=True)
class GradersPlan:
    """How much is trained on. An epoch of the first ``few`` pairs is 8 steps, one of the first ``many`` 50, one of all of them 64."""

    pairs: RewardPlan = RewardPlan(pairs=2048, held_out=400)
    few: int = 256
    many: int = 1600
    epochs: int = 8
    repeated: RewardConfig = RewardConfig(max_steps=64, batch_size=32, learning_rate=1e-3)
    once: RewardConfig = RewardConfig(max_steps=50, batch_size=32, learning_rate=1e-3, lr_scheduler_type="linear")
    damaged: int = 200


def labelled_pairs(start: Trained, plan: GradersPlan, seed: int) -> tuple[list[PreferencePair], list[PreferencePair]]:
    """Pairs of the start's own replies, to train on and held out."""
    return pipeline.preferences(tasks.get("assistant"), start, pipeline.with_seed(plan.pairs, seed))


def relabelled(pairs: Sequence[PreferencePair], seed: int) -> list[PreferencePair]:
    """The same pairs of replies, with labels that follow the gold reward without noise."""
    triples = [
        (p.prompt, min(p.chosen, p.rejected), max(p.chosen, p.rejected)) for p in pairs
    ]  # no order is left of the old label
    return label_pairs(tasks.get("assistant"), triples, labeller=SimulatedAnnotator(temperature=0.0), seed=seed)


def with_margins(examples: Sequence[PreferenceExample], pairs: Sequence[PreferencePair]) -> list[PreferenceExample]:
    """Tokenised pairs with the gap of the gold reward, which the annotator saw, as their margin."""
    return [pair(e.chosen, e.rejected, p.margin) for e, p in zip(examples, pairs, strict=True)]


def quality(model: nn.Module, pairs: Sequence[PreferenceExample], pad: int) -> dict[str, float]:
    """Accuracy, surprise in nats and calibration error on pairs."""
    difference = pair_differences(model, pairs, pad_token_id=pad).double()
    both = torch.sigmoid(torch.cat([difference, -difference]))
    happened = torch.cat([torch.ones_like(difference), torch.zeros_like(difference)])
    return {
        "accuracy": float(((difference.sign() + 1) / 2).mean()),
        "nll": float(bradley_terry_loss(difference, torch.zeros_like(difference)).mean()),
        "ece": float(expected_calibration_error(both, happened)),
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
    """A reward model trained on these pairs for as many steps as the plan's epochs of the few take.

    Returns:
        After so many epochs of the few: its quality on the first pairs of ``train`` (``seen_…``) and on held-out ones (``held_…``).
    """
    pad = start.tokenizer.pad_token_id
    model = RewardModel.from_causal_lm(start.model, seed=seed)
    config = replace(plan.repeated, seed=seed)
    looks: list[dict[str, float]] = []

    def measure() -> dict[str, float]:
        looks.append({})
        if len(looks) in after:
            model.eval()
            parts = {"seen": list(train)[: plan.few], "held": held}
            for part, pairs in parts.items():
                looks[-1] |= {f"{part}_{name}": value for name, value in quality(model, pairs, pad).items()}
            model.train()
        return {}

    watch = TrainerCallback(max(1, config.max_steps // plan.epochs), measure)
    train_reward(model, train, config, pad_token_id=pad, watch=watch, quiet=quiet)
    return {epoch: looks[epoch - 1] for epoch in after}


def trained(
    start: Trained, train: Sequence[PreferenceExample], config: RewardConfig, *, pooling: str = "last"
) -> RewardModel:
    """A reward model on the start's weights."""
    model = RewardModel.from_causal_lm(start.model, pooling=pooling, seed=config.seed)
    train_reward(model, train, config, pad_token_id=start.tokenizer.pad_token_id, quiet=True)
    return model


@torch.no_grad()
def offsets(model: nn.Module, pairs: Sequence[PreferenceExample], pad: int) -> Tensor:
    """``(N,)``: the mean reward of each pair, which no comparison says anything about."""
    rewards = [answer_rewards(model, pairs[at : at + 64], pad).view(-1, 2) for at in range(0, len(pairs), 64)]
    return torch.cat(rewards).mean(1)


#: What is done to a good reply, for the report card.
DAMAGES = ("gibberish", "untrue", "incomplete", "filler", "flattery")


def damaged(kind: str, prompt: str, reply: str, seed: int) -> str:
    """The reply, which says a fact, with one kind of damage."""
    rng = numpy_generator("damage", kind, seed, prompt)
    words = reply.split()
    facts = [i for i, word in enumerate(words) if any(word in said for said in FACTS.values())]
    match kind:
        case "gibberish":
            return " ".join(rng.permutation(words).tolist())
        case "untrue":
            at = int(rng.choice(facts))
            subject = next(animal for animal, said in FACTS.items() if words[at] in said)
            others = [word for animal, said in FACTS.items() if animal != subject for word in said if word not in words]
            words[at] = str(rng.choice(others))
        case "incomplete":
            del words[facts[-1] - 1 : facts[-1] + 1]
        case "filler":
            words.insert(int(rng.integers(len(words) + 1)), str(rng.choice(FILLER)))
        case "flattery":
            words[1:1] = [word for word in PRAISE if word not in words]
    return " ".join(words)


def damaged_pairs(kind: str, replies: Sequence[tuple[str, str]], seed: int) -> list[PreferencePair]:
    """Each of these (prompt, reply) above itself with one kind of damage, where that costs gold reward; the cost is the margin."""
    task, found = tasks.get("assistant"), []
    for prompt, reply in replies:
        worse = damaged(kind, prompt, reply, seed)
        cost = task.grade(prompt, reply) - task.grade(prompt, worse)
        if cost > 1e-9:
            found.append(PreferencePair(prompt, reply, worse, margin=cost))
    return found


def report_card(
    start: Trained, model: nn.Module, replies: Sequence[tuple[str, str]], seed: int
) -> dict[str, dict[str, float]]:
    """By kind of damage that harms any: how many it harms, its mean cost in gold, and the share in which the model prefers the original."""
    tokenizer, found = start.tokenizer, {}
    for kind in DAMAGES:
        if not (pairs := damaged_pairs(kind, replies, seed)):
            continue
        difference = pair_differences(
            model, pipeline.pair_tokens(tokenizer, pairs), pad_token_id=tokenizer.pad_token_id
        )
        found[kind] = {
            "pairs": float(len(pairs)),
            "cost": sum(p.margin or 0.0 for p in pairs) / len(pairs),
            "share": float(((difference.sign() + 1) / 2).mean()),
        }
    return found


def best_replies(plan: GradersPlan) -> list[tuple[str, str]]:
    """The best reply to test prompts about two animals."""
    task = tasks.get("assistant")
    return [(p, task.reference(p)) for p in task.prompts("test") if "and" in p][: plan.damaged]


def usual_replies(pairs: Sequence[PreferencePair]) -> list[tuple[str, str]]:
    """What the policy itself wrote, where it says a fact."""
    return [
        (p.prompt, reply)
        for p in pairs
        for reply in (p.chosen, p.rejected)
        if any(word in said for word in reply.split() for said in FACTS.values())
    ]
