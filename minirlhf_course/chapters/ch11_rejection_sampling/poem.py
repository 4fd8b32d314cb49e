"""Rejection sampling and policy gradient on the poem critic's forty completions, with the same number of samples."""

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

#: A round has sixteen groups of eight completions, and twenty steps on the selected completions.
ROUNDS = RejectionConfig(
    max_steps=160, steps_per_round=20, num_prompts=16, num_generations=8, batch_size=16, learning_rate=0.1,
    max_completion_length=3,
)  # fmt: skip
#: The same number of completions in groups of the same size, two groups per update: eight updates for each round.
GRADIENT = OnlineConfig(max_steps=64, batch_size=2, num_generations=8, learning_rate=0.1)
POLICY_GRADIENT: Recipe = RLOO.with_(kl=None)


@dataclass(frozen=True)
class Standing:
    """Exact metrics of a policy: expected reward and gold reward, entropy, and KL from the reference in nats."""

    reward: float
    gold: float
    entropy: float
    kl: float


def place(world: Enumerable, law: Tensor) -> Standing:
    """Return the metrics of a distribution ``(N,)`` over the completions."""
    ref = world.reference.distribution()[0].detach()
    return Standing(
        float(exact.expectation(law, world.rewards)),
        float(exact.expectation(law, world.gold)),
        float(exact.entropy(law)),
        float(exact.divergence(law, ref)),
    )


def _watched(train: Callable[[Any, EnumerableEnv, Enumerable, TrainerCallback], object], every: int) -> list[Standing]:
    """Train a copy of the reference; return its metrics after every ``every`` steps."""
    toy = poem_critic()
    policy = copy.deepcopy(toy.reference)
    metrics: list[Standing] = []

    def record() -> dict[str, float]:
        metrics.append(place(toy, policy.distribution()[0].detach()))
        return {}

    env = EnumerableEnv(policy, toy.reference, {"reward": toy.rewards[None]})
    train(policy, env, toy, TrainerCallback(every, record))
    return metrics


def by_rejection(config: RejectionConfig) -> list[Standing]:
    """Return the metrics after each round of rejection sampling."""

    def train(policy: Any, env: EnumerableEnv, toy: Enumerable, callback: TrainerCallback) -> None:
        train_rejection_in_env(policy, env, config, watch=callback, quiet=True)

    return _watched(train, config.steps_per_round)


def by_gradient(config: OnlineConfig, every: int) -> list[Standing]:
    """Return the metrics after every ``every`` updates of REINFORCE with the leave-one-out baseline, without KL."""

    def train(policy: Any, env: EnumerableEnv, toy: Enumerable, callback: TrainerCallback) -> None:
        run_config = replace(config, max_completion_length=policy.max_len)
        train_in_env(policy, env, POLICY_GRADIENT, run_config, ref_model=toy.reference, watch=callback, quiet=True)

    return _watched(train, every)
