"""Rejection sampling on the poem critic's forty replies: rounds from finite samples, and a policy gradient with as many of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from minirlhf.core import exact
from minirlhf.data.toys import Enumerable, poem_critic
from minirlhf.recipes import RLOO, Recipe
from minirlhf.trainers.config import OnlineConfig, RejectionConfig
from minirlhf.trainers.loop import TrainerCallback
from minirlhf.trainers.online import train_in_env
from minirlhf.trainers.rejection import train_rejection_in_env
from minirlhf.trainers.toy import EnumerableEnv

#: Sixteen groups of eight replies in a round, and twenty steps on what was kept of them.
ROUNDS = RejectionConfig(
    max_steps=160, steps_per_round=20, num_prompts=16, num_generations=8, batch_size=16, learning_rate=0.1,
    max_completion_length=3,
)  # fmt: skip
#: The same replies in the same groups, two groups to an update: eight updates for each round.
GRADIENT = OnlineConfig(max_steps=64, batch_size=2, num_generations=8, learning_rate=0.1)
POLICY_GRADIENT: Recipe = RLOO.with_(kl=None)


@dataclass(frozen=True)
class Standing:
    """Where a policy stands, exactly: expected reward and true worth, entropy and KL from the reference in nats."""

    reward: float
    gold: float
    entropy: float
    kl: float


def place(world: Enumerable, law: Tensor) -> Standing:
    """Of a distribution ``(N,)`` over the replies."""
    ref = world.reference.distribution()[0].detach()
    return Standing(
        float(exact.expectation(law, world.rewards)),
        float(exact.expectation(law, world.gold)),
        float(exact.entropy(law)),
        float(exact.divergence(law, ref)),
    )


def _watched(train: Callable[[Any, EnumerableEnv, Enumerable, TrainerCallback], object], every: int) -> list[Standing]:
    """Where a copy of the reference stands after every so many steps of its training."""
    world = poem_critic()
    policy = copy.deepcopy(world.reference)
    places: list[Standing] = []

    def look() -> dict[str, float]:
        places.append(place(world, policy.distribution()[0].detach()))
        return {}

    played = EnumerableEnv(policy, world.reference, {"reward": world.rewards[None]})
    train(policy, played, world, TrainerCallback(every, look))
    return places


def by_rejection(config: RejectionConfig) -> list[Standing]:
    """After each round."""

    def train(policy: Any, played: EnumerableEnv, world: Enumerable, watch: TrainerCallback) -> None:
        train_rejection_in_env(policy, played, config, watch=watch, quiet=True)

    return _watched(train, config.steps_per_round)


def by_gradient(config: OnlineConfig, every: int) -> list[Standing]:
    """After every so many updates of REINFORCE with the mean of the other replies as baseline, without KL."""

    def train(policy: Any, played: EnumerableEnv, world: Enumerable, watch: TrainerCallback) -> None:
        long = replace(config, max_completion_length=policy.max_len)
        train_in_env(policy, played, POLICY_GRADIENT, long, ref_model=world.reference, watch=watch, quiet=True)

    return _watched(train, every)
