"""The CartPole runs of chapter 04: the notebook shows one seed of some runs, the study several seeds of all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium
import torch

from minirlhf.control import policy_optimisation as po
from minirlhf.control import trpo
from minirlhf.control.episodes import Environments, Make
from minirlhf.control.policy_optimisation import ControlConfig, ControlRun, Method
from minirlhf_course.chapters.ch04_policy_gradients_to_ppo import mistakes

BINS = 20
#: For methods that use each rollout once: small rollouts, or whole episodes, and a larger step.
SHORT = ControlConfig(num_envs=8, num_steps=16, learning_rate=3e-3)
EPISODES = replace(SHORT, num_steps=None)


def cartpole() -> gymnasium.Env[Any, Any]:
    """Make CartPole: reward 1 per step until the pole falls, truncated after 500 steps."""
    return gymnasium.make("CartPole-v1", disable_env_checker=True)


def small_rewards() -> gymnasium.Env[Any, Any]:
    """Make CartPole with reward .01 per step, so that values are of order 1."""
    return gymnasium.wrappers.TransformReward(cartpole(), lambda reward: 0.01 * float(reward))


def _with(method: Method, config: ControlConfig | None = None, make: Make = cartpole) -> Callable[..., ControlRun]:
    config = ControlConfig() if config is None else config
    return lambda seed, **changes: po.train_policy(make, method, replace(config, seed=seed, **changes))


#: name -> (method, settings) that the chapter compares, except TRPO. The notebook prints where they differ.
COMPARED: dict[str, tuple[Method, ControlConfig]] = {
    "reinforce": (po.REINFORCE, EPISODES),
    "reinforce_with_baseline": (po.REINFORCE_WITH_BASELINE, EPISODES),
    "actor_critic": (po.ACTOR_CRITIC, SHORT),
    "a2c": (po.A2C, SHORT),
    "ppo": (po.PPO, ControlConfig()),
    "ppo_adaptive": (po.PPO_ADAPTIVE, ControlConfig()),
}
#: name -> function that trains with a seed; keyword arguments change its :class:`ControlConfig`.
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
    """Return the mean return of 100 new episodes of the trained policy."""
    returns = Environments(cartpole, 100, seed=99).collect(run.policy, None).returns
    return sum(returns) / len(returns)


def curve(run: ControlRun) -> list[float]:
    """Mean training return of the episodes that ended in each 5 % of the run; where none ended, the previous mean."""
    bins: list[list[float]] = [[] for _ in range(BINS)]
    total = run.steps[-1]
    for steps, returns in zip(run.steps, run.returns, strict=True):
        bins[(steps - 1) * BINS // total] += returns
    means: list[float] = []
    for bin_returns in bins:
        means.append(sum(bin_returns) / len(bin_returns) if bin_returns else means[-1])
    return means


def balanced_value(run: ControlRun) -> float:
    """Return the critic's value of the state with the pole upright and still, in the middle."""
    with torch.no_grad():
        num_inputs = next(run.critic.parameters()).shape[1]
        return float(run.critic(torch.zeros(1, num_inputs)))
