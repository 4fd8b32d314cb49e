"""Reward models of the assistant world: epochs, pooling, centring, and a report card by subsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from minirlhf.core.randomness import numpy_generator
from minirlhf.data import tasks
from minirlhf.data.tasks.assistant import FACTS, FILLER, PRAISE
from minirlhf.data.types import Compared, PreferencePair
from minirlhf.equations.reward_losses import bradley_terry_loss, expected_calibration_error
from minirlhf.models.heads import RewardModel
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import RewardPlan, Trained
from minirlhf.trainers.history import History
from minirlhf.trainers.loop import Watch
from minirlhf.trainers.reward import RewardConfig, answer_rewards, pair_differences, train_reward


@dataclass(frozen=True)
class GradersPlan:
    """How much is trained on. An epoch of the first 384 pairs is 12 steps, one of all of them 50."""

    pairs: RewardPlan = RewardPlan(pairs=1600, held_out=400)
    few: int = 384
    epochs: int = 8
    repeated: RewardConfig = RewardConfig(max_steps=96, batch_size=32, learning_rate=1e-3)
    once: RewardConfig = RewardConfig(max_steps=50, batch_size=32, learning_rate=1e-3, lr_scheduler_type="linear")
    damaged: int = 200


def labelled_pairs(start: Trained, plan: GradersPlan, seed: int) -> tuple[list[PreferencePair], list[PreferencePair]]:
    """Pairs of the start's own replies, to train on and held out."""
    return pipeline.preferences(tasks.get("assistant"), start, pipeline.with_seed(plan.pairs, seed))


def quality(model: nn.Module, pairs: Sequence[Compared], pad: int) -> dict[str, float]:
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
    train: Sequence[Compared],
    held: Sequence[Compared],
    plan: GradersPlan,
    seed: int,
    *,
    quiet: bool = True,
) -> History:
    """A reward model that reads the same few pairs again and again, measured after each epoch on them and on held-out pairs."""
    pad = start.tokenizer.pad_token_id
    model = RewardModel.from_causal_lm(start.model, seed=seed)
    few = list(train)[: plan.few]
    config = replace(plan.repeated, seed=seed)

    def measure() -> dict[str, float]:
        model.eval()
        seen = {f"seen_{name}": value for name, value in quality(model, few[: len(held)], pad).items()}
        held_out = {f"held_{name}": value for name, value in quality(model, held, pad).items()}
        model.train()
        return seen | held_out

    watch = Watch(max(1, config.max_steps // plan.epochs), measure)
    return train_reward(model, few, config, pad_token_id=pad, watch=watch, quiet=quiet)


def trained(start: Trained, train: Sequence[Compared], config: RewardConfig, *, pooling: str = "last") -> RewardModel:
    """A reward model on the start's weights."""
    model = RewardModel.from_causal_lm(start.model, pooling=pooling, seed=config.seed)
    train_reward(model, train, config, pad_token_id=start.tokenizer.pad_token_id, quiet=True)
    return model


@torch.no_grad()
def offsets(model: nn.Module, pairs: Sequence[Compared], pad: int) -> Tensor:
    """``(N,)``: the mean reward of each pair, which no comparison says anything about."""
    rewards = [answer_rewards(model, pairs[at : at + 64], pad).view(-1, 2) for at in range(0, len(pairs), 64)]
    return torch.cat(rewards).mean(1)


#: What is done to a good reply, for the report card.
DAMAGES = ("gibberish", "untrue", "incomplete", "filler", "flattery")


def damaged(kind: str, prompt: str, reply: str, seed: int) -> str:
    """The reply with one kind of damage; each costs gold reward."""
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


def report_card(start: Trained, model: nn.Module, plan: GradersPlan, seed: int) -> dict[str, float]:
    """Share of pairs in which the best reply earns more than itself damaged, by kind of damage."""
    task, tokenizer = tasks.get("assistant"), start.tokenizer
    prompts = [p for p in task.prompts("test") if "and" in p][: plan.damaged]
    found = {}
    for kind in DAMAGES:
        pairs = []
        for prompt in prompts:
            best = task.reference(prompt)
            worse = damaged(kind, prompt, best, seed)
            if task.grade(prompt, worse) < task.grade(prompt, best):
                pairs.append(PreferencePair(prompt, best, worse))
        difference = pair_differences(
            model, pipeline.pair_tokens(tokenizer, pairs), pad_token_id=tokenizer.pad_token_id
        )
        found[kind] = float(((difference.sign() + 1) / 2).mean())
    return found
