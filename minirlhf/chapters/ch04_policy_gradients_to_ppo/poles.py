"""The runs of chapter 04 on CartPole, with their settings: its notebook shows one seed of some, its study several of all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium
import torch

from minirlhf.chapters.ch04_policy_gradients_to_ppo import mistakes
from minirlhf.control import policy_optimisation as po
from minirlhf.control import trpo
from minirlhf.control.episodes import Environments, Make
from minirlhf.control.policy_optimisation import ControlConfig, ControlRun, Method

BINS = 20
#: For methods that use each rollout once: small rollouts, or whole episodes, and a larger step.
SHORT = ControlConfig(num_envs=8, num_steps=16, learning_rate=3e-3)
EPISODES = replace(SHORT, num_steps=None)


def cartpole() -> gymnasium.Env[Any, Any]:
    """A pole on a cart: 1 per step until it falls, cut off after 500 steps."""
    return gymnasium.make("CartPole-v1", disable_env_checker=True)


def small_rewards() -> gymnasium.Env[Any, Any]:
    """The same with .01 per step, so that values are of order 1."""
    return gymnasium.wrappers.TransformReward(cartpole(), lambda reward: 0.01 * float(reward))


def _with(method: Method, config: ControlConfig | None = None, make: Make = cartpole) -> Callable[..., ControlRun]:
    config = ControlConfig() if config is None else config
    return lambda seed, **changes: po.train_policy(make, method, replace(config, seed=seed, **changes))


#: name -> what is compared in the chapter, but for TRPO: the method and its numbers. The notebook prints where they differ.
COMPARED: dict[str, tuple[Method, ControlConfig]] = {
    "reinforce": (po.REINFORCE, EPISODES),
    "reinforce_with_baseline": (po.REINFORCE_WITH_BASELINE, EPISODES),
    "actor_critic": (po.ACTOR_CRITIC, SHORT),
    "a2c": (po.A2C, SHORT),
    "ppo": (po.PPO, ControlConfig()),
    "ppo_adaptive": (po.PPO_ADAPTIVE, ControlConfig()),
}
#: name -> run of a seed; changes to its :class:`ControlConfig` by name.
RUNS: dict[str, Callable[..., ControlRun]] = {
    **{name: _with(method, config) for name, (method, config) in COMPARED.items()},
    "trpo": lambda seed, **changes: trpo.train_trpo(cartpole, ControlConfig(seed=seed, **changes), max_kl=0.02)[0],
    "ppo_value_clip": _with(replace(po.PPO, cliprange_value=0.2)),
    "no_bootstrap": _with(mistakes.NO_BOOTSTRAP),
    "ends_forgotten": _with(mistakes.ENDS_FORGOTTEN),
    "maximum": _with(mistakes.MAXIMUM),
    "undetached": _with(mistakes.UNDETACHED_BASELINE),
    "small_rewards": _with(po.PPO, ControlConfig(total_steps=60_000), small_rewards),
    "small_undetached": _with(mistakes.UNDETACHED_BASELINE, ControlConfig(total_steps=60_000), small_rewards),
}


def score(run: ControlRun) -> float:
    """Mean return of 100 new episodes of the trained policy."""
    returns = Environments(cartpole, 100, seed=99).collect(run.policy, None).returns
    return sum(returns) / len(returns)


def curve(run: ControlRun) -> list[float]:
    """Mean return, as trained for, of the episodes that ended in each twentieth of the run; the last known one where none did."""
    ended: list[list[float]] = [[] for _ in range(BINS)]
    total = run.steps[-1]
    for steps, returns in zip(run.steps, run.returns, strict=True):
        ended[(steps - 1) * BINS // total] += returns
    means: list[float] = []
    for returns_ in ended:
        means.append(sum(returns_) / len(returns_) if returns_ else means[-1])
    return means


def balanced_value(run: ControlRun) -> float:
    """What the critic says of a pole that stands upright and still, in the middle."""
    with torch.no_grad():
        inputs = next(run.critic.parameters()).shape[1]
        return float(run.critic(torch.zeros(1, inputs)))
